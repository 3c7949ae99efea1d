//! Pending returns of many threads: none is lost while another thread takes its own.

use std::ffi::c_void;
use std::ptr;
use std::sync::Barrier;
use std::thread;

use twinbpf_hook::{Call, Callback, Hook, Point};

use crate::can_compile;
use crate::fixture::Fixture;
use crate::threads::Add;

unsafe extern "C" fn ignore(_: *mut Call, _: *mut c_void) {}

fn attach(fixture: &Fixture) -> Hook {
    let function = fixture.function("add");
    // SAFETY: the callback does nothing; a C function of the fixture.
    unsafe { Hook::attach(&[function], Point::Return, &Callback::new(ignore, ptr::null_mut())) }.expect("it attaches")
}

/// Threads that all take their first pending returns at once, more than there are cores.
pub(crate) fn threads_that_begin_together() {
    if !can_compile() {
        return;
    }
    const THREADS: usize = 32;
    let fixture = Fixture::new("clang-nop");
    let (hook, add) = (attach(&fixture), fixture.get::<Add>("add"));
    let lost = hook.lost_returns();
    for _ in 0..50 {
        let together = Barrier::new(THREADS);
        let call = || {
            together.wait();
            (0..50).for_each(|n| assert_eq!(add(n, 1), n + 1));
        };
        thread::scope(|scope| (0..THREADS).for_each(|_| drop(scope.spawn(call))));
    }
    assert_eq!((hook.lost_returns() - lost, hook.skipped()), (0, 0));
}

/// As many threads as a process may well have, all at once.
pub(crate) fn a_thousand_threads() {
    if !can_compile() {
        return;
    }
    const THREADS: usize = 1000;
    let fixture = Fixture::new("clang-nop");
    let (hook, add) = (attach(&fixture), fixture.get::<Add>("add"));
    let (all_have_called, lost) = (Barrier::new(THREADS), hook.lost_returns());
    let call = || {
        assert_eq!(add(1, 2), 3);
        all_have_called.wait();
    };
    thread::scope(|scope| {
        for _ in 0..THREADS {
            thread::Builder::new().stack_size(1 << 16).spawn_scoped(scope, call).expect("a thread starts");
        }
    });
    assert_eq!((hook.lost_returns() - lost, hook.skipped()), (0, 0));
}
