//! The cases on native code, in every mode.
//!
//! Runs of one body share a program that loads its registers from memory, and many programs share an image, so that
//! each is compiled once per mode. The interpreter that checks pages only, as code that masks its pointers does, says
//! what sandboxed code must do, and the one with raw pointers what trusted code must do. What the case says, all code
//! must do, unless the run is marked as straying there.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::ops::Range;
use std::sync::Arc;

use twinbpf_fuzzing::{JitMode, jit_modes};
use twinbpf_isa::program::Program;
use twinbpf_isa::validate::Valid;
use twinbpf_jit::{Memory, Strategy};
use twinbpf_vm::image::{Image, Resolve};
use twinbpf_vm::interp::{Driver, Limits, Machine};
use twinbpf_vm::mem::Arena;

use crate::build::Prologue;
use crate::case::{Case, Expect, Run};
use crate::modes;
use crate::run::{self, Outcome, Reach};
use crate::support::low_halves;
use crate::validated;

/// Programs of one image.
const CHUNK: usize = 100;

/// A program, and the runs that it serves.
pub(crate) struct Shared<'a> {
    pub(crate) program: Valid<Program>,
    pub(crate) body: Range<usize>,
    pub(crate) runs: Vec<(&'a Case, &'a Run)>,
}

/// The programs that serve all runs that are not rejected.
pub(crate) fn shared(cases: &[Case], from: Prologue) -> Vec<Shared<'_>> {
    let mut found: Vec<Shared<'_>> = Vec::new();
    let mut index: HashMap<String, usize> = HashMap::new();
    for (case, run) in cases.iter().flat_map(|case| case.runs.iter().map(move |run| (case, run))) {
        if matches!(run.expect, Expect::Reject(_)) {
            continue;
        }
        let (program, body) = validated(case, run, from).unwrap_or_else(|error| panic!("{}: {error}", case.name(run)));
        let key = format!("{:?} {:?} {:?}", program.insns, program.bindings, program.functions);
        let at = *index.entry(key).or_insert_with(|| {
            found.push(Shared { program, body, runs: Vec::new() });
            found.len() - 1
        });
        found[at].runs.push((case, run));
    }
    found
}

/// Runs every case in these modes, either all trusted or none; gives what differs.
pub(crate) fn check(cases: &[Case], from: Prologue, modes: &[JitMode]) -> Vec<String> {
    let shared = shared(cases, from);
    assert!(shared.len() > 1000, "{} programs", shared.len());
    let (arena, reach) = match modes.iter().all(|mode| mode.memory == Memory::Trusted) {
        true => (run::trusted_arena(1 << 26), Reach::Any),
        false => (Arena::new(1 << 26), Reach::Arena),
    };
    let arena = arena.expect("address space");
    shared.chunks(CHUNK).flat_map(|chunk| check_image(&arena, reach, chunk, modes)).collect()
}

/// `reach` is that of the interpreter that sees what the modes see.
fn check_image(arena: &Arc<Arena>, reach: Reach, shared: &[Shared<'_>], modes: &[JitMode]) -> Vec<String> {
    let (externs, helper) = (run::externs(), |id| run::helper(id));
    let resolve = Resolve { maps: &[], values: &[], externs: &externs, helper: &helper, labels: &[], pointed: &[] };
    let programs = shared.iter().map(|shared| shared.program.clone()).collect();
    let image = Arc::new(Image::new(arena, programs, resolve).expect("an image"));
    let limits = Limits { max_insns: None, max_depth: 64, stack_bytes: 64 * 512 };
    // So that another stack precedes that of every machine below.
    let _first = run::machine(arena, &image, Driver::Step, limits, reach);
    let mut peer = run::machine(arena, &image, Driver::Step, limits, reach);
    let mut machines: Vec<(JitMode, Machine)> =
        modes.iter().map(|mode| (*mode, modes::machine(*mode, &image, limits))).collect();
    let mut failures = Vec::new();
    for (index, shared) in shared.iter().enumerate() {
        for (case, run) in &shared.runs {
            let context = run::context(arena, &run.input);
            let limits = run::limits(&shared.program, &shared.body, run);
            peer.set_limits(limits);
            let wanted = run::execute(&mut peer, index, &context, &run.input);
            for (mode, machine) in &mut machines {
                if run.input.insns.is_some() && !mode.fuel {
                    continue;
                }
                let max_insns = limits.max_insns.filter(|_| mode.fuel);
                machine.set_limits(Limits { max_insns, ..limits });
                let found = run::execute(machine, index, &context, &run.input);
                let result = compare(*mode, run, &shared.body, &found, &wanted);
                failures.extend(result.err().map(|what| format!("{}: {mode:?}: {what}", case.name(run))));
            }
        }
    }
    failures
}

/// Compares with the case unless it strays in this mode, and with the interpreter. Only strict code has no peer there
/// that does the same whatever happens.
fn compare(mode: JitMode, run: &Run, body: &Range<usize>, found: &Outcome, peer: &Outcome) -> Result<(), String> {
    let strays = match mode.memory {
        Memory::Sandbox => run.strays.sandbox,
        Memory::Strict => run.strays.strict,
        Memory::Trusted => run.strays.trusted,
    };
    if !strays {
        run::compare(found, body, run)?;
    }
    if !strays && mode.memory == Memory::Strict {
        return Ok(());
    }
    let (found, wanted) = (seen(found, mode), seen(peer, mode));
    if found == wanted { Ok(()) } else { Err(format!("\n{found}\nwhile the interpreter has\n{wanted}")) }
}

/// Everything that can be seen of a run, as text without addresses that differ between machines.
fn seen(outcome: &Outcome, mode: JitMode) -> String {
    let mut text = match &outcome.result {
        Ok(r0) => format!("r0 = {r0:#x}, registers {:x?}", outcome.regs),
        // The processor does not report a non-canonical address.
        Err(trap) if mode.memory == Memory::Trusted => format!("{:?} at {:?}", trap.code(), trap.location()),
        Err(trap) => low_halves(&format!("{:?}: {trap:#}", trap.code())),
    };
    let _ = write!(text, "\nmemory {:02x?}", outcome.mem);
    // Native code that faults does not say how far it has come.
    if mode.fuel && outcome.result.is_ok() {
        let _ = write!(text, "\n{} executed", outcome.insns);
    }
    text
}

fn every_case(memory: Memory) {
    let modes: Vec<JitMode> = jit_modes().filter(|mode| mode.memory == memory).collect();
    report(check(&crate::corpus(), Prologue::Loads, &modes));
}

pub(crate) fn every_case_in_the_sandbox() {
    every_case(Memory::Sandbox);
}

pub(crate) fn every_case_in_strict_code() {
    every_case(Memory::Strict);
}

pub(crate) fn every_case_in_trusted_code() {
    every_case(Memory::Trusted);
}

/// A compiler knows what is in the registers.
pub(crate) fn every_case_with_constants() {
    let mode = JitMode { memory: Memory::Sandbox, strategy: Strategy::Optimised, fuel: false };
    report(check(&crate::corpus(), Prologue::Constants, &[mode]));
}

fn report(failures: Vec<String>) {
    let shown = failures.iter().take(20).cloned().collect::<Vec<_>>().join("\n");
    assert!(failures.is_empty(), "{} runs fail, the first of them:\n{shown}", failures.len());
}
