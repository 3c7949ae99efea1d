//! Arguments of `twinbpf script`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use twinbpf::EngineKind;

use super::{Format, duration, engine};

/// `twinbpf script`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  twinbpf script counts.bpf.c              over perf.data of this folder
  twinbpf script counts.bpf.o -i slow.data
  twinbpf script slow.bpf.c --print        and perf's lines of the samples that EVENT keeps
  twinbpf script slow.bpf.c --print -- -F comm,time --no-inline

`perf script` runs as a child, with the shared object libtwinbpf_perf.so that comes with this command. BEGIN runs first,
EVENT for each sample, TIMER by the times of samples, END last.")]
pub(crate) struct ScriptArgs {
    /// Objects made by clang, or C sources.
    #[arg(required_unless_present = "save_library", value_name = "OBJ")]
    pub(crate) objects: Vec<PathBuf>,
    /// Options of perf script.
    #[arg(last = true, value_name = "OPTIONS")]
    pub(crate) words: Vec<String>,
    /// The recording.
    #[arg(short, value_name = "FILE", default_value = "perf.data")]
    pub(crate) input: PathBuf,
    /// Write what programs print to a file.
    #[arg(short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// How to write it: text, or json (an object a line).
    #[arg(short, value_name = "FORMAT", default_value = "text")]
    pub(crate) format: Format,
    /// Let perf print the samples that programs keep: those for which no EVENT returns 0.
    #[arg(long)]
    pub(crate) print: bool,
    /// End with status 125 if the recording lacks samples, for which perf record had no room. They are reported anyway.
    #[arg(long)]
    pub(crate) fail_on_loss: bool,
    /// Draw the folded stacks of programs (print_folded) as a flame graph, SVG, at the end.
    #[arg(long, value_name = "FILE")]
    pub(crate) flamegraph: Option<PathBuf>,
    /// Draw histograms, and maps that print every interval over time, as charts, SVG, at the end.
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
    /// Write the shared object that perf loads to a file, for perf script --dlfilter FILE.
    #[arg(long, value_name = "FILE", exclusive = true)]
    pub(crate) save_library: Option<PathBuf>,
    /// Give a global variable a value before loading, typed by BTF.
    #[arg(long, value_name = "VAR=VALUE")]
    pub(crate) set: Vec<String>,
    /// An option for clang, where a C source is given in place of an object.
    #[arg(long, value_name = "OPTION", allow_hyphen_values = true)]
    pub(crate) clang_opt: Vec<String>,
    /// What executes programs: interp, jit or auto.
    #[arg(long, value_name = "ENGINE", value_parser = engine)]
    pub(crate) engine: Option<EngineKind>,
    /// Instructions one call of a program may execute.
    #[arg(long, value_name = "N")]
    pub(crate) max_insns: Option<u64>,
    /// Time one call of a program may take: 500ms, 2s, 1m; a bare number is seconds.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
}
