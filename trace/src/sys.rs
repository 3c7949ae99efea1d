//! System calls of a session that the standard library has not: fork without exec, pid descriptors, timers, poll.
#![expect(unsafe_code, reason = "calls of the C library")]

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use signal_hook::low_level::emulate_default_handler;
use twinbpf_vm::os::monotonic_ns;

/// Signals whose disposition a workload gets as a shell would give it.
const RESET: [i32; 4] = [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGPIPE];
/// A signal that comes again sooner than this is the same one: `timeout(1)` sends each to the process and to its group.
const SAME_SIGNAL: u64 = 100_000_000;

fn answer(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn owned(result: libc::c_long) -> io::Result<OwnedFd> {
    let fd = answer(result)?;
    // SAFETY: every caller passes the answer of a call that opened a descriptor for it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// What a forked child needs before it becomes the workload.
pub(crate) struct Pipes<'a> {
    /// Readable, or at its end, when the child may continue.
    pub(crate) wait: BorrowedFd<'a>,
    /// Our end of it, which the child must not have.
    pub(crate) release: BorrowedFd<'a>,
    /// Gets four bytes of errno if the command cannot be executed; closed by a successful exec.
    pub(crate) failure: BorrowedFd<'a>,
    /// Seconds that the child stays without us before it may continue: a perf that was about to open events of it ends well
    /// then.
    pub(crate) linger: u32,
}

/// Forks a child that waits for `Pipes::wait` and then executes a command, searched for in PATH. While it waits it ends when
/// this thread does, because the pipe closes; later, if it is `bound`, by SIGKILL.
pub(crate) fn fork(command: &[CString], pipes: &Pipes<'_>, bound: bool) -> io::Result<libc::pid_t> {
    let mut argv: Vec<*const libc::c_char> = command.iter().map(|word| word.as_ptr()).collect();
    argv.push(std::ptr::null());
    assert!(argv.len() > 1, "a command has a name");
    // SAFETY: no arguments.
    let parent = unsafe { libc::getpid() };
    // SAFETY: the child calls nothing but functions that are safe after fork of a process with threads, none of which
    // allocates or takes a lock: all it needs was made above.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            // SAFETY: this is the child of the fork above, `argv` ends with null and points to live strings.
            unsafe { become_command(&argv, pipes, parent, bound) }
        }
        pid => Ok(pid),
    }
}

/// # Safety
/// In a forked child only. `argv` is a null-terminated array of C strings.
unsafe fn become_command(argv: &[*const libc::c_char], pipes: &Pipes<'_>, parent: libc::pid_t, bound: bool) -> ! {
    // SAFETY: all of these are async-signal-safe; buffers are local; the child leaves only by exec or _exit.
    unsafe {
        libc::close(pipes.release.as_raw_fd());
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for signal in RESET {
            libc::signal(signal, libc::SIG_DFL);
        }
        libc::sigprocmask(libc::SIG_SETMASK, &raw const set, std::ptr::null_mut());
        let mut byte = 0_u8;
        loop {
            match libc::read(pipes.wait.as_raw_fd(), (&raw mut byte).cast(), 1) {
                1 => break,
                -1 if *libc::__errno_location() == libc::EINTR && libc::getppid() == parent => {}
                _ => {
                    // What the parent had open is to end with it.
                    libc::syscall(libc::SYS_close_range, 0, u32::MAX, 0);
                    libc::sleep(pipes.linger);
                    libc::_exit(0)
                }
            }
        }
        if bound {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            if libc::getppid() != parent {
                libc::_exit(0);
            }
        }
        libc::execvp(argv[0], argv.as_ptr());
        let errno = *libc::__errno_location();
        libc::write(pipes.failure.as_raw_fd(), (&raw const errno).cast(), 4);
        libc::_exit(127)
    }
}

/// What a guard needs: the descriptors that it keeps, in rising order, and for each line the descriptor that it is written to.
pub(crate) struct Guarded<'a> {
    /// At its end when the process that forked the guard is gone. Before, it gives the number of another process that has to
    /// end as well, as four bytes; the number 0 sends the guard away.
    pub(crate) alive: BorrowedFd<'a>,
    /// All that stay open.
    pub(crate) kept: &'a [RawFd],
    /// File and line.
    pub(crate) lines: &'a [(RawFd, CString)],
}

