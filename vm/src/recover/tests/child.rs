//! A process of its own for a test: this test binary, started again. What such a process does to its signals.
#![expect(unsafe_code, reason = "tests call the C library, or what they test is unsafe")]

use std::process::{Command, ExitStatus};

use super::*;

const VARIABLE: &str = "TWINBPF_TEST_SIGNAL";

/// Runs a test of a file beside this one in a child process with `role`; gives its status and what it wrote.
pub(super) fn child(file: &str, test: &str, role: &str) -> (ExitStatus, String) {
    let test = format!("recover::tests::{file}::{test}");
    let mut command = Command::new(std::env::current_exe().unwrap());
    let output = command.args([&test, "--exact", "--nocapture"]).env(VARIABLE, role).output().unwrap();
    (output.status, String::from_utf8_lossy(&output.stderr).into_owned())
}

/// What this process is, if it is a child.
pub(super) fn role() -> Option<String> {
    std::env::var(VARIABLE).ok()
}

pub(super) fn say(text: &str) {
    // SAFETY: the bytes of a string.
    unsafe { libc::write(2, text.as_ptr().cast(), text.len()) };
}

/// Continues after the faulting instruction, `mov rax, [rdi]`.
pub(super) extern "C" fn repairs(_: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: as the kernel passed it.
    unsafe { (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs[libc::REG_RIP as usize] += 3 };
    say("repaired\n");
}

/// Installs a handler.
pub(super) fn set(signal: i32, action: usize, flags: i32) {
    replace(signal, action, flags);
}

/// Installs a handler; gives what was there.
pub(super) fn replace(signal: i32, action: usize, flags: i32) -> libc::sigaction {
    // SAFETY: the tests' handlers are of the types their flags say.
    unsafe {
        let mut new: libc::sigaction = std::mem::zeroed();
        new.sa_sigaction = action;
        new.sa_flags = flags;
        restore(signal, &new)
    }
}

/// Installs what [`replace`] has replaced; gives what was there.
///
/// # Safety
/// The handler is of the type its flags say.
pub(super) unsafe fn restore(signal: i32, action: &libc::sigaction) -> libc::sigaction {
    // SAFETY: the caller's; the other action is only written.
    unsafe {
        let mut old: libc::sigaction = std::mem::zeroed();
        assert_eq!(libc::sigaction(signal, action, &raw mut old), 0);
        old
    }
}

/// A fault of the host's own code.
pub(super) fn host_fault() {
    // SAFETY: not sound, which is the point; the process ends or a handler repairs it.
    unsafe { std::arch::asm!("mov rax, [rdi]", in("rdi") 64, out("rax") _) };
}

/// A fault of generated code, which our handlers see.
pub(super) fn fault_of_ours() {
    let page = function(&[0x48, 0x8b, 0x02]);
    assert_eq!(Rig::new().fault(&page, [24, 0, 0, 0]).address, Some(24));
}

/// Generated code that uses up its stack: without an alternate one no handler could run.
pub(super) fn overflow_of_ours() {
    // call self
    let page = Page::new(&[0x55, 0x48, 0x89, 0xe5, 0xe8, 0xf7, 0xff, 0xff, 0xff]);
    let stack = NativeStack::new(256 << 10).unwrap();
    match Rig::new().enter(&page, [0; 4], Some(&stack)) {
        Err(Abort::Fault(fault)) => assert!(stack.is_guard(fault.address.unwrap())),
        other => panic!("a fault, not {other:?}"),
    }
}

/// A loop without an end that the flag and signals of another thread end.
pub(super) fn timeout_of_ours() {
    // jmp self
    let page = function(&[0xeb, 0xfe]);
    let mut rig = Rig::new();
    rig.interrupt = 1;
    let (thread, done) = (Thread::current(), std::sync::atomic::AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                thread.interrupt();
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        });
        let signal = rig.fault(&page, [0; 4]).signal;
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(signal, Signal::Urg);
    });
}

/// Ends this process by a signal if it takes longer.
pub(super) fn at_most(seconds: u32) {
    // SAFETY: no memory is involved.
    unsafe { libc::alarm(seconds) };
}

/// Runs `body` in a thread of the C library, which has no alternate signal stack.
pub(super) fn in_bare_thread(body: extern "C" fn(*mut libc::c_void) -> *mut libc::c_void) {
    // SAFETY: joined at once.
    unsafe {
        let mut thread = 0;
        assert_eq!(libc::pthread_create(&raw mut thread, std::ptr::null(), body, std::ptr::null_mut()), 0);
        assert_eq!(libc::pthread_join(thread, std::ptr::null_mut()), 0);
    }
}
