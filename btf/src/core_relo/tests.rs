//! Rules of CO-RE on types made by hand. That whole objects come out as with libbpf is shown by `tests/instructions.rs`.

use std::sync::Arc;

use twinbpf_isa::Raw;

use super::{CoreError, CoreMiss, Mismatch, Resolver, Sources, patch};
use crate::tests::support::build::{Build, SIGNED};
use crate::{Btf, CoreKind, CoreRelo, Endian, TypeId};

/// Local types with a relocation, and a target.
struct Case {
    local: Build,
    target: Build,
    root: u32,
}

impl Case {
    fn new() -> Case {
        Case { local: Build::new(Endian::Little), target: Build::new(Endian::Little), root: 0 }
    }

    /// A struct of `int`s and other things on either side: (name, type of the side, bit offset).
    fn query(&mut self, kind: CoreKind, access: &str) -> Result<Answer, CoreError> {
        let access_off = self.local.str(access);
        let local = self.local.btf();
        let target = self.target.btf();
        let relo = CoreRelo { insn_off: 0, type_id: TypeId(self.root), access_off, kind: kind as u32 };
        query(&local, &target, &relo)
    }
}

/// Old value, new value, and why not.
type Answer = (u64, Option<u64>, Option<CoreMiss>);

fn query(local: &Btf, target: &Btf, relo: &CoreRelo) -> Result<Answer, CoreError> {
    let sources = Sources { first: ("vmlinux".into(), target), rest: Box::new(Vec::new) };
    let outcome = Resolver::new(local, sources).resolve(relo)?;
    let (old, new) = outcome.change.values();
    Ok((old, new, outcome.miss))
}

fn new(answer: Result<Answer, CoreError>) -> Option<u64> {
    answer.expect("an answer").1
}

#[test]
fn a_field_is_found_by_name_through_anonymous_members_and_flavours() {
    let mut case = Case::new();
    let int = case.local.int("int", 4, SIGNED);
    case.root = case.local.structure("task___old", 8, &[("a", int, 0), ("b", int, 32)]);
    let int = case.target.int("int", 4, SIGNED);
    let inner = case.target.structure("", 8, &[("x", int, 0), ("b", int, 32)]);
    case.target.structure("task", 20, &[("pad", int, 0), ("", inner, 64), ("a", int, 128)]);
    case.target.structure("tasks", 4, &[("b", int, 0)]);
    assert_eq!(new(case.query(CoreKind::FieldByteOffset, "0:1")), Some(12));
    assert_eq!(new(case.query(CoreKind::FieldByteOffset, "0:0")), Some(16));
    assert_eq!(new(case.query(CoreKind::FieldByteOffset, "1:0")), Some(36));
    assert_eq!(new(case.query(CoreKind::FieldExists, "0:1")), Some(1));
    assert_eq!(new(case.query(CoreKind::TypeSize, "0")), Some(20));
    assert_eq!(new(case.query(CoreKind::TypeIdTarget, "0")), Some(3));
    assert_eq!(new(case.query(CoreKind::TypeIdLocal, "0")), Some(2));
    assert_eq!(new(case.query(CoreKind::FieldSigned, "0:1")), Some(1));
}

#[test]
fn a_missing_type_names_each_candidate_and_why() {
    let mut case = Case::new();
    let int = case.local.int("int", 4, 0);
    case.root = case.local.structure("s", 8, &[("a", int, 0), ("b", int, 32)]);
    let int = case.target.int("int", 4, 0);
    let other = case.target.structure("other", 4, &[("x", int, 0)]);
    case.target.structure("s", 4, &[("a", int, 0)]);
    case.target.structure("s___2", 8, &[("b", other, 0)]);
    let (old, new_value, miss) = case.query(CoreKind::FieldByteOffset, "0:1").expect("an answer");
    assert_eq!((old, new_value), (4, None));
    let miss = miss.expect("it is missing");
    assert_eq!(miss.local, "<byte_off> [2] struct s.b (0:1 @ offset 4)");
    let reasons: Vec<String> = miss.reasons().collect();
    assert_eq!(
        reasons,
        [
            "[3] struct s of vmlinux: struct s has no member 'b'",
            "[4] struct s___2 of vmlinux: its member 'b' is struct other, not int",
        ]
    );
    assert!(miss.to_string().ends_with("struct s has no member 'b' (and 1 more)"), "{miss}");
    assert_eq!(new(case.query(CoreKind::FieldExists, "0:1")), Some(0));
    case.root = case.local.structure("unknown", 4, &[]);
    let (_, value, miss) = case.query(CoreKind::TypeExists, "0").expect("an answer");
    assert_eq!(value, Some(0));
    assert!(miss.expect("it is missing").to_string().ends_with("the target has no type of this name"));
    assert_eq!(new(case.query(CoreKind::TypeSize, "0")), Some(0));
}

