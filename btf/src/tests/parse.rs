use twinbpf_isa::program::{Signature, ValType};

use super::support::build::{BOOL, Build, SIGNED, both};
use crate::raw::kind;
use crate::{Btf, BtfError, Endian, Linkage, Type, TypeId};

fn one_of_each(endian: Endian) -> Build {
    let mut b = Build::new(endian);
    let int = b.int("int", 4, SIGNED); // 1
    let ptr = b.ptr(int); // 2
    b.array(int, 7); // 3
    b.structure("point", 8, &[("x", int, 0), ("y", int, 32)]); // 4
    b.composite(kind::UNION, "either", 8, &[("i", int, 0), ("p", ptr, 0)]); // 5
    b.enumeration("color", 4, true, &[("RED", 0), ("NONE", -1)]); // 6
    b.add("later", kind::FWD, 0, true, 0, &[]); // 7
    let alias = b.modifier(kind::TYPEDEF, "alias", int); // 8
    let volatile = b.modifier(kind::VOLATILE, "", alias); // 9
    let constant = b.modifier(kind::CONST, "", volatile); // 10
    b.modifier(kind::RESTRICT, "", ptr); // 11
    let proto = b.proto(int, &[("fmt", ptr), ("", 0)]); // 12
    let func = b.func("printf", proto, 2); // 13
    let var = b.var("level", constant, 1); // 14
    b.datasec(".rodata", &[(var, 0, 4), (func, 0, 0)]); // 15
    b.add("double", kind::FLOAT, 0, false, 8, &[]); // 16
    b.add("tag", kind::DECL_TAG, 0, false, var, &[u32::MAX]); // 17
    b.modifier(kind::TYPE_TAG, "user", int); // 18
    b.enum64("wide", false, &[("HUGE", u64::MAX)]); // 19
    b
}

#[test]
fn every_kind_reads_back_in_both_byte_orders() {
    both(|endian| {
        let btf = one_of_each(endian).btf();
        let get = |id| btf.type_by_id(TypeId(id)).unwrap();
        let kinds: Vec<_> = (0..=19).map(|id| get(id).kind_name()).collect();
        let want = "void integer pointer array struct union enum forward declaration typedef volatile const restrict \
                    function type function variable section float declaration tag type tag enum";
        assert_eq!(kinds.join(" "), want);
        assert!(btf.type_by_id(TypeId(20)).is_none());
        let Type::Struct(point) = get(4) else { panic!() };
        let members: Vec<_> = point.members().map(|m| (m.name, m.type_id, m.bit_offset, m.bits)).collect();
        assert_eq!(members, [("x", TypeId(1), 0, 0), ("y", TypeId(1), 32, 0)]);
        let Type::Enum(color) = get(6) else { panic!() };
        assert_eq!(color.get(1).map(|e| (e.name, e.value)), Some(("NONE", -1)));
        let Type::Enum64(wide) = get(19) else { panic!() };
        assert_eq!(wide.get(0).map(|e| (e.name, e.value)), Some(("HUGE", i128::from(u64::MAX))));
        assert!(matches!(get(7), Type::Fwd { is_union: true }));
        assert!(matches!(get(13), Type::Func { proto: TypeId(12), linkage: Linkage::Extern }));
        assert!(matches!(get(17), Type::DeclTag { target: TypeId(14), component: -1 }));
        let vars: Vec<_> = btf.datasec(".rodata").unwrap().vars().map(|v| (v.name, v.size, v.is_func)).collect();
        assert_eq!(vars, [("level", 4, false), ("printf", 0, true)]);
    });
}

