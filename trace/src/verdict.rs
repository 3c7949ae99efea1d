//! What programs on events of perf return to the kernel. It is a verdict for everybody: where one program on a tracepoint
//! returns 0, no recording of that tracepoint gets the sample (`trace_call_bpf` in `kernel/trace/bpf_trace.c`).
//!
//! In a session programs only look, so that their copies in the kernel return 1. In a recording they decide about samples of
//! its own target, and the code here counts what they decide.

use twinbpf_isa::opcode::{EXIT, GOTO, LDDW};
use twinbpf_isa::{Raw, SpliceError, asm};
use twinbpf_loader::kernel::{Fixup, KernelProgram};

use crate::code::{code, encoded};

/// Thread numbers are below this (`PID_MAX_LIMIT`).
pub(crate) const THREADS: u32 = 4 << 20;

/// Where the verdicts of a program count, and on what it decides.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Judged<'a> {
    /// Index of the map of verdicts: a word that says whether they count, then the dropped and kept of each slot.
    pub(crate) verdicts: usize,
    /// Of this program.
    pub(crate) slot: usize,
    /// Index of the map with a byte for each thread; `None`: all threads.
    pub(crate) threads: Option<usize>,
    /// Of these CPUs; empty: of all.
    pub(crate) cpus: &'a [u32],
    /// Something runs it by itself: a program that only tail calls lead to has the check before it.
    pub(crate) is_entry: bool,
}

/// Lets a program return 1 wherever it returns.
///
/// # Errors
/// A jump in it would be too long.
pub(crate) fn keep_all(program: &mut KernelProgram) -> Result<(), SpliceError> {
    let returns = code("r0 = 1\nexit\n");
    for pc in exits(program, 0).into_iter().rev() {
        program.splice(pc, 1, &returns)?;
    }
    Ok(())
}

/// Lets a program run for the recording's target only, return 1 for others, and count what it returns.
///
/// # Errors
/// A jump in it would be too long.
pub(crate) fn judge(program: &mut KernelProgram, judged: &Judged<'_>) -> Result<(), SpliceError> {
    let assembled = asm::assemble(&text(judged)).expect("the assembler takes it");
    let (end, length) = (assembled.labels["end"], assembled.insns.len());
    program.splice(0, 0, &encoded(assembled.insns))?;
    for pc in 0..length {
        // The second register of an `lddw` of a map's value, and the index in place of the descriptor.
        if program.insns[pc].opcode == LDDW {
            program.fixups.insert(pc, Fixup::MapValue(program.insns[pc].imm as usize));
        }
    }
    for pc in exits(program, length) {
        let distance = end as i64 - pc as i64 - 1;
        let off = i16::try_from(distance).map_err(|_| SpliceError::Far { pc })?;
        program.insns[pc] = Raw { opcode: GOTO, regs: 0, off, imm: 0 };
    }
    Ok(())
}

fn text(judged: &Judged<'_>) -> String {
    let (verdicts, slot) = (judged.verdicts, 8 + 16 * judged.slot);
    let mut text = String::new();
    if judged.is_entry {
        text += &format!("r6 = r1\nr1 = map_value({verdicts}, 0) ll\nr1 = *(u64 *)(r1 + 0)\nif r1 == 0 goto other\n");
        if let Some(threads) = judged.threads {
            text += &format!("call 14\nw0 = w0\nif r0 >= {THREADS} goto other\nr1 = map_value({threads}, 0) ll\n");
            text += "r1 += r0\nr1 = *(u8 *)(r1 + 0)\nif r1 == 0 goto other\n";
        }
        if !judged.cpus.is_empty() {
            text += "call 8\n";
            text += &judged.cpus.iter().map(|cpu| format!("if w0 == {cpu} goto run\n")).collect::<String>();
            text += "goto other\n";
        }
        text += "run:\nr1 = r6\ngoto body\nother:\nr0 = 1\nexit\n";
    } else {
        text += "goto body\n";
    }
    text += &format!("end:\nr1 = map_value({verdicts}, {slot}) ll\nr2 = 1\nif w0 == 0 goto dropped\n");
    text += "lock *(u64 *)(r1 + 8) += r2\nexit\ndropped:\nlock *(u64 *)(r1 + 0) += r2\nexit\nbody:\n";
    text
}

