//! Backends: what runs cases. The interpreter and native code of this process, the running kernel, external commands.

mod kernel;
mod modes;
mod outcome;
mod plugin;
pub(crate) mod vm;
pub(crate) mod watch;
pub(crate) mod world;

use twinbpf_isa::Raw;

use crate::generate::Case;

pub use kernel::{InterpreterError, KernelEngine};
pub use modes::{JitMode, jit_modes};
pub use outcome::{End, Outcome, Ran, digest};
pub use plugin::Plugin;
pub use vm::{FAULTS, Vm};
pub use watch::Doubt;

/// Something that runs cases.
pub trait Engine {
    /// What it is called, in reports.
    fn name(&self) -> String;

    /// Runs each case on all of its inputs.
    fn run(&mut self, cases: &[Case]) -> Vec<Ran>;

    /// Of one that takes turns: takes this one, until it gets another.
    fn take_turn(&mut self, _turn: u64) {}
}

/// An engine that says first which programs it runs.
pub trait Verifier: Engine {
    /// Whether it takes these slots, in which maps are their numbers.
    ///
    /// # Errors
    /// Why it does not.
    fn verify(&self, slots: &[Raw]) -> Result<(), String>;
}
