//! What the compiler does wrong is an error that names the place, and nothing more than that.

use std::sync::Arc;

use twinbpf_vm::image::Image;

use super::programs::same;
use super::rig::{Rig, program};
use crate::aot::{self, AotError, Cpu, Origin, Target};
use crate::{Code, InternalError, JitError, OptLevel, Options, PassInfo};

/// A loop that every pass examines.
const LOOP: &str = "r0 = 0
    r2 = 64
    L: r3 = *(u64 *)(r1 + 0)
    r0 += r3
    r1 += 8
    r2 += -1
    if r2 != 0 goto L
    exit";

/// Stages of any compilation.
const STAGES: [&str; 4] = ["translation", "optimiser", "code generation", "placing"];

/// The loop, in a function with this name.
fn named(name: &str) -> Rig {
    let mut program = program(LOOP);
    program.functions[0].name = name.into();
    Rig::with(program, &[])
}

/// The loop, in a function in which a stage panics.
fn panics_in(stage: &str) -> Rig {
    named(&format!("__fault_panic_{}", stage.replace([' ', '-'], "_")))
}

fn internal(error: JitError) -> Box<InternalError> {
    match error {
        JitError::Internal(internal) => internal,
        other => panic!("another error: {other}"),
    }
}

fn code(image: &Arc<Image>, opt: OptLevel) -> Code {
    Code::new(Arc::clone(image), Options { opt, ..Options::default() }).unwrap()
}

#[test]
fn a_panic_in_any_stage_is_an_error_that_names_it() {
    let passes = PassInfo::all().iter().map(|pass| pass.name);
    let speed = STAGES.into_iter().chain(passes).map(|stage| (OptLevel::Speed, stage));
    for (opt, stage) in speed.chain(STAGES.map(|stage| (OptLevel::None, stage))) {
        let rig = panics_in(stage);
        let code = code(&rig.image, opt);
        // Each is as it was before: the same again, whatever was locked or half done.
        for _ in 0..2 {
            let error = internal(code.compile_program(0).unwrap_err());
            let name = format!("__fault_panic_{}", stage.replace([' ', '-'], "_"));
            assert_eq!((&*error.program, &*error.function, error.stage), ("f0", &*name, stage));
            assert!(error.why.ends_with(&format!("panic: {stage} fails on purpose")), "{error}");
            assert!(!code.is_compiled(0));
        }
        let looped = code.compile_loop(2).unwrap_err();
        assert_eq!(internal(looped).stage, stage);
        same(&Rig::new(LOOP));
    }
}

#[test]
fn a_listing_and_an_object_file_fail_alike() {
    for stage in ["translation", "licm", "optimiser", "code generation"] {
        let rig = panics_in(stage);
        let code = code(&rig.image, OptLevel::Speed);
        assert_eq!(internal(code.disassemble(0).unwrap_err()).stage, stage);
        let origin = Origin { object: "t.bpf.o", digest: 1, maps: &[], externs: &[] };
        let target = Target::new(None, Cpu::default()).unwrap();
        match aot::object(&rig.image, code.options(), &target, origin, "") {
            Err(AotError::Internal(error)) => assert_eq!(error.stage, stage),
            other => panic!("{other:?}"),
        }
    }
}
