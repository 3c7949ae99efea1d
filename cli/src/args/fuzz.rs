//! Arguments of `twinbpf fuzz` and `twinbpf diff`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::duration;

/// Who is compared.
#[derive(Args, Clone, Debug)]
pub(crate) struct EnginesArgs {
    /// Engines of twinbpf, with commas between them.
    #[arg(long, value_name = "ENGINES", value_delimiter = ',', default_value = "interp,jit")]
    pub(crate) engines: Vec<FuzzEngine>,
    /// Somebody else: `kernel` (this one; as root), or `plugin:COMMAND`, a plugin of bpf_conformance.
    #[arg(long, value_name = "PEER", value_parser = peer)]
    pub(crate) against: Vec<Peer>,
}

/// An engine of twinbpf.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FuzzEngine {
    /// The interpreter.
    Interp,
    /// The interpreter, one instruction at a time.
    Step,
    /// Native code; each batch of programs is compiled in the next of all modes.
    Jit,
    /// Native code in all modes, every program in each.
    JitAll,
    /// The interpreter, with programs changed in ways that must not matter.
    Changed,
}

/// Somebody else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// The running kernel.
    Kernel,
    /// A plugin of bpf_conformance.
    Plugin(String),
}

fn peer(text: &str) -> Result<Peer, String> {
    match (text, text.strip_prefix("plugin:")) {
        ("kernel", _) => Ok(Peer::Kernel),
        (_, Some(command)) if !command.trim().is_empty() => Ok(Peer::Plugin(command.to_owned())),
        (other, _) => Err(format!("'{other}' is neither kernel nor plugin:COMMAND")),
    }
}

/// `twinbpf fuzz`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  twinbpf fuzz --time 1m
  twinbpf fuzz --engines interp,jit --against kernel --time 1h --jobs 2 --corpus findings
  twinbpf fuzz --engines interp --against 'plugin:/usr/local/bin/ubpf_plugin --jit'
  twinbpf fuzz --c --time 10m
  twinbpf diff findings/3f2a9c01.case

Programs run in child processes: one that crashes is a finding, too. Ctrl-C ends the campaign; the same command goes on
where it ended. Status 1 if there are findings that are not known.")]
pub(crate) struct FuzzArgs {
    #[command(flatten)]
    pub(crate) engines: EnginesArgs,
    /// What all programs follow from. That of the corpus, or else one of the clock.
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// How long: 10s, 20m, 1h. Until Ctrl-C.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) time: Option<Duration>,
    /// How many programs.
    #[arg(long, value_name = "N")]
    pub(crate) programs: Option<u64>,
    /// Processes. One.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..256))]
    pub(crate) jobs: u64,
    /// Where findings go, and what is needed to go on.
    #[arg(long, value_name = "DIR", default_value = "findings")]
    pub(crate) corpus: PathBuf,
    /// Instructions of a program, about, besides those that load registers and store results.
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u64).range(1..10_000))]
    pub(crate) insns: u64,
    /// Inputs of a program.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..1000))]
    pub(crate) inputs: u64,
    /// Programs in C instead: what clang makes of each for v1 to v4 of the instruction set, on all engines of twinbpf, and
    /// what cc makes of it for this machine. TWINBPF_CLANG and CC name other compilers.
    #[arg(long, conflicts_with_all = ["engines", "against", "jobs", "insns"])]
    pub(crate) c: bool,
    /// The number of this child process, and its first batch.
    #[arg(long, hide = true, value_name = "INDEX,BATCH", value_delimiter = ',')]
    pub(crate) worker: Vec<u64>,
}

/// `twinbpf diff`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  twinbpf diff findings/3f2a9c01.case
  twinbpf diff case --engines interp,jit-all --against kernel

Status 1 if the engines do not agree.")]
pub(crate) struct DiffArgs {
    /// Case of a corpus, or a program in C (`.c`) that `fuzz --c` has found.
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) engines: EnginesArgs,
}
