//! Arguments of `twinbpf bench`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use twinbpf::{Config, EngineKind, Isolation};

use super::{CompileArgs, LimitArgs, LoadArgs, duration};

/// `twinbpf bench`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  twinbpf bench kernel.bpf.o
  twinbpf bench a.bpf.o:parse b.bpf.o:parse --packet @frame.bin --engine interp,jit
  twinbpf bench filter.bpf.o --packet @udp.bin --packet @tcp.bin --set @rules.txt
  twinbpf bench *.bpf.o --ctx @block.bin --json --svg times.svg
  twinbpf bench kernel.bpf.o --engine jit --flamegraph where.svg

The first engine's result is what the others must compute; one that does not is named and not timed. Engines take
turns; the figures are medians of the turns, the spread goes from the shortest to the longest. A ratio is to the first
engine in the same turn. Runs of a turn share their input, as in BPF_PROG_TEST_RUN. Of an object without a program all
are measured; those that cannot run on the input are named.

`kernel` is this one, and one of `all` where programs may be loaded. Of packet programs it tells whole nanoseconds; each
run of a raw_tp or syscall program, on --ctx, is a system call of its own, whose time counts. Of r0 it tells the lower
half.")]
pub(crate) struct BenchArgs {
    /// Objects, and the program in each if not all are wanted.
    #[arg(required = true, value_name = "OBJ[:PROG]")]
    pub(crate) programs: Vec<String>,
    /// Engines to compare, with commas between them; `all` is interp, jit and trusted, and kernel where that is
    /// allowed.
    #[arg(long, value_name = "ENGINES", value_delimiter = ',', default_value = "all")]
    engine: Vec<BenchEngine>,
    /// Time for each program, all engines together.
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "1s")]
    pub(crate) time: Duration,
    /// Bytes of the context: hex digits, or a file.
    #[arg(long, value_name = "HEX|@FILE", conflicts_with = "packet")]
    pub(crate) ctx: Option<String>,
    /// Bytes of a packet, around which the context of XDP and TC programs is built. Of several the figures are means.
    #[arg(long, value_name = "HEX|@FILE")]
    pub(crate) packet: Vec<String>,
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
    /// Draw the figures into this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
    /// Measure under perf record, and draw where the time went as a flame graph, SVG.
    #[arg(long, value_name = "FILE")]
    pub(crate) flamegraph: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) load: LoadArgs,
    #[command(flatten)]
    pub(crate) limits: LimitArgs,
    #[command(flatten)]
    pub(crate) compile: CompileArgs,
}

/// What a program can be measured on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum BenchEngine {
    /// Those that do different things, in this order.
    All,
    /// The interpreter.
    Interp,
    /// Native code in the sandbox.
    Jit,
    /// Native code that traps at pointers out of the arena.
    Strict,
    /// Native code with raw pointers, as `--trust` has it.
    Trusted,
    /// The kernel's native code, by BPF_PROG_TEST_RUN.
    Kernel,
}

impl BenchArgs {
    /// The selected engines, each once, in the order of the command line.
    pub(crate) fn engines(&self, kernel_allowed: impl Fn() -> bool) -> Vec<BenchEngine> {
        const ALL: [BenchEngine; 4] =
            [BenchEngine::Interp, BenchEngine::Jit, BenchEngine::Trusted, BenchEngine::Kernel];
        let mut engines = Vec::new();
        for engine in &self.engine {
            let these = match engine {
                BenchEngine::All if kernel_allowed() => &ALL[..],
                BenchEngine::All => &ALL[..ALL.len() - 1],
                BenchEngine::Interp
                | BenchEngine::Jit
                | BenchEngine::Strict
                | BenchEngine::Trusted
                | BenchEngine::Kernel => std::slice::from_ref(engine),
            };
            engines.extend(these.iter().filter(|engine| !engines.contains(*engine)).copied().collect::<Vec<_>>());
        }
        engines
    }
}

impl BenchEngine {
    /// As on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            BenchEngine::All => "all",
            BenchEngine::Interp => "interp",
            BenchEngine::Jit => "jit",
            BenchEngine::Strict => "strict",
            BenchEngine::Trusted => "trusted",
            BenchEngine::Kernel => "kernel",
        }
    }

    /// How an engine of ours is set up for it; none for the kernel.
    pub(crate) fn config(self, config: Config) -> Option<Config> {
        Some(match self {
            BenchEngine::All | BenchEngine::Interp => config.engine(EngineKind::Interp),
            BenchEngine::Jit | BenchEngine::Trusted => config.engine(EngineKind::Jit),
            BenchEngine::Strict => config.engine(EngineKind::Jit).isolation(Isolation::Strict),
            BenchEngine::Kernel => return None,
        })
    }
}
