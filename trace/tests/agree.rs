//! The same program, the same result, in the kernel and in the machine: every program of the corpus that the kernel can run
//! on demand, on many inputs, one after the other over the same maps. What it returns, the packet and the context
//! afterwards, what it sent and the contents of every map must be the same.
//!
//! `agree.txt` says of each program how often it was compared, or which side does not take it; `BLESS=1` writes it anew.
//! Needs the right to call bpf(2).

#[path = "../../tests/support/mod.rs"]
mod support;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use support::{cases, corpus, harness, objects, skip};
use twinbpf::{Config, Engine, Entry, Instance, InstancePre, Linker, PacketKind};
use twinbpf_isa::{Groups, Policy};
use twinbpf_kernel::load::{LoadOptions, Pinning};
use twinbpf_kernel::prog::{ProgType, TestRun};
use twinbpf_kernel::share::KernelMap;
use twinbpf_kernel::system::System;
use twinbpf_kernel::{Loaded, Prog};
use twinbpf_loader::kernel::KernelOptions;
use twinbpf_loader::section::SectionKind;
use twinbpf_loader::{Object, ProgramSpec, Role};
use twinbpf_vm::map::{MapKind, MapOps};

const FOLDERS: [&str; 5] = ["kernel", "packets", "maps", "scripts", "faults"];
/// Of the benches' objects. The others work on blocks larger than any context; their bench compares them with the kernel.
const BENCHES: [&str; 3] = ["bench/call.bpf.o", "bench/events.bpf.o", "bench/maps.bpf.o"];

/// Programs whose result depends on what only one side has, and on what.
const APART: &[(&str, &str)] = &[
    ("packets/xdp_targets.bpf.o to_device", EMPTY_TARGETS),
    ("packets/xdp_targets.bpf.o to_all_devices", EMPTY_TARGETS),
    ("packets/xdp_targets.bpf.o to_cpu", EMPTY_TARGETS),
    ("packets/xdp_targets.bpf.o to_socket", EMPTY_TARGETS),
    ("bench/maps.bpf.o lru_hash_update", "which elements of a full LRU map go is a matter of chance in the kernel"),
];

const EMPTY_TARGETS: &str = "the machine redirects to whatever a map may hold, the kernel to what it does hold";

/// Bytes of an Ethernet header.
const ETHERNET: usize = 14;
/// Room after a packet: what `bpf_xdp_adjust_tail` may add in the kernel's test run.
const HEADROOM: usize = 512;
/// Size of a context of `syscall` programs; the kernel takes one of 64 KiB.
const CONTEXT: usize = 4096;

