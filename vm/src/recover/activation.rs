//! Activation records of native calls that can end early, and the thread's chain of those that have not returned.
#![expect(unsafe_code, reason = "calls native code, and handles its signals")]

use std::arch::asm;
use std::cell::{Cell, UnsafeCell};
use std::fmt;
use std::mem::{MaybeUninit, offset_of};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use super::asm::{
    RecoveryPoint, Two, twinbpf_call_back, twinbpf_call_c, twinbpf_enter, twinbpf_enter_again, twinbpf_variadic,
};
use super::{Abort, Callback, Form, NativeStack, Owner, prepare};
use crate::trap::{Trap, TrapCode};

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

/// A call of native code that has not returned; lives in the frame that made it, or in a [`EntryGate`].
#[repr(C)]
pub(super) struct ActivationRecord {
    /// Filled in by the trampoline, which gets the address of this, offset 0. A barrier has none.
    pub(super) recovery_point: UnsafeCell<MaybeUninit<RecoveryPoint>>,
    /// Where rsp is when generated code is called, 16 bytes from the top. The trampoline knows it that continues where
    /// it is, and writes it here.
    stack: UnsafeCell<u64>,
    pub(super) owner: Owner,
    pub(super) kind: Kind,
    /// Why the trampoline's result says that it ended early.
    pub(super) abort: UnsafeCell<MaybeUninit<Abort>>,
    /// The call around it; none around one through an idle thread's [`EntryGate`], and outside of calls.
    previous: Cell<*const ActivationRecord>,
    /// The stack that generated code runs on, lowest address and the one after it, where the record has one of its own.
    range: (u64, u64),
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
const STATE_BITS: usize = 3;

const _: () = assert!(align_of::<ActivationRecord>() > STATE_BITS, "an address leaves room for the state");

thread_local! {
    /// The innermost call that has not returned, and the [`ThreadState`] in the low bits. Read by signal handlers.
    static CURRENT: Cell<*const ActivationRecord> = const { Cell::new(ptr::without_provenance(ThreadState::Unprepared as usize)) };
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

fn unmarked(record: *const ActivationRecord) -> *const ActivationRecord {
    record.map_addr(|address| address & !STATE_BITS)
}

/// The stack of a gate with this address in it, if this thread is inside a call through that: lowest address and the one
/// after it.
pub(super) fn gate_stack(address: u64) -> Option<(u64, u64)> {
    // SAFETY: as in `around`.
    let mut ranges = std::iter::successors(current(), around).map(|record| unsafe { record.as_ref() }.range);
    ranges.find(|(low, top)| (*low..*top).contains(&address))
}

/// The innermost call of native code on this thread, if there is any.
pub(super) fn current() -> Option<ptr::NonNull<ActivationRecord>> {
    ptr::NonNull::new(unmarked(CURRENT.get()).cast_mut())
}

/// Entry gate of one machine: enters its generated code, and holds what returning needs. A call touches little of it.
pub struct EntryGate(ActivationRecord);

const _: () = assert!(
    offset_of!(ActivationRecord, recovery_point) == 0 && offset_of!(ActivationRecord, stack) == 48,
    "as the trampolines have it"
);

impl EntryGate {
    /// A gate of code that runs on this stack.
    pub fn new(owner: Owner, stack: &NativeStack) -> EntryGate {
        let (low, top) = (stack.range().0, stack.top().get());
        EntryGate(ActivationRecord { range: (low, top), ..ActivationRecord::new(owner, Kind::Code, top) })
    }

    /// Why a call ended early.
    ///
    /// # Safety
    /// It was the last call through this gate.
    pub unsafe fn why(&self, _: Ended) -> Box<Abort> {
        // SAFETY: only a call that ended early makes an `Ended`, and it is used up here.
        unsafe { self.0.abort() }
    }

    /// What signals and callbacks know.
    pub fn owner(&self) -> &Owner {
        &self.0.owner
    }

    /// The same, to be changed for later calls.
    pub fn owner_mut(&mut self) -> &mut Owner {
        &mut self.0.owner
    }
}

impl fmt::Debug for EntryGate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("EntryGate").field(&self.0.owner).finish()
    }
}

impl ActivationRecord {
    #[inline(always)]
    fn new(owner: Owner, kind: Kind, top: u64) -> ActivationRecord {
        let (recovery_point, abort) = (UnsafeCell::new(MaybeUninit::uninit()), UnsafeCell::new(MaybeUninit::uninit()));
        ActivationRecord {
            recovery_point,
            stack: UnsafeCell::new(top.wrapping_sub(16)),
            owner,
            kind,
            abort,
            previous: Cell::new(ptr::null()),
            range: (0, 0),
        }
    }

