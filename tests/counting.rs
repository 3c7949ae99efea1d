//! Each run of an instance has the whole budget and counts what it executes, whatever ran before it.

mod support;

use support::corpus;
use twinbpf::{Config, Engine, EngineKind, Entry, Instance, Linker, Object, TrapCode};

/// A program of `corpus/bench/call.bpf.c` in an instance of its own that may execute so many instructions.
fn instance(program: &str, kind: EngineKind, max_insns: u64) -> (Instance<()>, Entry) {
    let object = Object::open("call.bpf.o", &std::fs::read(corpus().join("bench/call.bpf.o")).unwrap()).unwrap();
    let engine = Engine::new(Config::new().engine(kind).max_insns(max_insns)).unwrap();
    let mut linker = Linker::<()>::new(&engine);
    linker.func("bench_add", u64::wrapping_add);
    linker.func("labs", i64::abs);
    let pre = linker.instantiate_pre(&object).unwrap();
    let entry = pre.program(program).unwrap();
    (pre.instance(()).unwrap(), entry)
}

#[test]
fn each_run_counts_anew() {
    for program in ["empty", "local", "callback", "host"] {
        let (mut reference, entry) = instance(program, EngineKind::Interp, 1 << 40);
        reference.call(entry, &[]).unwrap();
        let total = reference.insns_executed().unwrap();
        for kind in [EngineKind::Interp, EngineKind::Jit].into_iter().filter(|kind| kind.is_available()) {
            let (mut enough, entry) = instance(program, kind, total);
            let (mut short, short_entry) = instance(program, kind, total - 1);
            for run in 0..5 {
                enough.call(entry, &[]).unwrap_or_else(|trap| panic!("{program}, {kind:?}, run {run}: {trap}"));
                assert_eq!(enough.insns_executed(), Some(total), "{program}, {kind:?}, run {run}");
                let trap = short.call(short_entry, &[]).unwrap_err();
                assert_eq!(trap.code(), TrapCode::OutOfInsns, "{program}, {kind:?}, run {run}");
                assert_eq!(short.insns_executed(), Some(total - 1), "{program}, {kind:?}, run {run}");
            }
        }
    }
}

#[test]
fn a_run_counts_anew_after_one_that_trapped() {
    for kind in [EngineKind::Interp, EngineKind::Jit].into_iter().filter(|kind| kind.is_available()) {
        let text = "r0 = 0\nif r1 == 0 goto +1\nexit\nr0 = *(u64 *)(r1 + 0)\nexit";
        let object = Object::from_insns("text", &twinbpf_isa::asm::parse(text).unwrap()).unwrap();
        let engine = Engine::new(Config::new().engine(kind).max_insns(100)).unwrap();
        let pre = Linker::<()>::new(&engine).instantiate_pre(&object).unwrap();
        let (main, mut instance) = (pre.program("main").unwrap(), pre.instance(()).unwrap());
        for argument in [1, 1, 1, 0, 0, 1, 1, 0] {
            let (ended, executed) = (instance.call(main, &[argument]), instance.insns_executed());
            assert_eq!(ended.is_ok(), argument == 1, "{kind:?}: {ended:?}");
            // Native code that faults has not said how far it got.
            if ended.is_ok() || kind == EngineKind::Interp {
                assert_eq!(executed, Some(3), "{kind:?}: {ended:?}");
            }
        }
    }
}
