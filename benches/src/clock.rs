//! The clocks of the kernel that benchmarks read, and the CPUs that they run on.
#![expect(unsafe_code, reason = "calls of the C library and of generated code")]

/// Nanoseconds of CPU time that the calling thread has used: what a sample costs on a machine that others use too.
pub fn thread_cpu_ns() -> u64 {
    now(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Nanoseconds since some moment in the past.
pub fn wall_ns() -> u64 {
    now(libc::CLOCK_MONOTONIC)
}

/// Nanoseconds that the calling thread was ready and had no CPU, because others had it; 0 where the kernel does not count.
pub fn waited_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').nth(1).and_then(|waited| waited.parse().ok()).unwrap_or_default()
}

fn now(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec for the duration of the call, which writes nothing else.
    let status = unsafe { libc::clock_gettime(clock, &mut time) };
    assert_eq!(status, 0, "every Linux has these clocks");
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Keeps the calling thread on a CPU.
pub fn stay_on_cpu(cpu: u32) {
    // SAFETY: `cpu_set_t` is an array of integers, and both functions read and write only that.
    let status = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu as usize, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set)
    };
    assert_eq!(status, 0, "{}", std::io::Error::last_os_error());
}
