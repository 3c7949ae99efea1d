use std::collections::VecDeque;

use super::*;
use crate::map::{BPF_ANY, BPF_EXIST, BPF_F_LOCK, BPF_NOEXIST, Errno};

fn put(map: &dyn MapOps, number: u32) {
    map.update(&key(number), &[number as u8; 8], BPF_ANY, 0).unwrap();
}

fn has(map: &dyn MapOps) -> Vec<u32> {
    let mut keys: Vec<u32> =
        map.keys().iter().map(|key| u32::from_le_bytes(key.as_slice().try_into().unwrap())).collect();
    keys.sort_unstable();
    keys
}

#[test]
fn the_least_recently_used_goes() {
    let map = make(&arena(), spec(MapKind::LruHash, 4, 8, 3));
    for number in [1, 2, 3] {
        put(&*map, number);
    }
    put(&*map, 4);
    assert_eq!(has(&*map), [2, 3, 4]);
    assert!(map.lookup(&key(2), 0).is_some());
    put(&*map, 5);
    assert_eq!(has(&*map), [2, 4, 5], "a program's lookup is a use");
    assert!(copy(&*map, &key(4)).is_some());
    put(&*map, 6);
    assert_eq!(has(&*map), [2, 5, 6], "a look from the host is none");
    put(&*map, 2);
    put(&*map, 7);
    assert_eq!(has(&*map), [2, 6, 7], "an update is a use");
    map.delete(&key(6)).unwrap();
    put(&*map, 8);
    put(&*map, 9);
    assert_eq!(has(&*map), [7, 8, 9]);
}

/// Large enough for pending lists, which change nothing for one thread.
#[test]
fn one_thread_evicts_in_the_order_of_use() {
    const ENTRIES: u32 = 1000;
    let map = make(&arena(), spec(MapKind::LruHash, 4, 8, ENTRIES));
    let (mut order, mut random) = (VecDeque::new(), 1_u32);
    for _ in 0..20_000 {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let (number, at) = (random >> 8 & 2047, order.iter().position(|&(key, _)| key == random >> 8 & 2047));
        match (random >> 24 & 7, at) {
            (0, _) => assert_eq!(map.delete(&key(number)).is_ok(), at.and_then(|at| order.remove(at)).is_some()),
            (1, _) => {
                assert_eq!(map.lookup(&key(number), 0).is_some(), at.is_some());
                at.into_iter().for_each(|at| order[at].1 = true);
            }
            (_, Some(at)) => {
                put(&*map, number);
                order[at].1 = true;
            }
            (_, None) => {
                put(&*map, number);
                while order.len() == ENTRIES as usize {
                    let (oldest, marked) = order.pop_front().unwrap();
                    order.extend(marked.then_some((oldest, false)));
                }
                order.push_back((number, false));
            }
        }
    }
    let mut left: Vec<u32> = order.into_iter().map(|(key, _)| key).collect();
    left.sort_unstable();
    assert_eq!(has(&*map), left);
}

#[test]
fn one_entry_is_replaced_again_and_again() {
    let map = make(&arena(), spec(MapKind::LruHash, 4, 8, 1));
    for number in 0..100 {
        put(&*map, number);
        assert_eq!(has(&*map), [number]);
    }
    map.delete(&key(99)).unwrap();
    assert!(map.is_empty());
    assert_eq!(map.next_key(None, &mut [0; 4]), Err(Errno::ENOENT));
    put(&*map, 1);
    assert_eq!(has(&*map), [1]);
}

#[test]
fn flags_and_errno_values_are_the_kernels() {
    let map = make(&arena(), spec(MapKind::LruHash, 4, 8, 1));
    assert_eq!(map.update(&key(1), &[1; 8], BPF_EXIST, 0), Err(Errno::ENOENT));
    assert_eq!(map.update(&key(1), &[1; 8], BPF_NOEXIST, 0), Ok(()));
    assert_eq!(map.update(&key(1), &[1; 8], BPF_NOEXIST, 0), Err(Errno::EEXIST));
    assert_eq!(map.update(&key(1), &[1; 8], BPF_F_LOCK, 0), Err(Errno::EINVAL));
    assert_eq!(map.update(&key(2), &[1; 8], BPF_EXIST, 0), Err(Errno::ENOENT));
    assert_eq!(has(&*map), [1]);
    assert_eq!(map.delete(&key(2)), Err(Errno::ENOENT));
}

#[test]
fn a_full_arena_evicts_too() {
    let arena = Arena::new(64 << 10).unwrap();
    let map = make(&arena, spec(MapKind::LruHash, 4, 248, 1 << 20));
    for number in 0..1000u32 {
        map.update(&key(number), &[1; 248], BPF_ANY, 0).unwrap();
    }
    assert!(map.len() > 50, "{}", map.len());
    assert!(copy(&*map, &key(999)).is_some());
    assert!(copy(&*map, &key(0)).is_none());
}

#[test]
fn per_cpu_values_start_at_zero() {
    let map = make(&arena(), spec(MapKind::LruPercpuHash, 4, 8, 1));
    map.update(&key(1), &[1; 8], BPF_ANY, 1).unwrap();
    map.update(&key(2), &[2; 8], BPF_ANY, 0).unwrap();
    let mut value = [9; 8];
    map.lookup_copy(&key(2), 1, &mut value).unwrap();
    assert_eq!(value, [0; 8]);
    assert_ne!(map.lookup(&key(2), 0), map.lookup(&key(2), 3));
    assert_eq!(map.lookup(&key(2), 4), None);
    assert_eq!(map.lookup(&key(1), 0), None);
}
