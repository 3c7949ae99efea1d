//! Hooks of a process of which another one has threads by ptrace.

use std::process::Command;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::thread;

use twinbpf_hook::{Error, Refusal, read_memory};

use crate::fixture::{Fixture, StopOnPanic};
use crate::threads::{Add, DENIED, attach, take_count};
use crate::{can_compile, support};

/// Set where gdb runs the test.
const UNDER_GDB: &str = "HOOK_TEST_UNDER_GDB";

/// A process that holds a thread of this one at an instruction, until this is dropped.
struct Tracer {
    process: libc::pid_t,
    release: libc::c_int,
}

impl Tracer {
    /// Waits until the thread is there.
    fn hold(thread: libc::pid_t, address: u64) -> Tracer {
        let [mut held, mut release] = [[0; 2]; 2];
        // SAFETY: the child makes system calls alone, and ends without running what this process has registered.
        unsafe {
            assert_eq!(libc::pipe(held.as_mut_ptr()) + libc::pipe(release.as_mut_ptr()), 0);
            let process = libc::fork();
            if process == 0 {
                libc::close(release[1]);
                let mut byte = [u8::from(step_to(thread, address))];
                libc::write(held[1], byte.as_ptr().cast(), 1);
                libc::read(release[0], byte.as_mut_ptr().cast(), 1);
                libc::ptrace(libc::PTRACE_DETACH, thread, 0, 0);
                libc::_exit(0);
            }
            assert!(process > 0);
            let mut is_there = [0_u8];
            let got = libc::read(held[0], is_there.as_mut_ptr().cast(), 1);
            for fd in [held[0], held[1], release[0]] {
                libc::close(fd);
            }
            assert_eq!((got, is_there), (1, [1]), "the thread stops at {address:#x}");
            Tracer { process, release: release[1] }
        }
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        // SAFETY: the child of `hold`, which ends when nothing can be read any more.
        unsafe {
            libc::close(self.release);
            libc::waitpid(self.process, ptr::null_mut(), 0);
        }
    }
}

/// Stops the thread, and lets it run one instruction after another until it is at the address.
///
/// # Safety
///
/// In a process of its own.
unsafe fn step_to(thread: libc::pid_t, address: u64) -> bool {
    // SAFETY: the kernel fills what it gets.
    unsafe {
        let mut status = 0;
        if libc::ptrace(libc::PTRACE_SEIZE, thread, 0, 0) != 0
            || libc::ptrace(libc::PTRACE_INTERRUPT, thread, 0, 0) != 0
        {
            return false;
        }
        for _ in 0..1_000_000 {
            if libc::waitpid(thread, &raw mut status, libc::__WALL) != thread || !libc::WIFSTOPPED(status) {
                return false;
            }
            let mut registers: libc::user_regs_struct = std::mem::zeroed();
            libc::ptrace(libc::PTRACE_GETREGS, thread, 0, &raw mut registers);
            if registers.rip == address {
                return true;
            }
            libc::ptrace(libc::PTRACE_SINGLESTEP, thread, 0, 0);
        }
        false
    }
}

/// A thread is held at each instruction of what a jump replaces. Between instructions it is an error that names the
/// thread, and nothing changes; elsewhere, and once it is let go, the function is hooked.
pub(crate) fn a_thread_at_each_instruction() {
    if !can_compile() || std::env::var_os(DENIED).is_some() {
        return;
    }
    for kind in ["gcc-moved", "gcc-nops", "clang-nop", "clang-moved"] {
        let first = Fixture::new(kind);
        let function = first.function("add");
        let is_instruction = |offset: &u64| function.at_offset(*offset).check() != Err(Refusal::NoInstruction);
        let offsets: Vec<u64> = (0..5).filter(is_instruction).collect();
        for offset in offsets {
            // Of its own, as several nops are one after the first hook.
            let fixture = Fixture::new(kind);
            let (function, add) = (fixture.function("add"), fixture.get::<Add>("add"));
            let (done, thread) = (AtomicBool::new(false), AtomicI32::new(0));
            thread::scope(|scope| {
                scope.spawn(|| {
                    // SAFETY: no arguments.
                    thread.store(unsafe { libc::gettid() }, Ordering::Relaxed);
                    while !done.load(Ordering::Relaxed) {
                        assert_eq!(add(3, 4), 7);
                    }
                });
                let _stop = StopOnPanic(&done);
                while thread.load(Ordering::Relaxed) == 0 {
                    thread::yield_now();
                }
                let bytes = || {
                    let mut bytes = [0; 16];
                    assert!(read_memory(function.address(), &mut bytes) == bytes.len());
                    bytes
                };
                let before = bytes();
                let tracer = Tracer::hold(thread.load(Ordering::Relaxed), function.address() + offset);
                let hook = attach(&function);
                match (offset, hook) {
                    (0, hook) => {
                        let hook = hook.unwrap_or_else(|error| panic!("{kind}: {error}"));
                        assert_eq!((add(1, 2), take_count()), (3, 1), "{kind}");
                        hook.detach().expect("it detaches");
                    }
                    (_, Ok(_)) => panic!("{kind}: the thread at {offset} runs what was there"),
                    (_, Err(error)) => {
                        let tid = thread.load(Ordering::Relaxed);
                        let is_stuck = matches!(error, Error::Stuck { thread } if thread as i32 == tid);
                        assert!(is_stuck, "{kind}, {offset}: {error}");
                        assert_eq!(bytes(), before, "{kind}, {offset}: nothing has changed");
                        assert_eq!((add(1, 2), take_count()), (3, 0), "{kind}");
                    }
                }
                drop(tracer);
                let hook = attach(&function).unwrap_or_else(|error| panic!("{kind}: {error}"));
                assert_eq!((add(1, 2), take_count()), (3, 1), "{kind}, {offset}");
                hook.detach().expect("it detaches");
                done.store(true, Ordering::Relaxed);
            });
        }
    }
}

/// gdb has this process, and takes every SIGTRAP: pads change all the same, and what needs a signal is refused.
pub(crate) fn under_gdb() {
    if !can_compile() || std::env::var_os(DENIED).is_some() {
        return;
    }
    if std::env::var_os(UNDER_GDB).is_none() {
        if !support::installed("gdb") {
            return support::harness::skip("no gdb");
        }
        let test = std::env::current_exe().expect("a path");
        let output = Command::new("gdb")
            .env(UNDER_GDB, "1")
            .args(["-nx", "-batch", "-return-child-result", "-ex", "run", "--args"])
            .arg(test)
            .args(["--exact", "traced::under_gdb"])
            .output()
            .expect("gdb runs");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{}: {text}{}", output.status, String::from_utf8_lossy(&output.stderr));
        assert!(text.contains("1 passed"), "{text}");
        return;
    }
    let (pads, moved) = (Fixture::new("clang-nop"), Fixture::new("gcc-moved"));
    let add = pads.get::<Add>("add");
    let hook = attach(&pads.function("add")).expect("a pad needs no signal");
    assert_eq!((add(1, 2), take_count()), (3, 1));
    hook.detach().expect("it detaches");
    assert_eq!((add(1, 2), take_count()), (3, 0));
    let error = attach(&moved.function("add")).expect_err("gdb takes the signal");
    assert!(matches!(error, Error::Refused { why: Refusal::Traced { .. }, .. }), "{error}");
    let words = " traces this one and takes every SIGTRAP, by which code without a pad is changed; detach it, or compile with \
                 -fpatchable-function-entry=5";
    assert!(error.to_string().ends_with(words), "{error}");
}
