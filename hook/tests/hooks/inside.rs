//! Hooks at instructions inside functions.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::hint::black_box;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use twinbpf_hook::{Callback, Function, Hook, Point, Trampoline};

use crate::can_compile;
use crate::fixture::Fixture;
use crate::transparent::{compute, disturb};

/// More than a jump displaces.
const APART: u64 = 20;

/// Every instruction of the fixture's functions that can be hooked, and how many cannot, by the reason.
fn instructions(fixture: &Fixture) -> (Vec<Function>, BTreeMap<String, usize>) {
    instructions_as(fixture, Function::clone)
}

/// The same of places that are made of these.
pub(crate) fn instructions_as(
    fixture: &Fixture,
    how: impl Fn(&Function) -> Function,
) -> (Vec<Function>, BTreeMap<String, usize>) {
    let (mut found, mut refused) = (Vec::new(), BTreeMap::new());
    let all = fixture.module.functions("*");
    let is_own = |function: &&Function| !function.name().starts_with('_') && !function.name().contains("_tm_");
    for function in all.iter().filter(is_own) {
        for place in (1..function.size()).map(|offset| how(&function.at_offset(offset))) {
            match place.check() {
                Ok(_) => found.push(place),
                Err(why) => *refused.entry(why.to_string()).or_default() += 1,
            }
        }
    }
    found.sort_by_key(Function::address);
    (found, refused)
}

/// The first of each, and then those that are far enough from the one before.
fn spread(places: &[Function], first: usize) -> Vec<Function> {
    let mut chosen: Vec<Function> = Vec::new();
    for place in places.iter().skip(first) {
        if chosen.last().is_none_or(|last| place.address() >= last.address() + APART) {
            chosen.push(place.clone());
        }
    }
    chosen
}

/// A callback that changes what C functions may change, and copies memory upwards.
pub(crate) fn counting(count: &Arc<AtomicU64>) -> Callback {
    let count = Arc::clone(count);
    let run = move || {
        let from = black_box([7_u8; 4096]);
        let mut to = [0; 4096];
        // SAFETY: as many bytes of each.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), black_box(to.as_mut_ptr()), black_box(4096)) };
        assert!(black_box(to)[4095] == 7 && to[0] == 7);
        disturb();
        count.fetch_add(1, Ordering::Relaxed);
    };
    // SAFETY: it counts, and takes no lock.
    unsafe { Callback::of(move |_| run()) }
}

/// Functions compute what they do, with hooks at each of their instructions.
pub(crate) fn every_instruction() {
    if !can_compile() {
        return;
    }
    for kind in ["gcc-moved", "gcc-nops", "clang-moved"] {
        let fixture = Fixture::new(kind);
        let plain = compute(&fixture);
        let (places, refused) = instructions(&fixture);
        assert!(places.len() > 200, "{kind}: {} instructions, {refused:?}", places.len());
        let count = Arc::new(AtomicU64::new(0));
        for first in 0..8 {
            let chosen = spread(&places, first);
            // SAFETY: instructions of C functions, whose registers all stay.
            let hook = unsafe { Hook::attach(&chosen, Point::Entry, &counting(&count)) };
            let hook = hook.unwrap_or_else(|error| panic!("{kind}: {error}"));
            assert_eq!(compute(&fixture), plain, "{kind}, from the instruction number {first}");
            assert!(count.swap(0, Ordering::Relaxed) > 10_000, "{kind}");
            assert_eq!(hook.skipped(), 0, "{kind}");
            hook.detach().expect("it detaches");
            assert_eq!(compute(&fixture), plain, "{kind}, after that");
            assert_eq!(count.load(Ordering::Relaxed), 0, "{kind}");
        }
    }
}

unsafe extern "C" {
    fn backtrace(frames: *mut *mut c_void, count: c_int) -> c_int;
}

/// Registers are those of the instruction, an unwinder finds the function and its callers, and states say where.
pub(crate) fn callbacks_see_the_function() {
    if !can_compile() {
        return;
    }
    let fixture = Fixture::new("gcc-moved");
    let fact = fixture.function("fact");
    let (places, _) = instructions(&fixture);
    let place = places.iter().find(|place| place.name().starts_with("fact+")).expect("it has one").clone();
    let range = fact.address()..fact.address() + fact.size();
    let (seen, address) = (Arc::new(AtomicU64::new(0)), place.address());
    let counter = Arc::clone(&seen);
    // SAFETY: it unwinds, and keeps nothing.
    let callback = unsafe {
        Callback::of(move |call| {
            assert_eq!(call.address(), address);
            let mut frames = [ptr::null_mut(); 64];
            let count = backtrace(frames.as_mut_ptr(), 64);
            let within = frames[..count as usize].iter().filter(|frame| range.contains(&(frame.addr() as u64)));
            counter.fetch_max(within.count() as u64, Ordering::Relaxed);
        })
    };
    // SAFETY: an instruction of a C function.
    let hook = unsafe { Hook::attach(std::slice::from_ref(&place), Point::Entry, &callback) }.expect("it attaches");
    fixture.get::<extern "C" fn(i64) -> i64>("fact")(20);
    assert!(seen.load(Ordering::Relaxed) >= 19, "{seen:?} frames of 20");
    let states = twinbpf_hook::enabled().expect("no callback");
    let state = states.iter().find(|state| state.address == place.address()).expect("it is hooked");
    assert_eq!((state.name.as_str(), state.trampoline), (place.name(), Some(Trampoline::RegsPrivate)));
    assert!(state.registers);
    drop(hook);
}

/// What is no instruction, or another's, is refused with words that say so.
pub(crate) fn refusals() {
    if !can_compile() {
        return;
    }
    let fixture = Fixture::new("gcc-moved");
    let nine = fixture.function("nine");
    let count = Arc::new(AtomicU64::new(0));
    let attach = |functions: &[Function], point| {
        // SAFETY: instructions of C functions.
        unsafe { Hook::attach(functions, point, &counting(&count)) }
    };
    // What comes after a function may be known as the beginning of the next.
    let all: Vec<Function> = fixture.module.functions("*").into_iter().filter(|one| one.check().is_ok()).collect();
    drop(attach(&all, Point::Entry).expect("they attach"));
    let (places, _) = instructions(&fixture);
    let place = places.iter().find(|place| place.name().starts_with("nine+")).expect("it has one");
    let refused = |functions: &[Function], point, name: &str, why: &str| {
        let error = attach(functions, point).expect_err(why).to_string();
        assert_eq!(error, format!("cannot hook {name} of {}: {why}", fixture.module.path().display()));
    };
    let size = nine.size();
    let past = nine.at_offset(size);
    refused(&[past], Point::Entry, &format!("nine+{size:#x}"), "none of the function's instructions begins there");
    let inside =
        "inside a function there is no return to hook and nothing to replace, only callbacks before an instruction";
    refused(std::slice::from_ref(place), Point::Return, place.name(), inside);
    let hook = attach(std::slice::from_ref(&nine), Point::Entry).expect("it attaches");
    let near = places.iter().find(|place| place.name().starts_with("nine+") && place.offset() < 5).expect("one");
    refused(std::slice::from_ref(near), Point::Entry, near.name(), "the hook at nine moves the same instructions");
    hook.detach().expect("it detaches");
    let both = [nine.clone(), near.clone()];
    let why = format!("the hook at {} moves the same instructions", near.name());
    refused(&both, Point::Entry, "nine", &why);
    assert!(!twinbpf_hook::enabled().expect("no callback").iter().any(|state| state.name.starts_with("nine")));
    assert_eq!(near.at_offset(0).name(), "nine");
}
