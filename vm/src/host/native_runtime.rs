//! The native runtime of a machine: VM context, native stack and entry gate of its compiled code.
//!
//! The context has a place of its own in memory: generated code and thunks know its address while the machine is
//! lent to host functions.

use std::fmt;
use std::num::NonZeroU64;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use super::native::{Bridge, CALL_FRAME, Context, HOST_STACK, HostCode, MAX_FRAME, Native, SERVICES, Site, TailCall};
use super::{Activation, Interrupt, Runtime};
use crate::recover::{self, Abort, Ended, EntryGate, Idle, NativeStack, Owner};
use crate::trap::Trap;

/// Nested activations of a machine; deeper calls are interpreted. Unlike calls inside compiled code, each takes native stack of its own.
pub(crate) const MAX_ACTIVATIONS: usize = 64;
/// The lowest part of the stack: for one large frame that begins right above [`Context::native_limit`], for what takes the
/// machine from generated code to the interpreter and back a bounded number of times, each with a second frame of the function that
/// goes on in other code, and for a host function.
const FLOOR: usize = MAX_FRAME as usize + (960 << 10) + MAX_ACTIVATIONS * recover::CLEARANCE + HOST_STACK;
/// The highest part: for large frames, and for host functions that call back. Between both each call that may be has its
/// [`CALL_FRAME`]. What is not used costs addresses only.
const SHARED: usize = 4 << 20;

/// Stands for the machine of a context that has none yet.
enum NoHost {}

/// Address of generated code that fits a [`NativeRuntime`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Code(NonZeroU64);

/// What stays the same from run to run.
pub(crate) struct Setup {
    /// Address of the arena's first byte.
    pub(crate) arena_base: u64,
    /// Each host function of the image.
    pub(crate) hosts: Vec<HostCode>,
    /// Address of the image's first function, as programs see it.
    pub(crate) slots: u64,
    /// Number of functions.
    pub(crate) slot_count: u64,
    /// Most functions that have not returned.
    pub(crate) max_depth: u32,
}

/// See the module documentation.
pub(crate) struct NativeRuntime {
    cx: NonNull<Context>,
    gate: NonNull<EntryGate>,
    stack: NativeStack,
    /// What [`Context::native_limit`] holds while native code runs.
    native_limit: u64,
    code: Arc<dyn Native>,
    /// Where `hosts` of the context points.
    _hosts: Vec<HostCode>,
    /// Whose flag the context points to.
    interrupt: Arc<Interrupt>,
}

// SAFETY: both pointers are to memory that this value owns, as boxes would. What they point to refers to the code, the
// host functions and the flag, which it keeps alive and which may be used from any thread; `bridge` is only followed
// while the machine runs, on the thread that runs it.
unsafe impl Send for NativeRuntime {}

/// An entry point of compiled code with what calling it needs of a [`NativeRuntime`], so that the machine can be borrowed
/// meanwhile.
#[derive(Clone, Copy)]
pub(crate) struct EntryPoint {
    cx: NonNull<Context>,
    gate: NonNull<EntryGate>,
    /// Where the code is.
    code: Code,
    /// r10 of its frame.
    fp: u64,
}

// SAFETY: pointers to what a `NativeRuntime` owns, which may be sent; only `enter` follows them, for the machine that owns
// that, on the thread that has the machine.
unsafe impl Send for EntryPoint {}

impl EntryPoint {
    /// Whether the machine has not moved since [`enter`] last used this entry point, so that the code finds it.
    #[inline(always)]
    pub(crate) fn knows<B: Bridge>(&self, machine: &B) -> bool {
        // SAFETY: the context lives as long as the machine that has this, and does not change meanwhile.
        ptr::addr_eq(unsafe { self.cx.as_ref() }.bridge, machine)
    }

    /// Whether it is the entry point of the code at this address.
    #[inline(always)]
    pub(crate) fn is_at(&self, code: u64) -> bool {
        self.code.0.get() == code
    }

