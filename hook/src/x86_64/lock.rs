//! A lock for callbacks: who has it runs on, as its signals are blocked, so that another thread can wait for it wherever it is.
#![expect(unsafe_code, reason = "system calls")]

use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

use super::sys;

/// No thread has it.
const FREE: u32 = 0;
/// A thread that is no more has it, as in the child of a bare `fork` system call.
const ABANDONED: u32 = u32::MAX;
/// How often and how long a thread sleeps for it: one to two seconds.
const NAPS: u32 = 5_000;
const NAP_NANOSECONDS: i64 = 200_000;

/// Holds the number of the thread that has it.
pub(super) struct Lock(AtomicU32);

/// The lock is this thread's, and its signals are blocked, until this is dropped.
pub(super) struct Guard<'a> {
    lock: &'a Lock,
    signals: u64,
}

impl Lock {
    pub(super) const fn new() -> Lock {
        Lock(AtomicU32::new(FREE))
    }

    /// Waits for the lock. None where who has it is gone, or was stopped for seconds.
    pub(super) fn take(&self) -> Option<Guard<'_>> {
        let signals = set_signals(u64::MAX);
        // From here on no handler of this thread can want the lock.
        let guard = Guard { lock: self, signals };
        let tid = sys::tid();
        let mut holder = FREE;
        for _ in 0..NAPS {
            match self.0.compare_exchange(FREE, tid, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Some(guard),
                Err(found) => holder = found,
            }
            if holder == ABANDONED {
                break;
            }
            nap();
        }
        // Others need not wait as long. Where that thread is there after all, it gives the lock back.
        let _ = self.0.compare_exchange(holder, ABANDONED, Ordering::Relaxed, Ordering::Relaxed);
        guard.forget();
        None
    }

    /// Frees it in the child of `fork`, which has one thread. Returns whether another one had it.
    pub(super) fn free_in_child(&self) -> bool {
        self.0.swap(FREE, Ordering::Relaxed) != FREE
    }
}

impl Guard<'_> {
    /// Without giving the lock back.
    fn forget(self) {
        set_signals(self.signals);
        std::mem::forget(self);
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.lock.0.store(FREE, Ordering::Release);
        set_signals(self.signals);
    }
}

/// Sets the mask of blocked signals, and returns the one before. Not by the C library, which leaves out its own signals.
fn set_signals(mask: u64) -> u64 {
    let mut before: u64 = 0;
    // SAFETY: the kernel reads and writes a mask of 8 bytes; it fails for no mask.
    unsafe {
        libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const mask, &raw mut before, size_of::<u64>())
    };
    before
}

/// Not by the C library, where a thread could be cancelled.
fn nap() {
    let time = libc::timespec { tv_sec: 0, tv_nsec: NAP_NANOSECONDS };
    // SAFETY: the kernel reads the time.
    unsafe { libc::syscall(libc::SYS_nanosleep, &raw const time, ptr::null_mut::<libc::timespec>()) };
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use super::{Lock, set_signals};

    #[test]
    fn threads_wait_with_their_signals_blocked() {
        let lock = Lock::new();
        let guard = lock.take().expect("it is free");
        thread::scope(|scope| {
            let other = scope.spawn(|| {
                // It began with the mask of this thread.
                set_signals(0);
                let guard = lock.take().expect("it comes free");
                // The kernel blocks neither SIGKILL nor SIGSTOP.
                assert_eq!(set_signals(u64::MAX).count_ones(), 62);
                drop(guard);
                assert_eq!(set_signals(0), 0);
            });
            thread::sleep(Duration::from_millis(100));
            assert!(!other.is_finished());
            drop(guard);
        });
    }

    #[test]
    fn threads_give_up_where_the_holder_is_gone() {
        let lock = Lock::new();
        thread::scope(|scope| drop(scope.spawn(|| std::mem::forget(lock.take()))));
        assert!(lock.take().is_none());
        assert_eq!(set_signals(0), 0);
        assert!(lock.free_in_child());
        assert!(lock.take().is_some());
    }
}