    /// Puts it on the chain while it does some work.
    #[inline(always)]
    fn during<R>(&self, work: impl FnOnce() -> R) -> R {
        let mut previous = CURRENT.get();
        let unblocked = (previous.addr() & STATE_BITS != 0).then(prepare::ready);
        previous = unmarked(previous);
        self.previous.set(previous);
        CURRENT.set(self);
        let result = work();
        CURRENT.set(previous);
        self.previous.set(ptr::null());
        drop(unblocked);
        result
    }

    /// Why the call ended early.
    ///
    /// # Safety
    /// The trampoline reported that it did, and this has not been called since.
    #[cold]
    #[inline(never)]
    unsafe fn abort(&self) -> Box<Abort> {
        if !self.owner.in_c.is_null() {
            // SAFETY: an owner's counter is valid as long as the owner is used; only this thread writes it.
            unsafe { self.owner.in_c.write(0) };
        }
        // SAFETY: a signal handler or `serve`, which redirect to the recovery point, write this first.
        Box::new(unsafe { (*self.abort.get()).assume_init_read() })
    }
}

/// Calls generated code by a trampoline, for an record that is on the chain; not zero is second when it ended early.
macro_rules! jump {
    ($trampoline:ident, $record:expr, $code:expr, $cx:expr, $fp:expr, $args:expr) => {{
        let (value, status): (u64, u64);
        // The trampoline calls what the caller of this function vouches for, which keeps the registers that C
        // functions keep, as a recovery point does; all others are declared lost. It keeps rsp, and the stack is
        // aligned here, as a call needs it.
        asm!(
            "call {trampoline}",
            trampoline = sym $trampoline,
            inlateout("r10") &raw const *$record => _,
            inlateout("r11") $code => _,
            inlateout("rdi") $cx => _,
            inlateout("rsi") $fp => _,
            inlateout("rdx") $args[0] => status,
            inlateout("rcx") $args[1] => _,
            inlateout("r8") $args[2] => _,
            inlateout("r9") $args[3] => _,
            inlateout("rax") $args[4] => value,
            clobber_abi("sysv64"),
        );
        (value, status)
    }};
}

/// Calls generated code: a function `(cx, r10, r1, ..., r5) -> r0` of Cranelift's `tail` calling convention, on the
/// stack of `gate`.
///
/// # Errors
/// The code ended early, through a signal or a trap in a callback of a C function it called.
///
/// # Safety
/// `code` must be such a function, in a registered [`CodeRange`](super::CodeRange) that outlives the call, and `cx`
/// what it works on. Of the frames between it and this call, only such that may be skipped must be on the stack
/// while `in_c` of the gate's owner is not zero or the code itself faults: generated code and C functions. The owner
/// must be correct; its pointers must be valid during the call. The stack must be memory that only this call uses,
/// so no other call through this gate must be running.
pub unsafe fn enter(gate: &EntryGate, code: u64, cx: *mut (), fp: u64, args: &[u64; 5]) -> Result<u64, Box<Abort>> {
    let record = &gate.0;
    // SAFETY: passed on to the caller.
    let (value, status) = record.during(|| unsafe { jump!(twinbpf_enter, record, code, cx, fp, args) });
    // SAFETY: it did end early.
    if status == 0 { Ok(value) } else { Err(unsafe { record.abort() }) }
}

/// Says that no call of native code is running on this thread, that its signals are prepared and that it blocks none.
#[derive(Clone, Copy, Debug)]
pub struct Idle {
    /// Of this thread, which this value cannot leave.
    current: *const Cell<*const ActivationRecord>,
}

/// Whether that is so.
#[inline(always)]
pub fn idle() -> Option<Idle> {
    CURRENT.with(|current| current.get().is_null().then_some(Idle { current }))
}

/// A call through a gate has ended early; [`EntryGate::why`] says why.
#[derive(Debug)]
pub struct Ended(());

/// As [`enter`], where nothing needs to be remembered: no call waits for what the one before has put back. The code may
/// work on `known`, of which it has the address from before.
///
/// # Errors
/// As for [`enter`].
///
/// # Safety
/// As for [`enter`], and nothing has been entered since `idle` was true.
#[inline(always)]
pub unsafe fn enter_first(
    idle: Idle,
    gate: &EntryGate,
    code: u64,
    (cx, known): (*mut (), *mut ()),
    fp: u64,
    args: &[u64; 5],
) -> Result<u64, Ended> {
    // SAFETY: does nothing, but what it gets may change from here on.
    unsafe { asm!("/* {0} */", in(reg) known, options(nostack, preserves_flags)) };
    let record = &gate.0;
    // SAFETY: this thread has it, and lives.
    let current = unsafe { &*idle.current };
    current.set(record);
    // SAFETY: passed on to the caller.
    let (value, status) = unsafe { jump!(twinbpf_enter, record, code, cx, fp, args) };
    current.set(ptr::null());
    if status == 0 { Ok(value) } else { Err(Ended(())) }
}

