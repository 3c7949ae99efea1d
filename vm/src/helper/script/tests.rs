use crate::helper::by_name;
use crate::host::fake::Fake;
use crate::map::{MapFlags, MapKind, MapSpec};
use crate::trap::{Trap, TrapCode};

fn call(fake: &mut Fake, name: &str, args: &[u64]) -> Result<u64, Trap> {
    fake.run(&by_name(name).unwrap(), args)
}

fn int(fake: &mut Fake, name: &str, args: &[u64]) -> i64 {
    call(fake, name, args).unwrap() as i64
}

#[test]
fn output() {
    let mut fake = Fake::new();
    let line = fake.string(0, "hello");
    assert_eq!(int(&mut fake, "puts", &[line]), 6);
    assert_eq!(int(&mut fake, "putchar", &[0x141]), 0x41);
    assert_eq!(fake.printed(), "hello\nA");
    let trap = call(&mut fake, "exit", &[3]).unwrap_err();
    assert_eq!((trap.code(), trap.exit_status()), (TrapCode::Exit, Some(3)));
}

#[test]
fn comparisons() {
    let mut fake = Fake::new();
    let (a, b) = (fake.string(0, "Apple"), fake.string(16, "apply"));
    assert_eq!(int(&mut fake, "strcmp", &[a, b]), -32);
    assert_eq!(int(&mut fake, "strcmp", &[b, b]), 0);
    assert_eq!(int(&mut fake, "strcasecmp", &[a, b]), i64::from(b'e') - i64::from(b'y'));
    assert_eq!(int(&mut fake, "strncasecmp", &[a, b, 4]), 0);
    assert_eq!(int(&mut fake, "strncmp", &[a, b, 0]), 0);
    let empty = fake.string(40, "");
    assert_eq!(int(&mut fake, "strcmp", &[empty, a]), -65);
    // No NUL up to the end of memory, but a difference.
    fake.memory.write(4092, b"appx");
    let end = fake.at(4092);
    assert_eq!(int(&mut fake, "strncmp", &[end, b, 100]), i64::from(b'x') - i64::from(b'l'));
    fake.memory.write(4092, b"appl");
    let trap = call(&mut fake, "strncmp", &[b, end, 100]).unwrap_err();
    assert!(trap.detail().starts_with("argument 2 of strncmp: 5-byte load"), "{trap}");
    assert_eq!(int(&mut fake, "strncmp", &[b, end, 4]), 0);
    let trap = call(&mut fake, "strcmp", &[a, 0x20]).unwrap_err();
    assert!(
        trap.to_string().starts_with("bad argument to a host function: argument 2 of strcmp: 1-byte load from 0x20")
    );
}

#[test]
fn lengths_and_searches() {
    let mut fake = Fake::new();
    let text = fake.string(0, "one two one");
    let (part, chars, empty) = (fake.string(32, "one"), fake.string(48, "eno "), fake.string(64, ""));
    assert_eq!(int(&mut fake, "strlen", &[text]), 11);
    assert_eq!(int(&mut fake, "strnlen", &[text, 4]), 4);
    assert_eq!(call(&mut fake, "strchr", &[text, 0x6f]).unwrap(), text);
    assert_eq!(call(&mut fake, "strrchr", &[text, 0x6f]).unwrap(), text + 8);
    assert_eq!(call(&mut fake, "strchr", &[text, 0]).unwrap(), text + 11);
    assert_eq!(call(&mut fake, "strchr", &[text, 0x78]).unwrap(), 0);
    assert_eq!(call(&mut fake, "strstr", &[text + 1, part]).unwrap(), text + 8);
    assert_eq!(call(&mut fake, "strstr", &[text, empty]).unwrap(), text);
    assert_eq!(call(&mut fake, "strstr", &[empty, part]).unwrap(), 0);
    assert_eq!(call(&mut fake, "strstr", &[empty, empty]).unwrap(), empty);
    let (long, inner) = (fake.string(200, "aabaaabaaac"), fake.string(220, "aabaaac"));
    assert_eq!(call(&mut fake, "strstr", &[long, inner]).unwrap(), long + 4);
    assert_eq!(call(&mut fake, "strstr", &[inner, long]).unwrap(), 0);
    assert_eq!(int(&mut fake, "strspn", &[text, chars]), 4);
    assert_eq!(int(&mut fake, "strcspn", &[text, chars]), 0);
    assert_eq!(call(&mut fake, "memchr", &[text, 0x74, 11]).unwrap(), text + 4);
    assert_eq!(call(&mut fake, "memchr", &[text, 0x74, 4]).unwrap(), 0);
}

