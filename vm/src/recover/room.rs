//! How much native stack is left, and another stack to continue with where that is too little.
//!
//! Native code runs on a stack whose size follows from its limits. Rust code runs on its caller's stack: a thread may
//! have been started with 64 KiB, and host functions that call back into programs nest. Where code is about
//! to need stack it calls [`stack_left`], and continues by [`on_stack`] or ends with a trap.
#![expect(unsafe_code, reason = "calls native code, and handles its signals")]

use std::any::Any;
use std::cell::Cell;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr;

use super::{NativeStack, StackRange, gate_stack, switch_stack};

/// A stack that [`on_stack`] has switched to; lives in the frame that did.
struct Switched {
    range: StackRange,
    previous: *const Switched,
}

thread_local! {
    /// The thread's own stack; empty if the system does not say. `None` until it has been asked.
    static OWN: Cell<Option<StackRange>> = const { Cell::new(None) };
    /// The innermost stack that this thread has switched to.
    static SWITCHED: Cell<*const Switched> = const { Cell::new(ptr::null()) };
}

/// Bytes of native stack below the caller's frame. `None` if the stack is not one that this module knows: neither the
/// thread's own, nor one of [`on_stack`] or of a [`EntryGate`](super::EntryGate).
#[inline]
pub fn stack_left() -> Option<usize> {
    let sp = here();
    OWN.get().and_then(|own| own.below(sp)).or_else(|| on_other_stack(sp))
}

/// An address in the caller's frame, or right below it.
#[inline(always)]
pub fn here() -> u64 {
    let local = 0u8;
    ptr::from_ref(std::hint::black_box(&local)).addr() as u64
}

#[cold]
#[inline(never)]
fn on_other_stack(sp: u64) -> Option<usize> {
    let mut switched = SWITCHED.get();
    // SAFETY: what is on the chain lives in frames that have not returned.
    while let Some(stack) = unsafe { switched.as_ref() } {
        if let Some(left) = stack.range.below(sp) {
            return Some(left);
        }
        switched = stack.previous;
    }
    if let Some(stack) = gate_stack(sp) {
        return stack.below(sp);
    }
    let own = OWN.get().unwrap_or_else(|| own_stack().unwrap_or(StackRange::EMPTY));
    OWN.set(Some(own));
    own.below(sp)
}

/// The range of the calling thread's stack, without its guard.
#[cfg(target_os = "linux")]
fn own_stack() -> Option<StackRange> {
    // SAFETY: all zeroes is a valid attribute object to be overwritten.
    let mut attributes: libc::pthread_attr_t = unsafe { std::mem::zeroed() };
    // SAFETY: the calling thread is alive, and the object is ours.
    if unsafe { libc::pthread_getattr_np(libc::pthread_self(), &raw mut attributes) } != 0 {
        return None;
    }
    let (mut low, mut len) = (ptr::null_mut(), 0);
    // SAFETY: the call above has filled the object, which is destroyed once.
    let known = unsafe {
        let known = libc::pthread_attr_getstack(&raw const attributes, &raw mut low, &raw mut len) == 0;
        libc::pthread_attr_destroy(&raw mut attributes);
        known
    };
    known.then(|| StackRange { low: low as u64, high: low as u64 + len as u64 })
}

#[cfg(not(target_os = "linux"))]
fn own_stack() -> Option<StackRange> {
    None
}

/// What [`on_stack`] runs on the other stack.
struct Job<F, R> {
    work: Option<F>,
    result: Option<Result<R, Box<dyn Any + Send>>>,
}

/// Does some work on another stack; a panic of it continues here. On targets without generated code, on this one.
///
/// Nothing else may be running on `stack`.
pub fn on_stack<R>(stack: &mut NativeStack, work: impl FnOnce() -> R) -> R {
    let switched = Switched { range: stack.range(), previous: SWITCHED.get() };
    let mut job = Job { work: Some(work), result: None };
    SWITCHED.set(&raw const switched);
    switch(stack, &mut job);
    SWITCHED.set(switched.previous);
    job.result.expect("the job has run").unwrap_or_else(|panic| resume_unwind(panic))
}