#[test]
fn candidates_must_agree() {
    let mut case = Case::new();
    let int = case.local.int("int", 4, 0);
    case.root = case.local.structure("s", 4, &[("a", int, 0)]);
    let int = case.target.int("int", 4, 0);
    case.target.structure("s", 4, &[("a", int, 0)]);
    case.target.structure("s___2", 8, &[("a", int, 0), ("b", int, 32)]);
    assert_eq!(new(case.query(CoreKind::FieldByteOffset, "0:0")), Some(0));
    let error = case.query(CoreKind::TypeSize, "0").expect_err("4 or 8");
    assert!(matches!(error, CoreError::ValueAmbiguous { .. }), "{error}");
    case.target.structure("s___3", 8, &[("b", int, 0), ("a", int, 32)]);
    let error = case.query(CoreKind::FieldByteOffset, "0:0").expect_err("0 or 4");
    assert!(error.to_string().ends_with("at bits 0 and 32"), "{error}");
}

#[test]
fn bitfields_are_read_from_their_container() {
    let mut case = Case::new();
    let int = case.local.int("unsigned int", 4, 0);
    case.root = case.local.bitfields("s", 8, &[("a", int, 0, 3), ("b", int, 3, 5)]);
    let int = case.target.int("unsigned int", 4, 0);
    case.target.bitfields("s", 12, &[("x", int, 0, 0), ("b", int, 60, 7)]);
    // Bits 60 to 66 need the 8 bytes at 0? They cross them; so no load covers them.
    let error = case.query(CoreKind::FieldByteOffset, "0:1").expect_err("it crosses every container");
    assert!(matches!(error, CoreError::Bitfield { .. }), "{error}");
    let mut case = Case { target: Build::new(Endian::Little), ..case };
    let int = case.target.int("unsigned int", 4, 0);
    case.target.bitfields("s", 8, &[("x", int, 0, 0), ("b", int, 37, 7)]);
    assert_eq!(new(case.query(CoreKind::FieldByteOffset, "0:1")), Some(4));
    assert_eq!(new(case.query(CoreKind::FieldByteSize, "0:1")), Some(4));
    assert_eq!(new(case.query(CoreKind::FieldLshift, "0:1")), Some(64 - 12));
    assert_eq!(new(case.query(CoreKind::FieldRshift, "0:1")), Some(64 - 7));
    assert_eq!(new(case.query(CoreKind::FieldSigned, "0:1")), Some(0));
}

#[test]
fn arrays_are_bounded_unless_they_end_a_struct() {
    let mut case = Case::new();
    let int = case.local.int("int", 4, 0);
    let array = case.local.array(int, 8);
    case.root = case.local.structure("s", 36, &[("n", int, 0), ("a", array, 32)]);
    let int = case.target.int("int", 4, 0);
    let short = case.target.array(int, 4);
    case.target.structure("s", 20, &[("n", int, 0), ("a", short, 32)]);
    assert_eq!(new(case.query(CoreKind::FieldByteOffset, "0:1:3")), Some(16));
    let (_, value, miss) = case.query(CoreKind::FieldByteOffset, "0:1:5").expect("an answer");
    let why = miss.and_then(|miss| miss.candidates.first().map(|found| found.why.clone()));
    assert_eq!((value, why), (None, Some(Mismatch::TooShort { found: "int[4]".into(), index: 5 })));
    let mut case = Case { target: Build::new(Endian::Little), ..case };
    let int = case.target.int("int", 4, 0);
    let open = case.target.array(int, 0);
    case.target.structure("s", 4, &[("n", int, 0), ("a", open, 32)]);
    assert_eq!(new(case.query(CoreKind::FieldByteOffset, "0:1:5")), Some(24));
    assert!(matches!(case.query(CoreKind::FieldByteOffset, "0:9"), Err(CoreError::Access { .. })));
    assert!(matches!(case.query(CoreKind::FieldByteOffset, "0:-1"), Err(CoreError::Access { .. })));
}

#[test]
fn constants_go_by_name_whatever_the_width() {
    let mut case = Case::new();
    case.root = case.local.enumeration("state", 4, false, &[("ON", 1), ("OFF___old", 2), ("GONE", 3)]);
    case.target.enum64("state", false, &[("OFF", 1 << 40), ("ON", 7)]);
    assert_eq!(new(case.query(CoreKind::EnumvalValue, "0")), Some(7));
    assert_eq!(new(case.query(CoreKind::EnumvalValue, "1")), Some(1 << 40));
    assert_eq!(new(case.query(CoreKind::EnumvalExists, "2")), Some(0));
    assert_eq!(new(case.query(CoreKind::EnumvalValue, "2")), None);
}