#[test]
fn copies() {
    let mut fake = Fake::new();
    let (from, to) = (fake.string(0, "abc"), fake.at(100));
    fake.memory.fill(100, 20, b'#');
    assert_eq!(call(&mut fake, "strcpy", &[to, from]).unwrap(), to);
    assert_eq!(call(&mut fake, "strcat", &[to, from]).unwrap(), to);
    assert_eq!(call(&mut fake, "strncat", &[to, from, 1]).unwrap(), to);
    assert_eq!(fake.memory.to_vec(100, 9), b"abcabca\0#");
    call(&mut fake, "strncpy", &[to, from, 6]).unwrap();
    assert_eq!(fake.memory.to_vec(100, 9), b"abc\0\0\0a\0#");
    call(&mut fake, "strncpy", &[to, from, 2]).unwrap();
    assert_eq!(fake.memory.to_vec(100, 4), b"abc\0");
    call(&mut fake, "memmove", &[to + 1, to, 3]).unwrap();
    assert_eq!(fake.memory.to_vec(100, 4), b"aabc");
    call(&mut fake, "memset", &[to, 0x178, 2]).unwrap();
    assert_eq!(fake.memory.to_vec(100, 4), b"xxbc");
    call(&mut fake, "memcpy", &[to, from, 4]).unwrap();
    assert_eq!(int(&mut fake, "memcmp", &[to, from, 4]), 0);
    assert_eq!(int(&mut fake, "memcmp", &[to, from + 1, 2]), -1);
    let end = fake.at(4095);
    let trap = call(&mut fake, "strcpy", &[end, from]).unwrap_err();
    assert!(trap.detail().starts_with("argument 1 of strcpy: 4-byte store"), "{trap}");
    let trap = call(&mut fake, "memcpy", &[to, end, 2]).unwrap_err();
    assert!(trap.detail().starts_with("argument 2 of memcpy: 2-byte load"), "{trap}");
    assert_eq!(int(&mut fake, "memcmp", &[0, 0, 0]), 0);
}

#[test]
fn numbers() {
    let mut fake = Fake::new();
    let out = fake.at(200);
    let mut strtol = |text: &str, base: u64, name: &str| {
        let text = fake.string(0, text);
        let value = int(&mut fake, name, &[text, out, base]);
        (value, u64::from_le_bytes(fake.memory.to_vec(200, 8).try_into().unwrap()) - text)
    };
    assert_eq!(strtol("  -42x", 10, "strtol"), (-42, 5));
    assert_eq!(strtol("0x1fg", 0, "strtol"), (31, 4));
    assert_eq!(strtol("0xg", 16, "strtol"), (0, 1));
    assert_eq!(strtol("0779", 0, "strtol"), (63, 3));
    assert_eq!(strtol("zz", 36, "strtol"), (35 * 36 + 35, 2));
    assert_eq!(strtol("+", 10, "strtol"), (0, 0));
    assert_eq!(strtol("9223372036854775808", 10, "strtol"), (i64::MAX, 19));
    assert_eq!(strtol("-9223372036854775808", 10, "strtol"), (i64::MIN, 20));
    assert_eq!(strtol("-99999999999999999999", 10, "strtol"), (i64::MIN, 21));
    assert_eq!(strtol("-1", 10, "strtoul"), (-1, 2));
    assert_eq!(strtol("18446744073709551616", 10, "strtoul"), (-1, 20));
    assert_eq!(strtol("12", 1, "strtol"), (0, 0));
    let text = fake.string(0, "\t4294967297 apples");
    assert_eq!(int(&mut fake, "atoi", &[text]), 1);
    assert_eq!(int(&mut fake, "atol", &[text]), 4294967297);
    assert_eq!(int(&mut fake, "strtol", &[text, 0, 10]), 4294967297);
}

