//! System calls that take no lock, and what the kernel says of this process.
#![expect(unsafe_code, reason = "system calls")]

use std::ffi::c_void;
use std::fs;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

/// `arch/x86/include/uapi/asm/prctl.h`.
const ARCH_SHSTK_STATUS: libc::c_int = 0x5005;
/// `include/uapi/linux/membarrier.h`.
const PRIVATE_EXPEDITED: libc::c_int = 1 << 3;
const REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;
const SYNC_CORE: libc::c_int = 1 << 5;
const REGISTER_SYNC_CORE: libc::c_int = 1 << 6;

pub(super) const PAGE: usize = 4096;

pub(super) fn tid() -> u32 {
    // SAFETY: no arguments.
    unsafe { libc::syscall(libc::SYS_gettid) as u32 }
}

/// Whether a thread of this process has that number.
pub(super) fn is_alive(tid: u32) -> bool {
    // SAFETY: signal 0 only checks.
    let failed = unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), tid, 0) } != 0;
    !failed || io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH)
}

/// Zeroed memory from the system.
pub(super) fn zeroed(bytes: usize) -> Option<*mut c_void> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
    (at != libc::MAP_FAILED).then_some(at)
}

/// Gives back what [`zeroed`] gave.
pub(super) fn release(at: *mut c_void, bytes: usize) {
    // SAFETY: callers give what is theirs and used by none.
    unsafe { libc::munmap(at, bytes) };
}

/// Reserves addresses that nothing can access.
pub(super) fn reserve(bytes: u64) -> io::Result<u64> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes as usize, libc::PROT_NONE, flags, -1, 0) };
    if at == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(at.expose_provenance() as u64) }
}

/// Changes the protection of whole pages of this process.
pub(super) fn protect(at: u64, bytes: u64, protection: libc::c_int) -> io::Result<()> {
    let at = std::ptr::with_exposed_provenance_mut(at as usize);
    // SAFETY: callers give pages that are theirs, or code that stays executable.
    match unsafe { libc::mprotect(at, bytes as usize, protection) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Makes membarrier ready for [`barrier`] and [`sync_cores`].
pub(super) fn register_barriers() -> io::Result<()> {
    static DONE: AtomicBool = AtomicBool::new(false);
    if DONE.load(Ordering::Relaxed) {
        return Ok(());
    }
    for command in [REGISTER_PRIVATE_EXPEDITED, REGISTER_SYNC_CORE] {
        membarrier(command)?;
    }
    DONE.store(true, Ordering::Relaxed);
    Ok(())
}

fn membarrier(command: libc::c_int) -> io::Result<()> {
    // SAFETY: no pointers.
    match unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A full memory barrier on every thread of this process.
pub(crate) fn barrier() {
    // After registering the only failure is a bad command.
    let _ = membarrier(PRIVATE_EXPEDITED);
}

/// Every core that runs a thread of this process fetches its instructions anew.
pub(super) fn sync_cores() {
    let _ = membarrier(SYNC_CORE);
}

/// Whether this process has a shadow stack, which refuses returns to addresses that no call pushed.
pub(super) fn has_shadow_stack() -> bool {
    let mut features: u64 = 0;
    // SAFETY: the kernel writes a word there.
    let result = unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_SHSTK_STATUS, &raw mut features) };
    result == 0 && features & 1 != 0
}

/// The process that traces this one with ptrace.
pub(super) fn tracer() -> Option<u32> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    field(&status, "TracerPid:").and_then(|pid| pid.parse().ok()).filter(|pid| *pid != 0)
}

fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

/// A thread that blocks `signal`.
pub(super) fn blocked(signal: libc::c_int) -> io::Result<Option<u32>> {
    for task in fs::read_dir("/proc/self/task")? {
        let task = task?;
        // A thread that has ended since blocks nothing.
        let Ok(status) = fs::read_to_string(task.path().join("status")) else { continue };
        let mask = field(&status, "SigBlk:").and_then(|mask| u64::from_str_radix(mask, 16).ok()).unwrap_or(0);
        if mask & 1 << (signal - 1) != 0 {
            return Ok(task.file_name().to_str().and_then(|tid| tid.parse().ok()));
        }
    }
    Ok(None)
}

pub(super) use crate::memory::read;

/// Nanoseconds that a thread has been on a CPU.
pub(super) fn run_time(tid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/self/task/{tid}/schedstat")).ok()?;
    text.split(' ').next()?.parse().ok()
}

/// Where a thread that is blocked goes on.
pub(super) fn blocked_at(tid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/self/task/{tid}/syscall")).ok()?;
    u64::from_str_radix(text.trim().rsplit(' ').next()?.strip_prefix("0x")?, 16).ok()
}
