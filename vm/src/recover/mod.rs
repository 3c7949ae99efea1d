//! Recovery from faults in native code: a program's bad pointer, an endless loop that must stop, a fault inside a C
//! function become values, and the process continues.
//!
//! - [`enter`] calls generated code through a [`EntryGate`]. A fault in a registered [`CodeRange`], a timeout signal there, or a fault in a
//!   C function that generated code has called ends the call with an [`Abort`].
//! - [`call_c`] calls a C function from Rust likewise.
//! - [`load`], [`store`] and [`compare_exchange`] access any address and give a [`Fault`] where nothing is.
//! - [`call_back`] is for C code that calls what it was given as a function's address: a trap in there ends the C
//!   function that did it, and the call of [`enter`] or [`call_c`] it was running under.
//!
//! Signal handlers for SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGURG are installed on first use, and again over handlers
//! that the host has installed since, when a thread is prepared ([`prepare_thread`]). What is not ours goes to the
//! handler that was there before, with all details of the fault. A thread that blocks these signals unblocks them while
//! it runs programs. Only frames of generated code and of C functions are ever skipped, never one of Rust: calls of
//! Rust functions by generated code leave [`Owner::in_c`] at zero, and a callback stands as a barrier on the chain of
//! records. Nor is a frame of a signal handler that runs on the alternate stack.
//!
//! There is no recovery from a fault in Rust code. After `fork`, the child can do all of this at once: nothing here takes
//! a lock. Generated code can be entered on x86-64 Linux only ([`AVAILABLE`]); elsewhere C functions are
//! called without recovery, and raw accesses are refused.

use std::fmt;
use std::sync::Arc;

use crate::trap::{Trap, TrapCode};

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod activation;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod asm;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod callback;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod prepare;
#[cfg_attr(
    not(all(target_arch = "x86_64", target_os = "linux")),
    allow(dead_code, reason = "there is no generated code to look for")
)]
mod range;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod raw;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod record;
mod room;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod signal;
mod stack;
mod thread;
#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
mod unsupported;

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub use activation::{
    Ended, EntryGate, Idle, call_c, enter, enter_again, enter_first, entry_trampoline, idle, variadic,
};
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
use asm::switch_stack;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub use callback::call_back;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub use prepare::{Unblocked, check_thread, keep_loaded, prepare_thread, unblock};
pub use range::CodeRange;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub use raw::{compare_exchange, load, store};
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
use record::gate_stack;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub use record::is_inside;
pub use room::{here, on_stack, stack_left, with_stack};
pub use stack::{NativeStack, StackRange};
pub use thread::{Thread, leave_signals_to_others};
#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
pub use unsupported::{
    Ended, EntryGate, Idle, Unblocked, call_back, call_c, check_thread, compare_exchange, enter, enter_again,
    enter_first, entry_trampoline, idle, is_inside, keep_loaded, load, prepare_thread, store, unblock, variadic,
};
#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
use unsupported::{gate_stack, switch_stack};

/// Whether generated code can be entered on this target.
pub const AVAILABLE: bool = cfg!(all(target_arch = "x86_64", target_os = "linux"));

/// Bytes of stack between a caller of generated code and that code, where both are on one stack. When the code has ended early, its
/// frames are still read, to say who called whom, and what does that runs on the stack of the caller.
pub(crate) const CLEARANCE: usize = 16 << 10;

/// A signal that native code can end with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Signal {
    /// No memory there, or not for that.
    Segv,
    /// A mapped file is shorter than its mapping.
    Bus,
    /// An integer division that the CPU refuses.
    Fpe,
    /// An instruction that traps.
    Ill,
    /// The run is to end.
    Urg,
}

impl Signal {
    /// As in `signal(7)`.
    pub const fn name(self) -> &'static str {
        match self {
            Signal::Segv => "SIGSEGV",
            Signal::Bus => "SIGBUS",
            Signal::Fpe => "SIGFPE",
            Signal::Ill => "SIGILL",
            Signal::Urg => "SIGURG",
        }
    }
}

/// A signal that ended native code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The signal that arrived.
    pub signal: Signal,
    /// Native address of the instruction.
    pub pc: u64,
    /// Address that was accessed, for SIGSEGV and SIGBUS; `None` where the CPU does not report it: it does not for
    /// addresses that are not sign-extended from 48 bits.
    pub address: Option<u64>,
    /// Native frame pointer.
    pub frame: u64,
    /// Where `pc` was: 0 for generated code, else [`Owner::in_c`], or [`IN_C`] for [`call_c`].
    pub in_c: u32,
}

/// Why faults of programs may end the process on a thread ([`prepare_thread`]).
#[derive(Clone, Debug, thiserror::Error)]
pub enum Unprepared {
    /// The host has installed handlers after ours again and again, without end.
    #[error(
        "the handler of {} has been replaced by too many others; let the one that is in force pass on what it does not \
         handle to the one it has replaced, and install it once", signal.name()
    )]
    Replaced {
        /// Of which signal.
        signal: Signal,
    },
    /// There is no memory for an alternate signal stack: an overflow of the native stack ends the process.
    #[error("this thread has no alternate signal stack of a sufficient size, and cannot get one: {0}")]
    NoStack(#[source] Arc<std::io::Error>),
}

/// [`Fault::in_c`] of a fault under [`call_c`].
pub const IN_C: u32 = u32::MAX;

/// What of a C function's type its argument registers do not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form {
    /// It ends in `...`.
    pub variadic: bool,
    /// Its result is a floating-point number.
    pub float: bool,
}

/// Why native code did not return.
#[derive(Debug)]
pub enum Abort {
    /// A signal ended it.
    Fault(Fault),
    /// It was a C function, and a callback of it ended with this trap.
    Trap(Trap),
}

/// Calls the function at an address that a program gave away, for the machine that is running: `data` of
/// [`Owner`], the address, and the argument registers.
pub type Callback = unsafe fn(data: *mut (), function: u64, args: &[u64; 5]) -> Result<u64, Trap>;

/// What signals and callbacks must know of the machine whose native code is called.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Owner {
    /// Not zero while generated code has a C function running. Reset when a call ends with an [`Abort`].
    pub in_c: *mut u32,
    /// Not zero when the run is to end.
    pub interrupt: *const u8,
    /// First argument of `call`.
    pub data: *mut (),
    /// Runs the callbacks of C functions.
    pub call: Callback,
}

impl Fault {
    /// What the fault says in a trap: signal and address.
    pub fn detail(&self) -> String {
        match (self.signal, self.address) {
            (Signal::Segv | Signal::Bus, Some(address)) => format!("{} at address {address:#x}", self.signal.name()),
            (Signal::Segv | Signal::Bus, None) => {
                format!("{} at an address that no memory can have", self.signal.name())
            }
            (Signal::Fpe | Signal::Ill | Signal::Urg, _) => self.signal.name().to_owned(),
        }
    }

    /// The trap of a fault inside a C function of this name.
    pub fn in_function(&self, name: &str) -> Trap {
        Trap::new(TrapCode::HostFault, format!("{name}: {}", self.detail()))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail())
    }
}

#[cfg(all(test, target_arch = "x86_64", target_os = "linux"))]
mod tests;
