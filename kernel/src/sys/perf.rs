//! `perf_event_open(2)` and what can be done with the descriptor it gives.
#![expect(unsafe_code, reason = "system calls")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::answer;

/// `struct perf_event_attr` up to `sig_data` (`PERF_ATTR_SIZE_VER7`), the words that we use named.
#[repr(C)]
#[derive(Clone, Debug, Default)]
pub(crate) struct PerfAttr {
    pub(crate) kind: u32,
    pub(crate) size: u32,
    pub(crate) config: u64,
    /// Period, or frequency with [`FREQ`].
    pub(crate) sample: u64,
    pub(crate) sample_type: u64,
    pub(crate) read_format: u64,
    /// The bit field after `read_format`.
    pub(crate) flags: u64,
    pub(crate) wakeup: u32,
    pub(crate) bp_type: u32,
    /// `bp_addr`, `kprobe_func`, `uprobe_path`.
    pub(crate) config1: u64,
    /// `bp_len`, `probe_offset`.
    pub(crate) config2: u64,
    pub(crate) rest: [u64; 7],
}

const _: () = assert!(size_of::<PerfAttr>() == 128);

/// `disabled`: it waits for [`enable`].
pub(crate) const DISABLED: u64 = 1;
/// `inherit`: children are watched too.
pub(crate) const INHERIT: u64 = 1 << 1;
/// `freq`: `sample` is a frequency in Hz.
pub(crate) const FREQ: u64 = 1 << 10;

/// `use_clockid`: times are of the clock that is named.
pub(crate) const CLOCK_GIVEN: u64 = 1 << 25;
/// The word of `rest` whose upper half names the clock.
pub(crate) const CLOCK_WORD: usize = 2;
/// `CLOCK_MONOTONIC` there.
pub(crate) const CLOCK_IS_MONOTONIC: u64 = (libc::CLOCK_MONOTONIC as u64) << 32;

/// `PERF_EVENT_IOC_ENABLE`.
const ENABLE: libc::c_ulong = 0x2400;
/// `PERF_EVENT_IOC_SET_BPF`.
const SET_BPF: libc::c_ulong = 0x4004_2408;
/// `PERF_FLAG_FD_CLOEXEC`.
const CLOEXEC: libc::c_ulong = 8;

/// Opens an event of a task (-1 for all) on a CPU (-1 for all).
///
/// Addresses inside `attr` are of C strings that outlive the call.
pub(crate) fn open(attr: &mut PerfAttr, pid: i32, cpu: i32) -> io::Result<OwnedFd> {
    attr.size = size_of::<PerfAttr>() as u32;
    let no_group = -1_i32;
    // SAFETY: `attr` is a live value of the size it says.
    let fd = answer(unsafe {
        libc::syscall(libc::SYS_perf_event_open, std::ptr::from_mut(attr), pid, cpu, no_group, CLOEXEC)
    })?;
    // SAFETY: just opened for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn control(event: BorrowedFd<'_>, request: libc::c_ulong, argument: libc::c_int) -> io::Result<()> {
    // SAFETY: these requests take a number, and `event` is open.
    answer(unsafe { libc::ioctl(event.as_raw_fd(), request, argument) }.into()).map(drop)
}

/// Starts counting.
pub(crate) fn enable(event: BorrowedFd<'_>) -> io::Result<()> {
    control(event, ENABLE, 0)
}

/// Runs a program at each event; for kernels without links on perf events.
pub(crate) fn set_bpf(event: BorrowedFd<'_>, prog: BorrowedFd<'_>) -> io::Result<()> {
    control(event, SET_BPF, prog.as_raw_fd())
}

/// `PERF_EVENT_IOC_ID`.
const ID: libc::c_ulong = 0x8008_2407;

/// The event's number: a later one has a higher number.
pub(crate) fn id(event: BorrowedFd<'_>) -> io::Result<u64> {
    let mut id = 0_u64;
    // SAFETY: this request writes eight bytes to a live value, and `event` is open.
    answer(unsafe { libc::ioctl(event.as_raw_fd(), ID, &raw mut id) }.into()).map(|_| id)
}