/// Code that keeps up which threads belong to the target, for `sched:sched_process_fork`: a new thread belongs to it if its
/// parent does and targets are inherited. Each new one is noted, so that a number which comes again means nothing.
pub(crate) fn follow(threads: i32, child: usize, inherit: bool) -> Vec<Raw> {
    let mut text = format!("r6 = r1\nr7 = 0\ncall 14\nw0 = w0\nif r0 >= {THREADS} goto child\n");
    if inherit {
        text += &format!("r1 = map_value({threads}, 0) ll\nr1 += r0\nr7 = *(u8 *)(r1 + 0)\n");
    }
    text += &format!("child:\nr2 = *(u32 *)(r6 + {child})\nif r2 >= {THREADS} goto out\n");
    text += &format!("r1 = map_value({threads}, 0) ll\nr1 += r2\n*(u8 *)(r1 + 0) = r7\nout:\nr0 = 1\nexit\n");
    code(&text)
}

/// Where the entry function of a program ends it, from a slot on.
fn exits(program: &KernelProgram, from: usize) -> Vec<usize> {
    let end = program.functions.get(1).map_or(program.insns.len(), |(first, _)| *first);
    let is_second = |pc: usize| pc > from && program.insns[pc - 1].opcode == LDDW;
    (from..end).filter(|pc| program.insns[*pc].opcode == EXIT && !is_second(*pc)).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use twinbpf_loader::section::Attach;

    use super::*;

    fn program(text: &str) -> KernelProgram {
        let names: [Arc<str>; 2] = ["f".into(), "a:b".into()];
        let mut program = KernelProgram::new(0, names.each_ref(), Attach::parse("a:b"));
        program.insns = code(text);
        program.functions = vec![(0, names[0].clone())];
        program
    }

    const TWO_EXITS: &str = "r0 = 0\nif r1 == 0 goto out\ncall helper\nexit\nout:\nexit\nhelper:\nr0 = 7\nexit\n";

    #[test]
    fn every_return_of_the_entry_function_becomes_1() {
        let mut changed = program(TWO_EXITS);
        changed.functions.push((5, "helper".into()));
        keep_all(&mut changed).unwrap();
        let expected =
            "r0 = 0\nif r1 == 0 goto out\ncall helper\nr0 = 1\nexit\nout:\nr0 = 1\nexit\nhelper:\nr0 = 7\nexit\n";
        assert_eq!(changed.insns, code(expected));
    }

    #[test]
    fn a_judged_program_checks_first_and_counts_last() {
        let mut changed = program(TWO_EXITS);
        changed.functions.push((5, "helper".into()));
        let judged = Judged { verdicts: 3, slot: 2, threads: Some(1), cpus: &[0, 5], is_entry: true };
        judge(&mut changed, &judged).unwrap();
        let head = super::text(&judged);
        let body = "r0 = 0\nif r1 == 0 goto out\ncall helper\ngoto end\nout:\ngoto end\nhelper:\nr0 = 7\nexit\n";
        assert_eq!(changed.insns, code(&format!("{head}{body}")));
        let maps: Vec<&Fixup> = changed.fixups.values().collect();
        assert_eq!(maps, [&Fixup::MapValue(3), &Fixup::MapValue(1), &Fixup::MapValue(3)]);
        assert_eq!(changed.insns.iter().filter(|raw| raw.opcode == EXIT).count(), 4);
    }

    #[test]
    fn an_immediate_that_reads_as_exit_is_none() {
        let mut changed = program("r0 = 0x9500000000 ll\nexit\n");
        changed.insns[1].opcode = 0;
        keep_all(&mut changed).unwrap();
        assert_eq!(changed.insns.len(), 4);
    }

    #[test]
    fn a_program_that_is_too_long_is_refused() {
        let long = format!("{}exit\n", "r0 = 0\n".repeat(40_000));
        let judged = Judged { verdicts: 0, slot: 0, threads: None, cpus: &[], is_entry: false };
        assert!(matches!(judge(&mut program(&long), &judged), Err(SpliceError::Far { .. })));
    }
}
