//! Per-CPU maps: each thread counts as a CPU of its own, and nothing is lost.

use std::sync::atomic::{AtomicU64, Ordering};

use twinbpf_vm::map::{BPF_ANY, MapKind};

use crate::{THREADS, hammer, make, spec};

fn check(kind: MapKind) {
    const KEYS: u32 = 16;
    let map = make(spec(kind, 4, 8, KEYS));
    let counted: Vec<AtomicU64> = (0..KEYS).map(|_| AtomicU64::new(0)).collect();
    let count = |key: u32, cpu: u32| {
        let mut value = [0; 8];
        map.lookup_copy(&key.to_le_bytes(), cpu, &mut value).map_or(0, |()| u64::from_le_bytes(value))
    };
    hammer(|thread, _, random| {
        let (key, cpu) = (random.below(KEYS.into()) as u32, thread as u32);
        let more = count(key, cpu) + 1;
        map.update(&key.to_le_bytes(), &more.to_le_bytes(), BPF_ANY, cpu).unwrap();
        counted[key as usize].fetch_add(1, Ordering::Relaxed);
    });
    for key in 0..KEYS {
        let sum: u64 = (0..THREADS as u32).map(|cpu| count(key, cpu)).sum();
        assert_eq!(sum, counted[key as usize].load(Ordering::Relaxed), "key {key}");
    }
}

#[test]
fn sums_of_an_array_are_exact() {
    check(MapKind::PercpuArray);
}

#[test]
fn sums_of_a_hash_are_exact() {
    check(MapKind::PercpuHash);
}
