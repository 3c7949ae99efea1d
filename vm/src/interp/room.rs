//! Native stack for the interpreter and for host functions.
//!
//! The interpreter runs on its caller's stack, host functions on top of it, and callbacks nest. Before a run and before
//! each callback the machine checks how much is left. A thread's stack that is too small is left for one of
//! the machine's own. Where that one ends, or the one that generated code runs on, the program ends with a trap.

use super::machine::Machine;
use super::spare::Spare;
use crate::host::native::HOST_STACK;
use crate::recover::{self, NativeStack};
use crate::trap::{Trap, TrapCode};

/// What must be left: enough for the interpreter to reach a host function that then has what it is promised.
const NEEDED: usize = HOST_STACK + (64 << 10);
/// Size of the machine's own stack.
const SPARE: usize = NEEDED + (4 << 20);

/// Where there is room.
enum Room {
    Here,
    Spare,
    Nowhere,
}

impl Machine {
    /// Does some work that may call host functions, on a stack with room for them.
    #[inline]
    pub(super) fn with_room(&mut self, work: impl FnOnce(&mut Machine) -> Result<u64, Trap>) -> Result<u64, Trap> {
        match self.native_room() {
            Room::Here => work(self),
            Room::Spare => self.on_spare(work),
            Room::Nowhere => Err(no_room()),
        }
    }

    #[inline]
    fn native_room(&self) -> Room {
        if let Some(tier) = self.native.get()
            && let Some(enough) = tier.native.has_room()
        {
            return if enough { Room::Here } else { Room::Nowhere };
        }
        match recover::stack_left() {
            Some(left) if left >= NEEDED => Room::Here,
            None if !recover::AVAILABLE => Room::Here,
            Some(_) | None if self.spare.is_here() || !recover::AVAILABLE => Room::Nowhere,
            Some(_) | None => Room::Spare,
        }
    }

    #[cold]
    #[inline(never)]
    fn on_spare(&mut self, work: impl FnOnce(&mut Machine) -> Result<u64, Trap>) -> Result<u64, Trap> {
        let mut stack = match self.spare.take() {
            Some(stack) => stack,
            None => NativeStack::new(SPARE).map_err(|error| {
                let detail = format!("the thread's stack is too small, and there is no memory for another: {error}");
                Trap::new(TrapCode::StackOverflow, detail)
            })?,
        };
        self.spare = Spare::InUse(stack.range());
        let result = recover::on_stack(&mut stack, || work(self));
        self.spare = Spare::Idle(stack);
        result
    }
}

#[cold]
fn no_room() -> Trap {
    let detail =
        format!("less than {} KiB of native stack are left for host functions inside each other", NEEDED >> 10);
    Trap::new(TrapCode::StackOverflow, detail)
}
