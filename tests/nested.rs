//! Runs inside runs: instances that move from one run to the next, whose host functions call back directly, through
//! C or through another instance, or run programs of other instances.
#![expect(unsafe_code, reason = "tests call the C library, or what they test is unsafe")]

#[path = "support/blocked.rs"]
mod blocked;

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use twinbpf::{Caller, Config, Engine, EngineKind, Instance, Linker, Object, Ptr, Trap};
use twinbpf_vm::host::Activation;
use twinbpf_vm::recover::{self, Form};

/// Of `corpus/bench/call.bpf.c`: calls of a program, and the sum of the numbers below.
const CALLS: u64 = 1000;
const SUM: u64 = (CALLS - 1) * CALLS / 2;
/// Runs: the first ones are prepared, later ones find all as it was.
const RUNS: u64 = 6;

/// What host functions of an instance have seen and done.
#[derive(Default)]
struct Seen {
    calls: u64,
    /// The function to call back in the last of the calls.
    back: Option<u64>,
}

/// Programs of the object.
const PROGRAMS: [&str; 4] = ["empty", "host", "local", "callback"];

fn object() -> Object {
    Object::open("call.bpf.o", include_bytes!("../corpus/bench/call.bpf.o")).expect("an object")
}

/// None where there is none of this kind.
fn engine(kind: EngineKind) -> Option<Engine> {
    let config = Config::new().engine(kind).memory_limit(1 << 25);
    // SAFETY: the programs of `call.bpf.c` access their own memory.
    match unsafe { Engine::new_trusted(config) } {
        Err(_) if kind == EngineKind::Jit && !cfg!(target_arch = "x86_64") => None,
        engine => Some(engine.unwrap_or_else(|error| panic!("{error:#}"))),
    }
}

/// An instance of the calls of the corpus, in which each call of `host` also does some work.
fn instance(kind: EngineKind, work: impl Fn() + Send + Sync + 'static) -> Option<Instance<Seen>> {
    let engine = engine(kind)?;
    let mut linker = Linker::<Seen>::new(&engine);
    linker.func("bench_add", move |mut caller: Caller<'_, Seen>, a: u64, b: u64| {
        work();
        let seen = caller.data_mut();
        seen.calls += 1;
        if let Some(address) = seen.back.take_if(|_| b == CALLS - 1) {
            assert_eq!(caller.call(Ptr::new(address), &[]).unwrap_or_else(|trap| panic!("called back: {trap:#}")), SUM);
        }
        a.wrapping_add(b)
    });
    let pre = linker.instantiate_programs(&object(), &PROGRAMS);
    let pre = pre.unwrap_or_else(|error| panic!("{error:#}"));
    Some(pre.instance(Seen::default()).expect("room for a stack"))
}

fn run(instance: &mut Instance<Seen>, program: &str) -> u64 {
    let entry = instance.pre().program(program).expect("the object has it");
    instance.call(entry, &[]).unwrap_or_else(|trap| panic!("{program}: {trap:#}"))
}

/// Where a program is as a function.
fn address(instance: &mut Instance<Seen>, program: &str) -> u64 {
    let image = instance.machine().image();
    let index = image.program_index(program).expect("the object has it");
    image.function_address(index, 0).expect("it has an instruction")
}

/// Calls a program as a function, which is a run of its own.
fn call(instance: &mut Instance<Seen>, program: &str) -> u64 {
    let address = address(instance, program);
    instance.machine().call(address, [0; 5]).unwrap_or_else(|trap| panic!("{program}: {trap:#}"))
}

/// Many runs that call nothing back, and one that does, for each of these programs.
fn calls_back(instance: &mut Instance<Seen>, programs: &[&str], what: &str) {
    for program in programs {
        for _ in 0..RUNS {
            assert_eq!(run(instance, "host"), SUM, "{what}");
        }
        let address = address(instance, program);
        instance.data_mut().back = Some(address);
        assert_eq!(run(instance, "host"), SUM, "{what}, {program}");
        assert_eq!(instance.data().back, None, "{what}: {program} was called back");
    }
}

fn kinds() -> impl Iterator<Item = EngineKind> {
    [EngineKind::Interp, EngineKind::Jit, EngineKind::Auto].into_iter().filter(|kind| kind.is_available())
}

#[test]
fn an_instance_that_moves_is_found_where_it_is() {
    for kind in kinds() {
        let (Some(mut one), Some(mut other)) = (instance(kind, || ()), instance(kind, || ())) else { continue };
        for _ in 0..RUNS {
            for instance in [&mut one, &mut other] {
                let before = instance.data().calls;
                for _ in 0..RUNS {
                    assert_eq!(run(instance, "host"), SUM, "{kind:?}");
                }
                assert_eq!(instance.data().calls, before + RUNS * CALLS, "{kind:?}");
            }
            // Where each was, there is another now, with its own data.
            std::mem::swap(&mut one, &mut other);
        }
        assert_eq!(call(&mut one, "local"), SUM, "{kind:?}");
    }
}

