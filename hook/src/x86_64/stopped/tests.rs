//! Threads that are between instructions which change go on elsewhere.
#![expect(unsafe_code, reason = "runs generated code")]

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use super::super::sys;
use super::change;

/// The thread's loop: `pause`, `pause` and `nop`, between which it is most of the time, then `inc qword [rdi]`, a test of the
/// word after it, and a branch back or a return.
const LOOP: &[u8] = &[0xf3, 0x90, 0xf3, 0x90, 0x90, 0x48, 0xff, 0x07, 0x48, 0x83, 0x7f, 0x08, 0x00, 0x74, 0xf1, 0xc3];
/// Elsewhere: `inc qword [rdi + 16]`, and a jump to after these.
const ELSEWHERE: u64 = 0x100;

/// A thread that waits for its child cannot be stopped, so one change goes after another, as under the registry's lock.
static ONE: Mutex<()> = Mutex::new(());

fn code(at: u64, bytes: &[u8]) {
    // SAFETY: the pages are the test's, and writable.
    unsafe {
        let to: *mut u8 = std::ptr::with_exposed_provenance_mut(at as usize);
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
    }
}

#[test]
fn threads_between_instructions_go_on_elsewhere() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let at = sys::reserve(0x1000).expect("addresses");
    sys::protect(at, 0x1000, libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC).expect("writable code");
    code(at, LOOP);
    let mut elsewhere = vec![0x48, 0xff, 0x47, 0x10, 0xe9];
    elsewhere.extend((5 - (ELSEWHERE as i32 + 9)).to_le_bytes());
    code(at + ELSEWHERE, &elsewhere);
    let words = [const { AtomicU64::new(0) }; 3];
    let started = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            started.store(true, Ordering::Relaxed);
            // SAFETY: the loop, which returns once the second word is set.
            let run: extern "C" fn(*const AtomicU64) = unsafe { std::mem::transmute(at as usize) };
            run(words.as_ptr());
        });
        while words[0].load(Ordering::Relaxed) == 0 {
            thread::yield_now();
        }
        let redirects = [2, 4].map(|offset| (at + offset, at + ELSEWHERE));
        for _ in 0..500 {
            // A jump over them has the thread nowhere in between; then they are back.
            change(&redirects, &|| code(at, &[0xeb, 0x03, 0xcc, 0xcc, 0xcc])).expect("ptrace is allowed");
            change(&[], &|| code(at, &LOOP[..5])).expect("ptrace is allowed");
        }
        words[1].store(1, Ordering::Relaxed);
    });
    let moved = words[2].load(Ordering::Relaxed);
    assert!(moved > 0 && moved <= 500, "{moved} of 500 stops were in between");
}

#[test]
fn all_threads_are_stopped_also_new_ones() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (running, inside) = (AtomicBool::new(true), AtomicBool::new(false));
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while running.load(Ordering::Relaxed) {
                    // Each of them looks whether the change is under way.
                    thread::scope(|inner| drop(inner.spawn(|| assert!(!inside.load(Ordering::SeqCst)))));
                }
            });
        }
        for _ in 0..200 {
            let changed: io::Result<()> = change(&[], &|| {
                inside.store(true, Ordering::SeqCst);
                (0..2000).for_each(|_| std::hint::spin_loop());
                inside.store(false, Ordering::SeqCst);
            });
            changed.expect("ptrace is allowed");
        }
        running.store(false, Ordering::Relaxed);
    });
}
