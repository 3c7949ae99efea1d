//! Arguments of `twinbpf fuzz` and `twinbpf diff`.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use twinbpf_fuzzing::generate::Cpu;

use super::duration;

/// The engines to compare.
#[derive(Args, Clone, Debug)]
pub(crate) struct EnginesArgs {
    /// Engines of twinbpf, with commas between them.
    #[arg(long, value_name = "ENGINES", value_delimiter = ',', default_value = "interp,jit")]
    pub(crate) engines: Vec<FuzzEngine>,
    /// Modes of native code for `jit` and `jit-all`, with commas between the words; where no word chooses, all. `none` is
    /// six modes, which take less time than the others; `sandbox,strict,speed,no-fuel` is two.
    #[arg(long, value_name = "WORDS", value_delimiter = ',')]
    pub(crate) modes: Vec<ModeWord>,
    /// Other engines: `kernel` (this one; as root), `kernel-interp` (its interpreter, where it has one),
    /// `qemu:KERNEL` (both, of a kernel that QEMU boots), `worker:COMMAND` (whatever runs `twinbpf fuzz --worker`), or
    /// `plugin:COMMAND`, a plugin of bpf_conformance.
    #[arg(long, value_name = "PEER", value_parser = peer)]
    pub(crate) against: Vec<Peer>,
    /// Has native code, or the process that runs it, make a mistake, to test the campaign. In builds for tests only.
    #[arg(long, hide = true, value_name = "NAME")]
    pub(crate) mutant: Option<String>,
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
    /// The interpreter, with programs changed without changing their result.
    Changed,
    /// None of them.
    None,
}

/// A choice among the modes of native code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ModeWord {
    /// Addresses inside the arena.
    Sandbox,
    /// Addresses that are checked, too.
    Strict,
    /// Addresses as they are.
    Trusted,
    /// No optimisation.
    None,
    /// Optimised.
    Speed,
    /// Of the first tier, with loops that hand over after two turns.
    First,
    /// What functions get that are too much work for the compiler.
    Baseline,
    /// Instructions are counted.
    Fuel,
    /// They are not.
    NoFuel,
}

/// Other engines to compare with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// The running kernel.
    Kernel,
    /// The running kernel's interpreter.
    KernelInterp,
    /// Another kernel, by its image or unpacked package.
    Qemu(String),
    /// A command that reaches a worker.
    Worker(String),
    /// A plugin of bpf_conformance.
    Plugin(String),
}

/// As it is on the command line.
impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Peer::Kernel => f.write_str("kernel"),
            Peer::KernelInterp => f.write_str("kernel-interp"),
            Peer::Qemu(kernel) => write!(f, "qemu:{kernel}"),
            Peer::Worker(command) => write!(f, "worker:{command}"),
            Peer::Plugin(command) => write!(f, "plugin:{command}"),
        }
    }
}

fn peer(text: &str) -> Result<Peer, String> {
    let of = text.split_once(':').filter(|(_, rest)| !rest.trim().is_empty());
    match (text, of) {
        ("kernel", _) => Ok(Peer::Kernel),
        ("kernel-interp", _) => Ok(Peer::KernelInterp),
        (_, Some(("qemu", kernel))) => Ok(Peer::Qemu(kernel.to_owned())),
        (_, Some(("worker", command))) => Ok(Peer::Worker(command.to_owned())),
        (_, Some(("plugin", command))) => Ok(Peer::Plugin(command.to_owned())),
        (other, _) => {
            Err(format!("'{other}' is none of kernel, kernel-interp, qemu:KERNEL, worker:COMMAND and plugin:COMMAND"))
        }
    }
}

/// Which instructions random programs have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FuzzCpu {
    /// Those that Linux knows since 5.12.
    V3,
    /// Also signed loads, moves and division, swapped bytes, long jumps: since 6.6.
    V4,
    /// All.
    Newest,
}

impl From<FuzzCpu> for Cpu {
    fn from(cpu: FuzzCpu) -> Cpu {
        match cpu {
            FuzzCpu::V3 => Cpu::V3,
            FuzzCpu::V4 => Cpu::V4,
            FuzzCpu::Newest => Cpu::Newest,
        }
    }
}

/// `twinbpf fuzz`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  twinbpf fuzz --time 1m
  twinbpf fuzz --engines interp,jit --against kernel --time 1h --jobs 2 --corpus findings
  twinbpf fuzz --engines interp --against 'plugin:/usr/local/bin/ubpf_plugin --jit'
  twinbpf fuzz --c --time 10m
  twinbpf fuzz --engines interp --against qemu:/boot/vmlinuz-6.12.0-cloud-amd64 --cpu v4
  twinbpf fuzz --agreement --time 10m
  twinbpf fuzz --worker --engines none --against kernel < batches > outcomes
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
    /// How many programs, in whole batches of 64.
    #[arg(long, value_name = "N")]
    pub(crate) programs: Option<u64>,
    /// Processes. One.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..256))]
    pub(crate) jobs: u64,
    /// Where findings go, and what is needed to continue.
    #[arg(long, value_name = "DIR", default_value = "findings")]
    pub(crate) corpus: PathBuf,
    /// Slots of a program and its functions together, about, besides those that load registers and store results.
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u64).range(1..10_000))]
    pub(crate) insns: u64,
    /// Inputs of a program.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..1000))]
    pub(crate) inputs: u64,
    /// The instructions that programs may have, for kernels that do not know the newest.
    #[arg(long, value_name = "CPU", value_enum, default_value_t = FuzzCpu::Newest)]
    pub(crate) cpu: FuzzCpu,
    /// Programs in C instead: what clang makes of each for v1 to v4 of the instruction set, on all engines of twinbpf, and
    /// what cc makes of it for this machine. TWINBPF_CLANG and CC name other compilers.
    #[arg(long, conflicts_with_all = ["engines", "modes", "against", "jobs", "insns", "cpu"])]
    pub(crate) c: bool,
    /// Ask the running kernel's verifier: what it takes of valid and nearly valid programs is run where everything is
    /// checked. As root.
    #[arg(long, conflicts_with_all = ["engines", "modes", "against"])]
    pub(crate) agreement: bool,
    /// Generate nothing: run the batches that come on standard input, a line of JSON each, and write what became of
    /// them, likewise.
    #[arg(long, conflicts_with_all = ["seed", "time", "programs", "jobs", "corpus", "insns", "inputs", "cpu", "agreement"])]
    pub(crate) worker: bool,
    /// The number of this child process, its first batch, and the one after its last.
    #[arg(long, hide = true, value_name = "INDEX,BATCH,END", value_delimiter = ',')]
    pub(crate) child: Vec<u64>,
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
    /// The turn of engines that take turns: `jit` its modes, `changed` its changes. A file of a corpus says which.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) turn: u64,
}
