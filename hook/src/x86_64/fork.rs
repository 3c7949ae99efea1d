//! `fork`: the child has the thread that called it and no other, and finds no change of hooks half done.
#![expect(unsafe_code, reason = "runs at fork")]

use std::cell::Cell;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use super::registry::ForkGuard;
use super::{breakpoints, registry, returns, threads};

thread_local! {
    /// While the calling thread forks.
    static GUARD: Cell<Option<ForkGuard>> = const { Cell::new(None) };
}

/// Has the C library call the functions below, once.
pub(super) fn prepare() -> io::Result<()> {
    static DONE: AtomicBool = AtomicBool::new(false);
    // Not a `Once`: a fork may find another thread in it.
    if DONE.swap(true, Ordering::Relaxed) {
        return Ok(());
    }
    // SAFETY: the functions stay.
    match unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) } {
        0 => Ok(()),
        error => {
            DONE.store(false, Ordering::Relaxed);
            Err(io::Error::from_raw_os_error(error))
        }
    }
}

unsafe extern "C" fn before() {
    let guard = ForkGuard::take();
    // A thread that ends may have destroyed the place: nothing holds changes back then, and the child sees whether one was at work.
    let _ = GUARD.try_with(|place| place.set(Some(guard)));
}

unsafe extern "C" fn in_parent() {
    drop(take());
}

fn take() -> Option<ForkGuard> {
    GUARD.try_with(Cell::take).ok().flatten()
}

unsafe extern "C" fn in_child() {
    threads::in_child();
    breakpoints::in_child();
    returns::in_child();
    registry::in_child(take());
}
