//! CPU time of the calling thread: what a sample costs on a machine that others use too.

/// Nanoseconds of CPU time that the calling thread has used.
pub fn thread_cpu_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec for the duration of the call, which writes nothing else.
    let status = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    assert_eq!(status, 0, "every Linux has CLOCK_THREAD_CPUTIME_ID");
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
