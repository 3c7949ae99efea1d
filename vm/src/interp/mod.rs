//! The reference interpreter: one copy of the semantics, executed by two drivers.
//!
//! - `rows` says what each operation computes, `ops` how it reads operands and writes results. Both are types; `select`
//!   finds the type of an instruction by its `kind`.
//! - `step` executes one instruction at a time and charges each: exact, traceable. `translate` makes what it works from.
//! - `threaded` lets each instruction jump to the next: `handlers` has the code of each, `superinstructions` the table of those that
//!   execute several, and `layout` decides where they stand. It passes control to `step` when the budget runs low.
//! - `direct` calls host functions that need no machine, in place.
//! - `event` holds what is not an operation on registers and memory: calls, returns, tail calls.
//! - `machine` is the state of a thread, `run` begins runs on it, `short` those that save less; `room` checks the native stack before runs and callbacks.
//! - `tier` holds compiled code, `native_tier` enters it and is called by it; `fault` says why it ended early.
//!
//! A validated program can only finish or trap. This module knows nothing of ELF, and no particular host
//! function: everything a program can reach comes through the [`Image`](crate::image::Image) and the
//! [`Runtime`](crate::host::Runtime).
//!
//! Counting: every executed instruction counts 1, in callees and callbacks too. An `lddw` is one instruction, and
//! so is a call, whatever the host function does; so is a host function that a host function calls back. The instruction that traps counts.
#![forbid(unsafe_code)]

mod code;
mod direct;
mod event;
mod fault;
mod frame;
mod handlers;
mod kind;
mod layout;
mod machine;
mod native_tier;
mod operands;
mod ops;
mod room;
mod rows;
mod run;
mod select;
mod short;
mod spare;
mod state;
mod step;
mod superinstructions;
mod threaded;
mod tier;
mod trace;
mod translate;
mod unit;

pub use machine::{Driver, Limits, MAX_DEPTH, Machine};
pub use short::ShortRun;
pub use superinstructions::{Superinstruction, SuperinstructionSet, SuperinstructionSetError, SuperinstructionUse};
pub use trace::{TraceStep, Tracer};

#[cfg(test)]
mod tests;