fn switch<F: FnOnce() -> R, R>(stack: &mut NativeStack, job: &mut Job<F, R>) {
    extern "C" fn run<F: FnOnce() -> R, R>(job: *mut ()) {
        // SAFETY: `switch` passes its own argument, and does not use it meanwhile.
        let job = unsafe { &mut *job.cast::<Job<F, R>>() };
        let work = job.work.take().expect("it runs once");
        job.result = Some(catch_unwind(AssertUnwindSafe(work)));
    }
    // SAFETY: the stack is borrowed exclusively, so nothing runs on it; `run` does not unwind, and gets what it expects.
    unsafe { switch_stack(ptr::from_mut(job).cast(), run::<F, R>, stack.top()) };
}

/// Bytes of a stack that [`with_stack`] makes.
const AMPLE: usize = 8 << 20;

/// Does some work with at least `need` bytes of native stack, at most 7 MiB: here, or on a stack made for it.
///
/// # Errors
/// The system has no memory for a stack.
pub fn with_stack<R>(need: usize, work: impl FnOnce() -> R) -> io::Result<R> {
    if !super::AVAILABLE || stack_left().is_some_and(|left| left >= need) {
        return Ok(work());
    }
    let mut stack = NativeStack::new(AMPLE).map_err(|error| {
        io::Error::new(error.kind(), format!("no memory for a native stack of {} MiB: {error}", AMPLE >> 20))
    })?;
    Ok(on_stack(&mut stack, work))
}

#[cfg(all(test, target_arch = "x86_64", target_os = "linux"))]
mod tests {
    use std::panic::catch_unwind;
    use std::thread;

    use super::*;

    #[test]
    fn a_thread_knows_what_is_left_of_its_stack() {
        let thread = thread::Builder::new().stack_size(256 << 10);
        let left = thread.spawn(|| stack_left().expect("a thread's own stack")).expect("a thread").join().unwrap();
        assert!((128 << 10..256 << 10).contains(&left), "{left}");
        let before = stack_left().expect("a thread's own stack");
        let deeper = std::hint::black_box(|| {
            let bytes = std::hint::black_box([0u8; 4096]);
            let left = stack_left().expect("the same stack");
            std::hint::black_box(bytes);
            left
        })();
        assert!(deeper <= before, "{deeper} of {before}");
    }

    #[test]
    fn work_goes_on_on_another_stack_and_comes_back() {
        let mut stack = NativeStack::new(1 << 20).unwrap();
        let (range, len) = (stack.range(), stack.range().size());
        let own = here();
        let (there, left) = on_stack(&mut stack, || (here(), stack_left().expect("known")));
        assert!(range.contains(there));
        assert!(left > len - 4096 && left < len, "{left} of {len}");
        assert!(own.abs_diff(here()) < 4096);
        // Stacks nest, and each is known while it is in use.
        let mut inner = NativeStack::new(64 << 10).unwrap();
        let lefts = on_stack(&mut stack, || {
            let inside = on_stack(&mut inner, || stack_left().expect("known"));
            (inside, stack_left().expect("known"))
        });
        assert!(lefts.0 < 64 << 10 && lefts.1 > 900 << 10, "{lefts:?}");
    }

    #[test]
    fn a_panic_comes_back_from_another_stack() {
        let mut stack = NativeStack::new(1 << 20).unwrap();
        let result = catch_unwind(AssertUnwindSafe(|| on_stack(&mut stack, || panic!("over there"))));
        assert_eq!(result.unwrap_err().downcast_ref::<&str>(), Some(&"over there"));
        assert!(SWITCHED.get().is_null());
        assert_eq!(on_stack(&mut stack, || 7), 7);
    }

    #[test]
    fn a_small_thread_gets_a_stack_for_large_work() {
        let thread = thread::Builder::new().stack_size(64 << 10);
        let left = thread.spawn(|| with_stack(1 << 20, || stack_left().expect("known")).unwrap()).unwrap();
        assert!(left.join().unwrap() >= 1 << 20);
        let same = with_stack(1, here).unwrap();
        assert!(same.abs_diff(here()) < 64 << 10);
    }
}