/// What became of a program.
enum Verdict {
    /// So many inputs gave the same.
    Same(usize),
    Refused {
        by: &'static str,
        why: String,
    },
    /// The kernel runs no programs of this kind on demand.
    NoRun(&'static str),
    Apart(&'static str),
}

fn kernel_and_machine_agree() {
    if let Err(why) = allowed() {
        return skip(&why);
    }
    stay_on_this_cpu();
    let packets = packets();
    let (mut lines, mut compared, mut refused) = (String::new(), 0, 0);
    for path in objects(&FOLDERS).into_iter().chain(BENCHES.map(str::to_owned)) {
        let bytes = std::fs::read(corpus().join(&path)).unwrap();
        let object = Object::open(&path, &bytes).unwrap_or_else(|error| panic!("{error:#}"));
        for (index, spec) in object.programs.iter().enumerate().filter(|(_, spec)| is_for_kernel(spec)) {
            let verdict = compare(&object, index, &packets);
            let name = format!("{path} {}", spec.name);
            match &verdict {
                Verdict::Same(inputs) => writeln!(lines, "{name}: the same on {inputs} inputs"),
                Verdict::Refused { by, .. } => writeln!(lines, "{name}: refused by the {by}"),
                Verdict::NoRun(kind) => writeln!(lines, "{name}: no test run of {kind}"),
                Verdict::Apart(why) => writeln!(lines, "{name}: {why}"),
            }
            .expect("strings take all");
            compared += usize::from(matches!(verdict, Verdict::Same(_)));
            if let Verdict::Refused { by, why } = &verdict {
                println!("{name}: refused by the {by}: {why}");
                refused += 1;
            }
        }
    }
    println!("{compared} programs compared, {refused} refused by one side");
    assert!(compared >= 25, "only {compared} programs were compared:\n{lines}");
    golden(&lines);
}

fn golden(lines: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/agree.txt");
    if std::env::var_os("BLESS").is_some() {
        return std::fs::write(&path, lines).unwrap();
    }
    let before = std::fs::read_to_string(&path).unwrap_or_default();
    let changed: Vec<&str> = lines.lines().filter(|line| !before.lines().any(|old| old == *line)).collect();
    assert_eq!(before, lines, "changed: {changed:#?}");
}

/// Keeps this thread on its CPU, so that all runs of a program write to the same values of per-CPU maps.
#[expect(unsafe_code, reason = "sched_setaffinity has no safe form in the dependencies")]
fn stay_on_this_cpu() {
    // SAFETY: `cpu_set_t` is an array of integers, and both functions read and write only that.
    let status = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(libc::sched_getcpu() as usize, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set)
    };
    assert_eq!(status, 0, "{}", std::io::Error::last_os_error());
}

/// Whether programs can be loaded here.
fn allowed() -> Result<(), String> {
    let insns = [[0xb7, 0, 0, 0, 0, 0, 0, 0], [0x95, 0, 0, 0, 0, 0, 0, 0_u8]].concat();
    let spec = twinbpf_kernel::prog::ProgLoad::new("probe", ProgType::Xdp, &insns, "");
    Prog::load(&spec).map(drop).map_err(|error| error.to_string())
}

fn is_for_kernel(spec: &ProgramSpec) -> bool {
    spec.role == Role::Entry && spec.attach.prog_type().is_some() && !matches!(spec.attach.kind, SectionKind::Script(_))
}

/// Every packet of the corpus's cases, and an empty one.
fn packets() -> Vec<Vec<u8>> {
    let mut packets = vec![vec![0; 64]];
    for case in cases() {
        let at = case.args.iter().position(|arg| arg == "--packet");
        let Some(hex) = at.and_then(|at| case.args.get(at + 1)).filter(|hex| !hex.starts_with('@')) else { continue };
        let digits: Vec<u8> = hex.bytes().filter_map(|digit| (digit as char).to_digit(16)).map(|d| d as u8).collect();
        packets.push(digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect());
    }
    // The kernel takes no packet without a whole Ethernet header.
    packets.retain(|packet: &Vec<u8>| packet.len() >= ETHERNET);
    packets.sort();
    packets.dedup();
    assert!(packets.len() > 20, "the cases have packets");
    packets
}

fn compare(object: &Object, index: usize, packets: &[Vec<u8>]) -> Verdict {
    let spec = &object.programs[index];
    let kind = spec.attach.prog_type().expect("for the kernel");
    if !matches!(
        kind,
        ProgType::Xdp | ProgType::SchedCls | ProgType::SocketFilter | ProgType::RawTracepoint | ProgType::Syscall
    ) {
        return Verdict::NoRun(kind.name());
    }
    let name = format!("{} {}", object.name, spec.name);
    if let Some((_, why)) = APART.iter().find(|(program, _)| *program == name) {
        return Verdict::Apart(why);
    }
    let kernel = match InKernel::new(object, index) {
        Ok(kernel) => kernel,
        Err(why) => return Verdict::Refused { by: "kernel", why },
    };
    let mut machine = match InMachine::new(object, spec) {
        Ok(machine) => machine,
        Err(why) => return Verdict::Refused { by: "machine", why },
    };
    let inputs: Vec<Input> = match kind {
        ProgType::RawTracepoint => (0..8).map(|seed| Input::Context(pattern(16, seed))).collect(),
        ProgType::Syscall => (0..4).map(|seed| Input::Context(pattern(CONTEXT, seed))).collect(),
        _ => packets.iter().map(|packet| Input::Packet(packet.clone())).collect(),
    };
    let (mut same, mut refused) = (0, None);
    for (at, input) in inputs.iter().enumerate() {
        let expected = match kernel.run(kind, input) {
            Ok(expected) => seen_by(kind, expected),
            // Some want more than an Ethernet header.
            Err(why) => {
                refused = Some(why);
                continue;
            }
        };
        let found = match input {
            Input::Packet(packet) if kind == ProgType::SocketFilter => {
                machine.run(kind, &Input::Packet(packet[ETHERNET..].to_vec()))
            }
            Input::Packet(_) | Input::Context(_) => machine.run(kind, input),
        };
        assert_eq!(found, Ok(expected), "{name}, input {at}: {input:02x?}; the kernel's on the right");
        same += 1;
        compare_maps(&format!("{name}, input {at}"), &kernel.maps, machine.pre.maps());
    }
    match refused {
        Some(why) if same == 0 => Verdict::Refused { by: "kernel", why },
        _ => Verdict::Same(same),
    }
}

/// What a program saw of what the kernel's test run gives back: socket filters get packets without the Ethernet header, in
/// whose place zeroes come back.
fn seen_by(kind: ProgType, mut after: After) -> After {
    if kind == ProgType::SocketFilter {
        after.data.drain(..ETHERNET);
    }
    after
}

#[derive(Debug)]
enum Input {
    Packet(Vec<u8>),
    Context(Vec<u8>),
}

/// Numbers that differ from seed to seed.
fn pattern(size: usize, seed: u64) -> Vec<u8> {
    (0..size as u64).map(|at| (at.wrapping_mul(seed * 2 + 7) >> 1) as u8).collect()
}

/// What a run leaves behind, besides maps.
#[derive(Debug, PartialEq)]
struct After {
    r0: u32,
    data: Vec<u8>,
    context: Vec<u8>,
}

struct InKernel {
    loaded: Loaded,
    maps: Vec<Option<Arc<KernelMap>>>,
}

impl InKernel {
    fn new(object: &Object, index: usize) -> Result<InKernel, String> {
        let options = KernelOptions { programs: Some(needed(object, index)), ..KernelOptions::default() };
        let linked = object.link_kernel(System::get(), &options);
        if let Some(failure) = linked.failures.first() {
            return Err(failure.error.to_string());
        }
        let options = LoadOptions { pinning: Pinning::Ignore, ..LoadOptions::default() };
        let loaded = twinbpf_kernel::load(object, &linked, &options);
        if let Some(failure) = loaded.failures.first() {
            return Err(failure.to_string());
        }
        let engine = Engine::new(Config::new()).unwrap();
        let share = |(map, spec): (&Option<twinbpf_kernel::Map>, _)| {
            Some(KernelMap::new(map.as_ref()?, spec, engine.arena()).unwrap_or_else(|error| panic!("{error}")))
        };
        let maps = loaded.maps.iter().zip(linked.maps.iter().map(|map| &map.spec)).map(share).collect();
        Ok(InKernel { loaded, maps })
    }