#[test]
fn sizes_names_and_resolution() {
    let mut b = one_of_each(Endian::Little);
    let char = b.int("char", 1, SIGNED);
    let of_pointers = b.array(2, 3);
    let to_array = b.array(1, 3);
    let to_array = b.ptr(to_array);
    let table = b.array(char, 16);
    let table = b.array(table, 4);
    let btf = b.btf();
    let size = |id| btf.size_of(TypeId(id));
    assert_eq!([size(1), size(2), size(3), size(4), size(10), size(table)].map(Result::unwrap), [4, 8, 28, 8, 4, 64]);
    assert_eq!(btf.resolve(TypeId(10)).unwrap().0, TypeId(1));
    assert!(btf.is_char(TypeId(char)) && !btf.is_char(TypeId(1)));
    let name = |id| btf.type_name(TypeId(id));
    assert_eq!(name(4), "struct point");
    assert_eq!(name(10), "const volatile alias");
    assert_eq!(name(of_pointers), "int *[3]");
    assert_eq!(name(to_array), "int (*)[3]");
    assert_eq!(name(table), "char[4][16]");
    let text = size(7).unwrap_err().to_string();
    assert_eq!(text, "BTF type [7] (union later) has no size");
}

#[test]
fn names_are_found_by_kind() {
    let mut b = Build::new(Endian::Little);
    let int = b.int("x", 4, 0);
    b.structure("x", 4, &[("a", int, 0)]);
    b.var("x", int, 1);
    let btf = b.btf();
    assert_eq!(btf.ids_by_name("x").collect::<Vec<_>>(), [TypeId(1), TypeId(2), TypeId(3)]);
    assert_eq!(btf.find("x", |found| matches!(found, Type::Struct(_))), Some(TypeId(2)));
    assert_eq!(btf.var("x").unwrap().type_id, TypeId(1));
    assert_eq!(btf.ids_by_name("y").count(), 0);
    assert_eq!(btf.ids_by_name("").count(), 0);
}

#[test]
fn prototypes_become_signatures() {
    let mut b = Build::new(Endian::Little);
    let char = b.int("char", 1, SIGNED);
    let text = b.ptr(char);
    let bool = b.int("_Bool", 1, BOOL);
    let long = b.int("unsigned long", 8, 0);
    let wide = b.int("__int128", 16, SIGNED);
    let double = b.add("double", kind::FLOAT, 0, false, 8, &[]);
    let color = b.enumeration("color", 4, true, &[("RED", 0)]);
    let point = b.structure("point", 8, &[]);
    let proto = b.proto(0, &[("a", text), ("b", bool), ("c", color), ("d", double), ("e", char)]);
    b.func("plain", proto, 1);
    let proto = b.proto(long, &[("p", point), ("w", wide), ("", 0)]);
    b.func("odd", proto, 2);
    let btf = b.btf();
    let int = |size, signed| ValType::Int { size, signed };
    let params = vec![ValType::Pointer, int(1, false), int(4, true), ValType::Float { size: 8 }, int(1, true)];
    let plain = Signature { params, variadic: false, result: ValType::Void };
    assert_eq!(btf.func_signature("plain"), Some(plain));
    let params = vec![ValType::Unsupported, ValType::Unsupported];
    assert_eq!(btf.func_signature("odd"), Some(Signature { params, variadic: true, result: int(8, false) }));
    assert_eq!(btf.func_signature("char"), None);
}

#[test]
fn headers_are_checked() {
    let good = one_of_each(Endian::Little);
    let bytes = good.bytes();
    assert_eq!(Btf::detect_endian(&bytes), Some(Endian::Little));
    assert!(Btf::parse(&good.bytes_padded(8), Endian::Little).is_ok());
    assert_eq!(Btf::parse(&bytes, Endian::Big).unwrap_err(), BtfError::ByteOrder);
    let with = |at: usize, value: u32| {
        let mut bytes = bytes.clone();
        bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        Btf::parse(&bytes, Endian::Little).unwrap_err().to_string()
    };
    assert_eq!(with(0, 0x1_0000), "BTF magic is 0x0000, not 0xeb9f");
    assert_eq!(with(0, 0x2_eb9f), "BTF version 2 is unknown, only 1 is defined");
    assert_eq!(with(4, 20), "BTF header is corrupt: header length is 20");
    assert!(with(4, 1 << 30).starts_with("BTF is truncated: header needs 1073741824 bytes"));
    assert_eq!(with(8, 2), "BTF header is corrupt: offset of types is 2");
    assert!(with(12, 1 << 20).starts_with("BTF is truncated: type section needs 1048576 bytes"));
    assert_eq!(with(16, 0), "BTF header is corrupt: offset of strings, inside the types, is 0");
    assert!(with(20, u32::MAX).starts_with("BTF is truncated: string section needs"));
    assert_eq!(with(20, 3), "BTF string section does not start and end with a NUL byte");
    let truncated = Btf::parse(&bytes[..7], Endian::Little).unwrap_err();
    assert_eq!(truncated.to_string(), "BTF is truncated: header needs 24 bytes, there are 7");
}

