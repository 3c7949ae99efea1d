//! Threads call instances of one object, which share its code, its global, maps and ring buffer, while another takes
//! what they send. Nothing is lost, counted twice or torn.

#[path = "support/blocked.rs"]
mod blocked;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use twinbpf::{Config, Engine, EngineKind, InstancePre, Linker, Object};
use twinbpf_vm::map::Sent;

/// Turns of one call.
const TURNS: u32 = 200;

/// Calls the program at least so often, and until the time is over; gives the number of turns.
fn work(pre: &InstancePre<()>, thread: u32, calls: u32, end: Instant) -> u32 {
    let mut instance = pre.instance(()).expect("room for a stack");
    let entry = pre.program("work").expect("the object has it");
    let mut turns = 0;
    while turns < calls * TURNS || Instant::now() < end {
        let (first, last) = (turns, turns + TURNS);
        let result = instance.call(entry, &[thread.into(), first.into(), last.into()]);
        assert_eq!(result.unwrap_or_else(|trap| panic!("{trap:#}")), 0);
        turns = last;
    }
    turns
}

/// A copy of the value under a key.
fn value<const N: usize>(pre: &InstancePre<()>, map: &str, key: u32) -> [u64; N] {
    let map = pre.map_ops(map).expect("the object has it");
    let mut bytes = vec![0; map.spec().value_size as usize];
    map.lookup_copy(&key.to_le_bytes(), 0, &mut bytes).expect("an element");
    let mut words = bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes")));
    std::array::from_fn(|_| words.next().expect("a larger value"))
}

/// Every record is whole, and those of one thread come in order.
fn check_records(records: &[Sent]) {
    let mut last = HashMap::new();
    for record in records {
        let word = |at: usize| u64::from_le_bytes(record.bytes[at..at + 8].try_into().expect("8 bytes"));
        let (thread, turn) = (word(0) as u32, (word(0) >> 32) as u32);
        assert_eq!(word(8), u64::from(thread) << 32 ^ !u64::from(turn));
        assert!(turn.is_multiple_of(2), "turn {turn} was discarded");
        let before = last.insert(thread, turn);
        assert!(before < Some(turn), "thread {thread}: {turn} after {before:?}");
    }
}

/// So many threads make at least so many calls each, for at least this long.
fn check(kind: EngineKind, threads: u32, calls: u32, time: Duration) {
    let object = Object::open("threads.bpf.o", include_bytes!("../corpus/embed/threads.bpf.o")).expect("an object");
    let engine = Engine::new(Config::new().engine(kind)).expect("address space");
    let pre = Linker::new(&engine).instantiate_programs(&object, &["work"]).unwrap_or_else(|error| panic!("{error:#}"));
    let events = Arc::clone(pre.map_ops("events").expect("the object has it"));
    let (end, over) = (Instant::now() + time, AtomicBool::new(false));
    let (turns, records) = thread::scope(|scope| {
        let consumer = scope.spawn(|| {
            let mut records = Vec::new();
            while !over.load(Ordering::SeqCst) {
                records.extend(events.take_sent());
                thread::yield_now();
            }
            records.extend(events.take_sent());
            records
        });
        let workers: Vec<_> = (0..threads)
            .map(|thread| (&pre, thread))
            .map(|(pre, thread)| scope.spawn(move || work(pre, thread, calls, end)))
            .collect();
        let turns: Vec<_> = workers.into_iter().map(thread::ScopedJoinHandle::join).collect();
        over.store(true, Ordering::SeqCst);
        let turns: Vec<u32> = turns.into_iter().map(|turns| turns.expect("no panic")).collect();
        (turns, consumer.join().expect("no panic"))
    });
    assert!(turns.iter().all(|turns| *turns > 0), "{turns:?}");
    let total = u64::from(turns.iter().sum::<u32>());
    assert_eq!(value::<1>(&pre, ".bss", 0), [total]);
    assert_eq!((0..16).map(|key| value::<1>(&pre, "counts", key)[0]).sum::<u64>(), total);
    let [_, locked, sent] = value::<3>(&pre, "locked", 0);
    assert_eq!(locked, total);
    assert_eq!(records.len() as u64, sent);
    assert!(sent > 0);
    check_records(&records);
}

fn kinds() -> &'static [EngineKind] {
    match EngineKind::Jit.is_available() {
        true => &[EngineKind::Interp, EngineKind::Auto, EngineKind::Jit],
        false => &[EngineKind::Interp, EngineKind::Auto],
    }
}

#[test]
fn instances_of_one_object_run_at_the_same_time() {
    for kind in kinds() {
        check(*kind, 2, 1, Duration::from_millis(300));
    }
}

#[test]
fn sixty_four_threads_share_code_and_a_map() {
    for kind in kinds() {
        check(*kind, 64, 5, Duration::ZERO);
    }
}

blocked::with_every_signal_blocked!();
