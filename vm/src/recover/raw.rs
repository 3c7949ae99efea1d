//! Single accesses to any address. They need no record: the handler knows the instructions by their addresses.
#![expect(unsafe_code, reason = "calls native code, and handles its signals")]

use super::asm::{
    Two, twinbpf_cas4, twinbpf_cas8, twinbpf_load1, twinbpf_load2, twinbpf_load4, twinbpf_load8, twinbpf_store1,
    twinbpf_store2, twinbpf_store4, twinbpf_store8,
};
use super::prepare::{Unblocked, ready};
use super::record::{ThreadState, thread_state};
use super::{Fault, Signal};
use twinbpf_isa::{Size, Width};

/// Sees that a fault reaches our handler until the result is dropped.
#[inline(always)]
fn prepared() -> Option<Unblocked> {
    (thread_state() != ThreadState::Ready).then(ready)
}

fn result(two: Two, addr: u64) -> Result<u64, Fault> {
    match two.status {
        0 => Ok(two.value),
        number => {
            let signal = Signal::of(number as i32).expect("the handler's number");
            Err(Fault { signal, pc: 0, address: Some(addr), frame: 0, in_c: 0 })
        }
    }
}

/// Loads from `addr`, zero-extended, in one access with acquire ordering.
///
/// # Errors
/// Nothing can be loaded from there.
///
/// # Safety
/// Discloses what is at `addr`: the caller must be allowed to read it. Reads of device registers may have side effects.
pub unsafe fn load(addr: u64, size: Size) -> Result<u64, Fault> {
    let _unblocked = prepared();
    // SAFETY: a fault of the access ends the routine, with the signal in its status.
    let two = unsafe {
        match size {
            Size::B => twinbpf_load1(addr),
            Size::H => twinbpf_load2(addr),
            Size::W => twinbpf_load4(addr),
            Size::Dw => twinbpf_load8(addr),
        }
    };
    result(two, addr)
}

/// Stores the low bytes of `value` at `addr`, in one access with release ordering.
///
/// # Errors
/// Nothing can be stored there.
///
/// # Safety
/// No other code may rely on the bytes, and no Rust object may be among them.
pub unsafe fn store(addr: u64, size: Size, value: u64) -> Result<(), Fault> {
    let _unblocked = prepared();
    // SAFETY: as in `load`.
    let two = unsafe {
        match size {
            Size::B => twinbpf_store1(addr, value),
            Size::H => twinbpf_store2(addr, value),
            Size::W => twinbpf_store4(addr, value),
            Size::Dw => twinbpf_store8(addr, value),
        }
    };
    result(two, addr).map(|_| ())
}

/// Stores `new` at `addr` if the integer there is `old`; gives what was there, zero-extended. One atomic access,
/// sequentially consistent.
///
/// # Errors
/// Nothing can be stored there.
///
/// # Safety
/// As [`store`].
pub unsafe fn compare_exchange(addr: u64, width: Width, old: u64, new: u64) -> Result<u64, Fault> {
    let _unblocked = prepared();
    // SAFETY: as in `load`.
    let two = unsafe {
        match width {
            Width::W32 => twinbpf_cas4(addr, old, new),
            Width::W64 => twinbpf_cas8(addr, old, new),
        }
    };
    result(two, addr)
}
