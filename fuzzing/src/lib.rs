//! Differential testing: runs the same random programs on each backend, and compares everything that they leave behind.
//!
//! An [`Engine`] runs [`Case`](generate::Case)s of [`generate`] and gives an [`Outcome`] for each input: how it ended,
//! all registers, stack words, memory, maps and the context. A [`Campaign`] compares outcomes, lets the majority decide
//! who is wrong, and reduces findings. No engine is the truth, a kernel neither: what is known to differ is in a list
//! ([`known`]). [`mutants`] are bugs put into programs and compilations on purpose, to see that they are found.

pub mod backend;
mod campaign;
mod finding;
pub mod generate;
pub mod mutants;
pub mod oracle;
mod reduce;

pub use backend::{
    Doubt, End, Engine, FAULTS, InterpreterError, JitMode, KernelEngine, Outcome, Plugin, Ran, Verifier, Vm, digest,
    jit_modes,
};
pub use campaign::{CCampaign, CError, CFinding, Campaign, Tally, Vote};
pub use finding::Finding;
pub use oracle::{Agreement, Changed, Disagreement, MODELS, Model, Printer, known, verify};
