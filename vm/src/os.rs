//! Operating-system queries of helpers: clocks and the identity of the calling thread.
//!
//! Calls that have no equivalent in the standard library.
#![expect(unsafe_code, reason = "calls of the C library")]

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
