//! Arguments of `twinbpf record`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{EngineArgs, KernelArgs, LimitArgs, LoadArgs};

/// `twinbpf record`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  twinbpf record -e slow.bpf.o -- make
  twinbpf record -e slow.bpf.c -a -- sleep 4
  twinbpf record -e slow.bpf.o -- -g -F 999 make   options of perf record before the command
  twinbpf record -e slow.bpf.o -p 1234 -o out.data
  twinbpf bpf record --object slow.bpf.o -- -a sleep 4

`perf record` runs as a child. Programs on tracepoints, uprobes and kprobes are called for each sample of their event;
one that returns 0 drops it. The result is read by perf report and perf script.")]
pub(crate) struct RecordArgs {
    /// An object made by clang, a C source, or an event of perf. Several times for several.
    #[arg(short = 'e', long = "event", required_unless_present = "object", value_name = "OBJ|EVENT")]
    pub(crate) events: Vec<String>,
    /// An object or a C source.
    #[arg(long, value_name = "OBJ")]
    pub(crate) object: Vec<PathBuf>,
    /// Options of perf record, then the command to be recorded.
    #[arg(last = true, value_name = "OPTIONS AND CMD")]
    pub(crate) words: Vec<String>,
    /// Every process. A program that drops samples of a tracepoint drops them for every other recording, too.
    #[arg(short, long = "all-cpus", conflicts_with_all = ["pid", "tid"])]
    all: bool,
    /// Only these CPUs: 0,2-3.
    #[arg(short = 'C', long = "cpu", value_name = "CPUS")]
    cpus: Option<String>,
    /// Only these processes. The recording ends with them.
    #[arg(short, long, value_name = "PID,...")]
    pid: Option<String>,
    /// Only these threads. The recording ends with them.
    #[arg(short, long, value_name = "TID,...")]
    tid: Option<String>,
    /// The file that is written, perf.data if it is not said.
    #[arg(short, long, value_name = "FILE")]
    output: Option<String>,
    /// Leave a program out: it is neither loaded nor run. May be given several times.
    #[arg(long, value_name = "PROG")]
    pub(crate) without: Vec<String>,
    /// Print what would run where, and do nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) kernel: KernelArgs,
    #[command(flatten)]
    pub(crate) load: LoadArgs,
    #[command(flatten)]
    pub(crate) limits: LimitArgs,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
}

impl RecordArgs {
    /// The command line of `perf record`.
    pub(crate) fn words(&self) -> Vec<String> {
        let mut words = Vec::new();
        if self.all {
            words.push("-a".to_owned());
        }
        for (option, value) in [("-C", &self.cpus), ("-p", &self.pid), ("-t", &self.tid), ("-o", &self.output)] {
            words.extend(value.iter().flat_map(|value| [option.to_owned(), value.clone()]));
        }
        words.extend(self.words.iter().cloned());
        words
    }
}

/// `twinbpf bpf`.
#[derive(Args, Debug)]
pub(crate) struct BpfArgs {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: BpfCommand,
}

/// `twinbpf bpf ...`.
#[derive(Debug, Subcommand)]
pub(crate) enum BpfCommand {
    /// Record samples with perf: programs decide which.
    Record(RecordArgs),
}
