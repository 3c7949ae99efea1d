//! Arguments of `twinbpf btf` and `twinbpf new`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::LoadArgs;

/// `twinbpf btf`.
#[derive(Args, Debug)]
pub(crate) struct BtfArgs {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: BtfCommand,
}

/// What can be done with types.
#[derive(Debug, Subcommand)]
pub(crate) enum BtfCommand {
    /// Print types.
    Dump(BtfDumpArgs),
}

/// `twinbpf btf dump`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  twinbpf btf dump > vmlinux.h            the kernel's types as a C header
  twinbpf btf dump --root task_struct     one type and what it needs
  twinbpf btf dump tool.bpf.o --format raw
  twinbpf btf dump /sys/kernel/btf/nf_conntrack --format json

The header compiles for BPF, and each struct in it has the layout that the BTF says. Of several types of one name the
later ones are called NAME___2, NAME___3; CO-RE takes these for NAME.")]
pub(crate) struct BtfDumpArgs {
    /// BTF, an object or a C source. The default is the running kernel's.
    #[arg(value_name = "FILE", default_value = "/sys/kernel/btf/vmlinux")]
    pub(crate) file: PathBuf,
    /// Types that a module's BTF continues from.
    #[arg(long, value_name = "FILE", default_value = "/sys/kernel/btf/vmlinux")]
    pub(crate) base: PathBuf,
    /// How to print: as C, one after the other as they are, or the same as JSON.
    #[arg(long, value_enum, default_value = "c")]
    pub(crate) format: BtfFormat,
    /// Only this type and what it needs: a name or a number.
    #[arg(long, value_name = "TYPE")]
    pub(crate) root: Vec<String>,
    #[command(flatten)]
    pub(crate) load: LoadArgs,
}

/// How types are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum BtfFormat {
    /// A C header.
    C,
    /// As bpftool prints them.
    Raw,
    /// One JSON object.
    Json,
}

/// `twinbpf new`.
#[derive(Args, Debug)]
pub(crate) struct NewArgs {
    /// What the tool is called; the file is NAME.bpf.c.
    #[arg(value_name = "NAME")]
    pub(crate) name: PathBuf,
    /// A tracing tool, with programs for the kernel.
    #[arg(long)]
    pub(crate) trace: bool,
}
