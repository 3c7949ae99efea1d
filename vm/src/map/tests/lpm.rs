use super::*;
use crate::map::{BPF_ANY, BPF_EXIST, BPF_F_LOCK, BPF_NOEXIST, Errno, MapFlags};

pub(super) fn prefix(bits: u32, data: &[u8]) -> Vec<u8> {
    [&bits.to_le_bytes()[..], data].concat()
}

pub(super) fn trie(data: u32, max_entries: u32) -> MapSpec {
    MapSpec { flags: MapFlags::NO_PREALLOC.bits(), ..spec(MapKind::LpmTrie, 4 + data, 4, max_entries) }
}

fn routes(list: &[(u32, [u8; 4])]) -> Arc<dyn MapOps> {
    let map = make(&arena(), trie(4, 100));
    for (number, (bits, data)) in list.iter().enumerate() {
        map.update(&prefix(*bits, data), &key(number as u32), BPF_ANY, 0).unwrap();
    }
    map
}

fn route(map: &dyn MapOps, data: [u8; 4]) -> Option<u32> {
    let found = copy(map, &prefix(32, &data))?;
    Some(u32::from_le_bytes(found.try_into().unwrap()))
}

#[test]
fn the_longest_prefix_matches() {
    let map = routes(&[
        (8, [10, 0, 0, 0]),
        (16, [10, 1, 0, 0]),
        (24, [10, 1, 2, 0]),
        (32, [10, 1, 2, 3]),
        (12, [172, 16, 0, 0]),
    ]);
    assert_eq!(route(&*map, [10, 1, 2, 3]), Some(3));
    assert_eq!(route(&*map, [10, 1, 2, 4]), Some(2));
    assert_eq!(route(&*map, [10, 1, 3, 4]), Some(1));
    assert_eq!(route(&*map, [10, 200, 3, 4]), Some(0));
    assert_eq!(route(&*map, [172, 31, 255, 255]), Some(4));
    assert_eq!(route(&*map, [172, 32, 0, 0]), None);
    assert_eq!(route(&*map, [11, 0, 0, 0]), None);
    let short = prefix(16, &[10, 1, 2, 3]);
    assert_eq!(copy(&*map, &short), Some(key(1).to_vec()), "a short key finds no longer prefix");
    map.update(&prefix(0, &[9, 9, 9, 9]), &key(7), BPF_ANY, 0).unwrap();
    assert_eq!(route(&*map, [11, 0, 0, 0]), Some(7));
    assert_eq!(copy(&*map, &prefix(0, &[0; 4])), Some(key(7).to_vec()));
    assert_eq!(map.lookup(&prefix(33, &[10, 1, 2, 3]), 0), None);
}

/// The example at the top of kernel/bpf/lpm_trie.c.
#[test]
fn walks_from_long_to_short_prefixes() {
    let map =
        routes(&[(16, [192, 168, 0, 0]), (24, [192, 168, 0, 0]), (24, [192, 168, 128, 0]), (24, [192, 168, 1, 0])]);
    let order = [(24, [192, 168, 0, 0]), (24, [192, 168, 1, 0]), (24, [192, 168, 128, 0]), (16, [192, 168, 0, 0])];
    let order = order.map(|(bits, data)| prefix(bits, &data));
    assert_eq!(map.keys(), order);
    let mut next = [0; 8];
    for missing in [prefix(23, &[192, 168, 0, 0]), prefix(24, &[1, 2, 3, 4]), prefix(33, &[192, 168, 0, 0])] {
        map.next_key(Some(&missing), &mut next).unwrap();
        assert_eq!(next, *order[0], "an unknown key starts from the front");
    }
    assert_eq!(map.next_key(Some(&order[3]), &mut next), Err(Errno::ENOENT));
}

