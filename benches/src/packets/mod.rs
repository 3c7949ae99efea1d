//! Packets through real XDP and TC programs: in twinbpf and, by `BPF_PROG_TEST_RUN`, in the kernel, the same packets with the same
//! maps.

use std::hint::black_box;

use twinbpf::{Entry, Instance, InstancePre, PacketKind};

use crate::clock::thread_cpu_ns;
use crate::outside::real::folded;
use crate::peers::linux::object::InKernel;
use crate::peers::twinbpf::{Mode, instantiate_in};
use crate::peers::{Run, Runner};

mod frames;
mod programs;

pub use frames::{frames, short_and_long};
pub use programs::{PLAIN, PROGRAMS, Program};

/// Runs after which a verdict has to be what it was at first.
const SETTLED: u32 = 3;

/// Packets in a batch.
const BATCH: usize = 64;
/// Runs of the kernel on a packet: its clock starts anew with each packet.
const REPEAT: u32 = 50_000;

/// What a run over these packets returns.
///
/// # Errors
/// The program does not run, or its verdict on a packet that it gets back is another one.
pub fn expected(program: &Program, frames: &[Vec<u8>]) -> Result<u64, String> {
    let mut own = Own::new(program, frames, false)?;
    let [first, settled] = [1, SETTLED].map(|runs| own.verdicts(runs));
    let (first, settled) = (first?, settled?);
    if first != settled {
        return Err(format!("its verdicts {first:?} become {settled:?} on packets that it gets back"));
    }
    Ok(folded(first.into_iter()))
}

/// A program in twinbpf, sandboxed.
struct Own {
    pre: InstancePre<()>,
    instance: Instance<()>,
    entry: Entry,
    kind: PacketKind,
    frames: Vec<Vec<u8>>,
}

impl Own {
    fn new(program: &Program, frames: &[Vec<u8>], scrub: bool) -> Result<Own, String> {
        let config = Mode::Sandbox.config().scrub_packets(scrub);
        let engine = Mode::Sandbox.engine_with(config).map_err(|error| error.to_string())?;
        let pre = instantiate_in(&program.object()?, &engine)?;
        for (map, key, value) in program.entries.map(|entries| entries()).unwrap_or_default() {
            let map = pre.map_ops(map).ok_or_else(|| format!("no map `{map}`"))?;
            for cpu in 0..map.cpus() {
                map.update(&key, &value, 0, cpu).map_err(|error| format!("{}: {error:?}", map.spec().name))?;
            }
        }
        let entry = pre.program(program.function).ok_or_else(|| format!("no program `{}`", program.function))?;
        let instance = pre.instance(()).map_err(|error| error.to_string())?;
        Ok(Own { pre, instance, entry, kind: program.kind, frames: frames.to_vec() })
    }

    /// The verdict on each packet after so many runs.
    fn verdicts(&mut self, runs: u32) -> Result<Vec<u64>, String> {
        let mut verdicts = Vec::new();
        for frame in &self.frames {
            let context = self.instance.set_packet(self.kind, frame).map_err(|error| error.to_string())?;
            let mut verdict = 0;
            for _ in 0..runs {
                verdict = self.instance.call(self.entry, &[context]).map_err(|trap| trap.to_string())?;
            }
            // Of a verdict the lower half counts.
            verdicts.push(u64::from(verdict as u32));
        }
        // What it has redirected.
        self.pre.take_sent();
        Ok(verdicts)
    }
}

/// A packet is given once and then lies where it is, as in the kernel's test run.
struct InPlace(Own);

impl Run for InPlace {
    fn run(&mut self) -> Result<u64, String> {
        self.0.verdicts(1).map(|verdicts| folded(verdicts.into_iter()))
    }

    fn time(&mut self, runs: u64) -> Result<u64, String> {
        let (own, mut took) = (&mut self.0, 0);
        for frame in &own.frames {
            let context = own.instance.set_packet(own.kind, frame).map_err(|error| error.to_string())?;
            let start = thread_cpu_ns();
            for _ in 0..runs {
                black_box(own.instance.call(own.entry, &[context]).map_err(|trap| trap.to_string())?);
            }
            took += thread_cpu_ns() - start;
        }
        Ok(took)
    }
}

