//! A second native stack for a machine.

use crate::recover::{self, NativeStack};

/// A stack of the machine's own, made when it is first needed.
#[derive(Debug, Default)]
pub(super) struct Spare {
    pub(super) stack: Option<NativeStack>,
    /// Its lowest address and size, while it is in use.
    pub(super) range: (u64, usize),
}

impl Spare {
    pub(super) fn is_here(&self) -> bool {
        recover::here().wrapping_sub(self.range.0) < self.range.1 as u64
    }
}
