use super::support::build::{BOOL, Build, SIGNED, both};
use crate::raw::kind;
use crate::{Btf, Endian, MemberLocation, TypeId, encode_value, format_value, locate, set_value};

struct Types {
    btf: Btf,
    int: TypeId,
    byte: TypeId,
    char: TypeId,
    bool: TypeId,
    wide: TypeId,
    float: TypeId,
    double: TypeId,
    color: TypeId,
    big: TypeId,
    name: TypeId,
    conf: TypeId,
    ptr: TypeId,
    var: TypeId,
}

/// `struct conf { int level; char name[8]; struct { u8 a; u8 b; }; struct point at[2]; union { u8 u; int i; };
/// int flag : 3; unsigned mode : 5; }` and what it is made of.
fn types(endian: Endian) -> Types {
    let mut b = Build::new(endian);
    let int = b.int("int", 4, SIGNED);
    let byte = b.int("unsigned char", 1, 0);
    let char = b.int("char", 1, SIGNED);
    let bool = b.int("_Bool", 1, BOOL);
    let wide = b.int("__int128", 16, SIGNED);
    let float = b.add("float", kind::FLOAT, 0, false, 4, &[]);
    let double = b.add("double", kind::FLOAT, 0, false, 8, &[]);
    let color = b.enumeration("color", 4, true, &[("RED", 0), ("GREEN", 5), ("NONE", -1)]);
    let big = b.enum64("big", false, &[("HUGE", 1 << 40)]);
    let name = b.array(char, 8);
    let anon = b.structure("", 2, &[("a", byte, 0), ("b", byte, 8)]);
    let point = b.structure("point", 8, &[("x", int, 0), ("y", int, 32)]);
    let points = b.array(point, 2);
    let either = b.composite(kind::UNION, "", 4, &[("u", byte, 0), ("i", int, 0)]);
    let conf = [("level", int, 0, 0), ("name", name, 32, 0), ("", anon, 96, 0), ("at", points, 128, 0)];
    let tail = [("", either, 256, 0), ("flag", int, 288, 3), ("mode", byte, 291, 5)];
    let conf = b.bitfields("conf", 40, &[&conf[..], &tail[..]].concat());
    let alias = b.modifier(kind::TYPEDEF, "conf_t", conf);
    let ptr = b.ptr(int);
    let volatile = b.modifier(kind::VOLATILE, "", int);
    let var = b.var("level", volatile, 1);
    let btf = b.btf();
    let [int, byte, char, bool, wide, float, double, color, big, name, conf, ptr, var] =
        [int, byte, char, bool, wide, float, double, color, big, name, alias, ptr, var].map(TypeId);
    Types { btf, int, byte, char, bool, wide, float, double, color, big, name, conf, ptr, var }
}

/// What `format_value` makes of what `encode_value` wrote, or the error.
fn roundtrip(types: &Types, id: TypeId, text: &str) -> String {
    let endian = types.btf.endian();
    let mut bytes = [0x5a; 32];
    match encode_value(&types.btf, id, text, &mut bytes, endian) {
        Ok(()) => {
            let size = types.btf.size_of(id).unwrap() as usize;
            assert!(bytes[size..].iter().all(|&byte| byte == 0x5a), "only the value is written");
            format_value(&types.btf, id, &bytes, endian)
        }
        Err(error) => error.to_string(),
    }
}

#[test]
fn integers_in_every_notation() {
    both(|endian| {
        let t = types(endian);
        let notations =
            ["42", "-42", "+7", "0x2A", "052", "0b101", "0o17", "'*'", "'\\n'", "'\\x41'", "'\\''", " 1 ", "0", "-0"];
        let values = notations.map(|text| roundtrip(&t, t.int, text));
        assert_eq!(values, ["42", "-42", "7", "42", "42", "5", "15", "42", "10", "65", "39", "1", "0", "0"]);
        assert_eq!(roundtrip(&t, t.int, "-2147483648"), "-2147483648");
        assert_eq!(roundtrip(&t, t.var, "17"), "17");
        assert_eq!(roundtrip(&t, t.byte, "255"), "255");
        assert_eq!(roundtrip(&t, t.wide, "-0x80000000000000000000000000000000"), i128::MIN.to_string());
        assert_eq!(roundtrip(&t, t.char, "x"), "'x'");
        assert_eq!(roundtrip(&t, t.char, "7"), "7");
        assert_eq!(
            ["true", "y", "1", "false"].map(|text| roundtrip(&t, t.bool, text)),
            ["true", "true", "true", "false"]
        );
    });
}

