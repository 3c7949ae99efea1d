//! Benchmark backend: the running kernel, by `BPF_PROG_TEST_RUN`.

use std::io;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use twinbpf_kernel::load::{LoadOptions, Pinning};
use twinbpf_kernel::system::System;
use twinbpf_kernel::{Loaded, TestRun, TestRunResult, probe};
use twinbpf_loader::kernel::KernelOptions;
use twinbpf_loader::section::{ProgType, SectionKind};
use twinbpf_loader::{Object, ProgramSpec};

use super::effect::Effect;
use super::measure::Subject;
use crate::input::Input;

/// Bytes of an Ethernet header, which the kernel strips before a socket filter.
const ETHERNET: usize = 14;
/// What `bpf_xdp_adjust_tail` and `bpf_skb_change_tail` may add.
const HEADROOM: usize = 512;

/// See the module documentation. What the kernel holds for it ends with it.
pub(super) struct InKernel {
    loaded: Loaded,
    index: usize,
    kind: ProgType,
    inputs: Vec<Given>,
}

/// A packet and a context, as the kernel takes them.
struct Given {
    data: Vec<u8>,
    ctx: Vec<u8>,
}

/// Whether this process may load programs at all.
///
/// # Errors
/// The kernel's answer.
pub(super) fn allowed() -> io::Result<()> {
    // Unprivileged processes may load socket filters, so that XDP is probed.
    probe::prog_type(ProgType::Xdp).map(drop)
}

impl InKernel {
    /// # Errors
    /// The kernel cannot run it on demand, or not on this input, or refuses it.
    pub(super) fn new(object: &Object, spec: &ProgramSpec, inputs: &[Input]) -> Result<InKernel> {
        let script = matches!(spec.attach.kind, SectionKind::Script(_));
        let kind = spec.attach.prog_type().filter(|_| !script);
        let kind = kind.with_context(|| format!("section {} is not for the kernel", spec.section))?;
        let inputs = inputs.iter().map(|input| given(kind, input)).collect::<Result<Vec<_>>>()?;
        let linked = object.link_kernel(System::get(), &KernelOptions::default());
        let failure = linked.failures.iter().find(|failure| *object.programs[failure.spec].name == *spec.name);
        if let Some(failure) = failure {
            return Err(failure.error.clone().into());
        }
        let index = linked.programs.iter().position(|program| *program.name == *spec.name);
        let index = index.expect("linked or failed");
        // All of them: its tail calls may lead to others.
        let options = LoadOptions { pinning: Pinning::Ignore, ..LoadOptions::default() };
        let loaded = twinbpf_kernel::load(object, &linked, &options);
        if loaded.programs[index].is_none() {
            let why = loaded.failures.iter().find(|failure| *failure.name == *spec.name);
            return Err(why.map_or_else(|| anyhow!("it could not be loaded"), |failure| anyhow!("{failure}")));
        }
        Ok(InKernel { loaded, index, kind, inputs })
    }

    fn run(&self, Given { data, ctx }: &Given, repeat: u32) -> Result<TestRunResult, twinbpf_kernel::Error> {
        let ctx_out = self.kind == ProgType::Syscall && !ctx.is_empty();
        let run = TestRun { data, headroom: if data.is_empty() { 0 } else { HEADROOM }, ctx, ctx_out, repeat };
        self.loaded.programs[self.index].as_ref().expect("it was loaded").prog.test_run(&run)
    }

    /// What a run with each input leaves behind, of a copy of its own.
    pub(super) fn effects(&self) -> Result<Vec<Effect>> {
        self.inputs.iter().map(|input| self.effect(input)).collect()
    }

    fn effect(&self, input: &Given) -> Result<Effect> {
        let mut after = self.run(input, 0)?;
        if self.kind == ProgType::SocketFilter {
            after.data.drain(..ETHERNET);
        }
        let bytes = match self.kind {
            ProgType::Syscall => after.ctx,
            // The kernel does not give it back, and such a program cannot change it.
            ProgType::RawTracepoint => input.ctx.clone(),
            _ => after.data,
        };
        Ok(Effect { r0: after.r0.into(), bytes, output: Vec::new() })
    }
}

/// Packet and context, as the kernel takes them for a kind of program.
fn given(kind: ProgType, input: &Input) -> Result<Given> {
    let packets = matches!(kind, ProgType::Xdp | ProgType::SchedCls | ProgType::SchedAct | ProgType::SocketFilter);
    let (data, ctx) = match (kind, input) {
        (ProgType::SocketFilter, Input::Packet(_, bytes)) => ([&[0; ETHERNET], &bytes[..]].concat(), Vec::new()),
        (_, Input::Packet(_, bytes)) if packets => (bytes.clone(), Vec::new()),
        (ProgType::Syscall | ProgType::RawTracepoint, Input::Context(bytes)) => (Vec::new(), bytes.clone()),
        (ProgType::Syscall | ProgType::RawTracepoint, Input::None) => (Vec::new(), Vec::new()),
        (_, Input::Context(_) | Input::None) if packets => bail!("a program of type {} gets a packet", kind.name()),
        _ => bail!("the kernel has no test run for programs of type {}", kind.name()),
    };
    Ok(Given { data, ctx })
}

impl Subject for InKernel {
    /// By the kernel's clock, in whole nanoseconds a run: around many runs it does what takes milliseconds for XDP. Of
    /// those that run once in a system call, the system calls.
    fn sample(&mut self, runs: u64) -> Result<Duration> {
        let mut all = Duration::ZERO;
        for input in &self.inputs {
            if self.kind != ProgType::Syscall && self.kind != ProgType::RawTracepoint {
                let repeat = u32::try_from(runs).unwrap_or(u32::MAX);
                all += Duration::from_nanos(u64::from(self.run(input, repeat)?.duration_ns) * runs);
                continue;
            }
            let start = Instant::now();
            for _ in 0..runs {
                self.run(input, 0)?;
            }
            all += start.elapsed();
        }
        Ok(all / self.inputs.len() as u32)
    }
}
