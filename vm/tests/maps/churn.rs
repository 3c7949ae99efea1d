//! A full map whose elements come and go: `TWINBPF_MAP_PAIRS` of a delete and an insert each, two million by default.

use std::thread;

use twinbpf_vm::map::{BPF_NOEXIST, MapKind};

use crate::{THREADS, get, make, spec};

/// Elements of each thread.
const OWN: u64 = 100;

fn pairs() -> u64 {
    std::env::var("TWINBPF_MAP_PAIRS").ok().and_then(|pairs| pairs.parse().ok()).unwrap_or(2_000_000)
}

#[test]
fn a_full_map_stays_full() {
    let map = make(spec(MapKind::Hash, 8, 8, (THREADS as u64 * OWN) as u32));
    let key = |thread: usize, number: u64| ((thread as u64) << 56 | number).to_le_bytes();
    let each = pairs() / THREADS as u64;
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let map = &map;
            scope.spawn(move || {
                let insert = |number| map.update(&key(thread, number), &key(thread, number), BPF_NOEXIST, 0);
                (0..OWN).for_each(|number| insert(number).unwrap());
                for number in 0..each {
                    map.delete(&key(thread, number)).unwrap();
                    // A thread takes no more slots than it gave back.
                    insert(number + OWN).unwrap_or_else(|error| panic!("pair {number}: {error}"));
                    if number % 64 == 0 {
                        assert_eq!(
                            get(&**map, &key(thread, number + OWN)).map(u64::to_le_bytes),
                            Some(key(thread, number + OWN))
                        );
                        assert_eq!(get(&**map, &key(thread, number)), None);
                    }
                }
            });
        }
    });
    assert_eq!((u64::from(map.len()), map.keys().len() as u64), (THREADS as u64 * OWN, THREADS as u64 * OWN));
    for thread in 0..THREADS {
        let found = (each..each + OWN).filter(|number| get(&*map, &key(thread, *number)).is_some());
        assert_eq!(found.count() as u64, OWN, "thread {thread}");
    }
}
