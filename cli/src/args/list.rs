//! Arguments of `twinbpf list`.

use clap::Args;

/// `twinbpf list`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  twinbpf list                            everything
  twinbpf list 'tp/syscalls/*' -v         tracepoints with what they pass
  twinbpf list 'tcp'                      whatever has tcp in its name
  twinbpf list 'fexit/vfs_*'              fexit, kretprobe and kretsyscall are listed where they are named
  twinbpf list /bin/bash                  functions and static probes of a program
  twinbpf list 'usdt:libc.so.6:*'
  twinbpf list --stale                    events of recordings that were killed: removes them

Each line goes into SEC(). What the kernel has by name and cannot attach is left out; standard
error says why.")]
pub(crate) struct ListArgs {
    /// Part of a section's name, or a pattern with * and ?, also as bpftrace writes it; or a program or library.
    #[arg(value_name = "PATTERN|FILE")]
    pub(crate) pattern: Option<String>,
    /// Print what programs get there: fields of tracepoints, parameters of functions, places of arguments.
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Remove the events that recordings left which were killed together with their guards, and print them.
    #[arg(long, conflicts_with_all = ["pattern", "verbose", "json"])]
    pub(crate) stale: bool,
    /// Print a JSON object a line.
    #[arg(long)]
    pub(crate) json: bool,
}
