//! Threads that block signals.
#![expect(unsafe_code, reason = "tests call the C library, or what they test is unsafe")]

use std::panic::catch_unwind;

use super::child::{at_most, child, fault_of_ours, role, timeout_of_ours};
use super::*;

/// Calls of C functions, which may fault.
fn call(target: usize, arg: u64) -> Result<u64, Abort> {
    let form = Form { variadic: false, float: false };
    let ints = [arg, 0, 0, 0, 0, 0];
    // SAFETY: the tests' functions take what they get here, or fault.
    unsafe { call_c(target, form, &ints, &[0.0; 8], std::ptr::null_mut(), no_callback) }.map_err(|abort| *abort)
}

fn change_mask(how: i32, signals: &[i32]) {
    // SAFETY: the set is filled in before it is used.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for signal in signals {
            libc::sigaddset(&raw mut set, *signal);
        }
        assert_eq!(libc::pthread_sigmask(how, &raw const set, std::ptr::null_mut()), 0);
    }
}

fn mask() -> Vec<i32> {
    // SAFETY: only writes the set.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &raw mut set);
        (1..65).filter(|signal| libc::sigismember(&raw const set, *signal) == 1).collect()
    }
}

/// Those of ours, and one that is not.
const BLOCKED: [i32; 6] = [libc::SIGILL, libc::SIGBUS, libc::SIGFPE, libc::SIGUSR1, libc::SIGSEGV, libc::SIGURG];

/// Everything that may fault, and the mask is what it was.
fn all_faults() {
    let before = mask();
    fault_of_ours();
    assert_eq!(mask(), before);
    timeout_of_ours();
    assert_eq!(mask(), before);
    // SAFETY: nothing is there.
    unsafe {
        assert_eq!(load(0x10, Size::W).unwrap_err().signal, Signal::Segv);
        assert!(store(0x10, Size::W, 1).is_err() && compare_exchange(0x10, Width::W64, 0, 1).is_err());
    }
    assert_eq!(mask(), before);
    assert!(matches!(call(libc::strlen as *const () as usize, 8), Err(Abort::Fault(_))));
    assert_eq!(mask(), before);
    assert_eq!(call(libc::strlen as *const () as usize, c"four".as_ptr() as u64).unwrap(), 4);
    assert_eq!(mask(), before);
}

#[test]
fn signals_blocked_at_any_time() {
    if let Some(role) = role() {
        at_most(60);
        match role.as_str() {
            "first" => change_mask(libc::SIG_SETMASK, &BLOCKED),
            "segv" => change_mask(libc::SIG_SETMASK, &[libc::SIGSEGV]),
            "urg" => change_mask(libc::SIG_SETMASK, &[libc::SIGURG]),
            "prepare" => {
                all_faults();
                change_mask(libc::SIG_SETMASK, &BLOCKED);
                prepare_thread().unwrap();
            }
            "check" => {
                check_thread();
                all_faults();
                change_mask(libc::SIG_SETMASK, &BLOCKED);
                check_thread();
            }
            role => panic!("{role}"),
        }
        all_faults();
        std::thread::spawn(all_faults).join().unwrap();
        // One that has unblocked them pays nothing any more, once that is known.
        change_mask(libc::SIG_UNBLOCK, &BLOCKED);
        all_faults();
        assert!(idle().is_none() && unblock().is_some());
        check_thread();
        assert!(idle().is_some() && unblock().is_none());
        all_faults();
        return;
    }
    for role in ["first", "segv", "urg", "prepare", "check"] {
        let (status, text) = child("masks", "signals_blocked_at_any_time", role);
        assert!(status.success(), "{role}: {status}\n{text}");
    }
}

#[test]
fn a_panic_restores_the_mask() {
    let thread = std::thread::spawn(|| {
        change_mask(libc::SIG_SETMASK, &BLOCKED);
        fault_of_ours();
        let run = || {
            let _unblocked = unblock();
            assert_eq!(mask(), [libc::SIGUSR1], "in a run");
            // Runs in the run have nothing to do.
            assert!(unblock().is_none());
            all_faults();
            std::panic::resume_unwind(Box::new(()));
        };
        assert!(catch_unwind(run).is_err());
        assert_eq!(mask().len(), BLOCKED.len());
        all_faults();
    });
    thread.join().unwrap();
}

#[test]
fn a_host_function_that_blocks_signals_makes_a_run() {
    unsafe fn serve(_: *mut (), _: u64, _: &[u64; 5]) -> Result<u64, Trap> {
        let before = mask();
        change_mask(libc::SIG_BLOCK, &BLOCKED);
        prepare_thread().unwrap();
        all_faults();
        change_mask(libc::SIG_SETMASK, &before);
        // For the run around this.
        all_faults();
        Ok(0)
    }
    for blocked in [&[][..], &BLOCKED] {
        std::thread::spawn(|| {
            change_mask(libc::SIG_SETMASK, blocked);
            let mut words = [2u32, 1];
            let ints = [words.as_mut_ptr() as u64, 2, 4, super::calls::slot(), 0, 0];
            let form = Form { variadic: false, float: false };
            // SAFETY: qsort's arguments.
            let sort = || unsafe {
                call_c(libc::qsort as *const () as usize, form, &ints, &[0.0; 8], std::ptr::null_mut(), serve)
            };
            sort().unwrap();
            assert_eq!(mask().len(), blocked.len());
            all_faults();
            sort().unwrap();
        })
        .join()
        .unwrap();
    }
}