#[test]
fn walks_go_on_after_the_last_address() {
    let list = [
        (0, [0; 4]),
        (1, [128, 0, 0, 0]),
        (5, [8, 0, 0, 0]),
        (7, [14, 0, 0, 0]),
        (8, [10, 0, 0, 0]),
        (8, [15, 0, 0, 0]),
        (8, [255, 0, 0, 0]),
        (9, [10, 128, 0, 0]),
        (32, [10, 0, 0, 1]),
        (32, [255; 4]),
        (32, [16, 0, 0, 0]),
    ];
    let map = routes(&list);
    let last = |(bits, data): (u32, [u8; 4])| u32::from_be_bytes(data) | u32::MAX.checked_shr(bits).unwrap_or(0);
    let mut order = list.to_vec();
    while let Some(longer) = order.pop() {
        order.push(longer);
        order.sort_by_key(|&(bits, data)| (last((bits, data)), 33 - bits));
        let keys: Vec<_> = order.iter().map(|(bits, data)| prefix(*bits, data)).collect();
        assert_eq!(map.keys(), keys);
        let mut entries = Vec::new();
        map.entries(&mut |entry| {
            assert_eq!(copy(&*map, entry.key).as_deref(), Some(entry.copied));
            entries.push(entry.key.to_vec());
            true
        })
        .unwrap();
        assert_eq!(entries, keys);
        let gone = order.remove(order.len() / 2);
        map.delete(&prefix(gone.0, &gone.1)).unwrap();
    }
    assert!(map.is_empty());
}

#[test]
fn walks_go_on_where_an_element_went() {
    let map = make(&arena(), trie(4, 4096));
    let at = |number: u32| prefix(12 + number % 21, &(number << 20 | number << 8 | 0x0700_0000).to_be_bytes());
    for number in 0..1000 {
        map.update(&at(number), &key(number), BPF_ANY, 0).unwrap();
    }
    let keys = map.keys();
    let mut seen = Vec::new();
    map.entries(&mut |entry| {
        // Also the one from which the walk goes on.
        map.delete(entry.key).unwrap();
        seen.push(entry.key.to_vec());
        true
    })
    .unwrap();
    assert_eq!(seen, keys);
    assert!(map.is_empty());
    map.update(&at(0), &key(0), BPF_ANY, 0).unwrap();
    map.update(&at(1), &key(1), BPF_ANY, 0).unwrap();
    let mut count = 0;
    map.entries(&mut |_| {
        count += 1;
        false
    })
    .unwrap();
    assert_eq!(count, 1, "no more are wanted");
}

#[test]
fn walks_give_no_element_the_value_of_another() {
    let map = routes(&[(0, [0; 4])]);
    let at = |bits: u32| prefix(bits, &[10, 1, 1, 1]);
    for bits in 1..33 {
        map.update(&at(bits), &key(bits), BPF_ANY, 0).unwrap();
    }
    map.entries(&mut |entry| {
        assert_eq!(entry.key[..4], *entry.copied, "the value is the number of bits");
        // Those that come later.
        (1..32).for_each(|bits| {
            let _ = map.delete(&at(bits));
        });
        true
    })
    .unwrap();
    assert_eq!(map.len(), 2);
}

#[test]
fn slots_of_elements_and_forks_are_used_again() {
    let map = make(&arena(), trie(4, 64));
    let mut random = 1_u32;
    let mut there = std::collections::BTreeSet::new();
    for step in 0..20_000 {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let (bits, byte) = (random >> 28, (random >> 20) as u8);
        // Few bits, so that elements fork at each other.
        let masked = byte & !(0xff_u32.checked_shr(bits % 9).unwrap_or(0) as u8);
        let at = prefix(bits % 9, &[masked, 0, 0, 0]);
        match map.update(&at, &key(step), BPF_NOEXIST, 0) {
            Ok(()) => assert!(there.len() < 64 && there.insert(at)),
            Err(Errno::EEXIST) => {
                assert!(there.remove(&at));
                map.delete(&at).unwrap();
            }
            Err(error) => assert_eq!((error, there.len()), (Errno::ENOSPC, 64)),
        }
        assert_eq!(map.len() as usize, there.len());
        let longest =
            (0..=8).rev().map(|bits| byte & !(0xff_u32.checked_shr(bits).unwrap_or(0) as u8)).zip((0..=8).rev());
        let expected = longest.map(|(byte, bits)| prefix(bits, &[byte, 0, 0, 0])).any(|key| there.contains(&key));
        assert_eq!(map.lookup(&prefix(32, &[byte, 1, 2, 3]), 0).is_some(), expected);
    }
    let mut keys = map.keys();
    keys.sort();
    assert_eq!(keys, there.into_iter().collect::<Vec<_>>());
}

