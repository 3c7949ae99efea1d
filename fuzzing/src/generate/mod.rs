//! Random programs that are worth running: valid by construction, nearly valid, and changed.
//!
//! A [`Case`] is a program with its inputs in a fixed little world ([`world`]): a state map from which it loads its
//! registers and where it leaves them, two maps to work on, a table of tail calls, a context. Nothing in it names an
//! engine, so that the same case runs in the machine, as native code and in a kernel, and all that it leaves behind
//! can be compared. What instructions there are comes from the tables of [`twinbpf_isa`].
//!
//! Everything follows from [`Choices`]: the same seed, or the same bytes, give the same case. This module runs nothing.
#![forbid(unsafe_code)]

mod any;
mod body;
mod bytes;
mod c;
mod case;
mod choices;
mod coverage;
mod cpu;
mod flag;
mod helpers;
mod indirect;
mod insns;
mod iter;
mod maps;
mod mutate;
mod near;
mod parts;
mod regs;
mod tail;
mod text;
mod walk;
mod wild;
pub mod world;

pub use any::any_insns;
pub use body::{Config, Dialect, case};
pub use c::{C_INPUTS, C_PREAMBLE, C_WORLD, c_program};
pub use case::{Case, Input, Uses, program_of};
pub use choices::Choices;
pub use coverage::{Coverage, Edge, OperandClass};
pub use cpu::Cpu;
pub use mutate::{Meta, equivalent, mutate};
pub use near::{NearValid, near_valid};
pub use text::CaseError;
pub use wild::wild;

#[cfg(test)]
mod tests;
