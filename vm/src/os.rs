//! What helpers ask the operating system: clocks and the identity of the calling thread.
//!
//! The only unsafe code outside `mem`: four calls that have no equivalent in the standard library.

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
}

/// Nanoseconds of a clock.
pub(crate) fn clock_ns(clock: Clock) -> u64 {
    let id = match clock {
        Clock::Monotonic => libc::CLOCK_MONOTONIC,
        Clock::MonotonicCoarse => libc::CLOCK_MONOTONIC_COARSE,
        Clock::Boot => libc::CLOCK_BOOTTIME,
        Clock::Tai => libc::CLOCK_TAI,
    };
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec that lives across the call.
    let result = unsafe { libc::clock_gettime(id, &raw mut time) };
    assert_eq!(result, 0, "Linux has this clock");
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Process id in the upper half, thread id in the lower, as `bpf_get_current_pid_tgid`.
pub(crate) fn pid_tgid() -> u64 {
    // SAFETY: no arguments, and it always succeeds.
    let thread = unsafe { libc::gettid() };
    u64::from(std::process::id()) << 32 | u64::from(thread as u32)
}

/// Group id in the upper half, user id in the lower, as `bpf_get_current_uid_gid`.
pub(crate) fn uid_gid() -> u64 {
    // SAFETY: no arguments, and both always succeed.
    let (user, group) = unsafe { (libc::getuid(), libc::getgid()) };
    u64::from(group) << 32 | u64::from(user)
}

/// Name of the calling thread.
pub(crate) fn comm() -> Vec<u8> {
    let mut name = std::fs::read("/proc/thread-self/comm").unwrap_or_default();
    if name.last() == Some(&b'\n') {
        name.pop();
    }
    name
}
