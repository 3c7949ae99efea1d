//! Tries of prefixes: each prefix is a register, and a search always finds the prefix that stays.

use std::sync::atomic::{AtomicU64, Ordering};

use twinbpf_vm::map::{BPF_ANY, BPF_EXIST, Errno, MapFlags, MapKind, MapOps, MapSpec};

use crate::hash::change;
use crate::history::{self, OBJECTS};
use crate::{THREADS, get, hammer, make, spec};
use std::sync::Arc;

fn trie() -> Arc<dyn MapOps> {
    let map = spec(MapKind::LpmTrie, 8, 8, 64 + THREADS as u32);
    make(MapSpec { flags: MapFlags::NO_PREALLOC.bits(), ..map })
}

/// A prefix length, and an address.
fn prefix(bits: u32, address: [u8; 4]) -> [u8; 8] {
    let mut key = [0; 8];
    key[..4].copy_from_slice(&bits.to_ne_bytes());
    key[4..].copy_from_slice(&address);
    key
}

/// That each of these prefixes, of which none is one of another, is a register.
fn are_registers(key: impl Fn(u64) -> [u8; 8] + Sync) {
    let map = trie();
    let fresh = AtomicU64::new(1);
    history::hammer(
        |number| get(&*map, &key(number)),
        |_, random| {
            let number = random.below(OBJECTS);
            let value = fresh.fetch_add(1, Ordering::Relaxed);
            Some((number, change(&*map, &key(number), value, random)))
        },
    );
}

#[test]
fn each_prefix_is_a_register() {
    // They fork at many bits.
    are_registers(|number| prefix(17 + number as u32, [10, number as u8, 0, 0]));
}

/// A node of one is as good for another, so that only what is known of its past keeps their values apart.
#[test]
fn addresses_are_registers() {
    are_registers(|number| prefix(32, [10, 0, 0, number as u8]));
}

/// Elements become forks and forks elements, and nodes of both are exchanged, while values are replaced.
#[test]
fn values_are_of_their_prefixes() {
    let map = trie();
    // A prefix, and the two halves of it.
    let key = |number: u64| {
        let half = number % 3;
        prefix(if half == 0 { 24 } else { 25 }, [10, (number / 3) as u8, 0, if half == 2 { 128 } else { 0 }])
    };
    hammer(|thread, round, random| {
        let number = random.below(12);
        let value = ((number << 48) | round).to_le_bytes();
        match (thread % 2, random.below(2)) {
            (0, 0) => drop(map.delete(&key(number))),
            (0, _) => map.update(&key(number), &value, BPF_ANY, 0).unwrap(),
            // Fails where the element is not there.
            (_, 0) => drop(map.update(&key(number), &value, BPF_EXIST, 0)),
            _ => {
                let found = get(&*map, &key(number)).map(|value| value >> 48);
                let fits = found.is_none_or(|found| found == number || found == number / 3 * 3);
                assert!(fits, "a value of {found:?} under {number}");
            }
        }
    });
    for number in 0..12 {
        let _ = map.delete(&key(number));
    }
    assert_eq!((map.len(), map.keys()), (0, Vec::new()));
}

#[test]
fn searches_find_a_prefix_of_the_address() {
    let map = trie();
    let address = [0b1010_1010; 4];
    map.update(&prefix(0, address), &0_u64.to_le_bytes(), BPF_ANY, 0).unwrap();
    hammer(|thread, _, random| {
        let bits = 1 + random.below(31);
        let key = prefix(bits as u32, address);
        match (thread % 2, random.below(2)) {
            (0, 0) => drop(map.delete(&key)),
            (0, _) => map.update(&key, &bits.to_le_bytes(), BPF_ANY, 0).unwrap(),
            _ => {
                let found = get(&*map, &key).expect("the shortest prefix stays");
                assert!(found <= bits, "{found} is longer than {bits}");
                assert!(map.lookup(&key, 0).is_some(), "without the lock, too");
            }
        }
    });
}

/// A search that finds nothing among long prefixes goes on among short ones.
#[test]
fn a_short_prefix_is_not_found_below_a_longer_one() {
    let map = trie();
    let (long, short, address) = (prefix(16, [10, 1, 0, 0]), prefix(4, [0; 4]), prefix(32, [10, 1, 2, 3]));
    let value = |number: u64| number.to_le_bytes();
    let round = |between: &dyn Fn()| {
        map.update(&long, &value(16), BPF_ANY, 0).unwrap();
        map.update(&short, &value(4), BPF_ANY, 0).unwrap();
        between();
        map.delete(&short).unwrap();
        map.delete(&long).unwrap();
        // This insert and delete rotate the free list: each prefix gets the same slot in every round.
        map.update(&prefix(32, [0; 4]), &value(0), BPF_ANY, 0).unwrap();
        map.delete(&prefix(32, [0; 4])).unwrap();
    };
    let below = AtomicU64::new(0);
    hammer(|thread, number, _| match thread {
        0 => round(&|| {
            let found = map.lookup(&short, 0).unwrap();
            let before = below.swap(found, Ordering::Relaxed);
            assert!(number == 0 || found == before, "slots are taken in the same order");
        }),
        _ => {
            assert_ne!(map.lookup(&address, 0), Some(below.load(Ordering::Relaxed)));
            assert_ne!(get(&*map, &address), Some(4));
        }
    });
}

#[test]
fn a_full_trie_takes_no_more() {
    const ENTRIES: u32 = 20;
    let map = spec(MapKind::LpmTrie, 8, 8, ENTRIES);
    let map = make(MapSpec { flags: MapFlags::NO_PREALLOC.bits(), ..map });
    hammer(|_, _, random| {
        let key = prefix(32, [random.below(8) as u8, 0, 0, random.below(8) as u8]);
        match random.below(3) {
            0 => drop(map.delete(&key)),
            _ => match map.update(&key, &[1; 8], BPF_ANY, 0) {
                Ok(()) | Err(Errno::ENOSPC) => {}
                Err(error) => panic!("{error}"),
            },
        }
        assert!(map.len() <= ENTRIES);
    });
    let keys = map.keys();
    assert_eq!(keys.len(), map.len() as usize);
    keys.iter().for_each(|key| map.delete(key).unwrap());
    for number in 0..=ENTRIES {
        let expected = if number == ENTRIES { Err(Errno::ENOSPC) } else { Ok(()) };
        assert_eq!(map.update(&prefix(32, [1, 0, 0, number as u8]), &[1; 8], BPF_ANY, 0), expected);
    }
}
