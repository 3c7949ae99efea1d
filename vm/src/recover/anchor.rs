//! Calls of native code that can end early, and the thread's chain of those that have not ended.

use std::arch::asm;
use std::cell::{Cell, UnsafeCell};
use std::mem::MaybeUninit;
use std::num::NonZeroU64;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use super::asm::{Landing, Two, twinbpf_call_back, twinbpf_call_c, twinbpf_enter};
use super::{Abort, Callback, Form, Owner, signal};
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

/// A call of native code that has not returned; lives in the frame that made it.
#[repr(C)]
pub(super) struct Anchor {
    /// Filled in by the trampoline, which gets the address of this, offset 0. A barrier has none.
    pub(super) landing: UnsafeCell<MaybeUninit<Landing>>,
    pub(super) owner: *const Owner,
    pub(super) kind: Kind,
    /// Why the trampoline's result says that it ended early.
    pub(super) abort: UnsafeCell<MaybeUninit<Abort>>,
}

/// Stands for the end of the chain in a thread whose signals have not been prepared.
const UNPREPARED: *const Anchor = ptr::without_provenance(usize::MAX);

thread_local! {
    /// The innermost call that has not returned. Read by signal handlers.
    static CURRENT: Cell<*const Anchor> = const { Cell::new(UNPREPARED) };
}

/// The innermost call of native code on this thread, if there is any.
pub(super) fn current() -> Option<ptr::NonNull<Anchor>> {
    let current = CURRENT.get();
    if current == UNPREPARED { None } else { ptr::NonNull::new(current.cast_mut()) }
}

/// Takes the innermost anchor off the chain.
#[inline(always)]
fn pop(previous: *const Anchor) {
    CURRENT.set(previous);
}

#[cold]
#[inline(never)]
fn prepare() -> *const Anchor {
    signal::prepare_thread();
    ptr::null()
}

impl Anchor {
    #[inline(always)]
    fn new(owner: *const Owner, kind: Kind) -> Anchor {
        let (landing, abort) = (UnsafeCell::new(MaybeUninit::uninit()), UnsafeCell::new(MaybeUninit::uninit()));
        Anchor { landing, owner, kind, abort }
    }

    /// Puts it on the chain, and gives what [`pop`] must get before it goes.
    #[inline(always)]
    fn push(&self) -> *const Anchor {
        let mut previous = CURRENT.get();
        if previous == UNPREPARED {
            previous = prepare();
        }
        CURRENT.set(self);
        previous
    }

    /// Why the call ended early.
    ///
    /// # Safety
    /// The trampoline said that it did, and nobody has asked before.
    #[cold]
    #[inline(never)]
    unsafe fn abort(&self, owner: &Owner) -> Box<Abort> {
        if !owner.in_c.is_null() {
            // SAFETY: an owner's counter is valid as long as the owner is used; only this thread writes it.
            unsafe { owner.in_c.write(0) };
        }
        // SAFETY: whoever redirects to the landing, a signal handler or `serve`, writes this first.
        Box::new(unsafe { (*self.abort.get()).assume_init_read() })
    }
}

/// Calls generated code: a function `(cx, r10, r1, ..., r5) -> r0` of Cranelift's `tail` calling convention, on
/// `stack` (its top) or on the current stack. A call inside a call of the same thread must not change the stack if
/// it is that stack already.
///
/// # Errors
/// The code ended early, through a signal or a trap in a callback of a C function it called.
///
/// # Safety
/// `code` must be such a function, in a registered [`CodeRange`](super::CodeRange) that outlives the call, and `cx`
/// what it works on. Of the frames between it and this call, only such that may be skipped must be on the stack
/// while `owner.in_c` is not zero or the code itself faults: generated code and C functions. `owner` must tell the
/// truth; its pointers must be valid during the call. `stack` must be the top of memory that nobody else uses.
#[inline(always)]
pub unsafe fn enter(
    owner: &Owner,
    code: u64,
    cx: *mut (),
    fp: u64,
    args: &[u64; 5],
    stack: Option<NonZeroU64>,
) -> Result<u64, Box<Abort>> {
    let anchor = Anchor::new(owner, Kind::Code);
    let previous = anchor.push();
    let (value, status): (u64, u64);
    let kept: *const Anchor;
    // SAFETY: the trampoline calls what the caller of this function vouches for, which keeps rbp and rbx, as a landing
    // does; all other registers are declared lost. It keeps rsp, and the stack is aligned here, as a call needs it.
    // After a plain return r13, which such code keeps too, holds `previous`: in a register of the compiler's choice,
    // rbp, it would travel by way of memory, and one call would have to wait for the other.
    unsafe {
        asm!(
            "call {enter}",
            enter = sym twinbpf_enter,
            inlateout("rdi") &raw const anchor => _,
            inlateout("rsi") code => _,
            inlateout("rdx") cx => status,
            inlateout("rcx") fp => _,
            inlateout("r8") args.as_ptr() => _,
            inlateout("r9") stack.map_or(0, NonZeroU64::get) => _,
            lateout("rax") value,
            lateout("r12") _,
            inlateout("r13") previous => kept,
            lateout("r14") _,
            lateout("r15") _,
            clobber_abi("sysv64"),
        );
    }
    if status == 0 {
        pop(kept);
        return Ok(value);
    }
    pop(previous);
    // SAFETY: it did end early.
    Err(unsafe { anchor.abort(owner) })
}