#[test]
fn a_run_like_those_before_calls_back() {
    for kind in kinds() {
        let Some(mut instance) = instance(kind, || ()) else { continue };
        calls_back(&mut instance, &["local", "callback", "host"], &format!("{kind:?}"));
        assert_eq!(instance.data().calls, (3 * RUNS + 3 + 1) * CALLS, "{kind:?}");
    }
}

/// As what [`c_function`] calls back, set while it may be called.
static BACK: AtomicU64 = AtomicU64::new(0);

/// What C code is that gets a function of the program and calls it.
extern "C" fn c_function() -> u64 {
    let address = BACK.load(Ordering::Relaxed) as usize;
    // SAFETY: the slot of a function of the program is code that C may call; it ignores arguments here.
    unsafe { std::mem::transmute::<usize, extern "C" fn() -> u64>(address)() }
}

/// Serves callbacks as a library's functions have it: `data` is the activation.
unsafe fn serve(data: *mut (), function: u64, args: &[u64; 5]) -> Result<u64, Trap> {
    // SAFETY: `call_c` below passes this.
    unsafe { &mut *data.cast::<&mut dyn Activation>() }.call(function, *args)
}

#[test]
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn a_host_function_calls_c_that_calls_back() {
    for kind in kinds() {
        let engine = engine(kind).expect("there is one");
        let mut linker = Linker::<Seen>::new(&engine);
        linker.func("bench_add", |mut caller: Caller<'_, Seen>, a: u64, b: u64| {
            if let Some(address) = caller.data_mut().back.take_if(|_| b == CALLS - 1) {
                BACK.store(address, Ordering::Relaxed);
                let mut activation = caller.activation();
                let (form, data) = (Form { variadic: false, float: false }, (&raw mut activation).cast());
                // SAFETY: the function takes no arguments, and `serve` gets the activation, which lives longer.
                let sum =
                    unsafe { recover::call_c(c_function as *const () as usize, form, &[0; 6], &[0.0; 8], data, serve) };
                assert_eq!(sum.expect("it ends well"), SUM);
            }
            a.wrapping_add(b)
        });
        let pre = linker.instantiate_programs(&object(), &PROGRAMS).unwrap_or_else(|error| panic!("{error:#}"));
        let mut instance = pre.instance(Seen::default()).expect("room for a stack");
        calls_back(&mut instance, &["local", "callback"], &format!("{kind:?}"));
    }
}

thread_local! {
    /// The outer instance, for host functions of the inner.
    static OUTER: Cell<Option<*mut Caller<'static, Seen>>> = const { Cell::new(None) };
}

#[test]
fn an_inner_instance_calls_the_outer_back() {
    for (kind, other) in kinds().flat_map(|kind| kinds().map(move |other| (kind, other))) {
        let inner = instance(other, || {
            if let Some(outer) = OUTER.take() {
                // SAFETY: the host function that set it waits for this one.
                let outer = unsafe { &mut *outer };
                let address = outer.data_mut().back.take().expect("where to call");
                assert_eq!(outer.call(Ptr::new(address), &[]).unwrap_or_else(|trap| panic!("{trap:#}")), SUM);
            }
        });
        let Some(inner) = inner.map(Mutex::new) else { continue };
        let Some(engine) = engine(kind) else { continue };
        let mut linker = Linker::<Seen>::new(&engine);
        linker.func("bench_add", move |mut caller: Caller<'_, Seen>, a: u64, b: u64| {
            if b == CALLS - 1 && caller.data_mut().back.is_some() {
                OUTER.set(Some((&raw mut caller).cast()));
                assert_eq!(run(&mut inner.lock().expect("no thread panics"), "host"), SUM);
            }
            a.wrapping_add(b)
        });
        let pre = linker.instantiate_programs(&object(), &PROGRAMS).unwrap_or_else(|error| panic!("{error:#}"));
        let mut outer = pre.instance(Seen::default()).expect("room for a stack");
        calls_back(&mut outer, &["local", "callback"], &format!("{other:?} in {kind:?}"));
    }
}

#[test]
fn a_host_function_runs_another_instance() {
    for (kind, other) in kinds().flat_map(|kind| kinds().map(move |other| (kind, other))) {
        let Some(inner) = instance(other, || ()) else { continue };
        let inner = Arc::new(Mutex::new(inner));
        let (shared, turns) = (Arc::clone(&inner), AtomicU64::new(0));
        let work = move || {
            if turns.fetch_add(1, Ordering::Relaxed).is_multiple_of(100) {
                let inner = &mut *shared.lock().expect("no thread panics");
                // Runs of both kinds, one after another, while the outer program waits.
                assert_eq!(run(inner, "host"), SUM);
                assert_eq!(call(inner, "callback"), SUM);
                assert_eq!(run(inner, "empty"), 0);
            }
        };
        let Some(mut outer) = instance(kind, work) else { continue };
        for _ in 0..RUNS {
            assert_eq!(run(&mut outer, "host"), SUM, "{other:?} in {kind:?}");
            assert_eq!(run(&mut outer, "callback"), SUM, "{other:?} in {kind:?}");
            assert_eq!(run(&mut inner.lock().expect("no thread panics"), "host"), SUM, "{other:?} in {kind:?}");
        }
    }
}

blocked::with_every_signal_blocked!();
