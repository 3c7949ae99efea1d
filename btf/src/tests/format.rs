use super::support::build::{Build, SIGNED};
use crate::raw::kind;
use crate::{Endian, TypeId, format_value};

fn show(b: &Build, id: u32, bytes: &[u8]) -> String {
    format_value(&b.btf(), TypeId(id), bytes, b.endian)
}

#[test]
fn arrays_strings_and_pointers() {
    let mut b = Build::new(Endian::Little);
    let byte = b.int("unsigned char", 1, 0);
    let char = b.int("char", 1, SIGNED);
    let short = b.int("short", 2, SIGNED);
    let (mac, shorts, none) = (b.array(byte, 3), b.array(short, 2), b.array(short, 0));
    let (name, rest) = (b.array(char, 4), b.array(char, 0));
    let ptr = b.ptr(0);
    let empty = b.structure("empty", 0, &[]);
    assert_eq!(show(&b, mac, &[0xde, 0xad, 7]), "{ 0xde, 0xad, 0x07 }");
    assert_eq!(show(&b, shorts, &[0xff, 0xff, 2, 0]), "{ -1, 2 }");
    assert_eq!(show(&b, none, &[]), "{}");
    assert_eq!(show(&b, empty, &[]), "{}");
    assert_eq!(show(&b, name, b"abcd"), "\"abcd\"");
    assert_eq!(show(&b, name, b"a\"\n\x01"), "\"a\\\"\\n\\x01\"");
    assert_eq!(show(&b, name, b"\xffa\0z"), "\"\\xffa\"");
    assert_eq!(show(&b, rest, b"to the end"), "\"to the end\"");
    assert_eq!(show(&b, ptr, &0x1234_u64.to_le_bytes()), "0x1234");
}

#[test]
fn missing_bytes_and_endless_types_print_a_question_mark() {
    let mut b = Build::new(Endian::Little);
    let int = b.int("int", 4, SIGNED);
    let point = b.structure("point", 8, &[("x", int, 0), ("y", int, 32)]);
    let endless = b.structure("endless", 4, &[("a", b.count + 1, 0)]);
    assert_eq!(show(&b, point, &[1, 0, 0, 0, 2]), "{ .x = 1, .y = ? }");
    assert_eq!(show(&b, 0, &[]), "?");
    assert_eq!(show(&b, 99, &[]), "?");
    assert_eq!(show(&b, endless, &[]), "?");
    let text = show(&b, endless, &[0; 4]);
    assert!(text.contains(".a = ?") && text.len() < 2000);
}

#[test]
fn output_and_work_are_bounded() {
    let mut b = Build::new(Endian::Little);
    let int = b.int("int", 4, SIGNED);
    let row = b.array(int, 1 << 20);
    let table = b.array(row, 1 << 20);
    let text = show(&b, row, &[0; 400]);
    assert!(text.ends_with("0, 0, ... }") && text.len() < 310, "{text}");
    assert_eq!(show(&b, row, &[0; 8000]).len(), 3 * 1024 + 7);
    assert!(show(&b, table, &vec![0; 1 << 22]).len() < 70_000);
    // 2^40 anonymous structs that print nothing.
    let mut nest = b.structure("", 0, &[]);
    for _ in 0..40 {
        nest = b.structure("", 0, &[("", nest, 0), ("", nest, 0)]);
    }
    assert!(show(&b, nest, &[]).ends_with("..."));
    let values: Vec<_> = (0..60_000).map(|value| ("e", value)).collect();
    let many = b.enumeration("many", 4, false, &values);
    let many = b.array(many, 1000);
    let many = b.array(many, 1000);
    let text = show(&b, many, &[0xff; 1 << 16]);
    assert!(text.ends_with("..."));
}

#[test]
fn tags_and_qualifiers_do_not_show() {
    let mut b = Build::new(Endian::Big);
    let int = b.int("int", 4, SIGNED);
    let tag = b.modifier(kind::TYPE_TAG, "user", int);
    let constant = b.modifier(kind::CONST, "", tag);
    let var = b.var("v", constant, 1);
    assert_eq!(show(&b, var, &[0, 0, 1, 0]), "256");
}
