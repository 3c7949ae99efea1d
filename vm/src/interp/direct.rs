//! Calls of host functions that need no machine: map helpers mostly. They do not leave the threaded driver's code.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::state::{POISON, State};
use crate::host::HostFn;
use crate::mem::CallerFrame;
use crate::trap::{Trap, TrapCode, panic_words};

/// What became of a host function that was to be called without the machine.
pub(super) enum DirectCall {
    /// It gave r0.
    Done,
    /// Nothing: the machine has to call it.
    Left,
    /// The run ends.
    Trapped,
}

/// Host functions that need no machine.
impl State {
    /// Calls a host function of the image with what the registers hold. Leaves to the machine whatever needs it.
    #[inline(never)]
    pub(super) fn call_direct(&mut self, host: usize) -> DirectCall {
        if self.interrupted() {
            return DirectCall::Left;
        }
        let (host, runtime) = (&self.image.hosts()[host], &mut self.runtime);
        let frame = CallerFrame::of(&self.stack, self.r[10]);
        let call = || host.call_direct(runtime, frame, &self.r);
        let result = catch_unwind(AssertUnwindSafe(call));
        self.trap = match result {
            Ok(None) => return DirectCall::Left,
            Err(payload) => Some(panicked(host, payload.as_ref())),
            Ok(Some(value)) => {
                self.r[0] = value;
                self.interrupted().then(|| self.interruption())
            }
        };
        if self.trap.is_some() {
            return DirectCall::Trapped;
        }
        self.r[1..6].copy_from_slice(&POISON[1..6]);
        DirectCall::Done
    }
}

/// The trap of a host function that panicked.
pub(super) fn panicked(host: &HostFn, payload: &(dyn Any + Send)) -> Trap {
    Trap::new(TrapCode::Panic, format!("{}: {}", host.name(), panic_words(payload).unwrap_or("panicked")))
}