    /// Puts r5 where code reads it, and gives what is passed in registers.
    ///
    /// # Safety
    /// The machine that has this is alive, and nothing uses its context now.
    #[inline(always)]
    unsafe fn pass<'a>(&self, args: &'a [u64; 5]) -> &'a [u64; 4] {
        let ([in_registers @ .., last], mut cx) = (args, self.cx);
        // SAFETY: passed on to the caller. (A build with debug assertions would check a raw pointer, and a fast path of hooks
        // calls nothing that formats.)
        unsafe { cx.as_mut() }.regs[5] = *last;
        in_registers
    }

    /// What the last run has left of its budget.
    #[inline(always)]
    pub(crate) fn remaining(&self) -> i64 {
        // SAFETY: as in `knows`.
        unsafe { self.cx.as_ref() }.remaining
    }
}

impl NativeRuntime {
    /// # Errors
    /// The system has no memory for a stack.
    pub(crate) fn new(code: Arc<dyn Native>, setup: Setup) -> std::io::Result<NativeRuntime> {
        let below = FLOOR + setup.max_depth as usize * CALL_FRAME as usize;
        let stack = NativeStack::new(below + SHARED)?;
        let native_limit = stack.range().low + below as u64;
        let interrupt = Arc::new(Interrupt::default());
        let hosts = setup.hosts;
        let mut context = Context::new(ptr::null_mut::<NoHost>());
        context.arena_base = setup.arena_base;
        context.functions = code.functions();
        context.hosts = hosts.as_ptr();
        context.values = code.values();
        context.slots = setup.slots;
        context.slot_count = setup.slot_count;
        context.services = &raw const SERVICES;
        context.interrupt = interrupt.as_ptr();
        context.native_limit = native_limit;
        let cx = NonNull::from(Box::leak(Box::new(context)));
        let owner = Owner {
            // SAFETY: the context was just made.
            in_c: unsafe { &raw mut (*cx.as_ptr()).in_c },
            interrupt: interrupt.as_ptr(),
            data: cx.as_ptr().cast(),
            call: call_back,
        };
        let gate = NonNull::from(Box::leak(Box::new(EntryGate::new(owner, &stack))));
        Ok(NativeRuntime { cx, gate, stack, native_limit, code, _hosts: hosts, interrupt })
    }

    /// The code.
    pub(crate) fn code(&self) -> &Arc<dyn Native> {
        &self.code
    }

    /// The context. Generated code does not run meanwhile.
    pub(crate) fn context(&mut self) -> &mut Context {
        // SAFETY: made by `new`, and gone with `self`. Generated code and thunks access it only while they run, and the
        // holder of `self` runs either in a call that they made or while none of them runs.
        unsafe { self.cx.as_mut() }
    }

    /// Whether this thread is in generated code that was entered here, or in what that has called.
    pub(crate) fn is_entered(&self) -> bool {
        recover::is_inside(self.cx.as_ptr().cast())
    }

    /// Native code of a function of the image.
    pub(crate) fn entry(&self, function: u32) -> Option<Code> {
        self.code.entry(function).and_then(NonZeroU64::new).map(Code)
    }

    /// Native code from a loop header on.
    pub(crate) fn loop_entry(&self, pc: u32) -> Option<Code> {
        self.code.loop_entry(pc).and_then(NonZeroU64::new).map(Code)
    }

    /// Where to call a function of the image, be it in the interpreter. The context's `target` must be it.
    pub(crate) fn address(&mut self, function: u32) -> u64 {
        let cx = self.context();
        assert!(u64::from(function) < cx.slot_count, "a function of the image");
        // SAFETY: the table has an element for each function, and stays as long as the code; others may write it.
        unsafe { cx.functions.add(function as usize).read_volatile() }
    }