/// Calls a C function with the integer and floating-point argument registers it may look at, and gives the bits of
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
    let anchor = Anchor::new(&raw const owner, Kind::C);
    let previous = anchor.push();
    let (value, status): (u64, u64);
    let float: f64;
    // SAFETY: as in `enter`. Whether the function is variadic makes no difference: others do not look at al.
    unsafe {
        asm!(
            "call {call}",
            call = sym twinbpf_call_c,
            inlateout("rdi") &raw const anchor => _,
            inlateout("rsi") target => _,
            inlateout("rdx") ints.as_ptr() => status,
            inlateout("rcx") floats.as_ptr() => _,
            lateout("rax") value,
            lateout("xmm0") float,
            lateout("r12") _,
            lateout("r13") _,
            lateout("r14") _,
            lateout("r15") _,
            clobber_abi("sysv64"),
        );
    }
    pop(previous);
    if status == 0 {
        return Ok(if form.float { float.to_bits() } else { value });
    }
    // SAFETY: it did end early.
    Err(unsafe { anchor.abort(&owner) })
}

/// Address of the code that a function slot must jump to, with the slot's own address in rax: it calls the slot's
/// function for the machine that is running on the thread.
pub fn call_back() -> usize {
    twinbpf_call_back as *const () as usize
}

/// A callback from C code: runs the function behind `slot`, and gives r0; or where to land.
pub(super) unsafe extern "C" fn serve(slot: u64, args: *const [u64; 5]) -> Two {
    let Some(anchor) = current() else {
        log::error!("C code has called the function at {slot:#x} of a program that is not running on this thread");
        return Two { value: 0, status: 0 };
    };
    // SAFETY: anchors on the chain live until their call ends, and this runs inside it.
    let anchor = unsafe { anchor.as_ref() };
    // SAFETY: an anchor's owner lives as long as it; for a barrier it is that of the call below.
    let owner = unsafe { *anchor.owner };
    let barrier = Anchor::new(&raw const owner, Kind::Barrier);
    // SAFETY: where there is a counter, it is this thread's own.
    let in_c = (!owner.in_c.is_null()).then(|| unsafe { owner.in_c.replace(0) });
    let previous = barrier.push();
    // SAFETY: the owner has promised that this pair belongs together; the five words are in the frame of our caller.
    let result = catch_unwind(AssertUnwindSafe(|| unsafe { (owner.call)(owner.data, slot, &*args) }));
    pop(previous);
    if let Some(in_c) = in_c {
        // SAFETY: as above.
        unsafe { owner.in_c.write(in_c) };
    }
    let result = result.unwrap_or_else(|_| Err(Trap::new(TrapCode::Panic, "a callback panicked")));
    match result {
        Ok(value) => Two { value, status: 0 },
        // Between the anchor and here is a host function in Rust, which C code has called back.
        Err(trap) if !(anchor.kind == Kind::C || in_c.is_some_and(|in_c| in_c != 0)) => {
            log::error!("a callback of a program ended with a trap, and its caller cannot be told: {trap}");
            Two { value: 0, status: 0 }
        }
        Err(trap) => {
            // SAFETY: the call of the anchor ends here, so nobody else writes this.
            unsafe { (*anchor.abort.get()).write(Abort::Trap(trap)) };
            Two { value: 0, status: anchor.landing.get() as u64 }
        }
    }
}
