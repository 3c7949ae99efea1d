//! Tracing sessions: programs of an object run in the kernel and collect, its scripts run in userspace over the same
//! maps and globals.
//!
//! A [`Plan`] says what each program is for. A [`Session`] is made of it: maps made, programs loaded, attachments open
//! but disabled. [`Session::run`] goes through the rest: BEGIN, the workload, EVENT, TIMER and signals, END.
//!
//! It reads no command line. It prints what scripts and iterators print, and says on standard error what was lost.

// Everything that is printed passes through `terminal`, which escapes it for terminals.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod control;
mod error;
mod events;
mod files;
mod fuzz;
mod kernel;
mod options;
mod output;
mod plan;
mod script;
mod session;
mod signals;
mod symbols;
mod sys;
mod target;
pub mod terminal;
mod tool;
mod workload;

pub use control::{Control, functions};
pub use error::Error;
pub use files::{FilesError, KernelFiles};
pub use fuzz::{InterpreterError, KernelEngine};
pub use options::{Mode, Options};
pub use output::{Output, end_by_pipe};
pub use plan::{ObjectPlan, Place, Plan, Planned};
pub use session::{STATUS_ABORTED, Session};
pub use symbols::{Symbol, Symbols};
/// The kernel's side, for commands that look at what is there.
pub use twinbpf_kernel;
pub use twinbpf_kernel::cpu::parse_list as parse_cpus;
pub use twinbpf_kernel::run_function;