/// As [`enter`], but on the current stack: for a call inside a call through a gate, on the stack of that.
///
/// # Errors
/// As for [`enter`].
///
/// # Safety
/// As for [`enter`]; there must be room on the stack.
pub unsafe fn enter_again(owner: &Owner, code: u64, cx: *mut (), fp: u64, args: &[u64; 5]) -> Result<u64, Box<Abort>> {
    let record = &ActivationRecord::new(*owner, Kind::Code, 0);
    // SAFETY: passed on to the caller.
    let (value, status) = record.during(|| unsafe { jump!(twinbpf_enter_again, record, code, cx, fp, args) });
    // SAFETY: it did end early.
    if status == 0 { Ok(value) } else { Err(unsafe { record.abort() }) }
}

/// Calls a C function with the integer and floating-point argument registers it may read, and gives the bits of
/// its result. `data` and `callback` serve calls that the function makes to function addresses of the program.
///
/// # Errors
/// The function faulted, or a callback of it ended with a trap; then it was left where it was.
///
/// # Safety
/// `target` must be a function of the C calling convention for which these registers are arguments it can work with,
/// or else the memory it may damage must be worth nothing. `callback` must be fit for `data` during the call.
pub unsafe fn call_c(
    target: usize,
    form: Form,
    ints: &[u64; 6],
    floats: &[f64; 8],
    data: *mut (),
    callback: Callback,
) -> Result<u64, Box<Abort>> {
    let owner = Owner { in_c: ptr::null_mut(), interrupt: ptr::null(), data, call: callback };
    let record = ActivationRecord::new(owner, Kind::C, 0);
    // SAFETY: as with `jump`. Whether the function is variadic makes no difference: others do not read al.
    let (value, float, status) = record.during(|| unsafe {
        let (value, status): (u64, u64);
        let float: f64;
        asm!(
            "call {call}",
            call = sym twinbpf_call_c,
            inlateout("r10") &raw const record => _,
            inlateout("r11") target => _,
            inlateout("rdx") ints.as_ptr() => status,
            inlateout("rcx") floats.as_ptr() => _,
            lateout("rax") value,
            lateout("xmm0") float,
            clobber_abi("sysv64"),
        );
        (value, float, status)
    });
    match status {
        0 => Ok(if form.float { float.to_bits() } else { value }),
        // SAFETY: it did end early.
        _ => Err(unsafe { record.abort() }),
    }
}

/// Address of the code through which variadic C functions are called: with the function's own address as the sixth
/// integer argument, and otherwise as C calls it.
pub fn variadic() -> usize {
    twinbpf_variadic as *const () as usize
}

/// Address of the code that a function slot must jump to, with the slot's own address in rax: it calls the slot's
/// function for the machine that is running on the thread.
pub fn call_back() -> usize {
    twinbpf_call_back as *const () as usize
}

/// A callback from C code: runs the function of `slot` and returns r0, or the recovery point.
pub(super) unsafe extern "C" fn serve(slot: u64, args: *const [u64; 5]) -> Two {
    let Some(record) = current() else {
        log::error!("C code has called the function at {slot:#x} of a program that is not running on this thread");
        return Two { value: 0, status: 0 };
    };
    // SAFETY: records on the chain live until their call ends, and this runs inside it.
    let record = unsafe { record.as_ref() };
    let owner = record.owner;
    let barrier = ActivationRecord::new(owner, Kind::Barrier, 0);
    // SAFETY: where there is a counter, it is this thread's own.
    let in_c = (!owner.in_c.is_null()).then(|| unsafe { owner.in_c.replace(0) });
    // SAFETY: the owner has promised that this pair belongs together; the five words are in the frame of our caller.
    let call = AssertUnwindSafe(|| unsafe { (owner.call)(owner.data, slot, &*args) });
    let result = barrier.during(|| catch_unwind(call));
    if let Some(in_c) = in_c {
        // SAFETY: as above.
        unsafe { owner.in_c.write(in_c) };
    }
    let result = result.unwrap_or_else(|_| Err(Trap::new(TrapCode::Panic, "a callback panicked")));
    match result {
        Ok(value) => Two { value, status: 0 },
        // Between the record and here is a host function in Rust, which C code has called back.
        Err(trap) if !(record.kind == Kind::C || in_c.is_some_and(|in_c| in_c != 0)) => {
            log::error!("a callback of a program ended with a trap, which its caller cannot receive: {trap}");
            Two { value: 0, status: 0 }
        }
        Err(trap) => {
            // SAFETY: the call of the record ends here, so there is no other writer.
            unsafe { (*record.abort.get()).write(Abort::Trap(trap)) };
            Two { value: 0, status: record.recovery_point.get() as u64 }
        }
    }
}
