//! Hash maps: each key is a register, keys that stay are always found, and walks list each of them once.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use twinbpf_vm::map::{BPF_ANY, BPF_EXIST, BPF_NOEXIST, Errno, MapKind, MapOps};

use crate::history::{self, Element, OBJECTS};
use crate::{Random, THREADS, get, hammer, make, spec};

/// Keys that stay, from this number on.
const STAY: u64 = 1000;
const STAYING: u64 = 40;

fn key(number: u64) -> [u8; 8] {
    number.to_le_bytes()
}

/// One operation on an element of a map that never fills.
pub(crate) fn change(map: &dyn MapOps, key: &[u8], value: u64, random: &mut Random) -> Element {
    let update = |flags| match map.update(key, &value.to_le_bytes(), flags, 0) {
        Ok(()) => true,
        Err(Errno::EEXIST | Errno::ENOENT) => false,
        Err(error) => panic!("{error}"),
    };
    match random.below(8) {
        0 => Element::PutNew(value, update(BPF_NOEXIST)),
        1 => Element::Replace(value, update(BPF_EXIST)),
        2 => {
            assert!(update(BPF_ANY));
            Element::Put(value)
        }
        3 | 4 => Element::Delete(map.delete(key).is_ok()),
        _ => Element::Get(get(map, key)),
    }
}

#[test]
fn each_key_is_a_register() {
    // A deleted element's slot is free a moment later.
    let map = make(spec(MapKind::Hash, 8, 8, (OBJECTS + STAYING) as u32 + THREADS as u32));
    (STAY..STAY + STAYING).for_each(|number| map.update(&key(number), &key(number), BPF_ANY, 0).unwrap());
    let fresh = AtomicU64::new(1);
    history::hammer(
        |number| get(&*map, &key(number)),
        |_, random| {
            let number = random.below(OBJECTS);
            match random.below(16) {
                // Holds buckets and changes nothing.
                0 => assert_eq!(map.delete(&key(STAY - 1 - number)), Err(Errno::ENOENT)),
                1 => {
                    let mut next = [0; 8];
                    map.next_key(Some(&key(STAY + number)), &mut next).unwrap();
                }
                2..6 => {
                    let number = STAY + random.below(STAYING);
                    assert_eq!(get(&*map, &key(number)), Some(number), "it is always there");
                }
                _ => {
                    let value = fresh.fetch_add(1, Ordering::Relaxed);
                    return Some((number, change(&*map, &key(number), value, random)));
                }
            }
            None
        },
    );
}

#[test]
fn keys_stay_found_while_the_map_grows() {
    const KEYS: u32 = 4000;
    let map = std::sync::RwLock::new((make(spec(MapKind::Hash, 8, 8, 2 * KEYS)), AtomicU32::new(0)));
    hammer(|thread, _, random| {
        let (current, added) = &*map.read().unwrap();
        if thread % 2 == 0 {
            let number = added.fetch_add(1, Ordering::AcqRel);
            if number < KEYS {
                current.update(&key(number.into()), &key(number.into()), BPF_NOEXIST, 0).unwrap();
                return;
            }
        } else {
            let number = u64::from(added.load(Ordering::Acquire).min(KEYS));
            // All but those that threads are adding.
            if let Some(limit) = number.checked_sub(THREADS as u64).filter(|limit| *limit > 0) {
                let number = random.below(limit);
                let found = get(&**current, &key(number));
                assert!(
                    found == Some(number) || found.is_none() && number + 1 > limit,
                    "{number} of {limit}: {found:?}"
                );
            }
            return;
        }
        if let Ok(mut map) = map.try_write() {
            assert_eq!(map.0.len(), KEYS.min(map.1.load(Ordering::Relaxed)));
            *map = (make(spec(MapKind::Hash, 8, 8, 2 * KEYS)), AtomicU32::new(0));
        }
    });
}

#[test]
fn walks_list_what_stays_once() {
    let map = make(spec(MapKind::Hash, 8, 8, (OBJECTS + STAYING) as u32 + THREADS as u32));
    (STAY..STAY + STAYING).for_each(|number| map.update(&key(number), &key(number), BPF_ANY, 0).unwrap());
    hammer(|thread, round, random| {
        if thread > 1 {
            let number = random.below(OBJECTS);
            change(&*map, &key(number), round, random);
            return;
        }
        let keys = map.keys();
        let different: HashSet<_> = keys.iter().collect();
        assert_eq!(keys.len(), different.len(), "no key twice");
        assert!((STAY..STAY + STAYING).all(|number| different.contains(&key(number).to_vec())), "all that stay");
    });
}