#[test]
fn maps_by_copy() {
    let mut fake = Fake::with_maps(&[MapSpec::new("counts", MapKind::Hash, 4, 8, 2)]);
    let map = fake.maps.handle(0);
    let (key, value, next) = (fake.at(0), fake.words(8, &[7]), fake.at(16));
    for name in ["map_update_elem", "twinbpf_map_update_elem"] {
        assert_eq!(int(&mut fake, name, &[map, key, value, 0]), 0);
    }
    fake.words(8, &[0]);
    assert_eq!(int(&mut fake, "map_lookup_elem", &[map, key, value]), 0);
    assert_eq!(fake.memory.to_vec(8, 1), [7]);
    assert_eq!(int(&mut fake, "map_get_next_key", &[map, 0, next]), 0);
    assert_eq!(fake.memory.to_vec(16, 4), fake.memory.to_vec(0, 4));
    assert_eq!(int(&mut fake, "map_get_next_key", &[map, next, next]), -2);
    assert_eq!(int(&mut fake, "map_delete_elem", &[map, key]), 0);
    assert_eq!(int(&mut fake, "map_delete_elem", &[map, key]), -2);
    assert_eq!(int(&mut fake, "map_lookup_elem", &[map, key, value]), -2);
    let trap = call(&mut fake, "map_lookup_elem", &[map, key, 4]).unwrap_err();
    assert!(trap.detail().starts_with("argument 3 of map_lookup_elem: 8-byte load from 0x4"), "{trap}");
}

#[test]
fn flags_keep_user_space_out() {
    let flags = MapFlags::RDONLY.bits();
    let mut fake = Fake::with_maps(&[MapSpec { flags, ..MapSpec::new("counts", MapKind::Array, 4, 8, 2) }]);
    let args = [fake.maps.handle(0), fake.at(0), fake.at(8), 0];
    assert_eq!(int(&mut fake, "map_update_elem", &args), -1);
    assert_eq!(int(&mut fake, "map_lookup_elem", &args), 0);
}

/// Keys in the order `map_for_each` visits them, and what it returns.
fn visited(fake: &mut Fake, order: u64, limit: usize) -> (Vec<u32>, i64) {
    let map = fake.maps.handle(0);
    let keys = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let log = std::sync::Arc::clone(&keys);
    let callback = move |runtime: &mut crate::host::Runtime, args: [u64; 5]| {
        let mut key = [0; 4];
        runtime.view.read(args[0], &mut key).unwrap();
        runtime.view.check(args[1], 8, crate::mem::Access::Write).unwrap();
        assert_eq!(args[2], 0x55);
        let mut log = log.lock().unwrap();
        log.push(u32::from_le_bytes(key));
        Ok(0xffff_ffff_0000_0000 | u64::from(log.len() == limit))
    };
    fake.callback(0x100, Box::new(callback));
    let calls = int(fake, "map_for_each", &[map, 0x100, 0x55, order]);
    let keys = keys.lock().unwrap().clone();
    (keys, calls)
}

#[test]
fn walks_in_order() {
    let mut fake = Fake::with_maps(&[MapSpec::new("counts", MapKind::Hash, 4, 8, 8)]);
    for (key, value) in [(3u32, 10u64), (1, 30), (2, 20)] {
        fake.maps.own()[0].update(&key.to_le_bytes(), &value.to_le_bytes(), 0, 0).unwrap();
    }
    assert_eq!(visited(&mut fake, 1, 9), (vec![1, 2, 3], 3));
    assert_eq!(visited(&mut fake, 0x11, 9), (vec![3, 2, 1], 3));
    assert_eq!(visited(&mut fake, 2, 9), (vec![3, 2, 1], 3));
    assert_eq!(visited(&mut fake, 0x12, 2), (vec![1, 2], 2));
    assert_eq!(visited(&mut fake, 0, 9).1, 3);
    assert_eq!(visited(&mut fake, 3, 9), (vec![], -22));
}

