//! CO-RE: instructions that depend on the layout of types, brought in line with the types of the machine that will
//! run them.
//!
//! Semantics and their order are those of libbpf's `relo_core.c` (`bpf_core_calc_relo_insn`,
//! `bpf_core_patch_insn`), so that the instructions come out the same byte for byte: which types are candidates,
//! what a field access matches, which candidates must agree, and what becomes of an instruction whose type is not
//! there. Unlike there, a candidate that does not match says why.
//!
//! Types are untrusted on both sides: every walk has a depth and the whole resolution a budget of steps.

mod compat;
mod error;
mod find;
mod matching;
mod patch;
mod resolve;
mod spec;
mod value;

#[cfg(test)]
mod tests;

pub use compat::{Pair, types_are_compatible};
pub use error::{CoreCandidate, CoreError, CoreMiss, Mismatch};
pub use patch::{invalid_call, patch};
pub use resolve::{Named, Outcome, Resolver, Sources};
pub use value::Change;

/// Longest access path (`BPF_CORE_SPEC_MAX_LEN`).
const MAX_PATH: usize = 64;
/// Nested types that a comparison follows, as libbpf.
const MAX_LEVEL: u32 = 32;
/// Types and members that one object may have compared. All relocations of a large one take some hundred thousand.
const BUDGET: u64 = 200_000_000;

/// What a comparison may still cost.
#[derive(Debug)]
pub struct Budget(u64);

impl Default for Budget {
    /// What the relocations of one object may cost.
    fn default() -> Budget {
        Budget(BUDGET)
    }
}

impl Budget {
    fn spend(&mut self, steps: usize) -> Result<(), CoreError> {
        match self.0.checked_sub(steps as u64) {
            Some(left) => {
                self.0 = left;
                Ok(())
            }
            None => Err(CoreError::Budget),
        }
    }
}
