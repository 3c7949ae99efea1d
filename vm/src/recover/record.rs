//! Activation records of native calls that have not returned: the thread's chain of them, and its state.
#![expect(unsafe_code, reason = "reads what is on the stack of calls that have not returned")]

use std::cell::{Cell, UnsafeCell};
use std::mem::{MaybeUninit, offset_of};
use std::ptr;

use super::asm::RecoveryPoint;
use super::{Abort, Owner, StackRange};

/// What native code may be left at, by whom.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A call of generated code.
    Code,
    /// A call of a C function.
    C,
    /// A callback into Rust; what is below it must not be left.
    Barrier,
}

/// A call of native code that has not returned; lives in the frame that made it, or in an [`EntryGate`](super::EntryGate).
#[repr(C)]
pub(super) struct ActivationRecord {
    /// Filled in by the trampoline, which gets the address of this, offset 0. A barrier has none.
    pub(super) recovery_point: UnsafeCell<MaybeUninit<RecoveryPoint>>,
    /// Where rsp is when generated code is called, 16 bytes from the top. The trampoline knows it that continues where
    /// it is, and writes it here.
    pub(super) stack: UnsafeCell<u64>,
    pub(super) owner: Owner,
    pub(super) kind: Kind,
    /// Why the trampoline's result says that it ended early.
    pub(super) abort: UnsafeCell<MaybeUninit<Abort>>,
    /// The call around it; none around one through an idle thread's [`EntryGate`](super::EntryGate), and outside of calls.
    pub(super) previous: Cell<*const ActivationRecord>,
    /// The stack that generated code runs on, where the record has one of its own; else empty.
    pub(super) range: StackRange,
}

/// What is to be done before the next call of native code on a thread, in the lowest bits of its chain's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(super) enum ThreadState {
    /// The thread is prepared, and its signals are unblocked.
    Ready = 0,
    /// Signals that it blocks have to be unblocked.
    Blocked = 1,
    /// The thread has to be prepared.
    Unprepared = 2,
}

/// The bits of a [`ThreadState`].
pub(super) const STATE_BITS: usize = 3;

const _: () = assert!(align_of::<ActivationRecord>() > STATE_BITS, "an address leaves room for the state");

thread_local! {
    /// The innermost call that has not returned, and the [`ThreadState`] in the low bits. Read by signal handlers.
    pub(super) static CURRENT: Cell<*const ActivationRecord> = const { Cell::new(ptr::without_provenance(ThreadState::Unprepared as usize)) };
}

/// State of this thread.
#[inline(always)]
pub(super) fn thread_state() -> ThreadState {
    match CURRENT.get().addr() & STATE_BITS {
        0 => ThreadState::Ready,
        1 => ThreadState::Blocked,
        _ => ThreadState::Unprepared,
    }
}

/// Marks this thread.
pub(super) fn set_thread_state(state: ThreadState) {
    CURRENT.set(CURRENT.get().map_addr(|address| address & !STATE_BITS | state as usize));
}

/// The call around one on the chain.
fn around(record: &ptr::NonNull<ActivationRecord>) -> Option<ptr::NonNull<ActivationRecord>> {
    // SAFETY: records on the chain live until their call ends, and each call ends before the one around it.
    let previous = unsafe { record.as_ref() }.previous.get();
    ptr::NonNull::new(previous.cast_mut())
}

/// Whether this thread is in a call of native code of the owner with this [data](Owner::data), however many others are
/// inside that.
pub fn is_inside(data: *mut ()) -> bool {
    // SAFETY: as in `around`.
    std::iter::successors(current(), around).any(|record| unsafe { record.as_ref() }.owner.data == data)
}

pub(super) fn unmarked(record: *const ActivationRecord) -> *const ActivationRecord {
    record.map_addr(|address| address & !STATE_BITS)
}

/// The stack of a gate with this address in it, if this thread is inside a call through that.
pub(super) fn gate_stack(address: u64) -> Option<StackRange> {
    // SAFETY: as in `around`.
    let mut ranges = std::iter::successors(current(), around).map(|record| unsafe { record.as_ref() }.range);
    ranges.find(|range| range.contains(address))
}

/// The innermost call of native code on this thread, if there is any.
pub(super) fn current() -> Option<ptr::NonNull<ActivationRecord>> {
    ptr::NonNull::new(unmarked(CURRENT.get()).cast_mut())
}

const _: () = assert!(
    offset_of!(ActivationRecord, recovery_point) == 0 && offset_of!(ActivationRecord, stack) == 48,
    "as the trampolines have it"
);

impl ActivationRecord {
    #[inline(always)]
    pub(super) fn new(owner: Owner, kind: Kind, top: u64) -> ActivationRecord {
        let (recovery_point, abort) = (UnsafeCell::new(MaybeUninit::uninit()), UnsafeCell::new(MaybeUninit::uninit()));
        ActivationRecord {
            recovery_point,
            stack: UnsafeCell::new(top.wrapping_sub(16)),
            owner,
            kind,
            abort,
            previous: Cell::new(ptr::null()),
            range: StackRange::EMPTY,
        }
    }

    /// Why the call ended early.
    ///
    /// # Safety
    /// The trampoline reported that it did, and this has not been called since.
    #[cold]
    #[inline(never)]
    pub(super) unsafe fn abort(&self) -> Box<Abort> {
        if !self.owner.in_c.is_null() {
            // SAFETY: an owner's counter is valid as long as the owner is used; only this thread writes it.
            unsafe { self.owner.in_c.write(0) };
        }
        // SAFETY: a signal handler or `serve`, which redirect to the recovery point, write this first.
        Box::new(unsafe { (*self.abort.get()).assume_init_read() })
    }
}