#[test]
fn whole_types_match_by_shape() {
    let mut case = Case::new();
    let int = case.local.int("int", 4, SIGNED);
    case.root = case.local.structure("s", 4, &[("a", int, 0)]);
    let long = case.target.int("long", 8, SIGNED);
    case.target.structure("s", 8, &[("a", long, 0)]);
    assert_eq!(new(case.query(CoreKind::TypeExists, "0")), Some(1));
    assert_eq!(new(case.query(CoreKind::TypeMatches, "0")), Some(0));
    let int = case.target.int("int", 4, SIGNED);
    case.target.structure("s___right", 8, &[("b", int, 0), ("a", int, 32)]);
    assert_eq!(new(case.query(CoreKind::TypeMatches, "0")), Some(1));
}

/// `*(size *)(r2 + 4)` into r1, changed for a field of another size at another place.
fn load(opcode: u8, local: (u32, u32), target: (u32, u32)) -> Result<(Raw, bool), CoreError> {
    let mut case = Case::new();
    let (pad, id) = (case.local.int("pad", 4, 0), case.local.int("x", local.0, local.1));
    case.root = case.local.structure("s", 16, &[("pad", pad, 0), ("a", id, 32)]);
    let id = case.target.int("x", target.0, target.1);
    case.target.structure("s", 16, &[("a", id, 64)]);
    let access_off = case.local.str("0:1");
    let (local, target) = (case.local.btf(), case.target.btf());
    let relo = CoreRelo { insn_off: 0, type_id: TypeId(case.root), access_off, kind: 0 };
    let sources = Sources { first: ("vmlinux".into(), &target), rest: Box::new(Vec::new) };
    let change = Resolver::new(&local, sources).resolve(&relo)?.change;
    let mut insns = [Raw { opcode, regs: 0x21, off: 4, imm: 0 }];
    let poisoned = patch(&mut insns, &change)?;
    Ok((insns[0], poisoned))
}

#[test]
fn loads_follow_the_size_of_unsigned_fields_only() {
    let (insn, poisoned) = load(0x61, (4, 0), (8, 0)).expect("patched");
    assert_eq!((insn.opcode, insn.off, poisoned), (0x79, 8, false));
    let (insn, poisoned) = load(0x61, (4, SIGNED), (4, SIGNED)).expect("patched");
    assert_eq!((insn.opcode, insn.off, poisoned), (0x61, 8, false));
    let (insn, poisoned) = load(0x61, (4, SIGNED), (8, SIGNED)).expect("patched");
    assert_eq!((insn.opcode, insn.imm, poisoned), (0x85, 0x0bad_2310, true));
    assert_eq!(load(0x69, (4, 0), (8, 0)), Err(CoreError::MemSize { have: 2, want: 4 }));
    assert_eq!(load(0x07, (4, 0), (4, 0)), Err(CoreError::Unexpected { have: 0, want: 4 }));
}

#[test]
fn modules_are_searched_where_the_kernel_has_nothing() {
    let mut local = Build::new(Endian::Little);
    let int = local.int("int", 4, 0);
    let shared = local.structure("shared", 4, &[("a", int, 0)]);
    let own = local.structure("own", 4, &[("a", int, 0)]);
    let access_off = local.str("0:0");
    let mut kernel = Build::new(Endian::Little);
    let int = kernel.int("int", 4, 0);
    kernel.structure("shared", 8, &[("b", int, 0), ("a", int, 32)]);
    let mut module = kernel.split();
    module.structure("shared", 4, &[("a", int, 0)]);
    module.structure("own", 12, &[("b", int, 0), ("c", int, 32), ("a", int, 64)]);
    let base = Arc::new(kernel.btf());
    let module = module.btf_on(&base, &kernel);
    assert_eq!((base.last_id(), module.last_id(), module.name(TypeId(1))), (2, 4, "int"));
    let (local, first) = (local.btf(), ("vmlinux".into(), &*base));
    let mut resolver = Resolver::new(&local, Sources { first, rest: Box::new(|| vec![("m".into(), &module)]) });
    let mut value = |root| {
        let relo = CoreRelo { insn_off: 0, type_id: TypeId(root), access_off, kind: 0 };
        resolver.resolve(&relo).expect("an answer").change.values().1
    };
    assert_eq!((value(shared), value(own)), (Some(4), Some(8)));
}

#[test]
fn types_without_end_are_an_error() {
    let mut case = Case::new();
    let int = case.local.int("int", 4, 0);
    case.root = case.local.structure("s", 4, &[("a", int, 0)]);
    // A struct that holds itself, without a name for the member.
    case.target.structure("s", 4, &[("", 1, 0), ("", 1, 0)]);
    assert_eq!(case.query(CoreKind::FieldExists, "0:0"), Err(CoreError::Depth));
}
