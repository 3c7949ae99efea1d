//! Host functions as generated code calls them: C functions with the argument registers as arguments.
//!
//! A thunk is compiled for one closure, which becomes part of it: calling a host function from generated code
//! costs a call and the test of the interrupt flag, and allocates nothing. It does what the interpreter does
//! around a host function: panics and traps end the program, and so does a time limit that is over.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use super::Activation;
use super::native::{Context, Failure, Pair};
use crate::trap::Trap;

/// What a thunk is made of, see [`Body`](super::Body).
pub(super) trait Callable:
    Fn(&mut dyn Activation, &[u64; 5]) -> Result<u64, Trap> + Send + Sync + 'static
{
}

impl<B> Callable for B where B: Fn(&mut dyn Activation, &[u64; 5]) -> Result<u64, Trap> + Send + Sync + 'static {}

/// Entry of a host function: its address, and how many arguments follow `env` and `cx`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) code: *const (),
    pub(super) arity: u8,
}

// SAFETY: the address of a function; its caller promises what `run` requires.
unsafe impl Send for Entry {}
// SAFETY: as above.
unsafe impl Sync for Entry {}

macro_rules! thunks {
    ($($thunk:ident $entry:ident $arity:literal ($($a:ident),*) [$($zero:literal),*];)*) => {$(
        /// # Safety
        /// As [`run`].
        unsafe extern "C-unwind" fn $thunk<B: Callable>(env: *const (), cx: *mut Context, $($a: u64),*) -> Pair {
            // SAFETY: passed on to the caller.
            unsafe { run::<B>(env, cx, &[$($a,)* $($zero),*]) }
        }

        /// The entry of a body that reads so many argument registers.
        pub(super) fn $entry<B: Callable>(_: &Arc<B>) -> Entry {
            Entry { code: $thunk::<B> as *const (), arity: $arity }
        }
    )*};
}
thunks! {
    thunk0 entry0 0 () [0, 0, 0, 0, 0];
    thunk1 entry1 1 (a1) [0, 0, 0, 0];
    thunk2 entry2 2 (a1, a2) [0, 0, 0];
    thunk3 entry3 3 (a1, a2, a3) [0, 0];
    thunk4 entry4 4 (a1, a2, a3, a4) [0];
    thunk5 entry5 5 (a1, a2, a3, a4, a5) [];
}

/// # Safety
/// `env` points to a `B`, `cx` to the context of a machine in whose run this is called, and no reference to that
/// machine or its context is in use.
#[inline(always)]
unsafe fn run<B: Callable>(env: *const (), cx: *mut Context, args: &[u64; 5]) -> Pair {
    // SAFETY: the caller promises what `env` is, and that it may be shared follows from `Callable`.
    let body = unsafe { &*env.cast::<B>() };
    // SAFETY: the caller promises that the machine that `cx` points to is alive and not in use elsewhere.
    let bridge = unsafe { &mut *(*cx).bridge };
    // SAFETY: passed on to the caller.
    unsafe { end(cx, || body(bridge, args)) }
}

/// Does the work of a host function, and ends the call.
///
/// # Safety
/// As [`run`], but for `env`.
#[inline(always)]
pub(super) unsafe fn end(cx: *mut Context, work: impl FnOnce() -> Result<u64, Trap>) -> Pair {
    let result = catch_unwind(AssertUnwindSafe(work));
    // SAFETY: `interrupt` points to the flag of this machine's runtime, which the machine keeps alive.
    let interrupted = unsafe { AtomicU8::from_ptr((*cx).interrupt.cast_mut()) }.load(Ordering::Relaxed);
    match result {
        Ok(Ok(value)) if interrupted == 0 => Pair { value, status: 0 },
        Ok(Ok(_)) => {
            // SAFETY: passed on to the caller.
            unsafe { interrupted_at(cx) }
        }
        Ok(Err(trap)) => {
            // SAFETY: passed on to the caller.
            unsafe { trapped(cx, trap) }
        }
        Err(payload) => {
            // SAFETY: passed on to the caller.
            unsafe { panicked(cx, payload) }
        }
    }
}

/// # Safety
/// As [`run`].
#[cold]
unsafe fn interrupted_at(cx: *mut Context) -> Pair {
    // SAFETY: the caller promises that the machine that `cx` points to is alive and not in use elsewhere.
    let trap = unsafe { (*(*cx).bridge).runtime() }.interrupt().trap();
    // SAFETY: passed on to the caller.
    unsafe { fail(cx, Failure::Trap(trap)) }
}

/// # Safety
/// As [`fail`].
#[cold]
unsafe fn trapped(cx: *mut Context, trap: Trap) -> Pair {
    // SAFETY: passed on to the caller.
    unsafe { fail(cx, Failure::Trap(trap)) }
}

/// # Safety
/// As [`fail`].
#[cold]
unsafe fn panicked(cx: *mut Context, payload: Box<dyn Any + Send>) -> Pair {
    // SAFETY: passed on to the caller.
    unsafe { fail(cx, Failure::HostPanic(payload)) }
}

/// Leaves a reason for the machine.
///
/// # Safety
/// `cx` points to a context that no reference is in use of.
pub(super) unsafe fn fail(cx: *mut Context, failure: Failure) -> Pair {
    // SAFETY: the caller promises it.
    unsafe { (*cx).failure = Some(failure) };
    Pair { value: 0, status: 2 }
}
