//! Signals that are not ours, each in a process of its own: this test binary, started again.
#![expect(unsafe_code, reason = "tests call the C library, or what they test is unsafe")]

use std::os::unix::process::ExitStatusExt;

use super::child::{fault_of_ours, host_fault, repairs, role, say, set};
use super::*;

/// Runs a test of this file in a child process with `role`; gives its status and what it wrote.
fn child(test: &str, role: &str) -> (std::process::ExitStatus, String) {
    super::child::child("chain", test, role)
}

extern "C" fn plain(_: i32) {
    say("plain handler\n");
    // SAFETY: ends the process.
    unsafe { libc::_exit(41) };
}

extern "C" fn detailed(_: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: as the kernel passed them.
    let (addr, pc) = unsafe {
        let context = &*context.cast::<libc::ucontext_t>();
        ((*info).si_addr() as usize, context.uc_mcontext.gregs[libc::REG_RIP as usize])
    };
    say(if addr == 64 && pc != 0 { "detailed handler\n" } else { "wrong details\n" });
    // SAFETY: ends the process.
    unsafe { libc::_exit(42) };
}

#[test]
fn a_fault_of_the_host_goes_to_the_handler_that_was_there() {
    if let Some(role) = role() {
        match role.as_str() {
            "plain" => set(libc::SIGSEGV, plain as *const () as usize, 0),
            "detailed" => set(libc::SIGSEGV, detailed as *const () as usize, libc::SA_SIGINFO),
            "default" => set(libc::SIGSEGV, libc::SIG_DFL, 0),
            "ignored" => set(libc::SIGSEGV, libc::SIG_IGN, 0),
            "repairs" => set(libc::SIGSEGV, repairs as *const () as usize, libc::SA_SIGINFO),
            "once" => set(libc::SIGSEGV, repairs as *const () as usize, libc::SA_SIGINFO | libc::SA_RESETHAND),
            "rust" => {}
            role => panic!("{role}"),
        }
        fault_of_ours();
        host_fault();
        fault_of_ours();
        host_fault();
        say("went on\n");
        std::process::exit(43);
    }
    let run = |role| child("a_fault_of_the_host_goes_to_the_handler_that_was_there", role);
    let (status, text) = run("plain");
    assert_eq!((status.code(), text.contains("plain handler")), (Some(41), true), "{text}");
    let (status, text) = run("detailed");
    assert_eq!((status.code(), text.contains("detailed handler")), (Some(42), true), "{text}");
    for role in ["default", "ignored", "rust"] {
        let (status, text) = run(role);
        assert_eq!((status.signal(), text.contains("went on")), (Some(libc::SIGSEGV), false), "{role}: {text}");
    }
    let (status, text) = run("repairs");
    assert_eq!((status.code(), text.matches("repaired").count()), (Some(43), 2), "{text}");
    let (status, text) = run("once");
    assert_eq!((status.signal(), text.matches("repaired").count()), (Some(libc::SIGSEGV), 1), "{text}");
}

#[test]
fn a_signal_that_was_sent_is_no_fault() {
    if let Some(role) = role() {
        let action = if role == "ignored" { libc::SIG_IGN } else { libc::SIG_DFL };
        set(libc::SIGFPE, action, 0);
        fault_of_ours();
        // SAFETY: sends a signal to this thread.
        unsafe { libc::raise(libc::SIGFPE) };
        std::process::exit(43);
    }
    let test = "a_signal_that_was_sent_is_no_fault";
    assert_eq!(child(test, "ignored").0.code(), Some(43));
    assert_eq!(child(test, "default").0.signal(), Some(libc::SIGFPE));
}

#[test]
fn a_late_timeout_signal_does_no_harm() {
    if let Some(role) = role() {
        if role == "handled" {
            set(libc::SIGURG, plain as *const () as usize, 0);
        }
        fault_of_ours();
        // SAFETY: sends a signal to this thread.
        unsafe { libc::raise(libc::SIGURG) };
        std::process::exit(43);
    }
    let test = "a_late_timeout_signal_does_no_harm";
    assert_eq!(child(test, "default").0.code(), Some(43));
    assert_eq!(child(test, "handled").0.code(), Some(41));
}

#[test]
fn a_fault_of_rust_code_is_never_skipped() {
    unsafe fn faults(_: *mut (), _: u64, _: &[u64; 5]) -> Result<u64, Trap> {
        host_fault();
        Ok(0)
    }
    if let Some(role) = role() {
        let slot = super::calls::slot();
        let ints = [[2u32, 1].as_mut_ptr() as u64, 2, 4, slot, 0, 0];
        match role.as_str() {
            "callback" => {
                let form = Form { variadic: false, float: false };
                let target = libc::qsort as *const () as usize;
                // SAFETY: qsort's arguments.
                let _ = unsafe { call_c(target, form, &ints, &[0.0; 8], std::ptr::null_mut(), faults) };
            }
            // A function of the host, which generated code calls without in_c: call rdx.
            _ => {
                let page = function(&[0xff, 0xd2]);
                let _ = Rig::new().enter(&page, [host_fault as *const () as u64, 0, 0, 0], None);
            }
        }
        std::process::exit(43);
    }
    for role in ["callback", "host"] {
        let (status, text) = child("a_fault_of_rust_code_is_never_skipped", role);
        assert_eq!(status.signal(), Some(libc::SIGSEGV), "{role}: {text}");
    }
}
