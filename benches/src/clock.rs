//! The clocks of the kernel that benchmarks read.
#![expect(unsafe_code, reason = "calls of the C library and of generated code")]

/// Nanoseconds of CPU time that the calling thread has used: what a sample costs on a machine that others use too.
pub fn thread_cpu_ns() -> u64 {
    now(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Nanoseconds since some moment in the past.
pub fn wall_ns() -> u64 {
    now(libc::CLOCK_MONOTONIC)
}

fn now(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec for the duration of the call, which writes nothing else.
    let status = unsafe { libc::clock_gettime(clock, &mut time) };
    assert_eq!(status, 0, "every Linux has these clocks");
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
