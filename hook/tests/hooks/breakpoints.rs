//! Hooks by breakpoints, where a jump does not fit in.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use twinbpf_hook::{Function, Hook, Point, Preparation, Replacement};

use crate::can_compile;
use crate::fixture::{Fixture, while_threads};
use crate::inside::{counting, instructions_as};
use crate::threads::{attach, block_all, take_count};
use crate::transparent::compute;

type Short = extern "C" fn() -> i32;

fn refused() -> Fixture {
    Fixture::compile("refused.c", "gcc", &["-fno-toplevel-reorder"])
}

/// The bytes of a function's code in memory.
fn code(function: &Function) -> Vec<u8> {
    let size = function.size() as usize;
    // SAFETY: code of a library that is loaded.
    unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance(function.address() as usize), size) }.to_vec()
}

extern "C" fn seven() -> i32 {
    7
}

/// With permission, functions that are too short, or that branch to their own start, have callbacks at entry and return.
pub(crate) fn functions_that_no_jump_fits() {
    if !can_compile() {
        return;
    }
    let fixture = refused();
    let short: Short = fixture.get("short");
    let back: extern "C" fn(i32) = fixture.get("back");
    for name in ["short", "back", "through"] {
        let function = fixture.function(name);
        function.check().expect_err("no jump fits in");
        let function = function.or_breakpoint();
        assert_eq!(function.check(), Ok(Preparation::Breakpoint), "{name}");
        let plain = code(&function);
        for point in [Point::Entry, Point::Return] {
            let count = Arc::new(AtomicU64::new(0));
            // SAFETY: a C function.
            let hook = unsafe { Hook::attach(std::slice::from_ref(&function), point, &counting(&count)) };
            let hook = hook.unwrap_or_else(|error| panic!("{name}: {error}"));
            let hooked = code(&function);
            assert!(hooked[0] == 0xcc && hooked[1..] == plain[1..], "{name}: {hooked:x?} of {plain:x?}");
            let states = twinbpf_hook::enabled().expect("no callback");
            let state = states.iter().find(|state| state.address == function.address()).expect("it is hooked");
            assert_eq!(state.preparation.to_string(), "breakpoint");
            assert!(state.trampoline.is_some(), "{name}: its code leads to the trampoline");
            for _ in 0..100 {
                match name {
                    "short" => assert_eq!(short(), 0),
                    "back" => back(5),
                    _ => {}
                }
            }
            assert_eq!(count.load(Ordering::Relaxed), if name == "through" { 0 } else { 100 }, "{name}, {point:?}");
            hook.detach().expect("it detaches");
            assert_eq!(code(&function), plain, "{name}");
            fixture.function(name).check().expect_err("nothing allows it any more");
        }
    }
    // What a jump fits in has one, and what cannot run elsewhere is refused.
    assert_eq!(fixture.function("plain").or_breakpoint().check(), Ok(Preparation::Moved));
    let words = "its first bytes are no instructions that can run elsewhere";
    assert_eq!(fixture.function("traps").or_breakpoint().check().expect_err("it traps").to_string(), words);
    // SAFETY: the same type.
    let replacement = unsafe { Replacement::of(&fixture.function("short").or_breakpoint(), seven as *const () as u64) };
    let replacement = replacement.expect("it attaches");
    assert_eq!(short(), 7);
    drop(replacement);
    assert_eq!(short(), 0);
}

/// Functions compute what they do with breakpoints at all of their instructions that no jump fits in, next to each other.
pub(crate) fn every_instruction() {
    if !can_compile() {
        return;
    }
    for kind in ["gcc-moved", "clang-moved"] {
        let fixture = Fixture::new(kind);
        let plain = compute(&fixture);
        let (mut places, refused) = instructions_as(&fixture, Function::or_breakpoint);
        places.retain(|place| place.check() == Ok(Preparation::Breakpoint));
        assert!(places.len() > 50, "{kind}: {} instructions, {refused:?}", places.len());
        let count = Arc::new(AtomicU64::new(0));
        // SAFETY: instructions of C functions, whose registers all stay.
        let hook = unsafe { Hook::attach(&places, Point::Entry, &counting(&count)) };
        let hook = hook.unwrap_or_else(|error| panic!("{kind}: {error}"));
        assert_eq!(compute(&fixture), plain, "{kind}");
        assert!(count.load(Ordering::Relaxed) > 1_000, "{kind}");
        hook.detach().expect("it detaches");
        assert_eq!(compute(&fixture), plain, "{kind}, after that");
    }
}

/// Breakpoints come and go while other threads call: each call computes what it does, and each of this thread's counts.
pub(crate) fn while_threads_call() {
    if !can_compile() {
        return;
    }
    let fixture = refused();
    let (function, short) = (fixture.function("short").or_breakpoint(), fixture.get::<Short>("short"));
    let call = || assert_eq!(short(), 0);
    while_threads(
        4,
        || {},
        call,
        || {
            for _ in 0..300 {
                let hook = attach(&function).expect("it attaches");
                (0..10).for_each(|_| assert_eq!(short(), 0));
                assert_eq!(take_count(), 10);
                hook.detach().expect("it detaches");
                (0..10).for_each(|_| assert_eq!(short(), 0));
                assert_eq!(take_count(), 0);
            }
        },
    );
}

static TRAPS: AtomicU64 = AtomicU64::new(0);

extern "C" fn on_trap(_: libc::c_int) {
    TRAPS.fetch_add(1, Ordering::Relaxed);
}

/// The program's own breakpoints reach its own handler, and a thread that blocks the signal is a refusal.
pub(crate) fn other_traps_and_blocked_threads() {
    if !can_compile() {
        return;
    }
    let fixture = refused();
    let (function, short) = (fixture.function("short").or_breakpoint(), fixture.get::<Short>("short"));
    // SAFETY: the handler counts, and returns.
    unsafe { libc::signal(libc::SIGTRAP, on_trap as *const () as usize) };
    let hook = attach(&function).expect("it attaches");
    // SAFETY: as above.
    unsafe { std::arch::asm!("int3") };
    assert_eq!((short(), TRAPS.load(Ordering::Relaxed), take_count()), (0, 1, 1));
    drop(hook);
    let wait = || thread::sleep(Duration::from_millis(5));
    while_threads(1, block_all, wait, || {
        wait();
        let error = attach(&function).expect_err("a thread would die of it").to_string();
        let module = fixture.module.path().display();
        let (start, end) = (format!("cannot hook short of {module}: thread "), " blocks SIGTRAP, by which ");
        assert!(error.starts_with(&start) && error.contains(end), "{error}");
        assert_eq!(short(), 0);
    });
}
