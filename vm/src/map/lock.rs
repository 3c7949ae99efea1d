//! Locks of one word in hidden memory, for moments: they wait by spinning.

use super::sync::{AtomicU32, Ordering, SPINS, spin_loop, yield_now};

/// A lock while it is held.
pub(super) struct Locked<'a>(&'a AtomicU32);

/// Takes a lock: 0 is open.
pub(super) fn lock(word: &AtomicU32) -> Locked<'_> {
    let mut spins = 0;
    while word.compare_exchange_weak(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
        pause(&mut spins);
    }
    Locked(word)
}

impl<'a> Locked<'a> {
    /// A lock that this thread has taken.
    pub(super) fn new(word: &'a AtomicU32) -> Locked<'a> {
        Locked(word)
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Release);
    }
}

/// Attempts until one succeeds.
#[inline(always)]
pub(super) fn wait_for<T>(mut attempt: impl FnMut() -> Option<T>) -> T {
    let mut spins = 0;
    loop {
        match attempt() {
            Some(done) => return done,
            None => pause(&mut spins),
        }
    }
}

/// Waits a moment for another thread.
pub(super) fn pause(spins: &mut u32) {
    *spins += 1;
    if (*spins).is_multiple_of(SPINS) {
        yield_now();
    } else {
        spin_loop();
    }
}
