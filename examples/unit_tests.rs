//! Unit tests of an XDP program, with helpers of its kernel replaced: `cargo run --example unit_tests`.
//!
//! The program lets a burst of packets through and then one a millisecond, and samples one in a hundred. Its clock and its
//! random numbers are the tests'. It is corpus/embed/limiter.bpf.c, and runs in a kernel as it is. In a project of yours
//! these functions have `#[test]` in place of being called by `main`.
#![forbid(unsafe_code)]

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use twinbpf::{Config, Engine, Entry, Instance, Linker, Object, XdpAction, XdpPacket, btf_type};
use zerocopy::{FromBytes, Immutable, IntoBytes};

const MILLISECOND: u64 = 1_000_000;

/// `struct bucket`.
#[derive(Debug, PartialEq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Bucket {
    tokens: u64,
    last: u64,
}
btf_type!(Bucket { tokens, last });

/// What the program believes.
#[derive(Default)]
struct World {
    nanoseconds: AtomicU64,
    random: AtomicU32,
}

/// A program that has seen no packet yet, and its world.
struct Fixture {
    world: Arc<World>,
    instance: Instance<()>,
    limiter: Entry,
}

impl Fixture {
    fn new() -> Result<Fixture, Box<dyn Error>> {
        let object = Object::open("limiter.bpf.o", include_bytes!("../corpus/embed/limiter.bpf.o"))?;
        let world = Arc::new(World::default());
        world.random.store(1, Ordering::Relaxed);
        let mut linker = Linker::<()>::new(&Engine::new(Config::new())?);
        // A function with a helper's name takes its place.
        let clock = Arc::clone(&world);
        linker.func("bpf_ktime_get_ns", move || clock.nanoseconds.load(Ordering::Relaxed));
        let dice = Arc::clone(&world);
        linker.func("bpf_get_prandom_u32", move || dice.random.load(Ordering::Relaxed));
        let pre = linker.instantiate_pre(&object)?;
        let limiter = pre.program("limiter").ok_or("the object has it")?;
        Ok(Fixture { world, instance: pre.instance(())?, limiter })
    }

    /// The verdicts on packets that come one after the other.
    fn verdicts(&mut self, packets: usize) -> Result<Vec<XdpAction>, Box<dyn Error>> {
        let packet = [0; 60];
        (0..packets).map(|_| Ok(self.instance.run_xdp(self.limiter, &packet)?.verdict)).collect()
    }

    fn wait(&self, nanoseconds: u64) {
        self.world.nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
    }
}

fn a_burst_passes_and_no_more() -> Result<(), Box<dyn Error>> {
    let mut fixture = Fixture::new()?;
    fixture.wait(10 * MILLISECOND);
    assert_eq!(fixture.verdicts(4)?, [XdpAction::Pass, XdpAction::Pass, XdpAction::Pass, XdpAction::Drop]);
    Ok(())
}

fn one_passes_each_millisecond() -> Result<(), Box<dyn Error>> {
    let mut fixture = Fixture::new()?;
    fixture.wait(10 * MILLISECOND);
    fixture.verdicts(3)?;
    fixture.wait(MILLISECOND - 1);
    assert_eq!(fixture.verdicts(1)?, [XdpAction::Drop]);
    fixture.wait(1);
    assert_eq!(fixture.verdicts(2)?, [XdpAction::Pass, XdpAction::Drop]);
    Ok(())
}

fn a_program_continues_where_its_maps_say() -> Result<(), Box<dyn Error>> {
    let mut fixture = Fixture::new()?;
    let buckets = fixture.instance.pre().map::<u32, Bucket>("buckets")?;
    buckets.insert(&0, &Bucket { tokens: 1, last: 0 }, twinbpf::BPF_ANY)?;
    assert_eq!(fixture.verdicts(2)?, [XdpAction::Pass, XdpAction::Drop]);
    assert_eq!(buckets.get(&0)?, Some(Bucket { tokens: 0, last: 0 }));
    Ok(())
}

fn every_hundredth_packet_is_sampled() -> Result<(), Box<dyn Error>> {
    let mut fixture = Fixture::new()?;
    fixture.wait(2 * MILLISECOND);
    fixture.verdicts(1)?;
    assert!(fixture.instance.pre().take_sent().is_empty());
    fixture.world.random.store(300, Ordering::Relaxed);
    let long = [0; 1000];
    let packet = XdpPacket::new(&long).ingress_ifindex(3).rx_queue_index(1);
    let run = fixture.instance.run_xdp(fixture.limiter, packet)?;
    assert_eq!((run.verdict, run.packet.len()), (XdpAction::Pass, 1000));
    let sent = fixture.instance.pre().take_sent();
    assert_eq!((sent.len(), &*sent[0].0, &sent[0].1.bytes[..]), (1, "samples", &1000u32.to_le_bytes()[..]));
    Ok(())
}

type Test = fn() -> Result<(), Box<dyn Error>>;

fn main() -> Result<(), Box<dyn Error>> {
    let tests: [(&str, Test); 4] = [
        ("a burst passes and no more", a_burst_passes_and_no_more),
        ("one passes each millisecond", one_passes_each_millisecond),
        ("a program continues where its maps say", a_program_continues_where_its_maps_say),
        ("every hundredth packet is sampled", every_hundredth_packet_is_sampled),
    ];
    for (name, test) in tests {
        test()?;
        println!("ok: {name}");
    }
    Ok(())
}
