//! What a proof is about.

use super::facts::{Fact, Guard};

/// What a function does that a proof is about.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// An access of memory, by address; `stores` it or not.
    Access { at: usize, address: Fact, bytes: usize, stores: Option<Fact>, stack: i64 },
    /// A compare or test of a guard, or an instruction that uses its flags.
    Guard { at: usize, guard: Guard, sides: [Fact; 2] },
    /// A call of a function.
    Call { at: usize },
    /// A call, jump or return that goes elsewhere than before, or finds something else there.
    Leads { at: usize },
}
