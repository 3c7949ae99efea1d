//! The optimisation pipeline over Cranelift's IR, before and after Cranelift's own optimiser.
//!
//! clang's bytecode has lost what clang knew: conditional moves are branches over moves, a `switch` is a tree of compares, and a
//! 32-bit operation is one of 64 bits with an extension. The passes in [`pre`] recover that for the optimiser; those in
//! [`post`] rewrite its result, where instructions have their final order, mostly in loops. [`pipeline`] has the list.
//!
//! Passes only add instructions without side effects, or execute them speculatively. Loads, stores, calls and traps keep their
//! order and their trap sites, so no pass has to know what a trap site means. One does: access merging makes one access of several, and says
//! why traps stay where they are.

pub(crate) mod analysis;
mod bounds;
mod ir;
mod pass;
pub(crate) mod pipeline;
mod post;
mod pre;
mod target_model;
#[cfg(test)]
mod tests;
mod uses;

pub use analysis::Analyses;
pub use pass::Phase;
pub use pipeline::{PassInfo, PassRun, PassSet, PassSetError};
#[cfg(test)]
pub(crate) use post::{FOLDING_MUTANT, HOISTING_MUTANT, PAYMENTS_MUTANT};
#[cfg(test)]
pub(crate) use pre::MERGING_MUTANT;
