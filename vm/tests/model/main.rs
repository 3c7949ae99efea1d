//! The hash table without locks, on a machine with weak memory: `vm/src/map/index.rs`, `store.rs`, `writers.rs` and others are
//! compiled with atomics of that machine, and a few threads go in many ways, by seeds. `TWINBPF_MAP_SECONDS=60` for more of them.

mod machine;
mod map;
mod mem;

use std::time::{Duration, Instant};

use machine::run;
use map::{Errno, Hash, Values};

type Work<'a, R> = &'a (dyn Fn(&Hash) -> R + Sync);

/// How long each test tries ways, by default 0.4 seconds.
fn time() -> Duration {
    let seconds = std::env::var("TWINBPF_MAP_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    seconds.map_or(Duration::from_millis(400), Duration::from_secs)
}

/// Two words that are not the same, and of no other key.
fn value(key: u32) -> u64 {
    u64::from(key) << 32 | u64::from(!key)
}

/// Puts keys into a map, does all of `work` at once in one way after another, and checks what came of it.
fn check<R: Send>(max_entries: u32, keys: &[u32], work: &[Work<'_, R>], end: impl Fn(&Hash, Vec<R>)) {
    check_all(&[Values::Shared, Values::PerCpu], max_entries, keys, work, end);
}

/// The same for maps with such values.
fn check_all<R: Send>(
    kinds: &[Values],
    max_entries: u32,
    keys: &[u32],
    work: &[Work<'_, R>],
    end: impl Fn(&Hash, Vec<R>),
) {
    let begin = |kind| {
        let map = Hash::new(max_entries, kind);
        keys.iter().for_each(|key| assert_eq!(map.put(*key, value(*key), true), Ok(())));
        map
    };
    let limit = Instant::now() + time();
    for (seed, kind) in (0..).zip(kinds.iter().cycle()) {
        if Instant::now() > limit {
            break;
        }
        run(seed, || begin(*kind), work, &end);
    }
}

/// Deletes one key and adds another.
fn swap(old: u32, new: u32) -> impl Fn(&Hash) -> Option<u64> {
    move |map| {
        assert_eq!((map.delete(old), map.put(new, value(new), true)), (Ok(()), Ok(())));
        None
    }
}

fn delete(key: u32) -> impl Fn(&Hash) -> Option<u64> {
    move |map| {
        map.delete(key).unwrap();
        None
    }
}

/// Adds a key once there is room.
fn put_at_last(key: u32) -> impl Fn(&Hash) -> Option<u64> {
    move |map| {
        while map.put(key, value(key), true) == Err(Errno::E2BIG) {}
        None
    }
}

fn get(key: u32) -> impl Fn(&Hash) -> Option<u64> {
    move |map| map.get(key)
}

fn all(map: &Hash, keys: &[u32]) -> Vec<Option<u64>> {
    keys.iter().map(|key| map.get(*key)).collect()
}

fn values(keys: &[u32]) -> Vec<Option<u64>> {
    keys.iter().map(|key| Some(value(*key))).collect()
}

#[test]
fn a_key_stays_found_while_its_neighbours_go() {
    // Even keys are one chain, odd ones another.
    check(3, &[2, 0, 4], &[&swap(0, 1), &get(2)], |map, found| {
        assert_eq!((found[1], all(map, &[1, 2, 4])), (Some(value(2)), values(&[1, 2, 4])));
    });
}

#[test]
fn a_look_without_a_change_misleads_no_search() {
    let miss = |map: &Hash| {
        assert_eq!((map.delete(4), map.put(0, 0, true)), (Err(Errno::ENOENT), Err(Errno::EEXIST)));
        None
    };
    check(3, &[2, 0], &[&miss, &get(2)], |_, found| assert_eq!(found[1], Some(value(2))));
}

#[test]
fn a_slot_that_another_thread_takes_misleads_no_search() {
    check(2, &[2, 0], &[&delete(0), &put_at_last(1), &get(2)], |_, found| assert_eq!(found[2], Some(value(2))));
}

/// Who deletes is another thread than who takes the slot.
#[test]
fn a_slot_of_another_thread_has_no_value_of_its_old_key() {
    check(1, &[0], &[&delete(0), &put_at_last(1), &get(0)], |_, found| {
        assert!(found[2].is_none_or(|found| found == value(0)), "{found:x?}");
    });
}

#[test]
fn no_value_is_another_keys() {
    check(1, &[0], &[&swap(0, 2), &get(0), &get(2)], |_, found| {
        assert!(found[1].is_none_or(|found| found == value(0)), "{found:x?}");
        assert!(found[2].is_none_or(|found| found == value(2)), "{found:x?}");
    });
}

#[test]
fn values_are_whole() {
    let put = |map: &Hash| {
        map.put(0, value(5), false).unwrap();
        None
    };
    check(1, &[0], &[&put, &get(0)], |map, found| {
        assert!([Some(value(0)), Some(value(5))].contains(&found[1]), "{found:x?}");
        assert_eq!(map.get(0), Some(value(5)));
    });
}

#[test]
fn a_value_is_replaced_only_under_its_key() {
    let replace = |number| {
        move |map: &Hash| {
            map.replace(0, value(number));
            None
        }
    };
    let kinds = [Values::PerCpu, Values::OnePiece];
    check_all(&kinds, 1, &[0], &[&swap(0, 2), &replace(5), &replace(7), &get(2)], |map, found| {
        let whole = Some(map.holds(value(2)));
        assert!(found[3].is_none() || found[3] == whole, "{found:x?}");
        assert_eq!((map.get(0), map.get(2)), (None, whole));
    });
}

#[test]
fn a_replaced_value_is_seen() {
    let put = |number| {
        move |map: &Hash| {
            assert_eq!(map.put(0, value(number), false), Ok(()));
            None
        }
    };
    let again = |map: &Hash| {
        map.delete(0).ok();
        None
    };
    check_all(&[Values::PerCpu, Values::OnePiece], 2, &[0], &[&put(5), &put(7), &again, &get(0)], |map, found| {
        let known = [0, 5, 7].map(|number| Some(map.holds(value(number))));
        assert!(found[3].is_none() || known.contains(&found[3]), "{found:x?}");
        assert!(map.get(0).is_none() || known[1..].contains(&map.get(0)), "{:x?}", map.get(0));
    });
}

#[test]
fn one_of_two_makes_a_new_key() {
    let put = |number| move |map: &Hash| map.put(0, number, true);
    check(2, &[], &[&put(0), &put(1)], |map, results| {
        let first = results.iter().position(Result::is_ok).expect("one is first");
        assert_eq!(results[1 - first], Err(Errno::EEXIST));
        assert_eq!((map.len(), map.get(0)), (1, Some(first as u64)));
    });
}

#[test]
fn one_of_two_takes_a_key_out() {
    let delete = |map: &Hash| map.delete(0);
    check(2, &[0, 2], &[&delete, &delete], |map, results| {
        assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1, "{results:?}");
        assert_eq!((map.len(), map.get(0), map.get(2)), (1, None, Some(value(2))));
        assert_eq!((map.put(4, 4, true), map.put(6, 6, true)), (Ok(()), Err(Errno::E2BIG)));
    });
}

#[test]
fn no_slot_is_lost_and_none_is_given_twice() {
    check(2, &[0, 1], &[&swap(0, 2), &swap(1, 3)], |map, _| {
        assert_eq!((all(map, &[0, 1]), all(map, &[2, 3])), (vec![None; 2], values(&[2, 3])));
        assert_eq!((map.len(), map.put(4, 0, true)), (2, Err(Errno::E2BIG)));
    });
}

#[test]
fn keys_stay_found_while_the_index_grows() {
    let put = |map: &Hash| {
        map.put(4, value(4), true).unwrap();
        None
    };
    // The third one doubles the buckets.
    check(4, &[2, 0], &[&put, &get(2), &get(0)], |map, found| {
        assert_eq!((&found[1..], all(map, &[0, 2, 4])), (&values(&[2, 0])[..], values(&[0, 2, 4])));
    });
}

#[test]
fn changes_go_on_while_the_index_grows() {
    let put = |key| move |map: &Hash| map.put(key, value(key), true);
    let delete = |map: &Hash| map.delete(2);
    check(4, &[0, 2], &[&put(4), &delete, &put(6)], |map, results| {
        assert_eq!(results, [Ok(()); 3]);
        assert_eq!((map.get(2), all(map, &[0, 4, 6])), (None, values(&[0, 4, 6])));
    });
}

#[test]
fn walks_find_whole_keys() {
    let others = |map: &Hash| {
        swap(0, 1)(map);
        swap(1, 4)(map);
        Vec::new()
    };
    check(2, &[2, 0], &[&others, &Hash::walk], |_, walked| {
        assert_eq!(walked[1].iter().filter(|key| **key == 2).count(), 1, "{walked:?}");
        assert!(walked[1].len() <= 2 && walked[1].iter().all(|key| [0, 1, 2, 4].contains(key)), "{walked:?}");
    });
}
