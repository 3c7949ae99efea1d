//! Threads that run generated code: how to end it, and what the system knows of them.
#![expect(unsafe_code, reason = "calls native code, and handles its signals")]

use std::fs;
use std::time::Duration;

/// A thread of this process, by the number that the kernel has for it. The thread may end: what is done with it then has no
/// effect, or hits a later thread of the same number, whose generated code does not end by that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thread {
    id: libc::pid_t,
}

impl Thread {
    /// The calling one.
    pub fn current() -> Thread {
        // SAFETY: no arguments, and it always succeeds.
        Thread { id: unsafe { libc::gettid() } }
    }

    /// Ends generated code that the thread is in, if its [`Owner::interrupt`](super::Owner::interrupt) is set. Does
    /// nothing when it is elsewhere, except that calls of the system may end early with `EINTR`.
    pub fn interrupt(self) {
        // By default the signal is ignored, so it does no harm in a thread that has never run generated code.
        // SAFETY: sends a signal that is ignored or ours to a thread of this process, if there is one of this number.
        unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), self.id, libc::SIGURG) };
    }

    /// CPU time that the thread has used. `None` if it has ended.
    pub fn cpu_time(self) -> Option<Duration> {
        // What `pthread_getcpuclockid` gives for the thread of this number, which need not be alive here.
        const PER_THREAD: libc::clockid_t = 4;
        const SCHEDULED: libc::clockid_t = 2;
        let clock = !self.id << 3 | PER_THREAD | SCHEDULED;
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `time` is a valid timespec that lives across the call.
        let result = unsafe { libc::clock_gettime(clock, &raw mut time) };
        (result == 0).then(|| Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
    }

    /// Whether the thread has blocked the signal of [`Thread::interrupt`]. `None` where the system does not say.
    pub fn blocks_interrupts(self) -> Option<bool> {
        let status = fs::read_to_string(format!("/proc/self/task/{}/status", self.id)).ok()?;
        let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:"))?;
        let mask = u64::from_str_radix(mask.trim(), 16).ok()?;
        Some(mask >> (libc::SIGURG - 1) & 1 != 0)
    }

    /// The number that the kernel has for it.
    pub fn id(self) -> i32 {
        self.id
    }
}

/// Blocks signals in the calling thread, which is one of ours: those that are sent to the process are for the host's
/// threads. Faults stay what they are.
pub fn leave_signals_to_others() {
    // SAFETY: fills in a set of its own and passes it to the kernel.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut set);
        for fault in [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGABRT] {
            libc::sigdelset(&raw mut set, fault);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const set, std::ptr::null_mut());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_says_its_cpu_time_and_whether_it_blocks_interrupts() {
        let thread = Thread::current();
        assert_eq!(thread.blocks_interrupts(), Some(false));
        let before = thread.cpu_time().expect("it lives");
        while thread.cpu_time().expect("it lives") < before + Duration::from_millis(2) {}
        let other = std::thread::spawn(|| {
            leave_signals_to_others();
            (Thread::current(), Thread::current().blocks_interrupts())
        });
        let (other, blocks) = other.join().expect("no panic");
        assert_eq!(blocks, Some(true));
        // It has ended, or is about to.
        while other.cpu_time().is_some() {
            std::thread::yield_now();
        }
        other.interrupt();
    }
}