#[test]
fn every_reference_of_a_type_is_checked() {
    let check = |kind: u32, vlen: usize, size: u32, extra: &[u32]| {
        let mut b = Build::new(Endian::Little);
        b.int("int", 4, SIGNED);
        b.add("", kind, vlen, false, size, extra);
        Btf::parse(&b.bytes(), Endian::Little).unwrap_err().to_string()
    };
    let dangling = "BTF type [2] refers to type [3], the last one is [2]";
    assert_eq!(check(kind::PTR, 0, 3, &[]), dangling);
    assert_eq!(check(kind::ARRAY, 0, 0, &[3, 1, 1]), dangling);
    assert_eq!(check(kind::ARRAY, 0, 0, &[1, 3, 1]), dangling);
    assert_eq!(check(kind::STRUCT, 1, 0, &[0, 3, 0]), dangling);
    assert_eq!(check(kind::FUNC_PROTO, 1, 3, &[0, 1]), dangling);
    assert_eq!(check(kind::FUNC_PROTO, 1, 1, &[0, 3]), dangling);
    assert_eq!(check(kind::FUNC, 0, 3, &[]), dangling);
    assert_eq!(check(kind::VAR, 0, 3, &[0]), dangling);
    assert_eq!(check(kind::DATASEC, 1, 0, &[3, 0, 0]), dangling);
    assert_eq!(check(kind::DECL_TAG, 0, 3, &[0]), dangling);
    assert_eq!(check(kind::VAR, 0, 1, &[9]), "BTF type [2] is corrupt: linkage is 9");
    assert_eq!(check(kind::FUNC, 3, 1, &[]), "BTF type [2] is corrupt: linkage is 3");
    assert_eq!(
        check(kind::ENUM, 1, 4, &[99, 0]),
        "BTF type [2] has a name at offset 99, the string section has 5 bytes"
    );
    assert_eq!(check(20, 0, 0, &[]), "BTF type [2] has unknown kind 20");
    assert_eq!(check(0, 0, 0, &[]), "BTF type [2] has unknown kind 0");
    assert_eq!(check(kind::STRUCT, 2, 0, &[0, 1, 0]), "BTF type [2] runs past the end of the type section");
}

#[test]
fn chains_without_end_are_errors() {
    let mut b = Build::new(Endian::Little);
    b.modifier(kind::TYPEDEF, "ouroboros", 1);
    b.array(2, 1);
    b.structure("self", 4, &[("again", 3, 0)]);
    let btf = b.btf();
    let text = "BTF type [1] leads through more than 64 types; does it contain itself?";
    assert_eq!(btf.resolve(TypeId(1)).unwrap_err().to_string(), text);
    assert!(matches!(btf.size_of(TypeId(2)), Err(BtfError::TooDeep { .. })));
    assert!(btf.type_name(TypeId(2)).contains("..."));
    assert_eq!(btf.size_of(TypeId(3)).unwrap(), 4);
    let mut b = Build::new(Endian::Little);
    let int = b.int("int", 4, 0);
    let huge = b.array(int, u32::MAX);
    assert_eq!(b.btf().size_of(TypeId(huge)), Err(BtfError::TooLarge { id: TypeId(huge) }));
}

#[test]
fn strings_that_are_not_utf8_keep_their_offsets() {
    let mut b = Build::new(Endian::Little);
    b.int("naïve", 4, 0);
    b.int("after", 4, 0);
    let at = b.strings.iter().position(|&byte| byte == 0xc3).unwrap();
    b.strings[at + 1] = 0xff;
    let btf = b.btf();
    assert_eq!((btf.name(TypeId(1)), btf.name(TypeId(2))), ("na??ve", "after"));
    assert_eq!(btf.str(u32::MAX), "");
}
