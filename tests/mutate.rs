//! Damaged objects end in an error or a run: never in a panic, a hang, or memory beyond a bound.
//!
//! 100,000 objects are made of the corpus by flipping, cutting and splicing bytes. Each is opened, linked,
//! validated, instantiated, and all its programs are called, with a small budget. The seed is fixed; a failure
//! names the mutant, and `TWINBPF_MUTANT=N` runs that mutant alone.
#![expect(unsafe_code, reason = "tests call the C library, or what they test is unsafe")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::fs;
use std::io;
use std::panic;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use twinbpf::{Config, Engine, Linker, Object};

const MUTANTS: u64 = 100_000;
/// Heap bytes, over all threads. The arena of each engine is bounded by itself.
const MAX_HEAP: usize = 1 << 30;
const ARENA: u64 = 32 << 20;
const MAX_TIME: Duration = Duration::from_secs(10);

/// Counts the heap bytes in use.
struct Counting;

static IN_USE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: forwards to the system's allocator and only counts.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let used = IN_USE.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(used, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// xorshift64*, seeded by the number of the mutant.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}

fn objects() -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus")];
    while let Some(folder) = folders.pop() {
        let mut entries: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        entries.sort();
        for path in entries {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "o") {
                found.push(fs::read(path).unwrap());
            }
        }
    }
    assert!(found.len() > 40, "the corpus was found");
    found
}

const INTERESTING: [u64; 12] = [0, 1, 7, 8, 0x7f, 0xff, 0x7fff, 0xffff, 0x7fff_ffff, 0xffff_ffff, 1 << 40, u64::MAX];

fn mutate(objects: &[Vec<u8>], number: u64) -> Vec<u8> {
    let mut random = Random((number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut bytes = objects[random.below(objects.len())].clone();
    for _ in 0..1 + random.below(6) {
        let at = random.below(bytes.len());
        match random.below(10) {
            0..=3 => bytes[at] ^= 1 << random.below(8),
            4..=5 => bytes[at] = random.next() as u8,
            6..=7 => {
                let value = INTERESTING[random.below(INTERESTING.len())].to_le_bytes();
                let width = [1, 2, 4, 8][random.below(4)];
                let at = at / width * width;
                let end = (at + width).min(bytes.len());
                bytes[at..end].copy_from_slice(&value[..end - at]);
            }
            8 => {
                let other = &objects[random.below(objects.len())];
                let from = random.below(other.len());
                let len = random.below(256).min(other.len() - from).min(bytes.len() - at);
                bytes[at..at + len].copy_from_slice(&other[from..from + len]);
            }
            _ => bytes.truncate(at.max(1)),
        }
    }
    bytes
}

/// Opens and runs all there is; says how far it got.
fn exercise(bytes: &[u8]) -> Result<u32, Box<dyn std::error::Error>> {
    let object = Object::open("mutated.bpf.o", bytes)?;
    let config =
        Config::new().memory_limit(ARENA).max_insns(3000).timeout(Duration::from_secs(2)).stack_limit(64 << 10);
    let linker = Linker::<()>::new(&Engine::new(config)?);
    let pre = linker.instantiate_programs(&object, &[])?;
    let names: Vec<String> = pre.programs().map(str::to_owned).collect();
    let mut instance = pre.instance_with_output((), Box::new(io::sink()))?;
    instance.machine().runtime_mut().trace = Box::new(io::sink());
    let context = instance.context(&[0; 256])?;
    let mut called = 0;
    for name in names {
        let entry = pre.program(&name).expect("it was listed");
        // A trap is as good an end as any.
        let _ = instance.call(entry, &[context.addr(), 256]);
        called += 1;
    }
    Ok(called)
}

fn survives(objects: &[Vec<u8>], number: u64) -> bool {
    let bytes = mutate(objects, number);
    let start = Instant::now();
    let result = panic::catch_unwind(|| exercise(&bytes).map_err(|error| (format!("{error}"), format!("{error:#}"))));
    let result = result.unwrap_or_else(|_| panic!("mutant {number} panicked; TWINBPF_MUTANT={number} repeats it"));
    assert!(start.elapsed() < MAX_TIME, "mutant {number} took {:?}", start.elapsed());
    if let Err((line, _)) = &result {
        assert!(!line.is_empty(), "mutant {number}: an error without text");
    }
    matches!(result, Ok(called) if called > 0)
}

#[test]
fn damaged_objects_end_in_an_error_or_a_run() {
    let objects = objects();
    if let Some(only) = std::env::var("TWINBPF_MUTANT").ok().and_then(|only| only.parse().ok()) {
        println!("mutant {only} ran programs: {}", survives(&objects, only));
        return;
    }
    let next = AtomicUsize::new(0);
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let ran: u64 = thread::scope(|scope| {
        let worker = || {
            let mut ran = 0;
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed) as u64;
                if number >= MUTANTS {
                    return ran;
                }
                ran += u64::from(survives(&objects, number));
            }
        };
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().map(|worker| worker.join().expect("a mutant failed")).sum()
    });
    let peak = PEAK.load(Ordering::Relaxed);
    println!("{MUTANTS} objects, {ran} of them ran programs; heap peak {} MiB", peak >> 20);
    assert!(peak < MAX_HEAP, "heap peak {peak}");
    // Both ends are exercised: many objects still run, many do not.
    assert!(ran > MUTANTS / 10 && ran < MUTANTS, "{ran} objects ran programs");
}
