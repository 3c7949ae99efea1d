//! LRU maps: as many elements as there may be, each key once, and each value under its key.

use std::collections::HashSet;

use twinbpf_vm::map::{BPF_ANY, MapKind};

use crate::{get, hammer, make, spec};

/// Too few for lists of their threads, and enough.
const FEW: u32 = 50;
const MANY: u32 = 500;

fn check(kind: MapKind, room: u32) {
    let map = make(spec(kind, 8, 8, room));
    hammer(|thread, round, random| {
        let number = random.below(3 * u64::from(room));
        let key = number.to_le_bytes();
        match (thread + round as usize) % 8 {
            0..3 => map.update(&key, &(number << 32 | round & 0xffff_ffff).to_le_bytes(), BPF_ANY, 0).unwrap(),
            3 => drop(map.delete(&key)),
            4 => drop(map.lookup(&key, 0)),
            5 if random.below(8) == 0 => {
                let keys = map.keys();
                let different: HashSet<_> = keys.iter().collect();
                assert!(keys.len() == different.len(), "no key twice");
                assert!(keys.len() <= room as usize && map.len() <= room, "{} and {}", keys.len(), map.len());
            }
            _ => assert!(get(&*map, &key).is_none_or(|value| value >> 32 == number), "value of {number}"),
        }
    });
    assert_eq!(map.keys().len(), map.len() as usize);
}

#[test]
fn an_lru_map_keeps_to_its_size() {
    check(MapKind::LruHash, FEW);
}

#[test]
fn a_larger_lru_map_keeps_to_its_size() {
    check(MapKind::LruHash, MANY);
}

#[test]
fn an_lru_map_of_each_cpu_keeps_to_its_size() {
    check(MapKind::LruPercpuHash, FEW);
}
