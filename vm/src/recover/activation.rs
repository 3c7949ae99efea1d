//! Calls of native code that can end early: the trampolines with an activation record.
#![expect(unsafe_code, reason = "calls native code, and handles its signals")]

use std::arch::asm;
use std::cell::Cell;
use std::fmt;
use std::ptr;

use super::asm::{twinbpf_call_c, twinbpf_enter, twinbpf_enter_again, twinbpf_variadic};
use super::record::{ActivationRecord, CURRENT, Kind, STATE_BITS, unmarked};
use super::{Abort, Callback, Form, NativeStack, Owner, prepare};

/// Entry gate of one machine: enters its generated code, and holds what returning needs. A call touches little of it.
pub struct EntryGate(ActivationRecord);

impl EntryGate {
    /// A gate of code that runs on this stack.
    pub fn new(owner: Owner, stack: &NativeStack) -> EntryGate {
        let record = ActivationRecord::new(owner, Kind::Code, stack.top().get());
        EntryGate(ActivationRecord { range: stack.range(), ..record })
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
    /// Puts it on the chain while it does some work.
    #[inline(always)]
    pub(super) fn during<R>(&self, work: impl FnOnce() -> R) -> R {
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
}

/// Calls generated code by a trampoline, for a record that is on the chain; not zero is second when it ended early.
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
            lateout("rax") value,
            clobber_abi("sysv64"),
        );
        (value, status)
    }};
}

/// Calls generated code: a function `(cx, r10, r1, ..., r4) -> r0` of Cranelift's `tail` calling convention, on the
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
pub unsafe fn enter(gate: &EntryGate, code: u64, cx: *mut (), fp: u64, args: &[u64; 4]) -> Result<u64, Box<Abort>> {
    let record = &gate.0;
    // SAFETY: passed on to the caller.
    let (value, status) = record.during(|| unsafe { jump!(twinbpf_enter, record, code, cx, fp, args) });
    // SAFETY: it did end early.
    if status == 0 { Ok(value) } else { Err(unsafe { record.abort() }) }
}

/// The address of the trampoline through which code is entered: it changes no vector register, nor does it call anything but
/// that code.
pub fn entry_trampoline() -> u64 {
    twinbpf_enter as *const () as u64
}

/// Says that no call of native code is running on this thread, that its signals are prepared and that it blocks none.
#[derive(Clone, Copy, Debug)]
pub struct Idle {
    /// Of this thread, which this value cannot leave.
    current: &'static Cell<*const ActivationRecord>,
}

/// Whether that is so.
// In a build that inlines little, the access to the thread-local is inlined into the one place that has it.
#[cfg_attr(not(debug_assertions), inline(always))]
pub fn idle() -> Option<Idle> {
    CURRENT.with(|current| {
        // SAFETY: it lives as long as the thread, which the value cannot leave.
        let current: &'static Cell<_> = unsafe { &*ptr::from_ref(current) };
        current.get().is_null().then_some(Idle { current })
    })
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
    cx: *mut (),
    known: *mut (),
    fp: u64,
    args: &[u64; 4],
) -> Result<u64, Ended> {
    // SAFETY: does nothing, but what it gets may change from here on.
    unsafe { asm!("/* {0} */", in(reg) known, options(nostack, preserves_flags)) };
    let record = &gate.0;
    let current = idle.current;
    current.set(record);
    // SAFETY: passed on to the caller.
    let (value, status) = unsafe { jump!(twinbpf_enter, record, code, cx, fp, args) };
    current.set(ptr::null());
    if status == 0 { Ok(value) } else { Err(Ended(())) }
}

/// As [`enter`], but on the current stack, 16 KiB further down: for a call inside a call through a gate, on the
/// stack of that.
///
/// # Errors
/// As for [`enter`].
///
/// # Safety
/// As for [`enter`]; there must be room on the stack.
pub unsafe fn enter_again(owner: &Owner, code: u64, cx: *mut (), fp: u64, args: &[u64; 4]) -> Result<u64, Box<Abort>> {
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
