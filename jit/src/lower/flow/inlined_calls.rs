//! Calls that are inlined: to the blocks of the caller they are instructions like others.

use twinbpf_vm::image::Image;

use super::super::effects::{Successors, successors};
use super::Flow;

/// A call in whose place the callee's instructions are lowered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InlinedCall {
    /// Flat pc.
    pub(crate) pc: u32,
    /// Number of the callee in [`Inlining`](super::super::inlining::Inlining).
    pub(crate) callee: usize,
    /// Instructions of the callee's longest path, in functions with a budget.
    pub(crate) most: u32,
    /// Likewise of its likely path.
    pub(crate) ahead: u32,
}

impl Flow {
    /// The call at a flat pc, if it is inlined.
    pub(crate) fn inlined(&self, pc: u32) -> Option<InlinedCall> {
        let at = self.inlined.binary_search_by_key(&pc, |call| call.pc).ok()?;
        Some(self.inlined[at])
    }

    /// Whether there are inlined calls.
    pub(crate) fn inlines(&self) -> bool {
        !self.inlined.is_empty()
    }

    /// Successors of the instruction at a flat pc; that of an inlined call is the next one.
    pub(crate) fn successors(&self, image: &Image, pc: u32) -> Successors {
        match successors(image.insns()[pc as usize], image.links()[pc as usize], pc) {
            Successors::Call if self.inlined(pc).is_some() => Successors::FallThrough,
            other => other,
        }
    }
}
