//! Hash maps: each key is a register, keys that stay are always found, and walks list each of them once.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};

use twinbpf_vm::map::{BPF_ANY, BPF_EXIST, BPF_NOEXIST, Entry, Errno, MapKind, MapOps};

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
    registers(MapKind::Hash);
}

/// All threads write the values of one CPU.
#[test]
fn each_key_of_a_cpu_is_a_register() {
    registers(MapKind::PercpuHash);
}

fn registers(kind: MapKind) {
    // A deleted element's slot is free a moment later.
    let map = make(spec(kind, 8, 8, (OBJECTS + STAYING) as u32 + THREADS as u32));
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
fn changes_of_nothing_hide_no_key() {
    const KEYS: u64 = 64;
    let map = make(spec(MapKind::Hash, 8, 8, KEYS as u32));
    (0..KEYS).for_each(|number| map.update(&key(number), &key(number), BPF_ANY, 0).unwrap());
    hammer(|thread, _, random| {
        let number = random.below(KEYS);
        match thread % 4 {
            0 => assert_eq!(map.delete(&key(KEYS + number)), Err(Errno::ENOENT)),
            1 => assert_eq!(map.update(&key(number), &[0; 8], BPF_NOEXIST, 0), Err(Errno::EEXIST)),
            _ => assert_eq!(get(&*map, &key(number)), Some(number)),
        }
    });
}

/// A map that grows from empty, and how many of its keys each thread that adds some has added.
struct Growing {
    map: Arc<dyn MapOps>,
    added: [AtomicU64; THREADS / 2],
}

impl Growing {
    /// Keys of a thread.
    const OWN: u64 = 1000;

    fn new() -> Growing {
        let keys = Growing::OWN * (THREADS / 2) as u64;
        Growing { map: make(spec(MapKind::Hash, 8, 8, 2 * keys as u32)), added: Default::default() }
    }

    /// False where the thread has added all of its keys.
    fn add(&self, thread: usize) -> bool {
        let number = self.added[thread].load(Ordering::Relaxed);
        let own = key(thread as u64 * Growing::OWN + number);
        if number < Growing::OWN {
            self.map.update(&own, &own, BPF_NOEXIST, 0).unwrap();
            self.added[thread].store(number + 1, Ordering::Release);
        }
        number < Growing::OWN
    }

    fn check(&self, random: &mut Random) {
        let thread = random.below(THREADS as u64 / 2);
        let count = self.added[thread as usize].load(Ordering::Acquire);
        if count > 0 {
            let number = thread * Growing::OWN + random.below(count);
            assert_eq!(get(&*self.map, &key(number)), Some(number), "one of {count}");
        }
    }

    fn is_full(&self) -> bool {
        self.added.iter().all(|added| added.load(Ordering::Relaxed) == Growing::OWN)
    }
}

#[test]
fn keys_stay_found_while_the_map_grows() {
    let growing = RwLock::new(Growing::new());
    hammer(|thread, _, random| {
        let current = growing.read().unwrap();
        if thread >= THREADS / 2 {
            current.check(random);
        } else if !current.add(thread) {
            drop(current);
            if let Ok(mut current) = growing.try_write()
                && current.is_full()
            {
                assert_eq!(u64::from(current.map.len()), Growing::OWN * (THREADS / 2) as u64);
                *current = Growing::new();
            }
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
        let mut keys = if thread == 0 { map.keys() } else { Vec::new() };
        if thread == 1 {
            let each = &mut |entry: Entry<'_>| {
                let value = entry.values().next().expect("it has a value");
                let stays = (STAY..STAY + STAYING).any(|number| key(number) == *entry.key);
                assert!(!stays || value == entry.key, "its own value");
                keys.push(entry.key.to_vec());
                true
            };
            map.entries(each).unwrap();
        }
        let different: HashSet<_> = keys.iter().collect();
        assert_eq!(keys.len(), different.len(), "no key twice");
        assert!((STAY..STAY + STAYING).all(|number| different.contains(&key(number).to_vec())), "all that stay");
    });
}