    /// The flag that ends a run.
    #[inline]
    pub(crate) fn watch(&mut self, interrupt: &Arc<Interrupt>) {
        if !Arc::ptr_eq(interrupt, &self.interrupt) {
            self.interrupt = Arc::clone(interrupt);
            self.context().interrupt = interrupt.as_ptr();
            // SAFETY: made by `new`; read by signal handlers of this thread while code runs, which it does not now.
            unsafe { (*self.gate.as_ptr()).owner_mut().interrupt = interrupt.as_ptr() };
        }
    }

    /// For [`enter`]: the entry point of `code`, for the frame with this r10.
    #[inline]
    pub(crate) fn entry_point(&self, code: Code, fp: u64) -> EntryPoint {
        EntryPoint { cx: self.cx, gate: self.gate, code, fp }
    }

    /// Why the last call ended early.
    pub(crate) fn why(&self, ended: Ended) -> Box<Abort> {
        // SAFETY: there has been no other since; a machine that has one of these calls this at once.
        unsafe { self.gate.as_ref().why(ended) }
    }

    /// Whether there is room for a host function and what it calls back, if the caller runs on the stack of generated code.
    #[inline]
    pub(crate) fn has_room(&self) -> Option<bool> {
        let here = recover::here();
        self.stack.range().contains(here).then_some(here >= self.native_limit)
    }

    /// Whether a fault at this address says that the native stack is used up.
    pub(crate) fn is_overflow(&self, address: Option<u64>) -> bool {
        address.is_some_and(|address| self.stack.is_guard(address))
    }

    /// The calls that led to the native frame `fp`, innermost first, up to where generated code was entered.
    pub(crate) fn callers(&self, mut fp: u64) -> Vec<Site> {
        let stack = self.stack.range();
        let mut sites = Vec::new();
        while fp.is_multiple_of(8) && stack.contains(fp) && fp < stack.high - 16 {
            let frame = ptr::with_exposed_provenance::<[u64; 2]>(fp as usize);
            // SAFETY: both words are inside the stack, which is mapped for reading; nothing runs on it meanwhile but
            // what this thread is doing, which does not write to frames above its own.
            let [caller, back] = unsafe { frame.read_volatile() };
            // The call's last byte: what comes after it may be something that traps.
            let Some(site) = self.code.site(back.wrapping_sub(1)) else { break };
            sites.push(site);
            if caller <= fp {
                break;
            }
            fp = caller;
        }
        sites
    }
}

impl Drop for NativeRuntime {
    fn drop(&mut self) {
        // SAFETY: both were leaked by `new`, and this is their only owner.
        unsafe {
            drop(Box::from_raw(self.cx.as_ptr()));
            drop(Box::from_raw(self.gate.as_ptr()));
        }
    }
}

impl fmt::Debug for NativeRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("NativeRuntime").field(&self.code).finish()
    }
}

/// Runs generated code for `machine`, to which the entry point belongs, at the bottom of its stack.
///
/// # Errors
/// The code ended early.
pub(crate) fn enter<B: Bridge + 'static>(
    machine: &mut B,
    entry_point: EntryPoint,
    args: &[u64; 5],
) -> Result<u64, Box<Abort>> {
    let bridge: *mut dyn Bridge = machine;
    // SAFETY: context and gate are those of `machine`, which keeps them as long as it lives, and nothing else uses them
    // while it is borrowed here. `bridge` is used by thunks and services only, which run inside this call.
    // `code` came from the machine's own code, which gives functions of the right convention. No frame of Rust is
    // skipped: thunks and services return, and are entered with `in_c` zero.
    unsafe {
        (*entry_point.cx.as_ptr()).bridge = bridge;
        let in_registers = entry_point.pass(args);
        recover::enter(
            entry_point.gate.as_ref(),
            entry_point.code.0.get(),
            entry_point.cx.as_ptr().cast(),
            entry_point.fp,
            in_registers,
        )
    }
}