    fn run(&self, kind: ProgType, input: &Input) -> Result<After, String> {
        let prog = &self.loaded.programs[0].as_ref().expect("it was loaded").prog;
        let run = match input {
            Input::Packet(data) => TestRun { data, headroom: HEADROOM, ..TestRun::default() },
            Input::Context(ctx) => TestRun { ctx, ctx_out: kind == ProgType::Syscall, ..TestRun::default() },
        };
        let result = prog.test_run(&run).map_err(|error| error.to_string())?;
        Ok(After { r0: result.r0, data: result.data, context: result.ctx })
    }
}

/// The program, and those that its tail calls may lead to.
fn needed(object: &Object, index: usize) -> Vec<usize> {
    let slots = object.maps.iter().flat_map(|map| &map.slots);
    let called = slots.filter_map(|(_, slot)| match slot {
        twinbpf_vm::map::Slot::Program(name) => object.program(name),
        twinbpf_vm::map::Slot::Map(_) => None,
    });
    let mut all = vec![index];
    all.extend(called.filter(|other| *other != index));
    all
}

struct InMachine {
    pre: InstancePre<()>,
    instance: Instance<()>,
    entry: Entry,
}

impl InMachine {
    fn new(object: &Object, spec: &ProgramSpec) -> Result<InMachine, String> {
        let default = Config::new();
        let policy = Policy { groups: Groups::ALL, ..default.policy };
        let config = default.max_insns(100_000_000).policy(policy);
        let mut linker = Linker::new(&Engine::new(config).unwrap());
        linker.kernel(Arc::new(System::default()));
        let pre = linker.instantiate_pre(object).map_err(|error| error.to_string())?;
        let entry = pre.program(&spec.name).ok_or("it is not among the programs")?;
        let instance = pre.instance(()).map_err(|error| error.to_string())?;
        Ok(InMachine { pre, instance, entry })
    }

