//! The process: which limits it has, and what a child process must not take over from the process that forked it: locks
//! that threads of the parent hold, and threads that do not exist there.
#![expect(unsafe_code, reason = "runs at fork, and keeps values of the process in raw pointers")]

use std::fmt;
use std::io;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
use std::thread;

/// The error of a call that requested so many bytes of address space, with the limit that may be the reason.
pub fn refused_addresses(what: &str, bytes: usize, error: &io::Error) -> io::Error {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` lives across the call, which fills it in.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_AS, &raw mut limit) } == 0;
    let why = match limit.rlim_cur {
        libc::RLIM_INFINITY => String::new(),
        _ if !known => String::new(),
        bytes => format!("; the limit of this process is {bytes} bytes (RLIMIT_AS, ulimit -v)"),
    };
    io::Error::new(error.kind(), format!("{what} takes {bytes} bytes of address space: {error}{why}"))
}

/// Bytes that a thread takes beyond its stack before it runs anything.
pub const THREAD_START: usize = 512 << 10;

/// A builder of a thread with that many bytes of stack, if there is memory for it. The standard library aborts the process
/// where a thread that began has no memory for its signal stack.
///
/// # Errors
/// There is less than `stack` and [`THREAD_START`].
pub fn thread(name: &str, stack: usize) -> io::Result<thread::Builder> {
    let (len, flags) = (stack + THREAD_START, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE);
    // SAFETY: a fresh mapping at an address of the kernel's choice touches no existing memory.
    let base = unsafe { libc::mmap(ptr::null_mut(), len, libc::PROT_NONE, flags, -1, 0) };
    if base == libc::MAP_FAILED {
        return Err(refused_addresses("a thread", len, &io::Error::last_os_error()));
    }
    // SAFETY: nothing refers to the mapping.
    unsafe { libc::munmap(base, len) };
    Ok(thread::Builder::new().name(name.to_owned()).stack_size(stack))
}

/// As [`thread()`], for compiling.
///
/// # Errors
/// There is no memory for it.
pub fn compiler_thread() -> io::Result<thread::Builder> {
    thread("twinbpf-compiler", 2 << 20)
}

/// How many forks lie between this process and the first caller's process.
static GENERATION: AtomicU32 = AtomicU32::new(0);

extern "C" fn child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// Another number in a child process than in its parent. Costs a load from memory.
fn generation() -> u32 {
    static REGISTERED: AtomicBool = AtomicBool::new(false);
    // Not a `Once`: a fork may find another thread in it.
    if !REGISTERED.load(Ordering::Relaxed) && !REGISTERED.swap(true, Ordering::Relaxed) {
        // SAFETY: the handler adds to a number. It stays loaded as long as this library, of which the C library knows.
        unsafe { libc::pthread_atfork(None, None, Some(child)) };
    }
    GENERATION.load(Ordering::Relaxed)
}

/// A value that each process has for itself: a child process finds its default. What the parent had stays allocated there,
/// untouched, since another thread of the parent may have been at work on it.
pub struct PerProcess<T> {
    current: AtomicPtr<Generation<T>>,
}

struct Generation<T> {
    number: u32,
    value: T,
}

impl<T: Default + Send + Sync> PerProcess<T> {
    /// No value yet: each process makes its own.
    pub const fn new() -> PerProcess<T> {
        PerProcess { current: AtomicPtr::new(ptr::null_mut()) }
    }

    /// This process's value, made when it is first needed.
    pub fn get(&self) -> &T {
        self.existing().unwrap_or_else(|| self.make())
    }

    /// This process's value, if it has one.
    pub fn existing(&self) -> Option<&T> {
        self.of_this_process(self.current.load(Ordering::Acquire))
    }

    fn of_this_process(&self, current: *mut Generation<T>) -> Option<&T> {
        // SAFETY: null, or from `make`; it is freed by `drop` only.
        let current = unsafe { current.as_ref() };
        current.filter(|current| current.number == generation()).map(|current| &current.value)
    }

    #[cold]
    fn make(&self) -> &T {
        let old = self.current.load(Ordering::Acquire);
        if let Some(value) = self.of_this_process(old) {
            return value;
        }
        let new = Box::into_raw(Box::new(Generation { number: generation(), value: T::default() }));
        // A thread of this process may have been faster; threads of the parent are not here.
        let current = match self.current.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => new,
            Err(current) => {
                // SAFETY: made above, and never shared.
                drop(unsafe { Box::from_raw(new) });
                current
            }
        };
        // SAFETY: not null, and as in `existing`.
        unsafe { &(*current).value }
    }
}

impl<T: Default + Send + Sync> Default for PerProcess<T> {
    fn default() -> PerProcess<T> {
        PerProcess::new()
    }
}

impl<T> Drop for PerProcess<T> {
    fn drop(&mut self) {
        let current = *self.current.get_mut();
        // SAFETY: null, or from `make`.
        if unsafe { current.as_ref() }.is_some_and(|current| current.number == generation()) {
            // SAFETY: the same, and `&mut self` excludes borrows.
            drop(unsafe { Box::from_raw(current) });
        }
    }
}

impl<T: Default + Send + Sync + fmt::Debug> fmt::Debug for PerProcess<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PerProcess").field(&self.existing()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    static NUMBER: PerProcess<Mutex<u32>> = PerProcess::new();

    #[test]
    fn a_child_does_not_wait_for_a_lock_that_its_parent_holds() {
        assert!(NUMBER.existing().is_none());
        let mut held = NUMBER.get().lock().unwrap();
        *held = 7;
        // SAFETY: the child allocates, which the C library allows for, and ends without running anything of the parent's.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let fresh = NUMBER.existing().is_none() && *NUMBER.get().lock().unwrap() == 0;
            // SAFETY: ends the child.
            unsafe { libc::_exit(i32::from(!fresh)) };
        }
        let mut status = 0;
        // SAFETY: `status` lives across the call.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!((libc::WIFEXITED(status), libc::WEXITSTATUS(status)), (true, 0));
        drop(held);
        assert_eq!(*NUMBER.get().lock().unwrap(), 7);
    }

    #[test]
    fn threads_find_the_same_value() {
        let value = PerProcess::<AtomicU32>::new();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| value.get().fetch_add(1, Ordering::Relaxed));
            }
        });
        assert_eq!(value.get().load(Ordering::Relaxed), 8);
    }
}
