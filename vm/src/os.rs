//! Operating-system queries of helpers: clocks and the identity of the calling thread.
//!
//! Calls that have no equivalent in the standard library.
#![expect(unsafe_code, reason = "calls of the C library")]

use std::cell::Cell;
use std::ffi::CString;

/// A clock of `clock_gettime`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clock {
    /// Time since boot without suspend.
    Monotonic,
    /// The same, at the resolution of the timer tick.
    MonotonicCoarse,
    /// Time since boot with suspend.
    Boot,
    /// International atomic time.
    Tai,
    /// Time since 1970.
    Real,
}

/// Nanoseconds of a clock.
pub(crate) fn clock_ns(clock: Clock) -> u64 {
    let id = match clock {
        Clock::Monotonic => libc::CLOCK_MONOTONIC,
        Clock::MonotonicCoarse => libc::CLOCK_MONOTONIC_COARSE,
        Clock::Boot => libc::CLOCK_BOOTTIME,
        Clock::Tai => libc::CLOCK_TAI,
        Clock::Real => libc::CLOCK_REALTIME,
    };
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec that lives across the call.
    let result = unsafe { libc::clock_gettime(id, &raw mut time) };
    assert_eq!(result, 0, "Linux has this clock");
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Nanoseconds of `CLOCK_MONOTONIC`, by which the kernel stamps perf events here. It may be called in signal handlers.
pub fn monotonic_ns() -> u64 {
    clock_ns(Clock::Monotonic)
}

/// Nanoseconds since the machine started (`CLOCK_BOOTTIME`), as `bpf_ktime_get_boot_ns` gives them.
pub fn boot_ns() -> u64 {
    clock_ns(Clock::Boot)
}

/// When the machine started: nanoseconds since 1970, by the clock as it is set now.
pub(crate) fn boot_time_ns() -> u64 {
    // The time between two readings counts as time since boot: take the pair that were closest.
    let reading = || {
        let before = clock_ns(Clock::Boot);
        let real = clock_ns(Clock::Real);
        let after = clock_ns(Clock::Boot);
        (after - before, real.saturating_sub(before / 2 + after / 2))
    };
    (0..5).map(|_| reading()).min().map_or(0, |(_, boot)| boot)
}

/// Local time, `HH:MM:SS`, of so many nanoseconds after boot; `None` if that is out of range.
pub fn time_of_day(boot_ns: u64) -> Option<String> {
    let seconds = boot_time_ns().checked_add(boot_ns)? / 1_000_000_000;
    strftime(b"%H:%M:%S", seconds, 16).and_then(|text| String::from_utf8(text).ok())
}

/// `strftime(3)` of a time in seconds since 1970, in the local time zone; `None` if the text has more than `size` bytes
/// with its NUL, or the time is out of range. An empty text is not distinguished from one that does not fit.
pub(crate) fn strftime(format: &[u8], seconds: u64, size: usize) -> Option<Vec<u8>> {
    let format = CString::new(format).ok()?;
    let seconds = libc::time_t::try_from(seconds).ok()?;
    let mut text = vec![0_u8; size];
    // SAFETY: all zeroes are a `tm`; its zone may be null. `seconds` and `parts` live across the call.
    let parts = unsafe {
        let mut parts: libc::tm = std::mem::zeroed();
        if libc::localtime_r(&raw const seconds, &raw mut parts).is_null() {
            return None;
        }
        parts
    };
    // SAFETY: `text` has `size` bytes, `format` ends with a NUL, and `parts` was filled in above.
    let length = unsafe { libc::strftime(text.as_mut_ptr().cast(), size, format.as_ptr(), &raw const parts) };
    text.truncate(length);
    (length > 0).then_some(text)
}

/// Process id in the upper half, thread id in the lower, as `bpf_get_current_pid_tgid`.
pub(crate) fn pid_tgid() -> u64 {
    thread_local! {
        /// The last answer on this thread. A child of `vfork` shares it, but has another thread id.
        static KNOWN: Cell<u64> = const { Cell::new(0) };
    }
    // SAFETY: no arguments, and it always succeeds.
    let thread = unsafe { libc::gettid() } as u32;
    if KNOWN.get() as u32 != thread {
        KNOWN.set(u64::from(std::process::id()) << 32 | u64::from(thread));
    }
    KNOWN.get()
}

/// Group id in the upper half, user id in the lower, as `bpf_get_current_uid_gid`.
pub(crate) fn uid_gid() -> u64 {
    // SAFETY: no arguments, and both always succeed.
    let (user, group) = unsafe { (libc::getuid(), libc::getgid()) };
    u64::from(group) << 32 | u64::from(user)
}

/// Name of the calling thread.
pub(crate) fn comm() -> Vec<u8> {
    // `TASK_COMM_LEN`.
    let mut name = vec![0_u8; 16];
    // SAFETY: the kernel writes at most as many bytes, a NUL at the end.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    name.truncate(name.iter().position(|byte| *byte == 0).unwrap_or(name.len()));
    name
}

#[cfg(test)]
mod tests {
    use std::ffi::c_void;

    /// What a child of `vfork` answers, which shares the memory of this thread.
    extern "C" fn child(answer: *mut c_void) -> libc::c_int {
        // SAFETY: the parent passes where to write, and waits.
        unsafe { *answer.cast::<[u64; 2]>() = [super::pid_tgid(), libc::getpid() as u64] };
        0
    }

    #[test]
    fn children_that_share_memory_have_ids_of_their_own() {
        let ours = super::pid_tgid();
        assert_eq!(ours >> 32, u64::from(std::process::id()));
        let (mut answer, mut stack) = ([0_u64; 2], vec![0_u128; 4096]);
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        // SAFETY: the stack's end, aligned; this thread waits until the child has ended.
        let pid = unsafe {
            let top = stack.as_mut_ptr_range().end;
            libc::clone(child, top.cast(), flags, (&raw mut answer).cast())
        };
        assert!(pid > 0, "{}", std::io::Error::last_os_error());
        // SAFETY: a child of this process.
        unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
        let theirs = pid as u64;
        assert_eq!((answer, super::pid_tgid()), ([theirs << 32 | theirs, theirs], ours));
    }

    #[test]
    fn names_of_threads() {
        let named = std::thread::Builder::new().name("a name of 15 ch, cut".into());
        let comm = named.spawn(super::comm).expect("a thread").join().expect("no panic");
        assert_eq!(comm, b"a name of 15 ch");
    }
}
