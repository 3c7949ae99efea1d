//! C of types that kernels do not have, or have rarely. What compilers make of it is the business of
//! `tests/c_header.rs`.

use super::support::build::{Build, SIGNED};
use crate::raw::kind;
use crate::{BtfError, Endian, TypeId};

/// What is between the pragmas.
fn body(build: &Build) -> String {
    let text = build.btf().to_c(None).unwrap();
    let start = text.find("#endif\n\n").map_or(0, |at| at + 8);
    let end = text.rfind("#ifndef BPF_NO_PRESERVE").expect("there is a record");
    text[start..end].trim_end().to_owned()
}

fn build() -> (Build, u32, u32) {
    let mut build = Build::new(Endian::Little);
    let int = build.int("int", 4, SIGNED);
    let long = build.int("long unsigned int", 8, 0);
    (build, int, long)
}

#[test]
fn members_come_to_lie_where_they_are() {
    let (mut build, int, long) = build();
    build.structure("gap", 64, &[("a", int, 0), ("b", int, 96), ("c", long, 128)]);
    build.structure("packed", 13, &[("a", int, 0), ("b", long, 40)]);
    build.structure("natural", 16, &[("a", int, 0), ("b", long, 64)]);
    build.bitfields("bits", 8, &[("a", int, 0, 3), ("b", int, 32, 5), ("c", int, 37, 27)]);
    build.composite(kind::UNION, "wide", 16, &[("a", int, 0)]);
    build.structure("over", 8, &[("a", long, 0), ("b", int, 32)]);
    let expected = "struct gap {\n\tint a;\n\tlong: 32;\n\tlong: 32;\n\tint b;\n\tlong unsigned int c;\n\
        \tlong: 64;\n\tlong: 64;\n\tlong: 64;\n\tlong: 64;\n\tlong: 64;\n};\n\n\
        struct packed {\n\tint a;\n\tlong: 8;\n\tlong unsigned int b;\n} __attribute__((packed));\n\n\
        struct natural {\n\tint a;\n\tlong unsigned int b;\n};\n\n\
        struct bits {\n\tint a: 3;\n\tlong: 29;\n\tlong: 32;\n\tint b: 5;\n\tint c: 27;\n};\n\n\
        union wide {\n\tint a;\n\tstruct {\n\t\tlong: 64;\n\t\tlong: 64;\n\t};\n};\n\n\
        struct over {\n\tchar __opaque[8];\n};";
    assert_eq!(body(&build), expected.replace("long: 29;\n\tlong: 32;\n", "long: 29;\n"));
}

#[test]
fn required_types_are_declared_first() {
    let (mut build, int, _) = build();
    // Types 3 to 9, each with references to later ones.
    build.structure("outer", 24, &[("inner", 4, 0), ("next", 5, 64), ("call", 6, 128)]);
    build.structure("inner", 8, &[("self", 9, 0)]);
    build.ptr(3);
    build.ptr(7);
    build.proto(0, &[("later", 8), ("n", int)]);
    build.modifier(kind::TYPEDEF, "later_t", 5);
    build.ptr(4);
    let expected = "struct inner {\n\tstruct inner *self;\n};\n\nstruct outer;\n\n\
        typedef struct outer *later_t;\n\n\
        struct outer {\n\tstruct inner inner;\n\tstruct outer *next;\n\tvoid (*call)(later_t, int);\n};";
    assert_eq!(body(&build).replace("later_t later, int n", "later_t, int"), expected);
}

#[test]
fn declarators_turn_inside_out() {
    let (mut build, int, _) = build();
    let constant = build.modifier(kind::CONST, "", int);
    let to_constant = build.ptr(constant);
    let volatile = build.modifier(kind::VOLATILE, "", to_constant);
    let row = build.array(volatile, 3);
    let to_row = build.ptr(row);
    let call = build.proto(to_row, &[("", int), ("", 0)]);
    let to_call = build.ptr(call);
    let calls = build.array(to_call, 2);
    build.structure("s", 24, &[("m", calls, 0), ("n", to_row, 128)]);
    let expected = "struct s {\n\tconst int *volatile (*(*m[2])(int, ...))[3];\n\tconst int *volatile (*n)[3];\n};";
    assert_eq!(body(&build), expected);
}

