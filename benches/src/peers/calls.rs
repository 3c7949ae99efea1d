//! The programs of `corpus/bench/call.bpf.c` on each machine that can call.

use super::{Runner, rbpf, sbpf, twinbpf};
use crate::workload::{Calls, code_with, link};

/// Where the programs are.
const OBJECT: &str = "bench/call.bpf.o";

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

/// The bytes of a program, and where its subprograms start.
fn code(program: &str, calls: Calls) -> (Vec<u8>, Vec<usize>) {
    let linked = link(OBJECT);
    let program = &linked.programs[linked.program(program).expect("the object has it")];
    let starts = program.functions[1..].iter().map(|function| function.start);
    (code_with(program, calls), starts.collect())
}
