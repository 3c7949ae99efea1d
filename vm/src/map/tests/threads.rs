//! Several threads on one map: no deadlock, no torn element, counts that add up.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::lpm::{prefix, trie};
use super::*;
use crate::map::{BPF_ANY, BPF_EXIST, Errno, MapFlags};

const TIME: Duration = Duration::from_millis(150);

/// Runs `work(thread, step)` on four threads for a while.
fn hammer(work: impl Fn(u32, u32) + Sync) {
    let end = Instant::now() + TIME;
    thread::scope(|scope| {
        for number in 0..4 {
            let work = &work;
            scope.spawn(move || {
                for step in 0.. {
                    if step % 64 == 0 && Instant::now() > end {
                        break;
                    }
                    work(number, step);
                }
            });
        }
    });
}

/// Values whose bytes are all the same; a mixture would show up.
fn keyed(map: &dyn MapOps, make_key: impl Fn(u32) -> Vec<u8> + Sync) {
    let size = map.spec().value_size as usize;
    hammer(|thread, step| {
        let at = make_key(step.wrapping_mul(2_654_435_761) >> 26);
        match (step + thread) % 4 {
            0 => match map.update(&at, &vec![thread as u8 + 1; size], BPF_ANY, 0) {
                Ok(()) | Err(Errno::E2BIG | Errno::ENOSPC) => {}
                Err(error) => panic!("{error}"),
            },
            1 => drop(map.delete(&at)),
            2 => {
                if let Some(value) = copy(map, &at) {
                    assert!((1..=4).contains(&value[0]) && value.iter().all(|byte| *byte == value[0]), "{value:?}");
                }
            }
            _ => {
                map.lookup(&at, 0);
                map.next_key(Some(&at), &mut vec![0; at.len()]).ok();
            }
        }
    });
    let keys = map.keys();
    assert_eq!(keys.len(), map.len() as usize);
    assert!(map.len() <= map.spec().max_entries);
    assert!(keys.iter().all(|key| map.delete(key).is_ok()));
    assert!(map.is_empty());
}

#[test]
fn hash() {
    keyed(&*make(&arena(), spec(MapKind::Hash, 4, 40, 48)), |number| key(number).to_vec());
}

#[test]
fn lru() {
    keyed(&*make(&arena(), spec(MapKind::LruHash, 4, 40, 48)), |number| key(number).to_vec());
}

#[test]
fn every_element_of_an_lru_map_stays_in_a_list() {
    for (entries, flags) in [(1, 0), (3, 0), (48, 0), (48, MapFlags::NO_COMMON_LRU.bits())] {
        let map = make(&arena(), MapSpec { flags, ..spec(MapKind::LruHash, 4, 8, entries) });
        hammer(|thread, step| {
            let at = key(step.wrapping_mul(2_654_435_761) >> 26);
            match (step + thread) % 4 {
                0 | 1 => map.update(&at, &[1; 8], BPF_ANY, 0).unwrap(),
                2 => drop(map.delete(&at)),
                _ => drop(map.lookup(&at, 0)),
            }
            assert!(map.len() <= entries);
        });
        // Once more for those that were used, and for those that were pending for other threads.
        (0..3 * entries).for_each(|number| map.update(&key(1000 + number), &[2; 8], BPF_ANY, 0).unwrap());
        let keys = map.keys();
        assert_eq!((keys.len() as u32, map.len()), (entries, entries));
        // With a list for each processor this thread has replaced what was in its own.
        let new = keys.iter().filter(|key| u32::from_le_bytes(key[..].try_into().unwrap()) >= 1000).count() as u32;
        assert!(if flags == 0 { new == entries } else { new > 0 }, "{keys:?}");
    }
}

/// One thread adds elements and another deletes them: slots come back from its lane.
#[test]
fn a_map_does_not_grow_where_others_delete() {
    let map = make(&arena(), spec(MapKind::Hash, 4, 8, 100_000));
    let (added, deleted) = (AtomicU64::new(0), AtomicU64::new(0));
    let wait = |count: &AtomicU64, least: u64| {
        while count.load(Ordering::Acquire) < least {
            thread::yield_now();
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..5000 {
                wait(&deleted, u64::from(number));
                map.update(&key(number), &[1; 8], BPF_ANY, 0).unwrap();
                added.fetch_add(1, Ordering::Release);
            }
        });
        scope.spawn(|| {
            for number in 0..5000 {
                wait(&added, u64::from(number) + 1);
                map.delete(&key(number)).unwrap();
                deleted.fetch_add(1, Ordering::Release);
            }
        });
    });
    assert!(map.slots() < Some(200), "{:?} slots for one element", map.slots());
}

#[test]
fn lpm() {
    let map = make(&arena(), MapSpec { value_size: 40, ..trie(1, 48) });
    keyed(&*map, |number| prefix(2 + number % 7, &[(number << 2) as u8]));
}

#[test]
fn a_queue_loses_nothing() {
    let map = make(&arena(), spec(MapKind::Queue, 0, 8, 100));
    let (pushed, popped) = (AtomicU64::new(0), AtomicU64::new(0));
    hammer(|thread, step| {
        let mut value = (u64::from(thread) << 32 | u64::from(step)).to_le_bytes();
        if thread % 2 == 0 {
            if map.push(&value, BPF_ANY).is_ok() {
                pushed.fetch_add(u64::from_le_bytes(value), Ordering::Relaxed);
            }
        } else if map.pop(&mut value).is_ok() {
            popped.fetch_add(u64::from_le_bytes(value), Ordering::Relaxed);
        }
    });
    let mut value = [0; 8];
    while map.pop(&mut value).is_ok() {
        popped.fetch_add(u64::from_le_bytes(value), Ordering::Relaxed);
    }
    assert_eq!(pushed.into_inner(), popped.into_inner());
}

#[test]
fn a_ring_loses_nothing() {
    let arena = arena();
    let map = make(&arena, spec(MapKind::Ringbuf, 0, 0, 4096));
    let (pushed, popped) = (AtomicU64::new(0), AtomicU64::new(0));
    let consume = || {
        for sent in map.take_sent() {
            assert!(sent.bytes.iter().all(|byte| *byte == sent.bytes[0]), "{sent:?}");
            popped.fetch_add(1, Ordering::Relaxed);
        }
    };
    hammer(|thread, step| {
        if thread == 0 {
            return consume();
        }
        let ring = map.ring().unwrap();
        if let Some(sample) = ring.reserve(u64::from(step % 100 + 1)) {
            view(&arena).fill(sample, u64::from(step % 100 + 1), thread as u8).unwrap();
            let discard = step % 5 == 0;
            ring.commit(sample, discard).unwrap();
            pushed.fetch_add(u64::from(!discard), Ordering::Relaxed);
        }
    });
    consume();
    assert_eq!(pushed.into_inner(), popped.into_inner());
}

#[test]
fn locked_updates_are_whole() {
    let map = make(&arena(), MapSpec { spin_lock: Some(0), ..spec(MapKind::Array, 4, 64, 1) });
    hammer(|thread, _| {
        map.update(&key(0), &[thread as u8; 64], BPF_EXIST | crate::map::BPF_F_LOCK, 0).unwrap();
    });
    let value = copy(&*map, &key(0)).unwrap();
    assert!(value[4..].iter().all(|byte| *byte == value[4]), "{value:?}");
    assert_eq!(value[..4], [0; 4]);
}