#[test]
fn values_out_of_range_name_the_range() {
    let t = types(Endian::Little);
    let range = "does not fit int, which holds -2147483648 to 2147483647";
    for text in ["2147483648", "-2147483649", "0xffffffff", "340282366920938463463374607431768211455"] {
        assert_eq!(roundtrip(&t, t.int, text), format!("{text} {range}"));
    }
    assert_eq!(roundtrip(&t, t.byte, "256"), "256 does not fit unsigned char, which holds 0 to 255");
    assert_eq!(roundtrip(&t, t.byte, "-1"), "-1 does not fit unsigned char, which holds 0 to 255");
    assert_eq!(roundtrip(&t, t.char, "200"), "200 does not fit char, which holds -128 to 127");
    let syntax = |text| format!("'{text}' is no int: write 42, -42, 0x2a, 052, 0b101010 or '*'");
    for text in
        ["", "-", "0x", "09", "1e3", "--1", "-+1", "0x-1", "'ab'", "''", "'\\q'", "12 3", "9".repeat(40).as_str()]
    {
        assert_eq!(roundtrip(&t, t.int, text), syntax(text));
    }
    assert_eq!(roundtrip(&t, t.bool, "2"), "'2' is no _Bool: write true or false");
    let max = (1_u128 << 127) - 1;
    let text = roundtrip(&t, t.wide, &(max + 1).to_string());
    assert!(text.ends_with(&format!("which holds -{} to {max}", max + 1)), "{text}");
}

#[test]
fn enums_by_name_and_number() {
    both(|endian| {
        let t = types(endian);
        assert_eq!(
            ["GREEN", "NONE", "5", "-1", "7"].map(|text| roundtrip(&t, t.color, text)),
            ["GREEN", "NONE", "GREEN", "NONE", "7"]
        );
        assert_eq!(roundtrip(&t, t.big, "HUGE"), "HUGE");
        assert_eq!(roundtrip(&t, t.big, "0x10000000000"), "HUGE");
    });
    let t = types(Endian::Little);
    assert_eq!(roundtrip(&t, t.color, "BLUE"), "'BLUE' is not in enum color, which has RED, GREEN, NONE");
    let text = "0x100000000 does not fit enum color, which holds -2147483648 to 2147483647";
    assert_eq!(roundtrip(&t, t.color, "0x100000000"), text);
    let mut b = Build::new(Endian::Little);
    let names: Vec<_> = (0..20).map(|index| format!("E{index}")).collect();
    let values: Vec<_> = names.iter().map(|name| (&name[..], 0)).collect();
    let id = b.enumeration("many", 4, false, &values);
    let error = encode_value(&b.btf(), TypeId(id), "x", &mut [0; 4], Endian::Little).unwrap_err().to_string();
    assert!(error.ends_with("E14, E15 and 4 more"), "{error}");
}

#[test]
fn strings_and_floats() {
    both(|endian| {
        let t = types(endian);
        assert_eq!(roundtrip(&t, t.name, "bash"), "\"bash\"");
        assert_eq!(roundtrip(&t, t.name, ""), "\"\"");
        assert_eq!(roundtrip(&t, t.name, "\"q\"\t"), "\"\\\"q\\\"\\t\"");
        assert_eq!(roundtrip(&t, t.double, "-1.5e3"), "-1500.0");
        assert_eq!(roundtrip(&t, t.float, "0.25"), "0.25");
    });
    let t = types(Endian::Little);
    assert_eq!(roundtrip(&t, t.name, "1234567"), "\"1234567\"");
    assert_eq!(roundtrip(&t, t.name, "12345678"), "the string has 8 bytes, char[8] holds 7 and the NUL");
    assert_eq!(roundtrip(&t, t.name, "a\0b"), "the string contains a NUL byte, where C would end it");
    let mut bytes = [0xff; 8];
    encode_value(&t.btf, t.name, "ab", &mut bytes, Endian::Little).unwrap();
    assert_eq!(bytes, *b"ab\0\0\0\0\0\0");
    assert_eq!(roundtrip(&t, t.double, "fast"), "'fast' is no double: write 1.5, -2e10, inf or nan");
    assert!(roundtrip(&t, t.float, "1e300").starts_with("1e300 does not fit float, which holds -3.4028235e38 to"));
}