#[test]
fn a_walk_visits_the_snapshot() {
    let mut fake = Fake::with_maps(&[MapSpec::new("counts", MapKind::Hash, 4, 8, 8)]);
    let map = fake.maps.own()[0].clone();
    for key in 1..4u32 {
        map.update(&key.to_le_bytes(), &u64::from(key).to_le_bytes(), 0, 0).unwrap();
    }
    let handle = fake.maps.handle(0);
    let callback = move |runtime: &mut crate::host::Runtime, args: [u64; 5]| {
        let (mut key, mut value) = ([0; 4], [0; 8]);
        runtime.view.read(args[0], &mut key).unwrap();
        runtime.view.read(args[1], &mut value).unwrap();
        assert_eq!(u64::from(u32::from_le_bytes(key)), u64::from_le_bytes(value));
        for key in 1..4u32 {
            let _ = map.delete(&key.to_le_bytes());
        }
        Ok(0)
    };
    fake.callback(0x100, Box::new(callback));
    assert_eq!(int(&mut fake, "map_for_each", &[handle, 0x100, 0, 1]), 3);
    assert_eq!(fake.maps.own()[0].len(), 0);
}

/// A prefix that has gone is visited as a copy, not as the shorter prefix that a look-up finds.
#[test]
fn a_walk_over_prefixes_gives_their_own_values() {
    let flags = MapFlags::NO_PREALLOC.bits();
    let mut fake = Fake::with_maps(&[MapSpec { flags, ..MapSpec::new("routes", MapKind::LpmTrie, 8, 8, 8) }]);
    let map = fake.maps.own()[0].clone();
    let prefix = |bits: u32| [bits.to_le_bytes(), [10, 1, 1, 1]].concat();
    for bits in [24, 16, 0] {
        map.update(&prefix(bits), &u64::from(bits).to_le_bytes(), 0, 0).unwrap();
    }
    let handle = fake.maps.handle(0);
    let callback = move |runtime: &mut crate::host::Runtime, args: [u64; 5]| {
        let (mut bits, mut value) = ([0; 4], [0; 8]);
        runtime.view.read(args[0], &mut bits).unwrap();
        runtime.view.read(args[1], &mut value).unwrap();
        assert_eq!(u64::from(u32::from_le_bytes(bits)), u64::from_le_bytes(value));
        let _ = map.delete(&prefix(16));
        Ok(0)
    };
    fake.callback(0x100, Box::new(callback));
    assert_eq!(int(&mut fake, "map_for_each", &[handle, 0x100, 0, 0]), 3);
}

#[test]
fn a_queue_has_no_entries_to_walk() {
    let mut fake = Fake::with_maps(&[MapSpec::new("queue", MapKind::Queue, 0, 8, 8)]);
    let handle = fake.maps.handle(0);
    assert_eq!(int(&mut fake, "map_for_each", &[handle, 0x100, 0, 0]), -22);
}

/// A function at address 1 that compares two bytes, the first two of the elements it gets.
fn comparing(fake: &mut Fake) -> std::rc::Rc<std::cell::Cell<u32>> {
    let calls = std::rc::Rc::new(std::cell::Cell::new(0));
    let count = std::rc::Rc::clone(&calls);
    fake.callback(
        1,
        Box::new(move |runtime, [a, b, ..]| {
            count.set(count.get() + 1);
            let (mut left, mut right) = ([0; 1], [0; 1]);
            runtime.view.read(a, &mut left)?;
            runtime.view.read(b, &mut right)?;
            // Only the low half of r0 is an int.
            Ok(u64::from((i32::from(left[0]) - i32::from(right[0])) as u32) | 7 << 32)
        }),
    );
    calls
}

