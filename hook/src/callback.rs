//! What hooks run.

use std::any::Any;
use std::ffi::c_void;
use std::fmt;
use std::sync::Arc;

use crate::Call;

/// A function that a hook calls, with what [`Callback::new`] got as `data`. It does not unwind.
pub type Entry = unsafe extern "C" fn(call: *mut Call, data: *mut c_void);

/// What a callback can do at once ([`Callback::with_fast_path`]): 0, and all is done; any other number, and the callback
/// runs after it and finds that number as [`Call::unfinished`].
pub type FastPath = unsafe extern "C" fn(call: *mut Call, data: *mut c_void) -> u32;

/// When a callback runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Point {
    /// Before the function's first instruction.
    Entry,
    /// After its last: when it returns, and not when an exception or `longjmp` leaves it.
    Return,
}

/// A function to call, its data, and what it needs.
#[derive(Clone)]
pub struct Callback {
    pub(crate) entry: Entry,
    pub(crate) data: *mut c_void,
    pub(crate) fast_path: Option<FastPath>,
    pub(crate) registers: bool,
    pub(crate) vectors: bool,
    pub(crate) floats: bool,
    pub(crate) keeps: Option<Arc<dyn Any + Send + Sync>>,
}

// SAFETY: `new` has its callers promise that the data can be used on every thread.
#[expect(unsafe_code, reason = "a pointer that callers promise something about")]
unsafe impl Send for Callback {}
// SAFETY: as above.
#[expect(unsafe_code, reason = "a pointer that callers promise something about")]
unsafe impl Sync for Callback {}

impl Callback {
    /// A callback that gets the arguments in registers.
    ///
    /// # Safety
    ///
    /// `entry` may be called with `data` on any thread, on several at once, and in the place of any function it is
    /// attached to: also where that runs in a signal handler, or in the C library with its locks held. It does not unwind and
    /// does not `longjmp` out.
    #[expect(unsafe_code, reason = "the caller promises")]
    pub unsafe fn new(entry: Entry, data: *mut c_void) -> Callback {
        Callback { entry, data, fast_path: None, registers: false, vectors: true, floats: true, keeps: None }
    }

    /// A callback that calls `function`, as `new` else.
    ///
    /// # Safety
    ///
    /// As [`Callback::new`]; a panic ends the process.
    #[expect(unsafe_code, reason = "the caller promises")]
    pub unsafe fn of<F: Fn(&mut Call) + Send + Sync + 'static>(function: F) -> Callback {
        unsafe extern "C" fn call<F: Fn(&mut Call)>(call: *mut Call, data: *mut c_void) {
            // SAFETY: the trampoline passes a call, and `data` is the function, which the callback keeps.
            unsafe { (*data.cast::<F>())(&mut *call) }
        }
        let function = Arc::new(function);
        let data = Arc::as_ptr(&function).cast_mut().cast();
        // SAFETY: the caller promises, and `keeps` has the function.
        Callback { keeps: Some(function), ..unsafe { Callback::new(call::<F>, data) } }
    }

    /// It gets all registers, and what it writes there takes effect.
    #[must_use]
    pub fn with_registers(mut self) -> Callback {
        self.registers = true;
        self
    }

    /// It does no floating-point arithmetic, so that the trampoline need not save `mxcsr`. Copies by vector registers
    /// are none.
    ///
    /// # Safety
    ///
    /// That is so, in all that it calls.
    #[must_use]
    #[expect(unsafe_code, reason = "the caller promises")]
    pub unsafe fn without_floats(mut self) -> Callback {
        self.floats = false;
        self
    }

    /// It leaves vector registers and `mxcsr` alone, so that the trampoline need not save them.
    ///
    /// # Safety
    ///
    /// That is so, in all that it calls: a copy of 16 bytes may use such a register.
    #[must_use]
    #[expect(unsafe_code, reason = "the caller promises")]
    pub unsafe fn without_vectors(mut self) -> Callback {
        self.vectors = false;
        self
    }

    /// Calls `fast_path` first, in a trampoline that has saved neither vector registers nor `errno`. Unless the callback has all
    /// registers, its call has the arguments, and nothing else.
    ///
    /// # Safety
    ///
    /// `fast_path` may be called as the callback, with the same data, and leaves `errno`, `mxcsr`, vector and x87 registers
    /// alone: see [`leaves_vectors_alone`](crate::leaves_vectors_alone).
    #[must_use]
    #[expect(unsafe_code, reason = "the caller promises")]
    pub unsafe fn with_fast_path(mut self, fast_path: FastPath) -> Callback {
        self.fast_path = Some(fast_path);
        self
    }

    /// Keeps something until no call can run the callback any more.
    #[must_use]
    pub fn keeping(mut self, what: Arc<dyn Any + Send + Sync>) -> Callback {
        self.keeps = Some(match self.keeps.take() {
            Some(before) => Arc::new((before, what)),
            None => what,
        });
        self
    }
}

impl fmt::Debug for Callback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let registers = if self.registers { "all registers" } else { "arguments" };
        write!(f, "Callback {:p} of {:p} with {registers}", self.entry, self.data)
    }
}