/// Forks a process of its own session that ignores signals, waits for the end of this one and of another,
/// and then writes lines: each as often as the kernel is busy.
pub(crate) fn fork_guard(guarded: &Guarded<'_>) -> io::Result<libc::pid_t> {
    // SAFETY: the child calls nothing but functions that are safe after fork of a process with threads.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: this is the child of the fork above.
        0 => unsafe { be_guard(guarded) },
        pid => Ok(pid),
    }
}

/// # Safety
/// In a forked child only.
unsafe fn be_guard(guarded: &Guarded<'_>) -> ! {
    let pause = libc::timespec { tv_sec: 0, tv_nsec: 20_000_000 };
    // SAFETY: all of these are async-signal-safe; buffers are local or were made before; the child leaves only by _exit.
    unsafe {
        libc::setsid();
        for signal in (1..=64).filter(|signal| *signal != libc::SIGCHLD) {
            libc::signal(signal, libc::SIG_IGN);
        }
        libc::prctl(libc::PR_SET_NAME, c"twinbpf-guard".as_ptr());
        let mut first = 0_u32;
        for fd in guarded.kept {
            let fd = *fd as u32;
            if fd > first {
                libc::syscall(libc::SYS_close_range, first, fd - 1, 0);
            }
            first = fd + 1;
        }
        libc::syscall(libc::SYS_close_range, first, u32::MAX, 0);
        let (mut number, mut other) = (0_i32, -1);
        loop {
            match libc::read(guarded.alive.as_raw_fd(), (&raw mut number).cast(), 4) {
                4 if number > 0 => other = libc::syscall(libc::SYS_pidfd_open, number, 0),
                0 => break,
                -1 if *libc::__errno_location() == libc::EINTR => {}
                _ => libc::_exit(0),
            }
        }
        if other >= 0 {
            let mut end = libc::pollfd { fd: other as RawFd, events: libc::POLLIN, revents: 0 };
            while libc::poll(&raw mut end, 1, -1) < 0 {}
        }
        for (file, line) in guarded.lines {
            while libc::write(*file, line.as_ptr().cast(), line.as_bytes().len()) < 0
                && matches!(*libc::__errno_location(), libc::EBUSY | libc::EINTR)
            {
                libc::nanosleep(&raw const pause, std::ptr::null_mut());
            }
        }
        libc::_exit(0)
    }
}

/// Lets a command be sent `signal` when this thread ends, keep these descriptors, and outlive the readers of its pipes.
pub(crate) fn bind(command: &mut Command, signal: i32, kept: [RawFd; 4]) {
    let parent = std::process::id();
    let prepare = move || {
        // SAFETY: takes numbers.
        answer(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, signal) }.into())?;
        // SAFETY: takes numbers and constants.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
        // SAFETY: as before.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
        for fd in kept {
            // SAFETY: takes numbers.
            answer(unsafe { libc::fcntl(fd, libc::F_SETFD, 0) }.into())?;
        }
        // It ended before it could be watched.
        // SAFETY: no arguments.
        if unsafe { libc::getppid() } as u32 == parent {
            Ok(())
        } else {
            Err(io::Error::from_raw_os_error(libc::ESRCH))
        }
    };
    // SAFETY: the closure only makes system calls that are async-signal-safe.
    unsafe { command.pre_exec(prepare) };
}

/// A descriptor of another process, by its number there.
pub(crate) fn descriptor_of(process: BorrowedFd<'_>, fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: takes numbers.
    owned(unsafe { libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), fd, 0) })
}

/// Opens a file, as a place only, by its handle in the file system of `mount`.
pub(crate) fn by_handle(mount: BorrowedFd<'_>, kind: i32, handle: &[u8; 8]) -> io::Result<OwnedFd> {
    // `struct file_handle`: bytes of the handle, its kind, the handle.
    let mut words = [8u32.to_ne_bytes(), kind.to_ne_bytes(), [0; 4], [0; 4]].concat();
    words[8..].copy_from_slice(handle);
    let flags = libc::O_PATH | libc::O_CLOEXEC;
    // SAFETY: the kernel reads a handle of that size.
    owned(unsafe { libc::syscall(libc::SYS_open_by_handle_at, mount.as_raw_fd(), words.as_ptr(), flags) })
}

/// Whether this process may execute a file.
pub(crate) fn may_execute(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Err(io::Error::from_raw_os_error(libc::EACCES));
    }
    let name = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: `name` is a C string that lives for the call.
    answer(unsafe { libc::faccessat(libc::AT_FDCWD, name.as_ptr(), libc::X_OK, libc::AT_EACCESS) }.into()).map(drop)
}