/// The program in twinbpf, called on a packet that lies where it is.
///
/// # Errors
/// It does not run.
pub fn in_place(program: &Program, frames: &[Vec<u8>]) -> Result<Runner, String> {
    Ok(Box::new(InPlace(Own::new(program, frames, false)?)))
}

/// Packets are copied in, verdicts and lengths come out.
struct Batches(Own);

impl Batches {
    /// All packets so often, as one batch; their verdicts as one number.
    fn batch(&mut self, passes: usize) -> Result<u64, String> {
        let Own { instance, entry, kind, frames, .. } = &mut self.0;
        let (mut verdicts, mut bytes) = (0_u64, 0_u64);
        let mut add = |verdict: u32, len: u32| {
            verdicts = verdicts.wrapping_mul(31).wrapping_add(verdict.into());
            bytes += u64::from(len);
        };
        let packets = frames.iter().cycle().take(frames.len() * passes);
        let done = match kind {
            PacketKind::Xdp => {
                instance.run_xdp_batch(*entry, packets, |done| add(done.verdict.number(), done.packet.len()))
            }
            _ => instance.run_tc_batch(*entry, packets, |done| add(done.verdict.number() as u32, done.packet.len())),
        };
        done.map_err(|error| error.to_string())?;
        black_box(bytes);
        Ok(verdicts)
    }
}

impl Run for Batches {
    fn run(&mut self) -> Result<u64, String> {
        self.batch(1)
    }

    fn time(&mut self, runs: u64) -> Result<u64, String> {
        let (start, passes) = (thread_cpu_ns(), BATCH.div_ceil(self.0.frames.len()) as u64);
        for first in (0..runs).step_by(passes as usize) {
            black_box(self.batch(passes.min(runs - first) as usize)?);
        }
        Ok(thread_cpu_ns() - start)
    }
}

/// The program in twinbpf, by batches of packets. `scrub` erases each packet after it.
///
/// # Errors
/// It does not run.
pub fn in_batches(program: &Program, frames: &[Vec<u8>], scrub: bool) -> Result<Runner, String> {
    Ok(Box::new(Batches(Own::new(program, frames, scrub)?)))
}

/// The program in the kernel.
struct Kernel {
    kernel: InKernel,
    function: &'static str,
    frames: Vec<Vec<u8>>,
}

impl Kernel {
    fn verdicts(&self, runs: u32) -> Result<Vec<u64>, String> {
        self.frames.iter().map(|frame| Ok(self.kernel.run(self.function, frame, runs)?.r0.into())).collect()
    }
}

impl Run for Kernel {
    fn run(&mut self) -> Result<u64, String> {
        self.verdicts(1).map(|verdicts| folded(verdicts.into_iter()))
    }

    /// By the kernel's own clock, over so many runs that the first ones, which find cold caches, do not count.
    fn time(&mut self, runs: u64) -> Result<u64, String> {
        let one = |frame: &Vec<u8>| {
            let result = self.kernel.run(self.function, frame, REPEAT)?;
            Ok(u64::from(result.duration_ns) * runs)
        };
        self.frames.iter().map(one).sum()
    }
}

/// The program in the kernel, if its verdict on packets that it gets back is the same as ours.
///
/// # Errors
/// The kernel refuses it, or decides otherwise.
pub fn in_kernel(program: &Program, frames: &[Vec<u8>]) -> Result<Runner, String> {
    let kernel = InKernel::load(&program.object()?, &[&[program.function], program.others].concat())?;
    for (map, key, value) in program.entries.map(|entries| entries()).unwrap_or_default() {
        let map = kernel.map(map)?;
        // Maps with a value for each CPU want them all, in whole words.
        let mut one = value;
        if map.copy_size() > one.len() {
            one.resize(one.len().next_multiple_of(8), 0);
        }
        let all = one.repeat((map.copy_size() / one.len()).max(1));
        map.update(&key, &all, 0).map_err(|error| error.to_string())?;
    }
    let kernel = Kernel { kernel, function: program.function, frames: frames.to_vec() };
    let (settled, own) = (kernel.verdicts(SETTLED)?, Own::new(program, frames, false)?.verdicts(SETTLED)?);
    if settled != own {
        return Err(format!("it decides {settled:?} and twinbpf {own:?} on packets that it gets back"));
    }
    Ok(Box::new(kernel))
}
