//! Pending returns of many threads: none is lost while another thread takes its own.

use std::arch::global_asm;
use std::cell::Cell;
use std::ffi::c_void;
use std::ptr;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;

use twinbpf_hook::{Call, Callback, Hook, Point};

use crate::can_compile;
use crate::fixture::{Fixture, while_threads};
use crate::threads::Add;

// A direct trampoline that leaves its own values below the stack pointer.
global_asm!(
    ".pushsection .text.hook_test_overwriting,\"ax\",@progbits",
    ".globl hook_test_overwriting",
    "hook_test_overwriting:",
    "push -1",
    "push -1",
    "push -1",
    "lea rsp, [rsp + 24]",
    "ret",
    ".popsection",
);

unsafe extern "C" {
    fn hook_test_overwriting();
}

thread_local! {
    /// Returns of this thread.
    static RETURNS: Cell<u64> = const { Cell::new(0) };
}

unsafe extern "C" fn count(_: *mut Call, _: *mut c_void) {
    RETURNS.set(RETURNS.get() + 1);
}

unsafe extern "C" fn ignore(_: *mut Call, _: *mut c_void) {}

fn attach(fixture: &Fixture, name: &str) -> Hook {
    let function = fixture.function(name);
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
    let (hook, add) = (attach(&fixture, "add"), fixture.get::<Add>("add"));
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
    let (hook, add) = (attach(&fixture, "add"), fixture.get::<Add>("add"));
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

/// Returns, while direct trampolines come and go and threads call.
pub(crate) fn beside_direct_trampolines() {
    if !can_compile() {
        return;
    }
    for kind in ["clang-nop", "gcc-moved"] {
        for round in 0..12 {
            // Another function each time: what had a direct trampoline once is not as before.
            let fixture = Fixture::new(kind);
            let (functions, add) = ([fixture.function("add")], fixture.get::<Add>("add"));
            // SAFETY: they count, and push; a C function of the fixture.
            let returns = || unsafe { Hook::attach(&functions, Point::Return, &Callback::new(count, ptr::null_mut())) };
            // SAFETY: it changes no register.
            let direct = || unsafe { Hook::direct(&functions, hook_test_overwriting as *const () as u64) };
            let counted = |expected: u64| {
                RETURNS.set(0);
                assert_eq!(add(3, 4), 7);
                assert_eq!(RETURNS.get(), expected, "{kind}, round {round}");
            };
            let switch = || {
                let mut hooks = [None, None];
                for step in 0..8 {
                    // Each goes or comes: in one order, or in the other.
                    let which = (step + round) % 2;
                    hooks[which] = match hooks[which].take() {
                        Some(_) => None,
                        None => Some(if which == 0 { returns() } else { direct() }.expect("it attaches")),
                    };
                    counted(u64::from(hooks[0].is_some()));
                }
            };
            while_threads(3, || (), || assert_eq!(add(1, 2), 3), switch);
        }
    }
}

/// What a thread finds that executes one instruction at a time.
struct Steps {
    /// The hooked function.
    function: AtomicU64,
    /// Where its return address is, and what that was.
    place: AtomicU64,
    original: AtomicU64,
    /// Instructions of the return's stub.
    seen: AtomicU64,
    /// Of these, those from which the unwinder does not find the caller, or not what called that.
    lost: AtomicU64,
    /// What called the caller, as the function's first instruction has it: the sum of all frames.
    callers: AtomicUsize,
}

static STEPS: Steps = Steps {
    function: AtomicU64::new(0),
    place: AtomicU64::new(0),
    original: AtomicU64::new(0),
    seen: AtomicU64::new(0),
    lost: AtomicU64::new(0),
    callers: AtomicUsize::new(0),
};

/// The sum of the frames that the unwinder finds above the one with this address.
fn callers_above(original: u64) -> Option<usize> {
    let mut frames = [ptr::null_mut(); 64];
    // SAFETY: the array has room for so many.
    let count = unsafe { libc::backtrace(frames.as_mut_ptr(), frames.len() as i32) };
    let frames: &[*mut c_void] = &frames[..count as usize];
    // That of a frame of a signal is one less.
    let caller = frames.iter().position(|frame| [original, original - 1].contains(&(frame.addr() as u64)))?;
    Some(frames[caller + 1..].iter().fold(0, |sum: usize, frame| sum.wrapping_add(frame.addr())))
}

extern "C" fn on_step(_: i32, _: *mut libc::siginfo_t, context: *mut c_void) {
    const TRAP: i64 = 0x100;
    // SAFETY: the kernel passes it.
    let registers = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    let (at, top) = (registers[libc::REG_RIP as usize] as u64, registers[libc::REG_RSP as usize] as u64);
    let word = |place: u64| {
        // SAFETY: the return address is there, or has been.
        unsafe { ptr::with_exposed_provenance::<u64>(place as usize).read_volatile() }
    };
    if at == STEPS.function.load(Ordering::Relaxed) {
        STEPS.place.store(top, Ordering::Relaxed);
        STEPS.original.store(word(top), Ordering::Relaxed);
        STEPS.callers.store(callers_above(word(top)).unwrap_or(0), Ordering::Relaxed);
    }
    let (place, original) = (STEPS.place.load(Ordering::Relaxed), STEPS.original.load(Ordering::Relaxed));
    if at == original {
        registers[libc::REG_EFL as usize] &= !TRAP;
    } else if place != 0 && word(place) != original && at.abs_diff(word(place)) < 16 {
        let is_found = callers_above(original) == Some(STEPS.callers.load(Ordering::Relaxed));
        STEPS.seen.fetch_add(1, Ordering::Relaxed);
        STEPS.lost.fetch_add(u64::from(!is_found), Ordering::Relaxed);
    }
}

/// From each instruction of a return's stub the unwinder finds the caller.
pub(crate) fn unwinding_from_each_instruction() {
    if !can_compile() {
        return;
    }
    let fixture = Fixture::new("clang-nop");
    // One that never has a direct trampoline.
    let function = fixture.get::<extern "C" fn(i64) -> i64>("red_zone");
    let plain = function(3);
    let _hook = attach(&fixture, "red_zone");
    assert_eq!(function(3), plain, "the thread has its record");
    STEPS.function.store(fixture.function("red_zone").address(), Ordering::Relaxed);
    // SAFETY: zeros are an action, and this one lasts as long as the call.
    let before = unsafe {
        let (mut action, mut before): (libc::sigaction, libc::sigaction) = (std::mem::zeroed(), std::mem::zeroed());
        action.sa_sigaction = on_step as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        assert_eq!(libc::sigaction(libc::SIGTRAP, &raw const action, &raw mut before), 0);
        before
    };
    // SAFETY: the handler ends it.
    unsafe { std::arch::asm!("pushfq", "or qword ptr [rsp], 0x100", "popfq") };
    let stepped = function(3);
    // SAFETY: it was there before.
    assert_eq!(unsafe { libc::sigaction(libc::SIGTRAP, &raw const before, ptr::null_mut()) }, 0);
    assert_eq!((stepped, STEPS.seen.load(Ordering::Relaxed), STEPS.lost.load(Ordering::Relaxed)), (plain, 4, 0));
}

/// A function that the allocator calls may return to a stub, too: pending returns take no memory from there.
pub(crate) fn pending_returns_allocate_nothing() {
    if !can_compile() {
        return;
    }
    let library = twinbpf_hook::Module::find("libc.so.6").expect("it is loaded");
    let allocators: Vec<_> = ["malloc", "calloc", "realloc", "aligned_alloc", "posix_memalign"]
        .into_iter()
        .flat_map(|name| library.functions(name))
        .collect();
    assert!(allocators.len() >= 5, "{allocators:?}");
    // SAFETY: it does nothing; functions of the C library.
    let calls = unsafe { Hook::attach(&allocators, Point::Entry, &Callback::new(ignore, ptr::null_mut())) };
    let calls = calls.expect("they attach");
    let fixture = Fixture::new("clang-nop");
    let (_hook, depth) = (attach(&fixture, "depth"), fixture.get::<extern "C" fn(i64) -> i64>("depth"));
    // More than any other test has pending.
    let (skipped, deep) = (calls.skipped(), depth(40_000));
    assert_eq!((deep, calls.skipped() - skipped), (40_000, 0), "calls of the allocator in a trampoline");
}
