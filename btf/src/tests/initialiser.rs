use super::support::build::{Build, SIGNED};
use crate::{Endian, SetError, TypeId, encode_initialiser, format_value, json_value};

struct Types {
    b: Build,
    sample: u32,
    outer: u32,
}

fn types() -> Types {
    let mut b = Build::new(Endian::Little);
    let char = b.int("char", 1, SIGNED);
    let int = b.int("int", 4, SIGNED);
    let byte = b.int("unsigned char", 1, 0);
    let text = b.array(char, 8);
    let mac = b.array(byte, 3);
    let level = b.enumeration("level", 4, false, &[("QUIET", 0), ("LOUD", 7)]);
    let sample = b.structure("sample", 16, &[("comm", text, 0), ("pid", int, 64), ("level", level, 96)]);
    let pair = b.array(sample, 2);
    let outer = b.structure("outer", 36, &[("pair", pair, 0), ("mac", mac, 256)]);
    Types { b, sample, outer }
}

impl Types {
    fn set(&self, id: u32, size: usize, text: &str) -> Result<Vec<u8>, SetError> {
        let mut bytes = vec![0xee; size];
        encode_initialiser(&self.b.btf(), TypeId(id), text, &mut bytes, Endian::Little).map(|()| bytes)
    }
}

#[test]
fn formatted_values_parse_back() {
    let types = types();
    let btf = types.b.btf();
    let text = r#"{ .pair = { { .comm = "a,}\"b", .pid = -3, .level = LOUD }, { .comm = "", .pid = 0, .level = 5 } }, .mac = { 0x01, 0xff, 0x00 } }"#;
    let bytes = types.set(types.outer, 36, text).unwrap();
    assert_eq!(format_value(&btf, TypeId(types.outer), &bytes, Endian::Little), text);
    let json = json_value(&btf, TypeId(types.outer), &bytes, Endian::Little);
    assert_eq!(
        json,
        r#"{"pair":[{"comm":"a,}\"b","pid":-3,"level":"LOUD"},{"comm":"","pid":0,"level":5}],"mac":[1,255,0]}"#
    );
    assert_eq!(types.set(types.outer, 36, &json).unwrap(), bytes);
}

#[test]
fn names_may_be_left_out_and_what_is_left_out_is_zero() {
    let types = types();
    let whole = types.set(types.sample, 16, r#"{ "bash", 0x10, LOUD }"#).unwrap();
    assert_eq!(whole, *b"bash\0\0\0\0\x10\0\0\0\x07\0\0\0");
    for same in ["{comm: bash, pid: 16, level: 7}", "{.level=LOUD,.pid=16,.comm=bash,}", "[\"bash\", 16, \"LOUD\"]"] {
        assert_eq!(types.set(types.sample, 16, same).as_ref(), Ok(&whole), "{same}");
    }
    assert_eq!(types.set(types.sample, 16, "{}").unwrap(), [0; 16]);
    let one = types.set(types.sample, 16, ".pid=1").unwrap();
    assert_eq!((&one[..8], &one[8..12]), (&[0xee; 8][..], &[1, 0, 0, 0][..]));
    let deep = types.set(types.outer, 36, ".pair[1].pid = 'x'").unwrap();
    assert_eq!(&deep[24..28], &[b'x', 0, 0, 0]);
}

#[test]
fn malformed_initialisers_are_explained() {
    let types = types();
    for (text, why) in [
        ("{ .pid = 1", "expected a comma or a closing bracket, found ''"),
        ("{ .pid = 1 } x", "expected the end, found 'x'"),
        ("{ .pid }", "found '.pid"),
        ("{ .nobody = 1 }", "no member 'nobody'"),
        ("{ 1, 2, 3, 4 }", "index 3 is past the end"),
        ("{ .pid = 99999999999 }", "does not fit"),
        ("{ .comm = \"too long for it\" }", "holds 7"),
        ("{ .comm = \"x", "a string with an end"),
        ("{ .level = NOISY }", "QUIET, LOUD"),
        ("{ , }", "a value"),
        ("7", "set one of its members"),
    ] {
        let error = types.set(types.sample, 16, text).unwrap_err().to_string();
        assert!(error.contains(why), "{text}: {error}");
    }
    let deep = "{".repeat(10_000);
    assert!(types.set(types.outer, 36, &deep).is_err());
}
