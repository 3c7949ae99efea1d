//! Arguments of `twinbpf compile`.

use std::path::PathBuf;

use clap::Args;
use twinbpf::Cpu;

use super::{CompileArgs, LoadArgs};

/// `twinbpf compile`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  twinbpf compile tool.bpf.o -o tool.o         then: cc -shared tool.o -o tool.so
  twinbpf run tool.bpf.o --compiled tool.so    the same programs, compiled already
  twinbpf compile sum.bpf.o --trust --host report -o sum.o
  twinbpf compile sum.bpf.o --trust --target aarch64-unknown-linux-gnu -o sum.o

Each program becomes a C function `uint64_t NAME(struct twinbpf_context *)`; twinbpf/context.h has the context, and
shows a C program that calls one. The object file refers to no other symbol. It says what it was made of and for:
`run` and `exec` take it for the same bytes, memory mode and frame size only. `strings` shows it.")]
pub(crate) struct ObjectFileArgs {
    /// Object, and the program in it if not all are wanted.
    #[arg(value_name = "OBJ[:PROG]")]
    pub(crate) program: String,
    /// The object file to write.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: PathBuf,
    /// Machine to compile for, if not for this one: x86_64, aarch64 or riscv64, or a triple with one of them.
    #[arg(long, value_name = "TRIPLE")]
    pub(crate) target: Option<String>,
    /// CPUs to compile for: baseline (all of the architecture) or native (this one).
    #[arg(long, value_name = "CPU", value_parser = cpu, default_value = "baseline")]
    pub(crate) cpu: Cpu,
    /// What names of C functions begin with.
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) prefix: String,
    /// A function that the C program will provide.
    #[arg(long, value_name = "NAME")]
    pub(crate) host: Vec<String>,
    /// Count instructions, as a run with --max-insns needs it.
    #[arg(long)]
    pub(crate) fuel: bool,
    #[command(flatten)]
    pub(crate) compile: CompileArgs,
    #[command(flatten)]
    pub(crate) load: LoadArgs,
}

fn cpu(text: &str) -> Result<Cpu, String> {
    match text {
        "baseline" => Ok(Cpu::Baseline),
        "native" => Ok(Cpu::Native),
        other => Err(format!("'{other}' is neither baseline nor native")),
    }
}
