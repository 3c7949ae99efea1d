//! Arguments of `twinbpf conformance`.

use clap::{Args, ValueEnum};

use super::{CompileArgs, LimitArgs, LoadArgs};

/// `twinbpf conformance`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  echo b7 00 00 00 2a 00 00 00 95 00 00 00 00 00 00 00 | twinbpf conformance
  twinbpf conformance 0102030405060708 --program \"79 10 00 00 00 00 00 00 95 00 00 00 00 00 00 00\" --engine jit

This is what bpf_conformance_runner and ubpf's fuzzer expect of a plugin. As they put the memory first, they need a
script of one line as the plugin: exec twinbpf conformance --engine jit \"$@\"

Status: 0, and r0 in hex on standard output; or 1, and why on standard error.")]
pub(crate) struct ConformanceArgs {
    /// Bytes of memory, in hex. The program gets their address in r1 and their number in r2, or zeroes.
    #[arg(value_name = "MEMORY")]
    pub(crate) memory: Option<String>,
    /// The program, in hex. Without it, standard input has it.
    #[arg(long, value_name = "HEX")]
    pub(crate) program: Option<String>,
    /// The program is an ELF object, not bare instructions: its function main, or its only one.
    #[arg(long)]
    pub(crate) elf: bool,
    /// What runs it.
    #[arg(long, value_name = "ENGINE", value_enum, default_value_t = ConformanceEngine::Interp)]
    pub(crate) engine: ConformanceEngine,
    /// Accepted, as other plugins have it: why a program was refused is always said.
    #[arg(long, hide = true)]
    pub(crate) debug: bool,
    #[command(flatten)]
    pub(crate) load: LoadArgs,
    #[command(flatten)]
    pub(crate) limits: LimitArgs,
    #[command(flatten)]
    pub(crate) compile: CompileArgs,
}

/// Engines of `twinbpf conformance`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ConformanceEngine {
    /// The interpreter.
    Interp,
    /// Native code.
    Jit,
    /// This kernel, as root: what its verifier accepts.
    Kernel,
}
