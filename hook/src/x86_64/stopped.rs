//! Changes code while every other thread is stopped.
//!
//! A child that shares this process's memory, as of `vfork`, stops the threads by ptrace, moves those that are between
//! instructions that change, writes, and lets go. No signal reaches the program, so that it does not matter what a thread blocks:
//! those that start and end block everything. The thread that changes code waits for the child in the kernel.
//!
//! Where ptrace is not allowed, or a debugger has the threads already, nothing is changed. The child takes no memory
//! from the allocator, of which a stopped thread may hold the lock.
#![expect(unsafe_code, reason = "ptrace, and a child on a stack of its own")]

use std::ffi::{c_int, c_void};
use std::io::{self, Write};
use std::ptr;
use std::time::{Duration, Instant};

use super::sys;

const STACK: usize = 0x10000;
/// Most threads. With more, places change with breakpoints.
const THREADS: usize = 4096;
const PATIENCE: Duration = Duration::from_secs(2);
const EVENT_STOP: c_int = 128;

/// A thread that is stopped, and the signal that stopped it, which it gets when it goes on.
#[derive(Clone, Copy)]
struct Stopped {
    tid: libc::pid_t,
    signal: c_int,
}

/// What the child needs, and what became of it.
struct Job<'a> {
    process: libc::pid_t,
    /// The thread that waits.
    own: libc::pid_t,
    stopped: Vec<Stopped>,
    /// Since the list of threads was last read from its start, one of them was found to have ended.
    any_ended: bool,
    /// From an address between instructions to where such a thread goes on.
    redirects: &'a [(u64, u64)],
    write: &'a dyn Fn(),
    result: Result<(), c_int>,
}

/// Runs `write` while all other threads are stopped, or not at all.
pub(super) fn change(redirects: &[(u64, u64)], write: &dyn Fn()) -> io::Result<()> {
    match attempt(redirects, write) {
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
            // Yama lets a process be traced by its parents only, unless it says otherwise.
            // SAFETY: no pointers.
            unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY) };
            let result = attempt(redirects, write);
            // SAFETY: as above.
            unsafe { libc::prctl(libc::PR_SET_PTRACER, 0) };
            result
        }
        result => result,
    }
}

fn attempt(redirects: &[(u64, u64)], write: &dyn Fn()) -> io::Result<()> {
    let stack = sys::zeroed(STACK).ok_or_else(io::Error::last_os_error)?;
    let mut job = Job {
        process: std::process::id() as libc::pid_t,
        own: sys::tid() as libc::pid_t,
        stopped: Vec::with_capacity(THREADS),
        any_ended: false,
        redirects,
        write,
        result: Err(libc::EAGAIN),
    };
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_FILES | libc::CLONE_FS;
    // SAFETY: the child runs on its own stack and this thread waits for its end; no handler runs in it, as signals are blocked.
    let child = unsafe {
        let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        let child = libc::clone(run, stack.byte_add(STACK), flags, (&raw mut job).cast());
        let error = io::Error::last_os_error();
        if child > 0 {
            libc::waitpid(child, ptr::null_mut(), libc::__WALL);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut());
        if child > 0 { Ok(()) } else { Err(error) }
    };
    sys::release(stack, STACK);
    child?;
    job.result.map_err(io::Error::from_raw_os_error)
}

extern "C" fn run(job: *mut c_void) -> c_int {
    // SAFETY: `attempt` passes it, and waits.
    let job = unsafe { &mut *job.cast::<Job>() };
    job.result = job.stop_all();
    if job.result.is_ok() {
        job.stopped.iter().for_each(|thread| redirect(thread.tid, job.redirects));
        (job.write)();
    }
    for thread in &job.stopped {
        // SAFETY: it is stopped, and ours.
        unsafe { libc::ptrace(libc::PTRACE_DETACH, thread.tid, 0, thread.signal) };
    }
    0
}

