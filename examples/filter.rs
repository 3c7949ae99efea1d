//! A packet filter with four threads and hot reload: `cargo run --example filter`.
//!
//! Each thread has an instance of the filter and checks for a newer version before each packet. A new version takes the
//! map of blocked sources over from the old one; counts are its own. The programs are corpus/embed/filter.bpf.c and
//! corpus/embed/filter2.bpf.c, which can close a port too.
#![forbid(unsafe_code)]

use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier, RwLock};
use std::thread;

use twinbpf::{BPF_ANY, Config, Engine, InstancePre, Linker, Map, Object, XdpAction, btf_type};
use zerocopy::byteorder::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes};

const THREADS: usize = 4;
const PACKETS: u8 = 100;
const FIRST: &[u8] = include_bytes!("../corpus/embed/filter.bpf.o");
const SECOND: &[u8] = include_bytes!("../corpus/embed/filter2.bpf.o");

/// IPv4 sources, and how many packets of each were dropped.
type Blocked = Map<U32, u64>;

/// `struct verdicts`: what each CPU, which is an instance, has counted.
#[derive(FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Verdicts {
    passed: u64,
    dropped: u64,
}
btf_type!(Verdicts { passed, dropped });

/// The version that threads use, and its number.
struct Current {
    number: AtomicU64,
    filter: RwLock<InstancePre<()>>,
}

impl Current {
    /// Threads have it with their next packet.
    fn replace(&self, filter: InstancePre<()>) {
        *self.filter.write().expect("no thread panics with it") = filter;
        self.number.fetch_add(1, Ordering::Release);
    }

    fn filter(&self) -> InstancePre<()> {
        self.filter.read().expect("no thread panics with it").clone()
    }
}

/// Links a version. It shares `blocked` with the one before.
fn load(engine: &Engine, object: &[u8], blocked: Option<&Blocked>) -> Result<InstancePre<()>, Box<dyn Error>> {
    let mut linker = Linker::<()>::new(engine);
    if let Some(blocked) = blocked {
        linker.map("blocked", Arc::clone(blocked.ops()));
    }
    Ok(linker.instantiate_pre(&Object::open("filter.bpf.o", object)?)?)
}

/// An Ethernet frame with IPv4 and UDP, from 10.0.0.SOURCE to a port.
fn packet(source: u8, port: u8) -> Vec<u8> {
    let mut packet = vec![0; 60];
    packet[12..14].copy_from_slice(&[0x08, 0x00]);
    packet[14] = 0x45;
    packet[23] = 17;
    packet[26..30].copy_from_slice(&[10, 0, 0, source]);
    packet[36..38].copy_from_slice(&[0, port]);
    packet
}

/// Filters the packets of one thread, waiting after each hundred.
fn work(current: &Current, turns: usize, barrier: &Barrier) {
    let mut number = current.number.load(Ordering::Acquire);
    let mut instance = current.filter().instance(()).expect("a CPU is free");
    for _ in 0..turns {
        for source in 0..PACKETS {
            let newest = current.number.load(Ordering::Acquire);
            if newest != number {
                number = newest;
                instance = current.filter().instance(()).expect("a CPU is free");
            }
            let filter = instance.pre().program("filter").expect("each version has it");
            let run = instance.run_xdp(filter, &packet(source % 10, source % 4)).expect("it does not trap");
            assert!(matches!(run.verdict, XdpAction::Pass | XdpAction::Drop), "{}", run.verdict);
        }
        barrier.wait(); // the main thread reads what was counted ...
        barrier.wait(); // ... and has changed something
    }
}

/// Sums of all CPUs.
fn print(name: &str, filter: &InstancePre<()>, blocked: &Blocked) -> Result<(), Box<dyn Error>> {
    let counts = filter.per_cpu_map::<u32, Verdicts>("verdicts")?.get(&0)?.ok_or("an array has its elements")?;
    let sum = |of: fn(&Verdicts) -> u64| counts.iter().map(of).sum::<u64>();
    println!("{name}: {} passed, {} dropped", sum(|counts| counts.passed), sum(|counts| counts.dropped));
    let mut hits: Vec<_> = blocked.iter().map(|(source, hits)| (source.get(), hits)).collect();
    hits.sort_unstable();
    hits.iter().for_each(|(source, hits)| println!("  10.0.0.{} was blocked {hits} times", source & 0xff));
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let engine = Engine::new(Config::new().cpus(2 * THREADS as u32))?;
    let first = load(&engine, FIRST, None)?;
    let blocked: Blocked = first.map("blocked")?;
    blocked.insert(&U32::new(0x0a00_0007), &0, BPF_ANY)?;

    let current = Current { number: AtomicU64::new(1), filter: RwLock::new(first.clone()) };
    let barrier = Barrier::new(THREADS + 1);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| work(&current, 3, &barrier));
        }
        barrier.wait();
        print("version 1", &first, &blocked)?;
        // Maps change while programs run, for all threads at once.
        blocked.insert(&U32::new(0x0a00_0008), &0, BPF_ANY)?;
        barrier.wait();

        barrier.wait();
        print("version 1, one more is blocked", &first, &blocked)?;
        let second = load(&engine, SECOND, Some(&blocked))?;
        second.global::<u16>("closed_port")?.set(&3)?;
        current.replace(second.clone());
        barrier.wait();

        barrier.wait();
        print("version 2", &second, &blocked)?;
        barrier.wait();
        Ok(())
    })
}
