//! Programs that are trusted: raw pointers, C functions that take them and call back, and faults in there.
#![cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu", feature = "dl"))]

use std::io::Write;
use std::sync::{Arc, Mutex};

use twinbpf::mem::Bounds;
use twinbpf::{Config, Engine, Instance, InstancePre, Linker, Object, Trap, TrapCode};

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

fn engine() -> Engine {
    Engine::new(Config { bounds: Bounds::Trusted, memory_limit: 1 << 25, ..Config::default() }).expect("low addresses")
}

fn pre(engine: &Engine, object: &Object) -> InstancePre<()> {
    let mut linker = Linker::new(engine);
    linker.library("libc.so.6").expect("the C library");
    linker.instantiate_pre(object).unwrap_or_else(|error| panic!("{error:#}"))
}

fn begin(instance: &mut Instance<()>) -> Result<u64, Trap> {
    let entry = instance.pre().program("BEGIN").expect("a script");
    instance.call(entry, &[])
}

fn output(object: &Object) -> String {
    let (output, engine) = (Output::default(), engine());
    let mut instance = pre(&engine, object).instance_with_output((), Box::new(output.clone())).unwrap();
    assert_eq!(begin(&mut instance).unwrap_or_else(|trap| panic!("{trap:#}")), 0);
    String::from_utf8(std::mem::take(&mut *output.0.lock().unwrap())).unwrap()
}

#[test]
fn qsort_of_the_c_library_calls_a_function_of_the_script() {
    assert_eq!(output(&object!("scripts/sort.bpf.o")), include_str!("../corpus/scripts/sort.out"));
}

#[test]
fn memory_of_the_c_library() {
    assert_eq!(output(&object!("scripts/libc.bpf.o")) + "END\n", include_str!("../corpus/scripts/libc.out"));
}

#[test]
fn a_fault_in_strlen_ends_the_run_and_poisons_the_engine() {
    let object = object!("faults/strlen.bpf.o");
    for _ in 0..TIMES {
        let engine = engine();
        let pre = pre(&engine, &object);
        let mut instance = pre.instance(()).unwrap();
        let trap = begin(&mut instance).unwrap_err();
        assert_eq!(trap.to_string(), "fault inside a C function: strlen: SIGSEGV at address 0x10001230");
        let place = trap.place().expect("where it was called");
        assert!(place.line.as_ref().is_some_and(|line| line.contains("strlen.bpf.c:6")), "{place}");
        assert_eq!(begin(&mut instance).unwrap_err().code(), TrapCode::Poisoned);
        let mut other = pre.instance(()).unwrap();
        assert_eq!(begin(&mut other).unwrap_err().code(), TrapCode::Poisoned);
    }
    assert_eq!(output(&object!("scripts/sort.bpf.o")), include_str!("../corpus/scripts/sort.out"));
}

#[test]
fn a_trap_in_a_comparison_leaves_qsort() {
    let (engine, object) = (engine(), object!("faults/compare.bpf.o"));
    let mut instance = pre(&engine, &object).instance(()).unwrap();
    for _ in 0..TIMES {
        let trap = begin(&mut instance).unwrap_err();
        assert_eq!(trap.code(), TrapCode::OutOfBounds, "{trap:#}");
        let (place, callers) = (trap.place().expect("in the comparison"), &trap.backtrace().sites);
        assert_eq!(&*place.function, "compare");
        assert_eq!((callers.len(), &*callers[0].place.function), (1, "BEGIN"), "{trap:#}");
    }
}

#[test]
fn the_sandbox_has_its_own_qsort() {
    let object = object!("scripts/sort.bpf.o");
    let engine = Engine::new(Config::default()).unwrap();
    let output = Output::default();
    let mut instance = pre(&engine, &object).instance_with_output((), Box::new(output.clone())).unwrap();
    begin(&mut instance).unwrap_or_else(|trap| panic!("{trap:#}"));
    assert_eq!(String::from_utf8_lossy(&output.0.lock().unwrap()), include_str!("../corpus/scripts/sort.out"));
}

#[test]
fn engines_come_and_go_and_live_side_by_side() {
    let object = object!("scripts/hello.bpf.o");
    let engines: Vec<_> = (0..8).map(|_| engine()).collect();
    for engine in &engines {
        let mut instance = pre(engine, &object).instance_with_output((), Box::new(std::io::sink())).unwrap();
        begin(&mut instance).unwrap_or_else(|trap| panic!("{trap:#}"));
        assert!(engine.arena().base() == 0 && engine.arena().used() > 0);
    }
}
