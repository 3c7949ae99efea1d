//! The flag that ends a run: why it is to end. One byte, so that generated code and signal handlers can test it.

use std::sync::atomic::{AtomicU8, Ordering};

use crate::trap::{Trap, TrapCode};

/// Why a run is to end before its program does. Each reason is a bit of an [`Interrupt`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Reason {
    /// The embedder says so, by the flag itself.
    Embedder = 1,
    /// The call has taken as long as it may.
    Timeout = 2,
    /// The call has used as much of its thread's CPU time as it may.
    CpuTime = 4,
    /// The call is cancelled.
    Cancelled = 8,
}

impl Reason {
    /// The most telling comes first.
    const ALL: [Reason; 4] = [Reason::Cancelled, Reason::Timeout, Reason::CpuTime, Reason::Embedder];

    /// The trap of a run that ends for this reason.
    pub fn code(self) -> TrapCode {
        match self {
            Reason::Cancelled => TrapCode::Cancelled,
            Reason::Timeout | Reason::CpuTime | Reason::Embedder => TrapCode::Timeout,
        }
    }
}

/// See the module documentation.
///
/// The interpreter tests it at back-edges, calls and returns; every backend tests it after each call of a host function.
/// Generated code has no test in loops. A thread that raises a flag has to send the running thread a signal as well
/// ([`Thread::interrupt`](crate::recover::Thread::interrupt)), again and again until the run has ended: the signal may
/// arrive while the thread is entering generated code.
#[derive(Debug, Default)]
pub struct Interrupt(AtomicU8);

impl Interrupt {
    /// Adds a reason. It stays until it is cleared, from run to run.
    pub fn raise(&self, reason: Reason) {
        self.0.fetch_or(reason as u8, Ordering::Relaxed);
    }

    /// Takes reasons away; others stay.
    pub fn clear(&self, reasons: &[Reason]) {
        let mask = reasons.iter().fold(0, |mask, reason| mask | *reason as u8);
        self.0.fetch_and(!mask, Ordering::Relaxed);
    }

    /// Whether there is any reason.
    #[inline(always)]
    pub fn is_raised(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    /// Whether there is this one.
    pub fn has(&self, reason: Reason) -> bool {
        self.0.load(Ordering::Relaxed) & reason as u8 != 0
    }

    /// Why a run is to end, if it is.
    pub fn reason(&self) -> Option<Reason> {
        Reason::ALL.into_iter().find(|reason| self.has(*reason))
    }

    /// The trap of a run that sees the flag raised. Reasons may go meanwhile only if the embedder takes them away.
    #[cold]
    pub fn trap(&self) -> Trap {
        Trap::new(self.reason().map_or(TrapCode::Timeout, Reason::code), "")
    }

    /// The byte itself, not zero while there is a reason: for generated code and signal handlers.
    pub fn as_ptr(&self) -> *const u8 {
        self.0.as_ptr()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_independent_and_the_most_telling_is_given() {
        let flag = Interrupt::default();
        assert!(!flag.is_raised());
        flag.raise(Reason::Embedder);
        flag.raise(Reason::Timeout);
        flag.raise(Reason::Cancelled);
        assert_eq!((flag.reason(), flag.trap().code()), (Some(Reason::Cancelled), TrapCode::Cancelled));
        flag.clear(&[Reason::Cancelled, Reason::Timeout, Reason::CpuTime]);
        assert_eq!((flag.reason(), flag.trap().code()), (Some(Reason::Embedder), TrapCode::Timeout));
        flag.clear(&[Reason::Embedder]);
        assert_eq!((flag.reason(), flag.is_raised()), (None, false));
    }
}
