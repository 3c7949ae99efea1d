use super::*;
use crate::map::{BPF_ANY, Direction, Entry, Errno, Field, FieldKind, Snapshot, SortBy, compare, sorted};
use std::cmp::Ordering;

fn field(off: u32, size: u32, kind: FieldKind) -> Field {
    Field { name: "".into(), off, size, kind }
}

#[test]
fn fields_decide() {
    let int = [field(0, 4, FieldKind::Signed)];
    let one = |value: i32| value.to_le_bytes();
    assert_eq!(compare(&int, &one(-1), &one(1)), Ordering::Less);
    assert_eq!(compare(&[field(0, 4, FieldKind::Unsigned)], &one(-1), &one(1)), Ordering::Greater);
    assert_eq!(compare(&[], &one(256), &one(1)), Ordering::Greater, "4 bytes are an integer");
    assert_eq!(compare(&[], &[0, 1, 0], &[1, 0, 0]), Ordering::Less, "3 bytes are bytes");
    let float = [field(0, 8, FieldKind::Float)];
    let double = |number: f64| number.to_le_bytes();
    assert_eq!(compare(&float, &double(-2.5), &double(-1.0)), Ordering::Less);
    assert_eq!(compare(&float, &double(256.0), &double(3.0)), Ordering::Greater);
    let text = [field(0, 4, FieldKind::String)];
    assert_eq!(compare(&text, b"ab\0z", b"abc\0"), Ordering::Less);
    assert_eq!(compare(&text, b"ab\0z", b"ab\0a"), Ordering::Greater, "the rest decides between equal strings");
    let both = [field(4, 1, FieldKind::Unsigned), field(0, 4, FieldKind::String)];
    assert_eq!(compare(&both, b"zzz\0\x01", b"aaa\0\x02"), Ordering::Less);
    assert_eq!(compare(&both, b"zzz\0\x02", b"aaa\0\x02"), Ordering::Greater);
    assert_eq!(compare(&[field(0, 8, FieldKind::Unsigned)], b"b", b"a"), Ordering::Greater, "a field outside");
    let wide = [field(0, 16, FieldKind::Unsigned)];
    assert_eq!(compare(&wide, &[1; 16], &[2; 16]), Ordering::Less);
}

fn all_sorted(map: &dyn MapOps, by: SortBy, direction: Direction) -> Snapshot {
    sorted(map, by, direction, &mut || Ok::<(), Errno>(())).unwrap()
}

#[test]
fn large_maps_are_sorted_until_that_is_to_end() {
    let map = make(&arena(), spec(MapKind::Hash, 4, 4, 10_000));
    for number in 0..9999_u32 {
        map.update(&key(number), &key(number.wrapping_mul(2_654_435_761) >> 20), BPF_ANY, 0).unwrap();
    }
    let value = |entry: Entry<'_>| u32::from_le_bytes(entry.copied.try_into().unwrap());
    let number = |entry: Entry<'_>| u32::from_le_bytes(entry.key.try_into().unwrap());
    let sorted_all = all_sorted(&*map, SortBy::Value, Direction::Ascending);
    assert_eq!(sorted_all.len(), 9999);
    assert!(sorted_all.iter().is_sorted_by_key(|entry| (value(entry), number(entry))));
    let mut turns = 0;
    let mut all = || {
        turns += 1;
        Ok::<(), Errno>(())
    };
    sorted(&*map, SortBy::Key, Direction::Ascending, &mut all).unwrap();
    assert!(turns > 9999, "{turns}");
    for last in [1, 5000, 9999, turns] {
        let mut left = last;
        let mut count = || {
            left -= 1;
            if left == 0 { Err(Errno(last)) } else { Ok(()) }
        };
        assert_eq!(sorted(&*map, SortBy::Key, Direction::Ascending, &mut count).unwrap_err(), Errno(last));
    }
}

#[test]
fn maps_are_sorted_by_key_or_value() {
    let map = make(&arena(), spec(MapKind::Hash, 4, 4, 10));
    for (number, value) in [(300, 1), (2, 5), (40, 1)] {
        map.update(&key(number), &key(value), BPF_ANY, 0).unwrap();
    }
    let keys = |by, direction| {
        let entries = all_sorted(&*map, by, direction);
        entries.iter().map(|entry| u32::from_le_bytes(entry.key.try_into().unwrap())).collect::<Vec<_>>()
    };
    assert_eq!(keys(SortBy::Map, Direction::Ascending), [300, 2, 40]);
    assert_eq!(keys(SortBy::Key, Direction::Ascending), [2, 40, 300]);
    assert_eq!(keys(SortBy::Key, Direction::Descending), [300, 40, 2]);
    assert_eq!(keys(SortBy::Value, Direction::Ascending), [40, 300, 2]);
    assert_eq!(keys(SortBy::Value, Direction::Descending), [2, 300, 40]);
}

