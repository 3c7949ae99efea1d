//! The programs of `corpus/bench/maps.bpf.c`, each with maps of its own that are full: in twinbpf, and in the kernel.

use std::ops::ControlFlow;
use std::sync::Arc;

use twinbpf::{Entry, Instance, InstancePre, MapOps, Object};
use twinbpf_kernel::stream::RingReader;

use super::linux::object::{InKernel, as_classifiers};
use super::twinbpf::{Mode, instantiate};
use super::{Run, Runner};
use crate::clock::thread_cpu_ns;
use crate::workload::corpus_object;

/// Operations that a run makes.
pub const ROUNDS: u32 = 1000;
/// The program that fills the maps.
const FILL: &str = "fill";
/// The map whose records a consumer takes between runs; without it the buffer is full at once.
const RING: &str = "ring";
/// Runs whose records it holds.
const RING_RUNS: u64 = 10;

/// Bytes of a run's records, with their headers.
pub const RECORDS: u32 = ROUNDS * 24;

/// The object with the programs.
pub fn object() -> Result<Object, String> {
    corpus_object("bench/maps.bpf.o")
}

/// The operations, by the names of their programs.
pub fn operations() -> Result<Vec<String>, String> {
    let pre = instantiate(&object()?, Mode::Interpreter)?;
    Ok(pre.programs().filter(|name| *name != FILL).map(str::to_owned).collect())
}

/// Gives the ring room for so many runs.
pub fn widen_ring(object: &mut Object, runs: u32) {
    if let Some(ring) = object.maps.iter_mut().find(|map| *map.name == *RING) {
        ring.max_entries = (RECORDS * runs).next_power_of_two();
    }
}

/// Whether a program writes to the ring.
pub fn has_ring(program: &str) -> bool {
    program.starts_with(RING)
}

/// The programs in an engine of this mode, their maps filled.
pub fn filled(object: &Object, mode: Mode) -> Result<InstancePre<()>, String> {
    let pre = instantiate(object, mode)?;
    let fill = pre.program(FILL).ok_or("no program that fills")?;
    let mut instance = pre.instance(()).map_err(|error| error.to_string())?;
    let failed = instance.call(fill, &[]).map_err(|trap| trap.to_string())?;
    drop(instance);
    all_succeed(failed).map(|()| pre)
}

/// The program in twinbpf.
pub fn in_twinbpf(program: &str, mode: Mode) -> Result<Runner, String> {
    let pre = filled(&object()?, mode)?;
    let entry = pre.program(program).ok_or_else(|| format!("no program `{program}`"))?;
    let instance = pre.instance(()).map_err(|error| error.to_string())?;
    let ring = has_ring(program).then(|| pre.map_ops(RING).cloned()).flatten();
    Ok(Box::new(InTwinbpf { instance, entry, ring }))
}

struct InTwinbpf {
    instance: Instance<()>,
    entry: Entry,
    ring: Option<Arc<dyn MapOps>>,
}

impl InTwinbpf {
    fn call(&mut self) -> Result<u64, String> {
        self.instance.call(self.entry, &[]).map_err(|trap| trap.to_string())
    }
}

impl Run for InTwinbpf {
    fn run(&mut self) -> Result<u64, String> {
        let result = self.call();
        if let Some(ring) = &self.ring {
            ring.take_sent();
        }
        result
    }

    /// Without the time of the consumer.
    fn time(&mut self, runs: u64) -> Result<u64, String> {
        let mut took = 0;
        let part = if self.ring.is_some() { RING_RUNS } else { runs };
        for first in (0..runs).step_by(part.max(1) as usize) {
            let start = thread_cpu_ns();
            for _ in first..runs.min(first + part) {
                all_succeed(self.call()?)?;
            }
            took += thread_cpu_ns() - start;
            if let Some(ring) = &self.ring {
                ring.take_sent();
            }
        }
        Ok(took)
    }
}

/// The programs in the kernel, one or more of them, and their maps filled.
pub fn filled_in_kernel(mut object: Object, programs: &[&str]) -> Result<InKernel, String> {
    as_classifiers(&mut object);
    let kernel = InKernel::load(&object, &[&[FILL], programs].concat())?;
    all_succeed(kernel.run(FILL, &PACKET, 1)?.r0.into()).map(|()| kernel)
}

/// What a program gets that reads no packet.
pub const PACKET: [u8; 64] = [0; 64];

/// The program in the kernel.
pub fn in_kernel(program: &str) -> Result<Runner, String> {
    let kernel = filled_in_kernel(object()?, &[program])?;
    let ring = has_ring(program).then(|| ring_of(&kernel)).transpose()?;
    Ok(Box::new(Operations { kernel, program: program.to_owned(), ring }))
}

/// The consumer of the ring in the kernel.
pub fn ring_of(kernel: &InKernel) -> Result<RingReader, String> {
    RingReader::new(kernel.map(RING)?).map_err(|error| error.to_string())
}

/// Takes what is in the ring of twinbpf.
pub fn empty_ring(pre: &InstancePre<()>) {
    if let Some(ring) = pre.map_ops(RING) {
        ring.take_sent();
    }
}

struct Operations {
    kernel: InKernel,
    program: String,
    ring: Option<RingReader>,
}

impl Operations {
    fn consume(&mut self) {
        if let Some(ring) = &mut self.ring {
            ring.consume(|_| ControlFlow::Continue(()));
        }
    }
}

impl Run for Operations {
    fn run(&mut self) -> Result<u64, String> {
        let result = self.kernel.run(&self.program, &PACKET, 1)?;
        self.consume();
        Ok(result.r0.into())
    }

    /// By the kernel's own clock.
    fn time(&mut self, runs: u64) -> Result<u64, String> {
        let mut took = 0;
        let part = if self.ring.is_some() { RING_RUNS } else { u32::MAX.into() };
        let mut left = runs;
        while left > 0 {
            let repeat = left.min(part);
            let result = self.kernel.run(&self.program, &PACKET, repeat as u32)?;
            all_succeed(result.r0.into())?;
            took += u64::from(result.duration_ns) * repeat;
            self.consume();
            left -= repeat;
        }
        Ok(took)
    }
}

/// That no operation failed: programs return how many did.
pub fn all_succeed(failed: u64) -> Result<(), String> {
    if failed == 0 { Ok(()) } else { Err(format!("{failed} operations failed")) }
}
