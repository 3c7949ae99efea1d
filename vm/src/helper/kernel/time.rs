//! Clock helpers: `bpf_ktime_get_*`, `bpf_jiffies64`.

use crate::host::HostFn;
use crate::os::{Clock, clock_ns};

/// Nanoseconds of a jiffy, at the 250 Hz that distributions configure.
const JIFFY_NS: u64 = 4_000_000;
/// Jiffies start five minutes below the wrap of 32 bits (`INITIAL_JIFFIES`).
const INITIAL_JIFFIES: u64 = (-300 * 250i32) as u32 as u64;

pub(super) fn functions() -> Vec<HostFn> {
    vec![
        HostFn::typed::<(), _>("bpf_ktime_get_ns", || clock_ns(Clock::Monotonic)),
        HostFn::typed::<(), _>("bpf_ktime_get_boot_ns", || clock_ns(Clock::Boot)),
        HostFn::typed::<(), _>("bpf_ktime_get_coarse_ns", || clock_ns(Clock::MonotonicCoarse)),
        HostFn::typed::<(), _>("bpf_ktime_get_tai_ns", || clock_ns(Clock::Tai)),
        HostFn::typed::<(), _>("bpf_jiffies64", || INITIAL_JIFFIES + clock_ns(Clock::MonotonicCoarse) / JIFFY_NS),
    ]
}
