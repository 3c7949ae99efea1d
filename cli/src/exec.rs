//! `twinbpf exec`: one program, one input, what came of it.

use std::io::Write;
use std::process::ExitCode;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::json;
use twinbpf::{Entry, Instance, Redirect, Sent, TcAction, XdpAction};
use twinbpf_loader::ProgramSpec;
use twinbpf_loader::section::ProgType;
use twinbpf_trace::{Output, errln, terminal};
use twinbpf_vm::mem::Block;

use crate::args::{ExecArgs, split_program};
use crate::hex::hex;
use crate::input::{Input, choose};
use crate::load;
use crate::target::Target;
use crate::trace::Trace;

pub(crate) fn exec(args: &ExecArgs) -> Result<ExitCode> {
    let (path, name) = split_program(&args.program);
    let objects = load::open_all(&[path], &args.load)?;
    let object = &objects[0];
    let spec = choose(object, name)?;
    let engine = load::engine(&args.load, &args.limits, &args.engine)?;
    let mut target = Target::open(&args.target)?;
    let input = target.input(Input::new(args.ctx.as_deref(), args.packet.as_deref(), spec)?)?;
    let linker = load::linker_with(&engine, &args.load, &args.engine)?;
    let (pre, entry, point) = target.instantiate(&linker, object, spec, &input)?;
    for warning in pre.warnings() {
        errln!("twinbpf: warning: {warning}");
    }
    let mut output = Output::default();
    let mut instance = pre.instance_with_output((), output.boxed())?;
    instance.machine().runtime_mut().trace = Box::new(terminal::Stderr);
    instance.set_target(target.memory);
    let trace = args.trace.then(|| Trace::new(Arc::clone(instance.machine().image())));
    if let Some(trace) = &trace {
        instance.machine().set_tracer(Some(Trace::tracer(trace)));
    }
    let no_context = args.ctx.is_none() && args.packet.is_none() && point.is_none();
    let result = repeat(&mut instance, entry, &input, args.repeat);
    if let Some(trace) = trace {
        let registers = instance.machine().registers();
        trace.lock().unwrap_or_else(PoisonError::into_inner).flush(&registers);
    }
    let mut run = match result {
        Err(error) => match error.downcast_ref::<twinbpf::Trap>().and_then(twinbpf::Trap::exit_status) {
            Some(status) => {
                output.finish()?;
                return Ok(ExitCode::from(status as u8));
            }
            None => {
                // The fault says more than what became of the output.
                let _ = output.finish();
                let at_null = |trap: &twinbpf::Trap| trap.detail().contains("a null pointer");
                if no_context && error.downcast_ref().is_some_and(at_null) {
                    errln!("twinbpf: note: without --ctx or --packet r1, the program's context, is 0");
                }
                return Err(error);
            }
        },
        Ok(run) => run,
    };
    run.sent = pre.take_sent();
    run.verdict = verdict(spec, run.r0);
    run.point = point;
    if args.json {
        run.print_json(&mut output, args.repeat)?;
    } else {
        run.print(&mut output, args.repeat)?;
    }
    output.finish()?;
    Ok(ExitCode::SUCCESS)
}

/// What came of a run.
#[derive(Default)]
struct Run {
    r0: u64,
    /// Where they are counted.
    insns: Option<u64>,
    /// Mean of the repetitions.
    duration: Duration,
    ctx: Option<Vec<u8>>,
    packet: Option<Vec<u8>>,
    /// XDP metadata before the packet.
    meta: Option<Vec<u8>>,
    redirects: Vec<String>,
    verdict: Option<&'static str>,
    /// Points of the program's instance, and where its arguments are.
    point: Option<String>,
    /// What programs sent out through maps, with the map's name.
    sent: Vec<(Arc<str>, Sent)>,
}

/// Runs the program on a fresh copy of the input each time; the last run is reported.
fn repeat(instance: &mut Instance<()>, entry: Entry, input: &Input, times: u32) -> Result<Run> {
    let mut total = Duration::ZERO;
    let mut last = None;
    for _ in 0..times {
        let (run, duration) = once(instance, entry, input)?;
        total += duration;
        last = Some(run);
    }
    let run = last.expect("at least once");
    Ok(Run { duration: total / times, ..run })
}

fn once(instance: &mut Instance<()>, entry: Entry, input: &Input) -> Result<(Run, Duration)> {
    let (block, args) = input.give(instance)?;
    let start = Instant::now();
    let r0 = instance.call(entry, &args)?;
    let duration = start.elapsed();
    let insns = instance.insns_executed();
    let mut run = Run { r0, insns, duration, ..Run::default() };
    run.ctx = block.map(|block: Block| block.to_vec(0, block.len() as usize));
    if let Some(after) = instance.finish_packet::<u64>(r0) {
        run.redirects = after.redirects.iter().map(Redirect::to_string).collect();
        run.ctx = Some(after.context);
        run.meta = Some(after.meta).filter(|meta| !meta.is_empty());
        run.packet = Some(after.packet);
    }
    Ok((run, duration))
}

/// The name of a verdict, for programs that have one.
fn verdict(spec: &ProgramSpec, r0: u64) -> Option<&'static str> {
    match spec.attach.prog_type()? {
        ProgType::Xdp => XdpAction::from(r0).name(),
        ProgType::SchedCls | ProgType::SchedAct => TcAction::from(r0).name(),
        _ => None,
    }
}

impl Run {
    fn print(&self, out: &mut impl Write, times: u32) -> Result<()> {
        match self.verdict {
            Some(verdict) => writeln!(out, "r0       = {} ({:#x}, {verdict})", self.r0 as i64, self.r0)?,
            None => writeln!(out, "r0       = {} ({:#x})", self.r0 as i64, self.r0)?,
        }
        match self.insns {
            Some(insns) => writeln!(out, "insns    = {insns}")?,
            None => writeln!(out, "insns    = not counted by native code; --max-insns N has it count")?,
        }
        match times {
            1 => writeln!(out, "duration = {:?}", self.duration)?,
            _ => writeln!(out, "duration = {:?} (mean of {times} runs)", self.duration)?,
        }
        if let Some(point) = &self.point {
            writeln!(out, "point    = {point}")?;
        }
        if let Some(ctx) = &self.ctx {
            writeln!(out, "ctx      = {}", hex(ctx))?;
        }
        if let Some(packet) = &self.packet {
            writeln!(out, "packet   = {}", hex(packet))?;
        }
        if let Some(meta) = &self.meta {
            writeln!(out, "metadata = {}", hex(meta))?;
        }
        for redirect in &self.redirects {
            writeln!(out, "redirect = {redirect}")?;
        }
        for (map, sent) in &self.sent {
            writeln!(out, "sent     = map {map}, slot {}: {}", sent.slot, hex(&sent.bytes))?;
        }
        Ok(())
    }

    fn print_json(&self, out: &mut impl Write, times: u32) -> Result<()> {
        let sent =
            self.sent.iter().map(|(map, sent)| json!({ "map": **map, "slot": sent.slot, "bytes": hex(&sent.bytes) }));
        let value = json!({
            "r0": self.r0, "verdict": self.verdict, "insns": self.insns, "runs": times,
            "duration_ns": self.duration.as_nanos() as u64, "ctx": self.ctx.as_deref().map(hex),
            "packet": self.packet.as_deref().map(hex), "metadata": self.meta.as_deref().map(hex), "redirects": self.redirects,
            "point": self.point, "sent": sent.collect::<Vec<_>>(),
        });
        writeln!(out, "{value}")?;
        Ok(())
    }
}