    fn run(&mut self, kind: ProgType, input: &Input) -> Result<After, String> {
        let trapped = |trap: twinbpf::Trap| trap.to_string();
        match input {
            Input::Context(bytes) => {
                let block = self.instance.context(bytes).map_err(|error| error.to_string())?;
                let r0 = self.instance.call(self.entry, &[block.addr()]).map_err(trapped)?;
                let keeps = kind == ProgType::Syscall;
                let context = if keeps { block.to_vec(0, bytes.len()) } else { Vec::new() };
                Ok(After { r0: r0 as u32, data: Vec::new(), context })
            }
            Input::Packet(bytes) => {
                let packet = if kind == ProgType::Xdp { PacketKind::Xdp } else { PacketKind::Skb };
                let context = self.instance.set_packet(packet, bytes).map_err(|error| error.to_string())?;
                let r0 = self.instance.call(self.entry, &[context]).map_err(trapped)?;
                let after = self.instance.take_packet().ok_or("the packet is gone")?;
                // The kernel gives metadata back as if it were of the packet.
                Ok(After { r0: r0 as u32, data: [after.meta(), after.bytes()].concat(), context: Vec::new() })
            }
        }
    }
}

fn compare_maps(place: &str, kernel: &[Option<Arc<KernelMap>>], machine: &[Arc<dyn MapOps>]) {
    for map in kernel.iter().flatten() {
        let name = &map.map().info().name;
        let Some(ours) = machine.iter().find(|ours| *ours.spec().name == **name) else { continue };
        assert_eq!(sent(&**ours), sent(&**map), "{place}: what was sent by {name}; the kernel's on the right");
        assert_eq!(contents(&**ours), contents(&**map), "{place}: map {name}; the kernel's on the right");
    }
}

/// Records that were sent. A perf event array's are padded by the kernel until, with four bytes more, they are whole words.
fn sent(map: &dyn MapOps) -> Vec<Vec<u8>> {
    let pad = |mut bytes: Vec<u8>| {
        if map.spec().kind == MapKind::PerfEventArray {
            bytes.resize((bytes.len() + 4).next_multiple_of(8) - 4, 0);
        }
        bytes
    };
    map.take_sent().into_iter().map(|sent| pad(sent.bytes)).collect()
}

/// Values by key; those of several CPUs added up, since the kernel runs a program on any of them.
fn contents(map: &dyn MapOps) -> BTreeMap<Vec<u8>, Vec<u64>> {
    let spec = map.spec();
    let unreadable = [
        MapKind::Ringbuf,
        MapKind::UserRingbuf,
        MapKind::PerfEventArray,
        MapKind::BloomFilter,
        MapKind::ProgArray,
        MapKind::ArrayOfMaps,
        MapKind::HashOfMaps,
        MapKind::Queue,
        MapKind::Stack,
    ];
    if unreadable.contains(&spec.kind) {
        return BTreeMap::new();
    }
    let value = |key: &Vec<u8>| {
        let mut sum = vec![0_u64; (spec.value_size as usize).div_ceil(8)];
        let mut bytes = vec![0; spec.value_size as usize];
        for cpu in 0..map.cpus() {
            if map.lookup_copy(key, cpu, &mut bytes).is_err() {
                continue;
            }
            for (sum, word) in sum.iter_mut().zip(bytes.chunks(8)) {
                let mut whole = [0; 8];
                whole[..word.len()].copy_from_slice(word);
                *sum = sum.wrapping_add(u64::from_le_bytes(whole));
            }
        }
        sum
    };
    map.keys().into_iter().map(|key| (key.clone(), value(&key))).collect()
}

harness::tests! {
    kernel_and_machine_agree,
}
