//! Arguments of `twinbpf enabled`.

use clap::Args;

/// `twinbpf enabled`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  twinbpf enabled 1234                    functions with hooks, their number, and what their code leads to

Hooks are of the process's own (docs/hooks.md), by a library that it has or was given. Each line has the function, the number of callbacks,
R where one wants all registers, I where the function is replaced, D where it has a direct trampoline; then what its code
leads to: a trampoline with its callback, or a list.")]
pub(crate) struct EnabledArgs {
    /// Number of the process.
    pub(crate) pid: u32,
    /// Print a JSON object a line.
    #[arg(long)]
    pub(crate) json: bool,
}