/// A descriptor that becomes readable when the process ends.
pub(crate) fn pidfd(pid: libc::pid_t) -> io::Result<OwnedFd> {
    // SAFETY: takes two numbers.
    owned(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) })
}

/// Sends a signal to a child that was not waited for yet.
pub(crate) fn kill(pid: libc::pid_t, signal: i32) -> io::Result<()> {
    // SAFETY: takes two numbers.
    answer(unsafe { libc::kill(pid, signal) }.into()).map(drop)
}

/// Waits for the end of a child.
pub(crate) fn wait(pid: libc::pid_t) -> io::Result<ExitStatus> {
    let mut status = 0;
    loop {
        // SAFETY: `status` is live for the call.
        match answer(unsafe { libc::waitpid(pid, &raw mut status, 0) }.into()) {
            Ok(_) => return Ok(ExitStatus::from_raw(status)),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// A timer that is not set.
pub(crate) fn timer() -> io::Result<OwnedFd> {
    // SAFETY: takes two numbers.
    owned(unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_CLOEXEC | libc::TFD_NONBLOCK) }.into())
}

/// Lets a timer expire every `period` from now on; zero stops it.
pub(crate) fn set_timer(timer: BorrowedFd<'_>, period: Duration) -> io::Result<()> {
    let time = libc::timespec { tv_sec: period.as_secs() as libc::time_t, tv_nsec: period.subsec_nanos().into() };
    let spec = libc::itimerspec { it_interval: time, it_value: time };
    // SAFETY: `spec` is live for the call, and the kernel takes a null for what is not wanted back.
    let result = unsafe { libc::timerfd_settime(timer.as_raw_fd(), 0, &raw const spec, std::ptr::null_mut()) };
    answer(result.into()).map(drop)
}

/// Takes what a descriptor that does not block has to say.
pub(crate) fn drain(fd: BorrowedFd<'_>) {
    let mut bytes = [0_u8; 64];
    // SAFETY: `bytes` is a live buffer of that size.
    while unsafe { libc::read(fd.as_raw_fd(), bytes.as_mut_ptr().cast(), bytes.len()) } == bytes.len() as isize {}
}

/// Which of these are readable or at their end, after at most `timeout`; none when a signal came.
pub(crate) fn poll(fds: &[BorrowedFd<'_>], timeout: Option<Duration>) -> io::Result<Vec<bool>> {
    let entry = |fd: &BorrowedFd<'_>| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let mut polled: Vec<libc::pollfd> = fds.iter().map(entry).collect();
    let timeout = timeout.map_or(-1, |timeout| i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX));
    // SAFETY: `polled` is a live array of that many entries.
    match answer(unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, timeout) }.into()) {
        Ok(_) => Ok(polled.iter().map(|entry| entry.revents != 0).collect()),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(vec![false; fds.len()]),
        Err(error) => Err(error),
    }
}

/// When a signal means what it means without a handler: at once after [`Patience::end`], otherwise the second time.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    over: AtomicBool,
    /// When the first signal came.
    first: AtomicU64,
}

impl Patience {
    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::SeqCst);
    }

    /// Part of the handler of a signal.
    fn handle(&self, signal: i32) {
        let now = monotonic_ns();
        let first = match self.first.compare_exchange(0, now, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(_) if self.over.load(Ordering::SeqCst) => 0,
            Ok(_) => return,
            Err(first) => first,
        };
        if now.saturating_sub(first) >= SAME_SIGNAL {
            // Fails only for signals that have no default.
            let _ = emulate_default_handler(signal);
        }
    }
}

/// Has a signal end this process as `patience` says.
pub(crate) fn end_by(signal: i32, patience: &Arc<Patience>) -> io::Result<()> {
    let patience = Arc::clone(patience);
    // SAFETY: the handler reads a clock, uses atomics, and emulates the default: all async-signal-safe, no panic.
    unsafe { signal_hook::low_level::register(signal, move || patience.handle(signal)) }.map(drop)
}

/// Signals by which a user ends a command.
const ENDS: [i32; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

/// Runs a function while this thread takes none of [`ENDS`]: one that comes meanwhile does afterwards what it would have done.
pub(crate) fn uninterrupted<T>(run: impl FnOnce() -> T) -> T {
    // SAFETY: sets of signals are plain data, and both are local.
    let before = unsafe {
        let (mut ends, mut before): (libc::sigset_t, libc::sigset_t) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigemptyset(&raw mut ends);
        for signal in ENDS {
            libc::sigaddset(&raw mut ends, signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const ends, &raw mut before);
        before
    };
    let given = run();
    // SAFETY: as above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()) };
    given
}