/// As [`enter`], on a thread that is [idle](recover::idle) and has been since, for a machine that the entry point
/// [knows](EntryPoint::knows). Code that counts instructions may execute `budget` of them.
///
/// # Errors
/// The code ended early; [`NativeRuntime::why`] returns the cause.
#[inline(always)]
pub(crate) fn enter_first<B: Bridge + 'static>(
    machine: &mut B,
    idle: Idle,
    mut entry_point: EntryPoint,
    budget: i64,
    args: &[u64; 5],
) -> Result<u64, Ended> {
    // SAFETY: of this machine, and nothing else uses it now.
    let context = unsafe { entry_point.cx.as_mut() };
    (context.remaining, context.tail_calls) = (budget, 0);
    enter_short(machine, idle, entry_point, args)
}

/// As [`enter_first`], for code that neither counts instructions nor calls anything.
///
/// # Errors
/// As for [`enter_first`].
#[inline(always)]
pub(crate) fn enter_short<B: Bridge + 'static>(
    machine: &mut B,
    idle: Idle,
    entry_point: EntryPoint,
    args: &[u64; 5],
) -> Result<u64, Ended> {
    let (cx, known) = (entry_point.cx.as_ptr().cast(), (&raw mut *machine).cast());
    // SAFETY: as in `enter`. The caller has checked that `bridge` refers to the machine.
    unsafe {
        let (gate, in_registers) = (entry_point.gate.as_ref(), entry_point.pass(args));
        recover::enter_first(idle, gate, entry_point.code.0.get(), cx, known, entry_point.fp, in_registers)
    }
}

/// As [`enter`], for a machine that generated code has called and not got its answer from: on top of what runs.
///
/// # Errors
/// The code ended early.
pub(crate) fn enter_again<B: Bridge + 'static>(
    machine: &mut B,
    entry_point: EntryPoint,
    args: &[u64; 5],
) -> Result<u64, Box<Abort>> {
    let bridge: *mut dyn Bridge = machine;
    // SAFETY: as in `enter`. The stack is in use, so the code continues where it is. The code below finds the bridge
    // that it had.
    unsafe {
        let outer = (*entry_point.cx.as_ptr()).bridge;
        (*entry_point.cx.as_ptr()).bridge = bridge;
        let (owner, in_registers) = (entry_point.gate.as_ref().owner(), entry_point.pass(args));
        let (code, cx) = (entry_point.code.0.get(), entry_point.cx.as_ptr().cast());
        let result = recover::enter_again(owner, code, cx, entry_point.fp, in_registers);
        (*entry_point.cx.as_ptr()).bridge = outer;
        result
    }
}

impl Activation for NoHost {
    fn runtime(&mut self) -> &mut Runtime {
        match *self {}
    }

    fn call(&mut self, _: u64, _: [u64; 5]) -> Result<u64, Trap> {
        match *self {}
    }
}

impl Bridge for NoHost {
    fn tail_call(&mut self, _: u64, _: u32) -> Result<TailCall, Trap> {
        match *self {}
    }

    fn call_address(&mut self, _: u64) -> Result<u64, Trap> {
        match *self {}
    }

    fn interpret(&mut self, _: u32) -> Result<u64, Trap> {
        match *self {}
    }

    fn load_packet(&mut self, _: u32, _: usize) -> Result<Option<u64>, Trap> {
        match *self {}
    }

    fn resume(&mut self, _: u32) -> Result<u64, Trap> {
        match *self {}
    }

    fn begin_walk(&mut self, _: u64) -> Result<Option<u64>, Trap> {
        match *self {}
    }

    fn advance_walk(&mut self, _: bool) -> Result<Option<u64>, Trap> {
        match *self {}
    }
}

/// A C function that generated code called calls a function of the program.
///
/// # Safety
/// `data` is the context of a machine that is in the middle of a run, and not borrowed.
unsafe fn call_back(data: *mut (), function: u64, args: &[u64; 5]) -> Result<u64, Trap> {
    // SAFETY: the caller promises it.
    let bridge = unsafe { &mut *(*data.cast::<Context>()).bridge };
    bridge.call(function, *args)
}
