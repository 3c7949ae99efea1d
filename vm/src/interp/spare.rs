//! A second native stack for a machine.

use crate::recover::{self, NativeStack, StackRange};

/// A stack of the machine's own, made when it is first needed.
#[derive(Debug, Default)]
pub(super) enum Spare {
    #[default]
    None,
    Idle(NativeStack),
    /// Something runs on it.
    InUse(StackRange),
}

impl Spare {
    /// The stack, unless something runs on it or it was never made.
    pub(super) fn take(&mut self) -> Option<NativeStack> {
        match std::mem::take(self) {
            Spare::Idle(stack) => Some(stack),
            other @ (Spare::None | Spare::InUse(_)) => {
                *self = other;
                None
            }
        }
    }

    /// Whether the caller runs on it.
    pub(super) fn is_here(&self) -> bool {
        match self {
            Spare::InUse(range) => range.contains(recover::here()),
            Spare::None | Spare::Idle(_) => false,
        }
    }
}
