//! The same through the public API: engines, objects, code that is compiled ahead of time.
#![expect(unsafe_code, reason = "tests call the C library, or what they test is unsafe")]

use std::path::Path;
use std::process::Command;

use twinbpf::Target;
use twinbpf::{Compiled, Config, Engine, EngineKind, InstancePre, Linker, Object, OptLevel, TrapCode};
use twinbpf_isa::asm;
use twinbpf_isa::{Endian, encode_all};
use twinbpf_vm::interp::Driver;

use crate::generate::{self, Call, Random, Shape};
use crate::support::{installed, skip};
use crate::{in_child, on_thread};

const LARGE: Shape = Shape { values: 1200, call: Call::Direct, deep: false, looped: false };

/// An object of functions that call each other directly.
fn object(shapes: &[Shape]) -> Object {
    let insns = asm::parse(&generate::text(shapes, false, &mut Random(7))).expect("text");
    Object::from_code("stack", &encode_all(&insns, Endian::Little), Endian::Little).expect("an object")
}

fn config(kind: EngineKind) -> Config {
    Config::new().engine(kind).memory_limit(1 << 26).driver(Driver::Threaded)
}

fn instantiate(config: Config, object: &Object, compiled: Option<&Compiled>) -> InstancePre<()> {
    let mut linker = Linker::<()>::new(&Engine::new(config).expect("address space"));
    if let Some(compiled) = compiled {
        linker.compiled(compiled.clone());
    }
    linker.instantiate_programs(object, &["main"]).unwrap_or_else(|error| panic!("{error:#}"))
}

fn run(pre: &InstancePre<()>, depth: u64) -> Result<u64, TrapCode> {
    let mut instance = pre.instance(()).expect("room for a stack");
    instance.call(pre.program("main").expect("it has one"), &[depth, 77]).map_err(|trap| trap.code())
}

pub(crate) fn code_that_was_compiled_before_checks_the_limit_too() {
    if !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
        return skip("no native code on this machine");
    }
    if !installed("cc") {
        return skip("cc is not installed");
    }
    in_child("facade::code_that_was_compiled_before_checks_the_limit_too", || {
        let object = object(&[LARGE]);
        let reference = instantiate(config(EngineKind::Interp), &object, None);
        for opt in [OptLevel::Speed, OptLevel::None] {
            let config = || config(EngineKind::Auto).opt_level(opt);
            let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("native-stack-{opt:?}"));
            std::fs::create_dir_all(&folder).expect("a folder");
            let (file, library) = (folder.join("stack.o"), folder.join("stack.so"));
            let target = Target::new(None, Default::default()).expect("this machine");
            let code = instantiate(config(), &object, None).object_file(&target, "").expect("an object file");
            std::fs::write(&file, code).expect("a file");
            let made = Command::new("cc").args(["-shared", "-nostdlib", "-o"]).arg(&library).arg(&file).status();
            assert!(made.expect("cc runs").success());
            #[allow(unused_unsafe, reason = "its contract is that this test has made the library")]
            // SAFETY: the library was just made of the object that it is used for.
            let compiled = unsafe { Compiled::open(&library) }.expect("a library");
            let pre = instantiate(config(), &object, Some(&compiled));
            for depth in [5, 900, 1000, 1021, 1022, 1023] {
                assert_eq!(run(&pre, depth), run(&reference, depth), "{opt:?}, depth {depth}");
            }
        }
    });
}

/// All objects of a directory.
fn objects(directory: &Path) -> Vec<(String, Vec<u8>)> {
    let mut objects = Vec::new();
    for entry in std::fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            objects.extend(self::objects(&path));
        } else if path.extension().is_some_and(|extension| extension == "o") {
            objects.push((path.display().to_string(), std::fs::read(&path).expect("a file")));
        }
    }
    objects
}

pub(crate) fn an_object_is_opened_compiled_and_run_on_a_thread_of_64_kib() {
    in_child("facade::an_object_is_opened_compiled_and_run_on_a_thread_of_64_kib", || {
        let file = std::fs::read(crate::support::corpus().join("bench/call.bpf.o")).expect("the corpus");
        let all = objects(&crate::support::corpus());
        for kind in [EngineKind::Interp, EngineKind::Auto, EngineKind::Jit] {
            if kind == EngineKind::Jit && !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
                continue;
            }
            for kib in [64, 128] {
                on_thread(kib, || {
                    let large = instantiate(config(kind), &object(&[LARGE]), None);
                    assert_eq!(run(&large, 2000), Err(TrapCode::CallDepth), "{kind:?}");
                    assert!(run(&large, 1000).is_ok(), "{kind:?}");
                    for (path, bytes) in &all {
                        let opened = Object::open("any.bpf.o", bytes);
                        assert!(opened.is_ok() || !path.ends_with(".bpf.o"), "{path}");
                    }
                    let mut linker = Linker::<()>::new(&Engine::new(config(kind)).expect("address space"));
                    linker.func("bench_add", |a: u64, b: u64| a.wrapping_add(b));
                    let object = Object::open("call.bpf.o", &file).expect("an object");
                    let pre = linker.instantiate_programs(&object, &["empty", "host", "local", "callback"]);
                    let pre = pre.unwrap_or_else(|error| panic!("{error:#}"));
                    let mut instance = pre.instance(()).expect("room for a stack");
                    for program in ["empty", "host", "local"] {
                        let entry = pre.program(program).expect("the object has it");
                        instance.call(entry, &[]).unwrap_or_else(|trap| panic!("{kind:?}: {trap:#}"));
                    }
                });
            }
        }
    });
}
