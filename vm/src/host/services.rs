//! Runtime services: functions of the machine that generated code calls.
//!
//! Each passes the question on to the machine's [`Bridge`]. A trap becomes a status; a panic, which only a mistake
//! of ours can cause here, is kept and resumes above the generated code.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::native::{Bridge, Context, Failure, Pair, Services, TailCall};
use super::thunk::fail;
use crate::trap::Trap;

/// What [`Context::services`] points to.
pub static SERVICES: Services = Services { tail_call, call, interpret, load_packet, resume, begin_walk, advance_walk };

/// # Safety
/// `cx` points to the context of a machine in whose run this is called, and no reference to that machine or its
/// context is in use.
unsafe fn serve(cx: *mut Context, ask: impl FnOnce(&mut dyn Bridge) -> Result<Pair, Trap>) -> Pair {
    // SAFETY: the caller promises that the machine that `cx` points to is alive and not in use elsewhere.
    let bridge = unsafe { &mut *(*cx).bridge };
    let failure = match catch_unwind(AssertUnwindSafe(|| ask(bridge))) {
        Ok(Ok(pair)) => return pair,
        Ok(Err(trap)) => Failure::Trap(trap),
        Err(payload) => Failure::Panic(payload),
    };
    // SAFETY: `bridge` is not used any more.
    unsafe { fail(cx, failure) }
}

fn done(value: u64) -> Pair {
    Pair { value, status: 0 }
}

/// # Safety
/// As [`serve`].
unsafe extern "C-unwind" fn tail_call(cx: *mut Context, _r1: u64, map: u64, index: u64) -> Pair {
    // SAFETY: passed on to the caller.
    unsafe {
        serve(cx, |bridge| {
            Ok(match bridge.tail_call(map, index as u32)? {
                TailCall::Code(value) => done(value),
                TailCall::Failed(value) => Pair { value, status: 1 },
            })
        })
    }
}

/// # Safety
/// As [`serve`].
unsafe extern "C-unwind" fn call(cx: *mut Context, address: u64) -> Pair {
    // SAFETY: passed on to the caller.
    unsafe { serve(cx, |bridge| bridge.call_address(address).map(done)) }
}

/// # Safety
/// As [`serve`].
unsafe extern "C-unwind" fn interpret(cx: *mut Context, function: u64) -> Pair {
    // SAFETY: passed on to the caller.
    unsafe { serve(cx, |bridge| bridge.interpret(function as u32).map(done)) }
}

/// # Safety
/// As [`serve`].
unsafe extern "C-unwind" fn load_packet(cx: *mut Context, off: u64, bytes: u64) -> Pair {
    // SAFETY: passed on to the caller.
    unsafe {
        serve(cx, |bridge| {
            let value = bridge.load_packet(off as u32, bytes as usize)?;
            Ok(value.map_or(Pair { value: 0, status: 1 }, done))
        })
    }
}

/// # Safety
/// As [`serve`].
unsafe extern "C-unwind" fn resume(cx: *mut Context, pc: u64) -> Pair {
    // SAFETY: passed on to the caller.
    unsafe { serve(cx, |bridge| bridge.resume(pc as u32).map(done)) }
}

/// # Safety
/// As [`serve`].
unsafe extern "C-unwind" fn begin_walk(cx: *mut Context, map: u64) -> Pair {
    // SAFETY: passed on to the caller.
    unsafe { serve(cx, |bridge| bridge.begin_walk(map).map(|key| done(key.unwrap_or(0)))) }
}

/// # Safety
/// As [`serve`].
unsafe extern "C-unwind" fn advance_walk(cx: *mut Context, stop: u64) -> Pair {
    // SAFETY: passed on to the caller.
    unsafe { serve(cx, |bridge| bridge.advance_walk(stop != 0).map(|value| done(value.unwrap_or(0)))) }
}