#[test]
fn sorting() {
    let mut fake = Fake::new();
    let calls = comparing(&mut fake);
    for size in [1u64, 3, 300] {
        for count in [0u64, 1, 2, 3, 10, 13] {
            let mut keys: Vec<u8> = (0..count).map(|index| (index * 89 % 11) as u8).collect();
            for (index, key) in keys.iter().enumerate() {
                let mut element = vec![*key ^ 0x55; size as usize];
                element[0] = *key;
                fake.memory.write(index as u32 * size as u32, &element);
            }
            let base = fake.at(0);
            call(&mut fake, "qsort", &[base, count, size, 1]).unwrap();
            keys.sort_unstable();
            for (index, key) in keys.iter().enumerate() {
                let element = fake.memory.to_vec(index as u32 * size as u32, size as usize);
                assert!(element[0] == *key && element[1..].iter().all(|byte| *byte == *key ^ 0x55), "{element:?}");
            }
        }
    }
    assert!(calls.get() < 400, "{} calls", calls.get());
    let base = fake.at(0);
    let trap = call(&mut fake, "qsort", &[base, 14, 300, 1]).unwrap_err();
    assert!(trap.detail().starts_with("argument 1 of qsort: 4200-byte store"), "{trap}");
    let trap = call(&mut fake, "qsort", &[base, 1 << 40, 1 << 40, 1]).unwrap_err();
    assert!(trap.detail().contains("too many"), "{trap}");
    assert_eq!(call(&mut fake, "qsort", &[base, 2, 1, 99]).unwrap_err().code(), TrapCode::BadCall);
    assert!(call(&mut fake, "qsort", &[base, 1 << 40, 0, 1]).is_ok());
}

#[test]
fn searching() {
    let mut fake = Fake::new();
    let calls = comparing(&mut fake);
    fake.memory.write(0, &[1, 0, 3, 0, 5, 0, 7, 0, 9, 0]);
    let (base, key) = (fake.at(0), fake.at(64));
    for wanted in 0..11u8 {
        fake.memory.write(64, &[wanted]);
        let found = call(&mut fake, "bsearch", &[key, base, 5, 2, 1]).unwrap();
        assert_eq!(found, if wanted % 2 == 1 { base + u64::from(wanted) - 1 } else { 0 });
    }
    assert!(calls.get() <= 33);
    assert_eq!(call(&mut fake, "bsearch", &[key, base, 0, 2, 1]).unwrap(), 0);
    assert!(call(&mut fake, "bsearch", &[key, base, 5000, 2, 1]).is_err());
}

#[test]
fn times_count_from_boot() {
    let mut fake = Fake::new();
    let format = fake.string(0, "%s.%f %% %%f");
    let (text, ns) = (fake.at(100), 5_250_000_000);
    let length = int(&mut fake, "twinbpf_strftime", &[text, 100, format, ns]) as u32;
    let printed = String::from_utf8(fake.memory.to_vec(100, length as usize)).unwrap();
    let (time, rest) = printed.split_once(' ').unwrap();
    assert_eq!(rest, "% %f");
    let (seconds, micros) = time.split_once('.').unwrap();
    let happened = seconds.parse::<f64>().unwrap() + micros.parse::<f64>().unwrap() / 1e6;
    let uptime: f64 = std::fs::read_to_string("/proc/uptime").unwrap().split(' ').next().unwrap().parse().unwrap();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
    assert!((now - uptime + 5.25 - happened).abs() < 1.0, "{printed} is not {uptime} seconds and 5.25 ago");
    // Room for one character too few.
    let year = fake.string(0, "%Y");
    fake.memory.write(100, b"####");
    assert_eq!(int(&mut fake, "twinbpf_strftime", &[text, 4, year, 0]), 0);
    assert_eq!(int(&mut fake, "twinbpf_strftime", &[text, 5, year, 0]), 4);
    assert_eq!(int(&mut fake, "twinbpf_strftime", &[text, 0, year, 0]), 0);
}