#[test]
fn values_of_cpus_count_together() {
    let map = make(&arena(), spec(MapKind::PercpuHash, 4, 4, 10));
    for (number, values) in [(1, [9, 0, 0, 0]), (2, [1, 2, 3, 4])] {
        for (cpu, value) in values.into_iter().enumerate() {
            map.update(&key(number), &key(value), BPF_ANY, cpu as u32).unwrap();
        }
    }
    let entries = all_sorted(&*map, SortBy::Value, Direction::Descending);
    let first = entries.iter().next().unwrap();
    assert_eq!(first.key, key(2));
    assert!(first.values().eq([1, 2, 3, 4].map(|value| key(value).to_vec())));
    let layout: Vec<u8> = [1, 2, 3, 4].into_iter().flat_map(|value: u64| value.to_le_bytes()).collect();
    assert_eq!(first.copied, layout);
}

#[test]
fn equal_sums_are_ordered_by_key() {
    let map = make(&arena(), spec(MapKind::PercpuHash, 4, 8, 10));
    for (number, cpu) in [(3_u32, 0), (1, 2), (2, 1)] {
        map.update(&key(number), &7_u64.to_le_bytes(), BPF_ANY, cpu).unwrap();
    }
    let entries = all_sorted(&*map, SortBy::Value, Direction::Ascending);
    assert!(entries.iter().map(|entry| entry.key).eq([1, 2, 3].map(|number| key(number).to_vec())));
}

#[test]
fn large_numbers_have_their_order() {
    let wide = [i128::from(i64::MIN), -1, 0, 1, i128::from(i64::MAX), 1 << 63, (1 << 63) + 1, i128::from(u64::MAX)];
    for kind in [FieldKind::Signed, FieldKind::Unsigned] {
        let spec = MapSpec { value_fields: vec![field(0, 8, kind)], ..spec(MapKind::Hash, 4, 8, 10) };
        let map = make(&arena(), spec);
        for (number, value) in wide.iter().enumerate() {
            map.update(&key(number as u32), &(*value as u64).to_le_bytes(), BPF_ANY, 0).unwrap();
        }
        let entries = all_sorted(&*map, SortBy::Value, Direction::Ascending);
        let read = |entry: Entry<'_>| field(0, 8, kind).integer(entry.copied).unwrap();
        assert!(entries.iter().map(read).is_sorted(), "{kind:?}");
        assert_eq!(entries.len(), wide.len());
    }
}

/// Whatever fields keys and values have, the numbers that decide most comparisons never decide otherwise than the fields.
#[test]
fn elements_are_in_the_order_of_their_fields() {
    let layouts: [&[Field]; 7] = [
        &[],
        &[field(0, 8, FieldKind::Signed)],
        &[field(0, 4, FieldKind::Unsigned)],
        &[field(4, 4, FieldKind::Signed), field(0, 4, FieldKind::Unsigned)],
        &[field(0, 8, FieldKind::String)],
        &[field(2, 1, FieldKind::Signed), field(0, 2, FieldKind::Bytes)],
        &[field(6, 4, FieldKind::Unsigned)],
    ];
    // Few bytes are not zero, so that many fields are equal.
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        let kept = [0xff, 0x8000_0000, 0x0100_0000_0001, u64::MAX << 63, 0x01_0100][seed as usize % 5];
        seed.rotate_left(17) & kept
    };
    for (key_fields, value_fields) in layouts.iter().flat_map(|key| layouts.iter().map(move |value| (key, value))) {
        let spec = MapSpec {
            key_fields: key_fields.to_vec(),
            value_fields: value_fields.to_vec(),
            ..spec(MapKind::Hash, 8, 8, 200)
        };
        let map = make(&arena(), spec);
        for _ in 0..150 {
            map.update(&random().to_le_bytes(), &random().to_le_bytes(), BPF_ANY, 0).unwrap();
        }
        let by_key = |one: &Entry<'_>, two: &Entry<'_>| compare(key_fields, one.key, two.key);
        let is_sorted = |by, order: &dyn Fn(&Entry<'_>, &Entry<'_>) -> Ordering| {
            let all = all_sorted(&*map, by, Direction::Ascending);
            let entries: Vec<Entry<'_>> = all.iter().collect();
            assert!(entries.is_sorted_by(|one, two| order(one, two).is_le()), "{key_fields:?} {value_fields:?}");
        };
        is_sorted(SortBy::Key, &by_key);
        is_sorted(SortBy::Value, &|one, two| {
            compare(value_fields, one.copied, two.copied).then_with(|| by_key(one, two))
        });
    }
}