#[test]
fn deleting_leaves_no_forks() {
    let map = routes(&[(24, [1, 1, 0, 0]), (24, [1, 1, 1, 0]), (23, [1, 1, 0, 0])]);
    assert_eq!(map.delete(&prefix(22, &[1, 1, 0, 0])), Err(Errno::ENOENT));
    assert_eq!(map.delete(&prefix(33, &[1, 1, 0, 0])), Err(Errno::EINVAL));
    map.delete(&prefix(23, &[1, 1, 0, 0])).unwrap();
    assert_eq!(map.delete(&prefix(23, &[1, 1, 0, 0])), Err(Errno::ENOENT));
    assert_eq!(route(&*map, [1, 1, 1, 9]), Some(1));
    map.delete(&prefix(24, &[1, 1, 0, 77])).unwrap();
    assert_eq!(route(&*map, [1, 1, 0, 9]), None);
    assert_eq!(route(&*map, [1, 1, 1, 9]), Some(1));
    map.delete(&prefix(24, &[1, 1, 1, 0])).unwrap();
    assert!(map.is_empty());
    assert_eq!(map.next_key(None, &mut [0; 8]), Err(Errno::ENOENT));
}

#[test]
fn flags_and_errno_values_are_the_kernels() {
    let map = make(&arena(), trie(4, 2));
    let one = prefix(8, &[1, 0, 0, 0]);
    let two = prefix(9, &[1, 128, 0, 0]);
    let fork = prefix(9, &[1, 0, 0, 0]);
    assert_eq!(map.update(&one, &key(1), BPF_EXIST, 0), Err(Errno::ENOENT));
    assert_eq!(map.update(&two, &key(1), BPF_NOEXIST, 0), Ok(()));
    assert_eq!(map.update(&two, &key(1), BPF_NOEXIST, 0), Err(Errno::EEXIST));
    assert_eq!(map.update(&fork, &key(2), BPF_ANY, 0), Ok(()));
    assert_eq!(map.update(&one, &key(1), BPF_ANY, 0), Err(Errno::ENOSPC), "the fork is no element");
    assert_eq!(map.update(&one, &key(1), BPF_EXIST, 0), Err(Errno::ENOENT));
    assert_eq!(map.update(&two, &key(5), BPF_EXIST, 0), Ok(()), "replacing works in a full trie");
    assert_eq!(map.update(&two, &key(5), 3, 0), Err(Errno::EINVAL));
    assert_eq!(map.update(&two, &key(5), BPF_F_LOCK, 0), Err(Errno::EINVAL));
    assert_eq!(map.update(&prefix(33, &[0; 4]), &key(5), BPF_ANY, 0), Err(Errno::EINVAL));
    assert_eq!(map.update(&two[..7], &key(5), BPF_ANY, 0), Err(Errno::EINVAL));
    assert_eq!(map.len(), 2);
}

#[test]
fn values_stay_where_they_are() {
    let map = make(&arena(), trie(16, 1000));
    let at = |number: u32| prefix(128, &[&number.to_be_bytes()[..], &[7; 12]].concat());
    map.update(&at(0), &key(0), BPF_ANY, 0).unwrap();
    let addr = map.lookup(&at(0), 0);
    for number in 1..1000 {
        map.update(&at(number), &key(number), BPF_ANY, 0).unwrap();
    }
    map.update(&at(0), &key(9), BPF_ANY, 0).unwrap();
    assert_eq!(map.lookup(&at(0), 0), addr);
    assert_eq!(copy(&*map, &at(999)), Some(key(999).to_vec()));
    assert_eq!(map.update(&at(1000), &key(0), BPF_ANY, 0), Err(Errno::ENOSPC));
}

#[test]
fn odd_key_sizes() {
    for bytes in [1u32, 3, 7, 9, 255, 256] {
        let map = make(&arena(), trie(bytes, 10));
        let mut data = vec![0xa5; bytes as usize];
        map.update(&prefix(bytes * 8, &data), &key(1), BPF_ANY, 0).unwrap();
        map.update(&prefix(bytes * 8 - 1, &data), &key(2), BPF_ANY, 0).unwrap();
        assert_eq!(copy(&*map, &prefix(bytes * 8, &data)), Some(key(1).to_vec()));
        *data.last_mut().unwrap() ^= 1;
        assert_eq!(copy(&*map, &prefix(bytes * 8, &data)), Some(key(2).to_vec()));
        *data.last_mut().unwrap() ^= 2;
        assert_eq!(copy(&*map, &prefix(bytes * 8, &data)), None);
    }
}
