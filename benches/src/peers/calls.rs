//! The programs of `corpus/bench/call.bpf.c` on each machine that can call.

use super::linux::object::{InKernel, as_classifiers};
use super::maps::PACKET;
use super::{Run, Runner, rbpf, sbpf, twinbpf};
use crate::workload::{Calls, code_with, corpus_object, link};

/// Where the programs are.
const OBJECT: &str = "bench/call.bpf.o";
/// Programs that tail call themselves.
const TAILS: [&str; 2] = ["tail", "any_tail"];

/// A program of the object in twinbpf.
pub fn in_twinbpf(program: &str, mode: twinbpf::Mode) -> Result<Runner, String> {
    let (mut instance, entry) = twinbpf::instance(OBJECT, program, mode)?;
    Ok(Box::new(move || instance.call(entry, &[]).map_err(|trap| trap.to_string())))
}

/// The same program in rbpf.
pub fn in_rbpf(program: &str, engine: rbpf::Engine) -> Result<Runner, String> {
    let (code, _) = code(program, Calls { host: rbpf::ADD, by_pc: false });
    rbpf::program(code.leak(), &[0; 64], engine)
}

/// The same program in solana-sbpf.
pub fn in_sbpf(program: &str, engine: sbpf::Engine) -> Result<Runner, String> {
    let (code, starts) = code(program, Calls { host: sbpf::add(), by_pc: true });
    sbpf::program(&code, &[0; 64], &starts, engine)
}

/// The same program in the kernel, by the kernel's own clock.
///
/// # Errors
/// The kernel refuses it, or this process.
pub fn in_kernel(program: &str) -> Result<Runner, String> {
    let mut object = corpus_object(OBJECT)?;
    as_classifiers(&mut object);
    // The maps of programs have them.
    let others = TAILS.into_iter().filter(|tail| *tail != program);
    let kernel = InKernel::load(&object, &[program].into_iter().chain(others).collect::<Vec<_>>())?;
    Ok(Box::new(InKernelBy { kernel, program: program.to_owned() }))
}

struct InKernelBy {
    kernel: InKernel,
    program: String,
}

impl Run for InKernelBy {
    fn run(&mut self) -> Result<u64, String> {
        self.kernel.run(&self.program, &PACKET, 1).map(|result| result.r0.into())
    }

    fn time(&mut self, runs: u64) -> Result<u64, String> {
        let repeat = u32::try_from(runs).map_err(|error| error.to_string())?;
        let result = self.kernel.run(&self.program, &PACKET, repeat)?;
        Ok(u64::from(result.duration_ns) * runs)
    }
}

/// The bytes of a program, and where its subprograms start.
fn code(program: &str, calls: Calls) -> (Vec<u8>, Vec<usize>) {
    let linked = link(OBJECT);
    let program = &linked.programs[linked.program(program).expect("the object has it")];
    let starts = program.functions[1..].iter().map(|function| function.start);
    (code_with(program, calls), starts.collect())
}
