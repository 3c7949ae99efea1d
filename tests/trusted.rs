//! Programs that are trusted: raw pointers, C functions that take them and call back, and faults in there.
#![cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu", feature = "dl"))]
#![expect(unsafe_code, reason = "tests call the C library, or what they test is unsafe")]

#[path = "support/blocked.rs"]
mod blocked;

use std::io::Write;
use std::sync::{Arc, Mutex};

use twinbpf::{Config, Engine, EngineKind, Instance, InstancePre, Linker, Object, Trap, TrapCode};

const TIMES: usize = 1000;

macro_rules! object {
    ($name:literal) => {
        Object::open($name, include_bytes!(concat!("../corpus/", $name))).expect("an object of the corpus")
    };
}

/// Where scripts print to.
#[derive(Clone, Default)]
struct Output(Arc<Mutex<Vec<u8>>>);

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// All of them; what starts in the interpreter stays there for what these scripts do.
const ENGINES: &[EngineKind] = match EngineKind::Jit.is_available() {
    true => &[EngineKind::Interp, EngineKind::Jit],
    false => &[EngineKind::Interp],
};

fn engine(kind: EngineKind) -> Engine {
    let config = Config::new().memory_limit(1 << 25).engine(kind);
    // SAFETY: the scripts of these tests access their own memory, and addresses where nothing is.
    unsafe { Engine::new_trusted(config) }.expect("low addresses")
}

fn pre(engine: &Engine, object: &Object) -> InstancePre<()> {
    let mut linker = Linker::new(engine);
    // SAFETY: the scripts of these tests call their functions by their prototypes, or with addresses where nothing is.
    unsafe {
        linker.library("libc.so.6").expect("the C library");
        linker.library("libm.so.6").expect("its mathematics");
    }
    linker.instantiate_pre(object).unwrap_or_else(|error| panic!("{error:#}"))
}

fn begin(instance: &mut Instance<()>) -> Result<u64, Trap> {
    let entry = instance.pre().program("BEGIN").expect("a script");
    instance.call(entry, &[])
}

fn check_output(engine: &Engine, object: &Object, expected: &str) {
    let output = Output::default();
    let mut instance = pre(engine, object).instance_with_output((), Box::new(output.clone())).unwrap();
    assert_eq!(begin(&mut instance).unwrap_or_else(|trap| panic!("{trap:#}")), 0);
    assert_eq!(String::from_utf8_lossy(&output.0.lock().unwrap()), expected);
}

const SORTED: &str = include_str!("../corpus/scripts/sort.out");

#[test]
fn qsort_of_the_c_library_calls_a_function_of_the_script() {
    for &kind in ENGINES {
        check_output(&engine(kind), &object!("scripts/sort.bpf.o"), SORTED);
    }
}

#[test]
fn memory_of_the_c_library() {
    let begin = include_str!("../corpus/scripts/libc.out").trim_end_matches("END\n");
    for &kind in ENGINES {
        check_output(&engine(kind), &object!("scripts/libc.bpf.o"), begin);
    }
}

#[test]
fn c_functions_get_what_their_types_say() {
    for &kind in ENGINES {
        check_output(&engine(kind), &object!("scripts/foreign.bpf.o"), include_str!("../corpus/scripts/foreign.out"));
    }
}

#[test]
fn a_fault_in_c_after_a_callback_is_at_the_call_of_c() {
    for &kind in ENGINES {
        let (engine, object) = (engine(kind), object!("faults/tree.bpf.o"));
        let mut instance = pre(&engine, &object).instance_with_output((), Box::new(std::io::sink())).unwrap();
        let trap = begin(&mut instance).unwrap_err();
        assert_eq!(trap.to_string(), "fault inside a C function: tfind: SIGSEGV at address 0x10001230");
        let location = trap.location().expect("where it was called");
        assert_eq!(&*location.function, "BEGIN");
        assert!(location.line.as_ref().is_some_and(|line| line.contains("tree.bpf.c:26")), "{location}");
        assert_eq!(begin(&mut instance).unwrap_err().code(), TrapCode::Poisoned);
    }
}

#[test]
fn a_fault_in_strlen_ends_the_run_and_poisons_the_engine() {
    let object = object!("faults/strlen.bpf.o");
    for turn in 0..TIMES {
        let engine = engine(ENGINES[turn % ENGINES.len()]);
        let pre = pre(&engine, &object);
        let mut instance = pre.instance_with_output((), Box::new(std::io::sink())).unwrap();
        let trap = begin(&mut instance).unwrap_err();
        assert_eq!(trap.to_string(), "fault inside a C function: strlen: SIGSEGV at address 0x10001230");
        let location = trap.location().expect("where it was called");
        assert!(location.line.as_ref().is_some_and(|line| line.contains("strlen.bpf.c:6")), "{location}");
        assert_eq!(begin(&mut instance).unwrap_err().code(), TrapCode::Poisoned);
        let mut other = pre.instance_with_output((), Box::new(std::io::sink())).unwrap();
        assert_eq!(begin(&mut other).unwrap_err().code(), TrapCode::Poisoned);
    }
    check_output(&engine(EngineKind::Auto), &object!("scripts/sort.bpf.o"), SORTED);
}

#[test]
fn a_trap_in_a_comparison_leaves_qsort() {
    for &kind in ENGINES {
        let (engine, object) = (engine(kind), object!("faults/compare.bpf.o"));
        let mut instance = pre(&engine, &object).instance_with_output((), Box::new(std::io::sink())).unwrap();
        for _ in 0..TIMES {
            let trap = begin(&mut instance).unwrap_err();
            assert_eq!(trap.code(), TrapCode::OutOfBounds, "{trap:#}");
            let (location, callers) = (trap.location().expect("in the comparison"), &trap.backtrace().sites);
            assert_eq!(&*location.function, "compare");
            assert_eq!((callers.len(), &*callers[0].location.function), (1, "BEGIN"), "{trap:#}");
        }
    }
}

#[test]
fn the_sandbox_has_its_own_qsort() {
    for &kind in ENGINES {
        let engine = Engine::new(Config::new().engine(kind)).unwrap();
        check_output(&engine, &object!("scripts/sort.bpf.o"), SORTED);
    }
}

#[test]
fn a_bad_pointer_of_the_program_itself() {
    for &kind in ENGINES {
        let (engine, object) = (engine(kind), object!("faults/wild_load.bpf.o"));
        let mut instance = pre(&engine, &object).instance_with_output((), Box::new(std::io::sink())).unwrap();
        for _ in 0..TIMES {
            let trap = begin(&mut instance).unwrap_err();
            assert_eq!(trap.code(), TrapCode::OutOfBounds);
            assert_eq!(trap.detail(), "4-byte load from 0x123456789000: SIGSEGV, there is nothing for it");
        }
    }
}

#[test]
fn engines_come_and_go_and_live_side_by_side() {
    let object = object!("scripts/hello.bpf.o");
    let engines: Vec<_> = (0..8).map(|_| engine(EngineKind::Auto)).collect();
    for engine in &engines {
        let mut instance = pre(engine, &object).instance_with_output((), Box::new(std::io::sink())).unwrap();
        begin(&mut instance).unwrap_or_else(|trap| panic!("{trap:#}"));
        assert!(engine.arena().base() == 0 && engine.arena().used() > 0);
    }
}

blocked::with_every_signal_blocked!();
