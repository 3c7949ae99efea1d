//! Arguments of `twinbpf probe`.

use std::path::PathBuf;

use clap::{ArgGroup, Args};

/// `twinbpf probe`.
#[derive(Args, Debug)]
#[command(disable_version_flag = true, group = ArgGroup::new("what").required(true).args(["definitions", "functions", "variables"]),
    group = ArgGroup::new("where").required(true).args(["exec", "kernel"]))]
#[command(after_help = "Examples:
  twinbpf probe -x ./tgt 'wk=work* n'          points of all functions work*, and where n is at each
  twinbpf probe -x ./tgt 'work:3 p->next[1].s:string'
  twinbpf probe -x ./tgt 'work%return $retval'
  twinbpf probe -x ./tgt 'tgt.c:12 i sum'      a line of a file
  twinbpf probe -x ./tgt -F 'work*'            functions
  twinbpf probe -x ./tgt -V work               what can be had there
  twinbpf probe -k 'vfs_read count file->f_flags'
  twinbpf probe -k --module ext4 -F 'ext4_*'   functions of a module

A definition is perf's: [EVENT=]FUNCTION[@FILE][:LINE|+OFFSET|%return] or [EVENT=]FILE:LINE, then arguments: NAME,
a->b, a.b, a[N], $retval, %REGISTER, @SYMBOL, each with :s8 to :s64, u, x, :string or :ustring after it.

Status: 1 if an argument has no place at one of the points.")]
pub(crate) struct ProbeArgs {
    /// The program or library. A bare name is searched for in PATH, or, with .so in it, where libraries are.
    #[arg(short = 'x', long = "exec", value_name = "FILE")]
    pub(crate) exec: Option<PathBuf>,
    /// Functions of the running kernel, by its types and the calling convention.
    #[arg(short = 'k', long)]
    pub(crate) kernel: bool,
    /// Of this module.
    #[arg(long, value_name = "NAME", requires = "kernel")]
    pub(crate) module: Option<String>,
    /// What to find.
    #[arg(value_name = "DEFINITION")]
    pub(crate) definitions: Vec<String>,
    /// List the functions whose name matches a pattern, or all.
    #[arg(short = 'F', long = "funcs", value_name = "PATTERN", num_args = 0..=1, default_missing_value = "*")]
    pub(crate) functions: Option<String>,
    /// List the variables that can be had at a function, line or offset, and where each is.
    #[arg(short = 'V', long = "vars", value_name = "POINT")]
    pub(crate) variables: Option<String>,
    /// Most points of a definition.
    #[arg(long, value_name = "N", default_value_t = twinbpf_probe::MOST_POINTS)]
    pub(crate) max_probes: usize,
    /// Print a JSON object a point (with -F, a function) in a line.
    #[arg(long)]
    pub(crate) json: bool,
}
