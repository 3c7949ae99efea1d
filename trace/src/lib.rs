//! Tracing sessions: programs of an object run in the kernel and collect, its scripts run in userspace over the same
//! maps and globals.
//!
//! A [`Plan`] gives each program its [`Trigger`]. [`Session::new`] makes the maps, loads the programs and opens the
//! attachments, disabled. [`Session::run`] runs BEGIN, the workload, EVENT, TIMER and SIGNAL programs, and END.
//!
//! The crate reads no command line. It prints what scripts and iterators print, and reports lost records on standard
//! error.

// Everything that is printed passes through `terminal`, which escapes it for terminals.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod arguments;
mod code;
mod control;
mod display;
mod error;
mod event_structs;
mod events;
mod files;
mod flame;
mod functions;
mod hooks;
mod kernel_side;
mod loss;
mod marked;
mod metrics;
mod options;
mod output;
mod picture;
mod pictures;
mod plan;
mod prepare;
mod print;
mod probes;
mod progress;
mod record;
mod samples;
mod script;
mod session;
mod signals;
mod start_flag;
mod symbols;
mod sys;
mod target;
pub mod terminal;
mod terms;
mod timer;
mod user_side;
mod verdict;
mod verdicts;
mod workload;

pub use arguments::{
    ChoiceError, Instances, MOST_PARAMETERS, ProbeError, ProbeInstance, Probed, Prologue, STRING, kernel_types,
    probe_instances, with_binary,
};
pub use control::Control;
pub use display::DisplayError;
pub use error::Error;
pub use files::{FilesError, KernelFiles};
pub use functions::functions;
pub use hooks::{HookError, HookedProbes};
pub use options::{Mode, OnError, Options};
pub use output::Output;
pub use picture::PictureFile;
pub use plan::{Counters, ObjectPlan, Plan, Planned, Trigger};
pub use probes::probe_definition;
pub use record::{RecordCommand, RecordTarget, Recording};
pub use samples::{SampleSession, Verdict};
pub use script::put_text;
pub use session::{STATUS_ABORTED, STATUS_FAILED, Session};
pub use symbols::{Symbol, Symbols};
pub use terminal::end_by_pipe;
pub use terms::{
    CallGraph, EventTerm, Indices, MapEvent, MapTerm, Setting, SlotEvent, TermError, TermErrorKind, Terms,
};
pub use user_side::Sample;