#[test]
fn enums_have_their_size() {
    let (mut build, int, _) = build();
    build.enumeration("tiny", 1, false, &[("A", 0), ("B", 255)]);
    build.enumeration("four", 4, true, &[("C", -1)]);
    build.enumeration("", 4, false, &[("A", 7)]);
    build.enum64("wide", false, &[("D", u64::MAX)]);
    build.enum64("least", true, &[("E", 1 << 63)]);
    build.structure("s", 4, &[("a", int, 0)]);
    let text = body(&build);
    for part in [
        "enum tiny {\n\tA = 0,\n\tB = 255,\n} __attribute__((mode(QI)));",
        "enum four {\n\tC = -1,\n};",
        "enum {\n\tA___2 = 7,\n};",
        "enum wide {\n\tD = 18446744073709551615ULL,\n};",
        "enum least {\n\tE = (-9223372036854775807LL - 1),\n};",
    ] {
        assert!(text.contains(part), "{part}\nin\n{text}");
    }
}

#[test]
fn forward_declarations_mean_the_one_type_of_their_name() {
    let (mut build, int, _) = build();
    let one = build.add("one", kind::FWD, 0, false, 0, &[]);
    let many = build.add("many", kind::FWD, 0, false, 0, &[]);
    let (to_one, to_many) = (build.ptr(one), build.ptr(many));
    build.structure("user", 16, &[("one", to_one, 0), ("many", to_many, 64)]);
    build.structure("one", 4, &[("a", int, 0)]);
    build.structure("many", 4, &[("a", int, 0)]);
    build.structure("many", 4, &[("b", int, 0)]);
    let text = body(&build);
    assert!(text.contains("\tstruct one *one;") && text.contains("struct one {"), "{text}");
    assert!(text.contains("\tstruct many *many;"), "{text}");
    assert!(text.contains("struct many___2 {") && text.contains("struct many___3 {"), "{text}");
}

#[test]
fn invalid_names_cannot_leave_their_folder() {
    let (mut build, int, _) = build();
    let odd = build.int("usize; int x", 8, 0);
    build.structure("a {}; int b", 12, &[("int", int, 0), ("*/ c\n", odd, 32)]);
    let expected = "typedef unsigned long long usize__int_x;\n\n\
        struct a_____int_b {\n\tint int_;\n\tusize__int_x ___c_;\n} __attribute__((packed));";
    assert_eq!(body(&build), expected);
}

#[test]
fn roots_bring_what_they_need_and_no_more() {
    let (mut build, int, _) = build();
    let inner = build.structure("inner", 4, &[("a", int, 0)]);
    let outer = build.structure("outer", 4, &[("inner", inner, 0)]);
    build.structure("other", 4, &[("a", int, 0)]);
    let text = build.btf().to_c(Some(&[TypeId(outer)])).unwrap();
    assert!(text.contains("struct inner {") && text.contains("struct outer {") && !text.contains("other"), "{text}");
}

#[test]
fn types_that_contain_themselves_are_errors() {
    let (mut endless, ..) = build();
    endless.structure("a", 8, &[("b", 4, 0)]);
    endless.structure("b", 8, &[("a", 3, 0)]);
    assert!(matches!(endless.btf().to_c(None), Err(BtfError::Endless { id: TypeId(3), .. })));
    let (mut unsized_, ..) = build();
    let forward = unsized_.add("x", kind::FWD, 0, false, 0, &[]);
    unsized_.structure("a", 8, &[("x", forward, 0)]);
    assert!(matches!(unsized_.btf().to_c(None), Err(BtfError::Unsized { .. })));
    let (mut chain, ..) = build();
    chain.ptr(3);
    chain.modifier(kind::TYPEDEF, "t", 3);
    assert!(matches!(chain.btf().to_c(None), Err(BtfError::TooDeep { .. })));
}

#[test]
fn anonymous_types_that_double_end_somewhere() {
    let (mut build, int, _) = build();
    let mut inside = int;
    for _ in 0..30 {
        inside = build.composite(kind::UNION, "", 4, &[("a", inside, 0), ("b", inside, 0)]);
    }
    build.structure("whole", 4, &[("a", inside, 0)]);
    assert!(matches!(build.btf().to_c(None), Err(BtfError::TooLong { .. } | BtfError::TooDeep { .. })));
}