#[test]
fn unsettable_variables_name_alternatives() {
    let t = types(Endian::Little);
    let text = "int * (pointer) cannot be set: there is nothing a text could point to";
    assert_eq!(roundtrip(&t, t.ptr, "0"), text);
    let error = encode_value(&t.btf, t.conf, "1", &mut [0; 40], Endian::Little).unwrap_err().to_string();
    let members = "level, name, (anonymous), at, (anonymous), flag, mode";
    assert_eq!(error, format!("conf_t (struct) cannot be set: set one of its members: {members}"));
    let mut bytes = [0; 3];
    let error = encode_value(&t.btf, t.int, "1", &mut bytes, Endian::Little).unwrap_err().to_string();
    assert_eq!(error, "int needs 4 bytes at offset 0, the variable has 3");
    let error = set_value(&t.btf, t.conf, "at", "1", &mut [0; 40], Endian::Little).unwrap_err().to_string();
    assert_eq!(error, "struct point[2] (array) cannot be set: set its elements one by one, as in name[0]=1");
}

#[test]
fn paths_lead_to_members_and_elements() {
    let t = types(Endian::Little);
    let at = |path: &str| locate(&t.btf, t.conf, path).map(|location| location.off).map_err(|error| error.to_string());
    assert_eq!(at(""), Ok(0));
    assert_eq!([".level", "name", "name[3]", "b", "at[1].y", ".i"].map(at).map(Result::unwrap), [0, 4, 7, 13, 28, 32]);
    let location = locate(&t.btf, t.conf, "mode").unwrap();
    assert_eq!(location, MemberLocation { off: 36, type_id: t.byte, bits: Some((3, 5)) });
    let known = "it has level, name, (anonymous), at, (anonymous), flag, mode";
    assert_eq!(at("nope"), Err(format!("conf_t has no member 'nope', {known}")));
    assert_eq!(at("level.x"), Err("int (integer) has no members, so no 'x'".into()));
    assert_eq!(at("level[0]"), Err("int (integer) has no elements, so no [0]".into()));
    assert_eq!(at("at[2]"), Err("index 2 is past the end of struct point[2]".into()));
    for path in [".", "..x", "at[", "at[]", "at[x]", "at[-1]", "at[0]x", "at]", "at.", "at[4294967296]"] {
        let error = at(path).unwrap_err();
        let bad = format!("'{path}' is no path of members and indices, such as .a.b[2]");
        assert!(error == bad || error.contains("has no member"), "{path}: {error}");
    }
}

#[test]
fn members_and_bitfields_are_set_in_place() {
    both(|endian| {
        let t = types(endian);
        let mut bytes = [0; 40];
        let mut set = |path: &str, text: &str| set_value(&t.btf, t.conf, path, text, &mut bytes, endian);
        set("level", "-2").unwrap();
        set("name", "bash").unwrap();
        set("a", "1").unwrap();
        set("at[1].x", "77").unwrap();
        set("u", "'!'").unwrap();
        set("flag", "-4").unwrap();
        set("mode", "0x1f").unwrap();
        set("mode", "9").unwrap();
        let error = set("flag", "4").unwrap_err().to_string();
        assert_eq!(error, "4 does not fit int, which holds -4 to 3");
        let either = if endian == Endian::Little { 33 } else { 33 << 24 };
        let want = format!(
            "{{ .level = -2, .name = \"bash\", .a = 1, .b = 0, .at = {{ {{ .x = 0, .y = 0 }}, {{ .x = 77, .y = 0 }} }}, \
             .u = 33, .i = {either}, .flag = -4, .mode = 9 }}"
        );
        assert_eq!(format_value(&t.btf, t.conf, &bytes, endian), want);
        let text = set_value(&t.btf, t.conf, "mode", "1", &mut bytes[..36], endian).unwrap_err().to_string();
        assert_eq!(text, "unsigned char needs 1 bytes at offset 36, the variable has 36");
    });
}
