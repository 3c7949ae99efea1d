//! What a thread needs before native code runs on it: handlers in force, an alternate stack for them, and signals that
//! it does not block.
//!
//! A thread that blocks signals of ours is recorded in its chain of calls ([`super::record`]), which every call reads in
//! any case: such a thread unblocks them around its outermost call, and pays two system calls for it. Other threads pay
//! nothing.
#![expect(unsafe_code, reason = "calls native code, and handles its signals")]

use std::ffi::c_void;
use std::io;
use std::marker::PhantomData;
use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::record::{self, ThreadState};
use super::signal::{self, install};
use super::stack::NativeStack;
use super::{Signal, Unprepared};

/// What handlers take of an alternate stack, beside what the kernel puts there for each signal.
const HANDLER_STACK: usize = 8 << 10;
/// Signals that may arrive one in the handler of the other: a fault, and a profiler's.
const NESTED: usize = 2;
/// What an alternate stack of ours has for handlers of the host.
const ROOM: usize = 64 << 10;

/// Prepares the calling thread for native code, whatever it ran before: installs handlers over those that the host has
/// installed since, provides an alternate signal stack that is large enough, and reads the thread's signal mask. If it
/// blocks one of the signals of [`Signal`], later runs unblock those and block them again at their
/// end.
///
/// This happens by itself before the first native code of a thread. A host that changes masks, handlers or alternate
/// stacks later calls it again. Inside a run, as a host function does it, it holds for the runs that this makes: the
/// run around it needs its signals unblocked when the host function returns.
///
/// # Errors
/// The thread can run native code all the same, but some faults end the process.
pub fn prepare_thread() -> Result<(), Unprepared> {
    keep_loaded();
    let installed = Signal::ALL.into_iter().map(install).fold(Ok(()), Result::and);
    let stack = provide_stack().map_err(|error| Unprepared::NoStack(error.into()));
    record::set_thread_state(if any_blocked() { ThreadState::Blocked } else { ThreadState::Ready });
    installed.and(stack)
}

/// Before a thread waits for [`Thread::interrupt`](super::Thread::interrupt): reads its signal mask again if it has run
/// native code already, and sees that SIGURG has our handler. A thread that has not does all that when it first runs some.
pub fn check_thread() {
    if record::thread_state() == ThreadState::Unprepared {
        return;
    }
    report(install(Signal::Urg));
    record::set_thread_state(if any_blocked() { ThreadState::Blocked } else { ThreadState::Ready });
}

/// For callers that cannot return an error.
fn report(result: Result<(), Unprepared>) {
    if let Err(error) = result {
        log::error!("{error}");
    }
}

/// The signals of [`Signal`] are not blocked in this thread until this is dropped.
#[derive(Debug)]
pub struct Unblocked {
    /// The set bits are those of signals to be blocked again.
    blocked: u8,
    /// The thread's state before.
    state: ThreadState,
    /// Of one thread.
    thread: PhantomData<*const ()>,
}

/// For the time of a run: unblocks the signals of a thread that is known to block some. `None` for all others.
#[inline(always)]
pub fn unblock() -> Option<Unblocked> {
    if record::thread_state() == ThreadState::Blocked { Some(Unblocked::new(ThreadState::Blocked)) } else { None }
}

/// As [`unblock`], where faults are to be expected next; prepares the thread if need be.
#[cold]
#[inline(never)]
pub(super) fn ready() -> Unblocked {
    if record::thread_state() == ThreadState::Unprepared {
        report(prepare_thread());
    }
    Unblocked::new(record::thread_state())
}

impl Unblocked {
    #[cold]
    #[inline(never)]
    fn new(state: ThreadState) -> Unblocked {
        let blocked = match state {
            ThreadState::Blocked => change_mask(libc::SIG_UNBLOCK, u8::MAX),
            ThreadState::Ready | ThreadState::Unprepared => 0,
        };
        record::set_thread_state(ThreadState::Ready);
        Unblocked { blocked, state, thread: PhantomData }
    }
}

impl Drop for Unblocked {
    fn drop(&mut self) {
        record::set_thread_state(self.state);
        if self.blocked != 0 {
            change_mask(libc::SIG_BLOCK, self.blocked);
        }
    }
}

/// Changes whether signals are blocked that the bits of `which` stand for; gives those that were, of all of [`Signal`].
fn change_mask(how: i32, which: u8) -> u8 {
    // SAFETY: both sets are filled in by these calls before they are read.
    unsafe {
        let (mut set, mut old) = (mem::zeroed::<libc::sigset_t>(), mem::zeroed::<libc::sigset_t>());
        libc::sigemptyset(&raw mut set);
        for signal in Signal::ALL.into_iter().filter(|signal| which & 1 << *signal as u8 != 0) {
            libc::sigaddset(&raw mut set, signal.number());
        }
        libc::pthread_sigmask(how, &raw const set, &raw mut old);
        let blocked = |signal: &Signal| libc::sigismember(&raw const old, signal.number()) == 1;
        Signal::ALL.into_iter().filter(blocked).fold(0, |bits, signal| bits | 1 << signal as u8)
    }
}

