//! Records that trampolines read and write, whose layout they know; see also [`site`](super::site).

use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};

use super::site::Site;

/// Bytes of a function's stub, and of its site.
pub(super) const SLOT: u64 = 128;
/// Bytes of a region's code, and of its data.
pub(super) const HALF: u64 = 0x10000;
/// Bytes of a region of return stubs, and its alignment.
pub(super) const REGION: u64 = 0x20000;
/// From a return stub to its record, both of which take [`RETURN`] bytes.
pub(super) const RECORDS: u64 = 0x10000;
/// See [`RECORDS`].
pub(super) const RETURN: u64 = 32;
/// Where a function returns to in its return stub: after the call.
pub(super) const RETURNED: u64 = 9;
/// Bytes below the stack pointer that a function may use (System V ABI of x86-64, 3.2.2).
pub(super) const RED_ZONE: u64 = 128;

/// The record of one thread.
#[repr(C, align(64))]
pub(super) struct Thread {
    /// Odd while the thread runs callbacks.
    pub(super) sequence: AtomicU32,
    /// `errno` of before the callback.
    pub(super) errno: AtomicU32,
    /// Pending returns that this thread can take.
    pub(super) free: AtomicPtr<Pending>,
    /// The thread's number, or 0.
    pub(super) tid: AtomicU32,
}

/// A return that a function has not made yet.
#[repr(C)]
pub(super) struct Pending {
    /// The return address that the stub's stands for.
    pub(super) original: AtomicU64,
    pub(super) site: AtomicPtr<Site>,
    /// Where on the stack the stub's address is; 0 in free records.
    pub(super) place: AtomicU64,
    /// Of a free record, the next; of a pending one, the thread that took it.
    pub(super) link: AtomicUsize,
}
