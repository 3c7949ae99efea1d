use crate::helper::by_name;
use crate::host::OutputFormat;
use crate::host::fake::Fake;
use crate::map::{Field, FieldKind, MapKind, MapSpec};
use crate::trap::{Trap, TrapCode};

fn call(fake: &mut Fake, name: &str, args: &[u64]) -> Result<u64, Trap> {
    fake.run(&by_name(name).unwrap(), args)
}

fn field(name: &str, off: u32, size: u32, kind: FieldKind) -> Field {
    Field { name: name.into(), off, size, kind }
}

/// Counters by a name of 4 bytes and a number of 4, values for two CPUs.
fn by_name_and_slot() -> MapSpec {
    let key_fields = vec![field("name", 0, 4, FieldKind::String), field("slot", 4, 4, FieldKind::Unsigned)];
    let spec = MapSpec::new("h", MapKind::PercpuHash, 8, 8, 100);
    MapSpec { key_fields, ..spec }
}

fn count(fake: &Fake, key: &[u8], counts: [u64; 2]) {
    let map = fake.maps.get(fake.maps.handle(0)).unwrap();
    for (cpu, count) in counts.into_iter().enumerate() {
        map.update(key, &count.to_le_bytes(), 0, cpu as u32).unwrap();
    }
}

fn named(name: &[u8; 4], slot: u32) -> Vec<u8> {
    [&name[..], &slot.to_le_bytes()].concat()
}

#[test]
fn counters_of_all_cpus_are_one() {
    let mut fake = Fake::with_maps(&[by_name_and_slot()]);
    let map = fake.maps.handle(0);
    count(&fake, &named(b"b\0\0\0", 3), [1, 4]);
    count(&fake, &named(b"b\0\0\0", 5), [5, 5]);
    count(&fake, &named(b"a\0\xff\xff", 1), [0, 16]);
    count(&fake, &named(b"c\0\0\0", 1), [0, 0]);
    assert_eq!(call(&mut fake, "print_hist", &[map]).unwrap(), 2);
    let bar = |length| "@".repeat(length);
    let (half, whole) = (bar(26), bar(52));
    let b = format!(
        "@h[b]: \n[2, 4)                 5 |{half:52}|\n[4, 8)                 0 |{:52}|\n\
         [8, 16)               10 |{whole}|\n\n",
        ""
    );
    let a = format!("@h[a]: \n[0]                   16 |{whole}|\n\n");
    assert_eq!(fake.printed(), format!("{b}{a}"));
    assert_eq!(call(&mut fake, "print_map", &[map]).unwrap(), 4);
    assert_eq!(fake.printed(), "@h[c, 1]: 0\n@h[b, 3]: 5\n@h[b, 5]: 10\n@h[a, 1]: 16\n");
    assert_eq!(call(&mut fake, "twinbpf_print_top", &[map, 2]).unwrap(), 2);
    assert_eq!(fake.printed(), "@h[b, 5]: 10\n@h[a, 1]: 16\n");
}

#[test]
fn a_map_may_have_no_name() {
    let mut fake = Fake::with_maps(&[MapSpec::new("_", MapKind::Array, 4, 8, 1)]);
    let map = fake.maps.handle(0);
    assert_eq!(call(&mut fake, "print_map", &[map]).unwrap(), 1);
    assert_eq!(fake.printed(), "@: 0\n");
    let spec = MapSpec { name: "_".into(), ..by_name_and_slot() };
    let mut fake = Fake::with_maps(&[spec]);
    let map = fake.maps.handle(0);
    count(&fake, &named(b"a\0\0\0", 1), [1, 0]);
    assert_eq!(call(&mut fake, "print_hist", &[map]).unwrap(), 1);
    assert_eq!(fake.printed().lines().next(), Some("@[a]: "));
}

// The lines are those of bpftrace 0.17 with `-f json` for the same counts.
#[test]
fn json_is_one_object_a_line() {
    let mut fake = Fake::with_maps(&[by_name_and_slot()]);
    fake.runtime.format = OutputFormat::Json;
    let map = fake.maps.handle(0);
    assert_eq!(call(&mut fake, "print_hist", &[map]).unwrap(), 0);
    assert_eq!(call(&mut fake, "print_map", &[map]).unwrap(), 0);
    assert_eq!(
        fake.printed(),
        "{\"type\": \"hist\", \"data\": {\"@h\": []}}\n{\"type\": \"map\", \"data\": {\"@h\": {}}}\n"
    );
    count(&fake, &named(b"a\0\0\0", 0), [1, 0]);
    count(&fake, &named(b"a\0\0\0", 3), [1, 2]);
    count(&fake, &named(b"\"\0\0\0", 1), [9, 0]);
    call(&mut fake, "print_hist", &[map]).unwrap();
    assert_eq!(
        fake.printed(),
        "{\"type\": \"hist\", \"data\": {\"@h\": {\"a\": [{\"max\": -1, \"count\": 1}, {\"min\": 0, \"max\": 0, \
         \"count\": 0}, {\"min\": 1, \"max\": 1, \"count\": 0}, {\"min\": 2, \"max\": 3, \"count\": 3}], \"\\\"\": \
         [{\"min\": 0, \"max\": 0, \"count\": 9}]}}}\n"
    );
    call(&mut fake, "print_map", &[map]).unwrap();
    assert_eq!(fake.printed(), "{\"type\": \"map\", \"data\": {\"@h\": {\"a,0\": 1, \"a,3\": 3, \"\\\",1\": 9}}}\n");
    let text = fake.string(0, "tab\tquote\"\x01");
    call(&mut fake, "printf", &[text]).unwrap();
    assert_eq!(fake.printed(), "{\"type\": \"printf\", \"data\": \"tab\\tquote\\\"\\u0001\"}\n");
}

