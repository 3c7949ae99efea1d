//! Execution modes: memory, strategy and options with which a case runs.

use std::ops::Range;
use std::sync::Arc;

use twinbpf_fuzzing::JitMode;
use twinbpf_jit::{Code, Memory, Options, Strategy};
use twinbpf_vm::image::Image;
use twinbpf_vm::interp::{Driver, Limits, Machine};

use crate::run::{self, Reach};

/// Native code of these programs of an image.
pub(crate) fn compile(mode: JitMode, image: &Arc<Image>, programs: Range<usize>) -> Code {
    let options = Options { keep_registers: true, ..mode.options() };
    let code = Code::new(Arc::clone(image), options).unwrap_or_else(|error| panic!("{mode:?}: {error}"));
    for program in programs {
        let compiled = match mode.strategy {
            Strategy::FirstTier => code.compile_first_tier(program),
            Strategy::Optimised | Strategy::Plain | Strategy::Baseline => code.compile_program(program),
        };
        compiled.unwrap_or_else(|error| panic!("{mode:?}: {error}"));
    }
    code
}

/// A machine that runs them so.
pub(crate) fn machine(mode: JitMode, image: &Arc<Image>, limits: Limits) -> Machine {
    let reach = match mode.memory {
        Memory::Sandbox => Reach::Arena,
        Memory::Strict => Reach::Exact,
        Memory::Trusted => Reach::Any,
    };
    let mut machine = run::machine(image.arena(), image, Driver::Step, limits, reach);
    let code = compile(mode, image, 0..image.programs().len());
    machine.set_native(Some(Arc::new(code))).expect("a native stack");
    machine
}
