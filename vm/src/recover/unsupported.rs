//! Unsupported targets, which have no recovery from faults: C functions are called, and a fault in one ends the process; nothing else is there.
#![expect(unsafe_code, reason = "calls native code, and handles its signals")]

use std::mem::transmute;
use std::num::NonZeroU64;

use super::{Abort, Callback, Fault, Form, NativeStack, Owner, Signal, StackRange, Unprepared};
use twinbpf_isa::{Size, Width};

type Ints = unsafe extern "C" fn(u64, u64, u64, u64, u64, u64, f64, f64, f64, f64, f64, f64, f64, f64) -> u64;
type Floats = unsafe extern "C" fn(u64, u64, u64, u64, u64, u64, f64, f64, f64, f64, f64, f64, f64, f64) -> f64;
type VariadicInts = unsafe extern "C" fn(u64, ...) -> u64;
type VariadicFloats = unsafe extern "C" fn(u64, ...) -> f64;

/// There is no generated code here.
#[derive(Debug)]
pub struct EntryGate(Owner);

impl EntryGate {
    /// A gate that is never entered.
    pub fn new(owner: Owner, _: &NativeStack) -> EntryGate {
        EntryGate(owner)
    }

    /// Nothing has ended.
    ///
    /// # Safety
    /// Needs nothing.
    pub unsafe fn why(&self, _: Ended) -> Box<Abort> {
        unreachable!("nothing makes an `Ended`")
    }

    /// What signals and callbacks know.
    pub fn owner(&self) -> &Owner {
        &self.0
    }

    /// The same, to be changed for later calls.
    pub fn owner_mut(&mut self) -> &mut Owner {
        &mut self.0
    }
}

/// There is no generated code here.
pub(super) fn gate_stack(_: u64) -> Option<StackRange> {
    None
}

/// Calls `work(data)` where it is.
///
/// # Safety
/// `work` must be fit for `data`.
pub(super) unsafe fn switch_stack(data: *mut (), work: extern "C" fn(*mut ()), _: NonZeroU64) {
    work(data);
}

/// There is no generated code here.
pub fn is_inside(_: *mut ()) -> bool {
    false
}

/// There is no generated code here.
///
/// # Errors
/// None.
///
/// # Panics
/// Always.
///
/// # Safety
/// Needs nothing.
pub unsafe fn enter(_: &EntryGate, _: u64, _: *mut (), _: u64, _: &[u64; 4]) -> Result<u64, Box<Abort>> {
    unreachable!("see `recover::AVAILABLE`")
}

/// There is no generated code here.
///
/// # Errors
/// None.
///
/// # Panics
/// Always.
///
/// # Safety
/// Needs nothing.
pub unsafe fn enter_again(_: &Owner, _: u64, _: *mut (), _: u64, _: &[u64; 4]) -> Result<u64, Box<Abort>> {
    unreachable!("see `recover::AVAILABLE`")
}

/// There is no generated code here.
///
/// # Errors
/// None.
///
/// # Panics
/// Always.
///
/// # Safety
/// Needs nothing.
pub unsafe fn enter_first(
    _: Idle,
    _: &EntryGate,
    _: u64,
    _: *mut (),
    _: *mut (),
    _: u64,
    _: &[u64; 4],
) -> Result<u64, Ended> {
    unreachable!("see `recover::AVAILABLE`")
}

/// There is no trampoline here.
pub fn entry_trampoline() -> u64 {
    0
}

/// Nothing here says so.
#[derive(Clone, Copy, Debug)]
pub struct Idle(());

/// Always `None`: no thread is prepared.
pub fn idle() -> Option<Idle> {
    None
}

/// No native code runs here that a thread would have to be prepared for.
///
/// # Errors
/// None.
pub fn prepare_thread() -> Result<(), Unprepared> {
    Ok(())
}

/// Does nothing, as [`prepare_thread`] has nothing to do.
pub fn check_thread() {}

/// Nothing here needs signals.
#[derive(Debug)]
pub struct Unblocked(());

/// Nothing to do.
pub fn unblock() -> Option<Unblocked> {
    None
}

/// No handlers are installed here.
pub fn keep_loaded() {}

/// Nothing here ends early.
#[derive(Debug)]
pub struct Ended(());

/// Calls a C function with the integer and floating-point argument registers it may read, and gives the bits of
/// its result. It cannot call back.
///
/// # Errors
/// None.
///
/// # Safety
/// `target` must be a function for which these registers are arguments it can work with, and of this form.
pub unsafe fn call_c(
    target: usize,
    form: Form,
    i: &[u64; 6],
    f: &[f64; 8],
    _: *mut (),
    _: Callback,
) -> Result<u64, Box<Abort>> {
    let target = target as *const ();
    macro_rules! call {
        ($Type:ty) => {
            transmute::<*const (), $Type>(target)(
                i[0], i[1], i[2], i[3], i[4], i[5], f[0], f[1], f[2], f[3], f[4], f[5], f[6], f[7],
            )
        };
    }
    // SAFETY: a callee reads only the registers it has parameters for, which the caller has filled. The form
    // picks the type.
    Ok(unsafe {
        match (form.variadic, form.float) {
            (false, false) => call!(Ints),
            (false, true) => call!(Floats).to_bits(),
            (true, false) => call!(VariadicInts),
            (true, true) => call!(VariadicFloats).to_bits(),
        }
    })
}

/// There is no generated code here that could call one.
pub fn variadic() -> usize {
    0
}

/// There are no callbacks here.
pub fn call_back() -> usize {
    0
}

fn refused(addr: u64) -> Fault {
    Fault { signal: Signal::Segv, pc: 0, address: Some(addr), frame: 0, in_c: 0 }
}

/// Refused.
///
/// # Errors
/// Always.
///
/// # Safety
/// Needs nothing.
pub unsafe fn load(addr: u64, _: Size) -> Result<u64, Fault> {
    Err(refused(addr))
}

/// Refused.
///
/// # Errors
/// Always.
///
/// # Safety
/// Needs nothing.
pub unsafe fn store(addr: u64, _: Size, _: u64) -> Result<(), Fault> {
    Err(refused(addr))
}

/// Refused.
///
/// # Errors
/// Always.
///
/// # Safety
/// Needs nothing.
pub unsafe fn compare_exchange(addr: u64, _: Width, _: u64, _: u64) -> Result<u64, Fault> {
    Err(refused(addr))
}
