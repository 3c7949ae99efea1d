//! Maps under load of eight threads, two seconds each by default. `TWINBPF_MAP_SECONDS=60` for more of it,
//! `TWINBPF_MAP_PAIRS=100000000` for so many deletes and inserts of a full map.

mod arrays;
mod churn;
mod hash;
mod history;
mod lpm;
mod lru;
mod of_maps;
mod percpu;
mod queues;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use twinbpf_vm::map::{MapKind, MapOps, MapSpec, create};
use twinbpf_vm::mem::Arena;

const THREADS: usize = 8;

fn time() -> Duration {
    let seconds = std::env::var("TWINBPF_MAP_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    Duration::from_secs(seconds.unwrap_or(2))
}

fn make(spec: MapSpec) -> Arc<dyn MapOps> {
    create(spec, &Arena::new(256 << 20).unwrap(), THREADS as u32).unwrap()
}

fn spec(kind: MapKind, key: u32, value: u32, max_entries: u32) -> MapSpec {
    MapSpec::new("load", kind, key, value, max_entries)
}

/// A value of 8 bytes.
fn get(map: &dyn MapOps, key: &[u8]) -> Option<u64> {
    let mut value = [0; 8];
    map.lookup_copy(key, 0, &mut value).ok().map(|()| u64::from_le_bytes(value))
}

/// Numbers that look random: splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

/// Runs `work(thread, round, random)` on all threads until time is up, and gives how many rounds there were.
fn hammer(work: impl Fn(usize, u64, &mut Random) + Sync) -> u64 {
    let (end, failed) = (Instant::now() + time(), AtomicBool::new(false));
    let run = |number: usize| {
        let mut random = Random(number as u64);
        let mut round = 0;
        while Instant::now() < end && !failed.load(Ordering::Relaxed) {
            for _ in 0..64 {
                work(number, round, &mut random);
                round += 1;
            }
        }
        round
    };
    /// Ends the other threads where one panics.
    struct Fails<'a>(&'a AtomicBool);
    impl Drop for Fails<'_> {
        fn drop(&mut self) {
            self.0.fetch_or(thread::panicking(), Ordering::Relaxed);
        }
    }
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|number| {
                let (run, failed) = (&run, &failed);
                scope.spawn(move || {
                    let _fails = Fails(failed);
                    run(number)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic in a thread")).sum()
    })
}