impl Job<'_> {
    /// Threads that come meanwhile are of threads that are not stopped yet: it ends with a list without new ones. The
    /// kernel's list may end at a thread that is ending: such a list counts for nothing.
    fn stop_all(&mut self) -> Result<(), c_int> {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            let before = self.stopped.len();
            self.any_ended = false;
            self.each_thread()?;
            if self.stopped.len() == before && !self.any_ended {
                return Ok(());
            }
        }
        Err(libc::EBUSY)
    }

    fn each_thread(&mut self) -> Result<(), c_int> {
        let mut path = [0; 64];
        let folder = path_of(&mut path, self.process, None);
        // SAFETY: a path with its NUL; closed below.
        let fd = unsafe { libc::open(folder, libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC) };
        if fd < 0 {
            return Err(libc::EIO);
        }
        let result = self.each_entry(fd);
        // SAFETY: opened above.
        unsafe { libc::close(fd) };
        result
    }

    fn each_entry(&mut self, fd: c_int) -> Result<(), c_int> {
        #[repr(align(8))]
        struct Entries([u8; 4096]);
        let mut entries = Entries([0; 4096]);
        loop {
            // SAFETY: the kernel writes records there.
            let got = unsafe { libc::syscall(libc::SYS_getdents64, fd, entries.0.as_mut_ptr(), entries.0.len()) };
            if got <= 0 {
                return if got == 0 { Ok(()) } else { Err(libc::EIO) };
            }
            let mut rest = &entries.0[..got as usize];
            // struct linux_dirent64: length at 16, name at 19.
            while let Some(length) =
                rest.get(16..18).map(|length| usize::from(u16::from_le_bytes([length[0], length[1]])))
            {
                let Some(entry) = rest.get(..length).filter(|entry| entry.len() > 19) else { break };
                let digits = entry[19..].iter().take_while(|byte| byte.is_ascii_digit());
                let tid = digits.fold(0, |tid: libc::pid_t, digit| tid * 10 + libc::pid_t::from(digit - b'0'));
                if tid != 0 && tid != self.own && !self.stopped.iter().any(|thread| thread.tid == tid) {
                    self.stop(tid)?;
                }
                rest = &rest[length..];
            }
        }
    }

    fn stop(&mut self, tid: libc::pid_t) -> Result<(), c_int> {
        if self.stopped.len() == THREADS {
            return Err(libc::EAGAIN);
        }
        // SAFETY: no pointers.
        if unsafe { libc::ptrace(libc::PTRACE_SEIZE, tid, 0, 0) } != 0 {
            let error = errno();
            // Gone, or going.
            let has_ended = error == libc::ESRCH || has_ended(self.process, tid);
            // The first one stays in the list until the process ends.
            self.any_ended |= tid != self.process || error == libc::ESRCH;
            return if has_ended { Ok(()) } else { Err(error) };
        }
        // SAFETY: no pointers.
        unsafe { libc::ptrace(libc::PTRACE_INTERRUPT, tid, 0, 0) };
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mut status = 0;
            // SAFETY: the kernel writes the status.
            let waited = unsafe { libc::waitpid(tid, &raw mut status, libc::__WALL | libc::WNOHANG) };
            if waited == tid && libc::WIFSTOPPED(status) {
                let signal = if status >> 16 == EVENT_STOP { 0 } else { libc::WSTOPSIG(status) };
                self.stopped.push(Stopped { tid, signal });
                return Ok(());
            }
            if waited != 0 {
                self.any_ended = true;
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(libc::EBUSY);
            }
            // SAFETY: no arguments.
            unsafe { libc::sched_yield() };
        }
    }
}

fn errno() -> c_int {
    // SAFETY: this thread's, and that of the one which waits.
    unsafe { *libc::__errno_location() }
}

/// The folder of the threads, or the file that says how one is.
fn path_of(path: &mut [u8; 64], process: libc::pid_t, tid: Option<libc::pid_t>) -> *const libc::c_char {
    let mut rest = &mut path[..63];
    // It has the room.
    let _ = match tid {
        Some(tid) => write!(rest, "/proc/{process}/task/{tid}/stat\0"),
        None => write!(rest, "/proc/{process}/task\0"),
    };
    path.as_ptr().cast()
}

/// Whether a thread has ended and is still listed: the first one of a process that goes on without it.
fn has_ended(process: libc::pid_t, tid: libc::pid_t) -> bool {
    let (mut path, mut text) = ([0; 64], [0; 512]);
    let path = path_of(&mut path, process, Some(tid));
    // SAFETY: a path with its NUL, and a buffer of this length.
    let got = unsafe {
        let fd = libc::open(path, libc::O_RDONLY | libc::O_CLOEXEC);
        let got = libc::read(fd, text.as_mut_ptr().cast(), text.len());
        libc::close(fd);
        got
    };
    let text = &text[..got.max(0) as usize];
    // The name, which may have anything in it, ends with the last parenthesis.
    let state = text.iter().rposition(|byte| *byte == b')').and_then(|end| text.get(end + 2));
    state.is_none_or(|state| matches!(state, b'Z' | b'X'))
}

/// Moves a thread that is between instructions which change.
fn redirect(tid: libc::pid_t, redirects: &[(u64, u64)]) {
    // SAFETY: all bits zero are valid, and the kernel fills it; the thread is stopped.
    unsafe {
        let mut registers: libc::user_regs_struct = std::mem::zeroed();
        if libc::ptrace(libc::PTRACE_GETREGS, tid, 0, &raw mut registers) != 0 {
            return;
        }
        if let Ok(index) = redirects.binary_search_by_key(&registers.rip, |(from, _)| *from) {
            registers.rip = redirects[index].1;
            libc::ptrace(libc::PTRACE_SETREGS, tid, 0, &raw const registers);
        }
    }
}

#[cfg(test)]
mod tests;
