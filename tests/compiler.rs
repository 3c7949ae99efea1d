//! A bug of the compiler ends as an error, or leaves the program in the interpreter: through every entry point of the
//! compiler.

#![cfg(target_arch = "x86_64")]

use std::sync::Mutex;
use std::time::{Duration, Instant};

use twinbpf::{Config, Engine, EngineKind, Error, InstancePre, Linker, Object};
use twinbpf::{Cpu, Target};
use twinbpf_isa::{Endian, asm};

/// Counts down from r1 and adds up.
const SUM: &str = "r0 = 0\nif r1 == 0 goto end\nL: r0 += r1\nr1 += -1\nif r1 != 0 goto L\nend: exit";

/// An object with one program, in which a stage of the compiler panics (feature `faults`).
fn object(stage: &str) -> Object {
    let insns = asm::parse(SUM).expect("it is a program");
    let code: Vec<u8> = insns.iter().flat_map(|insn| insn.encode().to_bytes(Endian::Little)).collect();
    let mut object = Object::from_code("wrong.bpf.o", &code, Endian::Little).expect("an object");
    object.programs[0].name = format!("__fault_panic_{stage}").into();
    object
}

fn linked(engine: &Engine, stage: &str) -> Result<InstancePre<()>, Error> {
    Linker::new(engine).instantiate_pre(&object(stage))
}

fn engine(kind: EngineKind) -> Engine {
    Engine::new(Config::new().engine(kind)).expect("address space")
}

const STAGES: [&str; 4] = ["translation", "licm", "code_generation", "placing"];

#[test]
fn native_code_alone_is_an_error_with_object_program_and_stage() {
    let engine = engine(EngineKind::Jit);
    for stage in STAGES {
        let error = linked(&engine, stage).expect_err("it cannot be compiled").to_string();
        let name = format!("__fault_panic_{stage}");
        let begin =
            format!("wrong.bpf.o: cannot be compiled: program {name}, function {name}: internal compiler error");
        assert!(error.starts_with(&begin), "{error}");
        assert!(error.contains(&format!(" in stage {}: panic: ", stage.replace('_', " "))), "{error}");
        assert!(error.ends_with("please report it with the object"), "nothing runs it: {error}");
    }
    // The engine continues.
    let pre = linked(&engine, "no_stage_of_this_name").expect("it is compiled");
    let mut instance = pre.instance(()).expect("room for a stack");
    let entry = pre.program("__fault_panic_no_stage_of_this_name").expect("its only one");
    assert_eq!(instance.call(entry, &[100]).expect("no trap"), 5050);
}

#[test]
fn an_object_file_fails_alike() {
    let pre = linked(&engine(EngineKind::Interp), "increment_sinking").expect("nothing is compiled yet");
    let target = Target::new(None, Cpu::Baseline).expect("this machine");
    let error = pre.object_file(&target, "").expect_err("it cannot be compiled").to_string();
    assert!(error.ends_with("please report it with the object"), "{error}");
    assert!(error.contains("internal compiler error in stage increment-sinking: panic: "), "{error}");
}

/// What was logged.
static LOG: Mutex<Vec<String>> = Mutex::new(Vec::new());

struct Collect;

impl log::Log for Collect {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        LOG.lock().expect("no panic while held").push(record.args().to_string());
    }

    fn flush(&self) {}
}

#[test]
fn with_auto_the_program_stays_where_it_is_and_the_log_says_so_once() {
    log::set_logger(&Collect).expect("the only logger");
    log::set_max_level(log::LevelFilter::Warn);
    let engine = engine(EngineKind::Auto);
    for stage in STAGES {
        let pre = linked(&engine, stage).expect("linked");
        let mut instance = pre.instance(()).expect("room for a stack");
        let entry = pre.program(&format!("__fault_panic_{stage}")).expect("its only one");
        // The optimiser's stages are not those of the first tier, whose code the program has then.
        let stays = if stage == "licm" { "the code that it has" } else { "the interpreter" };
        let words = format!("program __fault_panic_{stage} stays in {stays}: program __fault_panic_{stage}, ");
        let logged = || LOG.lock().expect("no panic while held").iter().filter(|line| line.contains(&words)).count();
        let begin = Instant::now();
        let mut after = 0;
        while after < 20 {
            assert_eq!(instance.call(entry, &[10_000]).expect("no trap"), 50_005_000);
            after += usize::from(logged() > 0);
            assert!(begin.elapsed() < Duration::from_secs(60), "{:?}", LOG.lock());
        }
        assert_eq!(logged(), 1, "{:?}", LOG.lock());
        let lines = LOG.lock().expect("no panic while held");
        let line = lines.iter().find(|line| line.contains(&words)).expect("counted above");
        assert!(line.ends_with("please report it with the object"), "only its beginning says what runs it: {line}");
    }
}