#[test]
fn json_has_members_by_name() {
    let fields = vec![
        field("name", 0, 4, FieldKind::String),
        field("at.x", 4, 2, FieldKind::Signed),
        field("at.y[0]", 6, 1, FieldKind::Unsigned),
        field("at.y[1]", 7, 1, FieldKind::Unsigned),
    ];
    let spec = MapSpec::new("one", MapKind::Array, 4, 8, 1);
    let mut fake = Fake::with_maps(&[MapSpec { value_fields: fields, ..spec }]);
    fake.runtime.format = OutputFormat::Json;
    count(
        &fake,
        &[0; 4],
        [u64::from_le_bytes(*b"ab\0c\xff\xff\x01\x02"), u64::from_le_bytes(*b"ab\0c\xff\xff\x01\x02")],
    );
    let map = fake.maps.handle(0);
    call(&mut fake, "print_map", &[map]).unwrap();
    assert_eq!(
        fake.printed(),
        "{\"type\": \"map\", \"data\": {\"@one\": {\"name\": \"ab\", \"at\": {\"x\": -1, \"y\": [1,2]}}}}\n"
    );
}

#[test]
fn floats_are_numbers() {
    let fields = vec![field("a", 0, 8, FieldKind::Float), field("b", 8, 4, FieldKind::Float)];
    let spec = MapSpec { value_fields: fields, ..MapSpec::new("x", MapKind::Array, 4, 12, 1) };
    for (format, a, wanted) in [
        (OutputFormat::Text, -2.5, "@x: { .a = -2.5, .b = 0.1 }\n"),
        (OutputFormat::Json, f64::NAN, "{\"type\": \"map\", \"data\": {\"@x\": {\"a\": \"NaN\", \"b\": 0.1}}}\n"),
    ] {
        let mut fake = Fake::with_maps(std::slice::from_ref(&spec));
        fake.runtime.format = format;
        let map = fake.maps.handle(0);
        let value = [&a.to_le_bytes()[..], &0.1f32.to_le_bytes()].concat();
        fake.maps.get(map).unwrap().update(&[0; 4], &value, 0, 0).unwrap();
        call(&mut fake, "print_map", &[map]).unwrap();
        assert_eq!(fake.printed(), wanted);
    }
}

#[test]
fn slots_reach_from_below_zero_to_the_largest_number() {
    let mut fake = Fake::with_maps(&[MapSpec::new("h", MapKind::Hash, 4, 8, 100)]);
    let map = fake.maps.handle(0);
    count(&fake, &64_u32.to_le_bytes(), [1, 1]);
    call(&mut fake, "print_hist", &[map]).unwrap();
    assert!(fake.printed().starts_with("@h: \n[4E, 8E)               1 |@"));
    let wide = [map, i64::MIN as u64, i64::MAX as u64, 1 << 62];
    count(&fake, &64_u32.to_le_bytes(), [0, 0]);
    count(&fake, &2_u32.to_le_bytes(), [7, 7]);
    // All of 64 bits is more than a difference holds.
    assert_eq!(call(&mut fake, "print_lhist", &wide).unwrap() as i64, -22);
    call(&mut fake, "print_lhist", &[map, -2048_i64 as u64, 2_097_152, 1024]).unwrap();
    assert!(fake.printed().starts_with("@h: \n[-1K, 0)               7 |@"));
    // The last step is what is left.
    call(&mut fake, "print_lhist", &[map, 0, 15, 10]).unwrap();
    assert!(fake.printed().starts_with("@h: \n[10, 15)               7 |@"));
    for bad in [[0, 10, 0], [10, 10, 1], [0, 1 << 40, 1]] {
        assert_eq!(call(&mut fake, "print_lhist", &[map, bad[0], bad[1], bad[2]]).unwrap() as i64, -22);
    }
}

#[test]
fn maps_that_are_no_histogram_are_explained() {
    let text = vec![field("", 0, 8, FieldKind::String)];
    let specs = [
        MapSpec { key_fields: text.clone(), ..MapSpec::new("names", MapKind::Hash, 8, 8, 4) },
        MapSpec { value_fields: text, ..MapSpec::new("texts", MapKind::Hash, 4, 8, 4) },
        MapSpec::new("queue", MapKind::Queue, 0, 8, 4),
        MapSpec::new("far", MapKind::Array, 4, 8, 100),
    ];
    let mut fake = Fake::with_maps(&specs);
    let handles: Vec<u64> = (0..4).map(|index| fake.maps.handle(index)).collect();
    let why = |fake: &mut Fake, map: u64| {
        let trap = call(fake, "print_hist", &[map]).unwrap_err();
        assert_eq!(trap.code(), TrapCode::BadArgument);
        trap.detail().to_owned()
    };
    assert_eq!(
        why(&mut fake, handles[0]),
        "argument 1 of print_hist: map names: its key does not end with an integer, the slot"
    );
    assert_eq!(
        why(&mut fake, handles[1]),
        "argument 1 of print_hist: map texts: its value is neither a counter nor an array of counters"
    );
    assert!((call(&mut fake, "print_map", &[handles[2]]).unwrap() as i64) < 0);
    let far = fake.maps.get(handles[3]).unwrap();
    far.update(&99_u32.to_le_bytes(), &1_u64.to_le_bytes(), 0, 0).unwrap();
    assert_eq!(
        why(&mut fake, handles[3]),
        "argument 1 of print_hist: map far: it counts slot 99, and the last one is 65"
    );
}