fn any_blocked() -> bool {
    change_mask(libc::SIG_BLOCK, 0) != 0
}

fn alternate_stack() -> libc::stack_t {
    // SAFETY: all zeroes is a valid stack_t; the call only writes it.
    unsafe {
        let mut stack: libc::stack_t = mem::zeroed();
        libc::sigaltstack(ptr::null(), &raw mut stack);
        stack
    }
}

/// Gives the thread an alternate stack if it has none, or one that is too small for a handler.
fn provide_stack() -> io::Result<()> {
    // SAFETY: reads a number.
    let frame = unsafe { libc::getauxval(libc::AT_MINSIGSTKSZ) } as usize;
    let old = alternate_stack();
    let fits = old.ss_flags & libc::SS_DISABLE == 0 && old.ss_size >= NESTED * frame + HANDLER_STACK;
    // A handler of the host that runs a program is on it, and cannot have another.
    if fits || old.ss_flags & libc::SS_ONSTACK != 0 {
        return Ok(());
    }
    let key = stack_key()?;
    // SAFETY: the key is ours, and its value null or a stack that `free_stack` has not freed.
    let known = unsafe { libc::pthread_getspecific(key).cast::<NativeStack>().as_ref() };
    let stack = match known {
        Some(stack) => stack,
        None => {
            let new = Box::into_raw(Box::new(NativeStack::new(NESTED * frame + ROOM)?));
            // SAFETY: the key is ours; the value lives until the key's destructor or the lines below free it.
            let result = unsafe { libc::pthread_setspecific(key, new.cast::<c_void>().cast_const()) };
            if result != 0 {
                // SAFETY: made above, and never shared.
                drop(unsafe { Box::from_raw(new) });
                return Err(io::Error::from_raw_os_error(result));
            }
            // SAFETY: only the destructor of the key frees it.
            unsafe { &*new }
        }
    };
    let range = stack.range();
    let new = libc::stack_t { ss_sp: range.low as *mut c_void, ss_flags: 0, ss_size: range.size() };
    // SAFETY: the memory is for this alone, and `free_stack` takes it back before it goes.
    match unsafe { libc::sigaltstack(&raw const new, ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The key of a thread's alternate stack. Not a `thread_local`: destructors of those may run programs, and this one runs
/// after all of them.
fn stack_key() -> io::Result<libc::pthread_key_t> {
    /// The key and 1.
    static KEY: AtomicUsize = AtomicUsize::new(0);
    let known = KEY.load(Ordering::Acquire);
    if known != 0 {
        return Ok((known - 1) as libc::pthread_key_t);
    }
    let mut key: libc::pthread_key_t = 0;
    // SAFETY: writes the key; the destructor takes what `provide_stack` sets.
    let result = unsafe { libc::pthread_key_create(&raw mut key, Some(free_stack)) };
    if result != 0 {
        return Err(io::Error::from_raw_os_error(result));
    }
    match KEY.compare_exchange(0, key as usize + 1, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => Ok(key),
        Err(other) => {
            // SAFETY: made above; no thread has set it.
            unsafe { libc::pthread_key_delete(key) };
            Ok((other - 1) as libc::pthread_key_t)
        }
    }
}

/// A thread ends that has an alternate stack of ours.
unsafe extern "C" fn free_stack(stack: *mut c_void) {
    // SAFETY: what `provide_stack` has leaked; the key has forgotten it.
    let stack = unsafe { Box::from_raw(stack.cast::<NativeStack>()) };
    if alternate_stack().ss_sp as u64 == stack.range().low {
        let off = libc::stack_t { ss_sp: ptr::null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };
        // SAFETY: runs on the thread whose stack it is, outside any handler.
        unsafe { libc::sigaltstack(&raw const off, ptr::null_mut()) };
    }
    // Another destructor may run a program yet.
    record::set_thread_state(ThreadState::Unprepared);
}

/// Keeps the shared library that this code is part of from being unloaded: handlers, destructors and threads of ours
/// may run at any time. Does nothing in an executable.
pub fn keep_loaded() {
    static DONE: AtomicBool = AtomicBool::new(false);
    if DONE.swap(true, Ordering::Relaxed) {
        return;
    }
    // SAFETY: `dladdr` fills in `found` if it says so, with a name that is valid as long as this code is loaded; with
    // RTLD_NOLOAD, `dlopen` runs no code.
    unsafe {
        let mut found: libc::Dl_info = mem::zeroed();
        if libc::dladdr(signal::address_of_handler(), &raw mut found) == 0 || found.dli_fname.is_null() {
            return;
        }
        let flags = libc::RTLD_NOW | libc::RTLD_NOLOAD | libc::RTLD_NODELETE;
        // An executable may not be found by its name, and needs none of this.
        libc::dlopen(found.dli_fname, flags);
    }
}
