//! The thread to be told that its time is over.

/// A thread of this process.
#[derive(Clone, Copy, Debug)]
pub struct Thread(libc::pthread_t);

// SAFETY: a name, not the thread itself; using it is `interrupt`'s matter.
unsafe impl Send for Thread {}

impl Thread {
    /// The calling one.
    pub fn current() -> Thread {
        // SAFETY: no arguments, and it always succeeds.
        Thread(unsafe { libc::pthread_self() })
    }

    /// Ends generated code that the thread is in, if its [`Owner::interrupt`](super::Owner::interrupt) is set. Does
    /// nothing when it is elsewhere, except that calls of the system may end early with `EINTR`.
    ///
    /// # Safety
    /// The thread has not ended.
    pub unsafe fn interrupt(self) {
        // By default the signal is ignored, so it does no harm in a thread that has never run generated code.
        // SAFETY: passed on to the caller.
        unsafe { libc::pthread_kill(self.0, libc::SIGURG) };
    }
}
