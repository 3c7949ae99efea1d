//! The ways in which a program can be compiled.

use std::ops::Range;
use std::sync::Arc;

use twinbpf_jit::{Code, Memory, OptLevel, Options};
use twinbpf_vm::image::Image;
use twinbpf_vm::interp::{Driver, Limits, Machine};

use crate::run::{self, Reach};

/// One way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mode {
    pub(crate) memory: Memory,
    pub(crate) opt: OptLevel,
    pub(crate) fuel: bool,
}

/// All ways.
pub(crate) const MODES: [Mode; 12] = {
    let memories = [Memory::Sandbox, Memory::Strict, Memory::Trusted];
    let mut modes = [Mode { memory: Memory::Sandbox, opt: OptLevel::None, fuel: false }; 12];
    let mut index = 0;
    while index < modes.len() {
        let opt = if index & 1 == 0 { OptLevel::None } else { OptLevel::Speed };
        modes[index] = Mode { memory: memories[index >> 2], opt, fuel: index & 2 != 0 };
        index += 1;
    }
    modes
};

impl Mode {
    /// Native code of these programs of an image.
    pub(crate) fn compile(self, image: &Arc<Image>, programs: Range<usize>) -> Code {
        let Mode { memory, opt, fuel } = self;
        let options = Options { memory, opt, fuel, keep_registers: true, verify: true, ..Options::default() };
        let code = Code::new(Arc::clone(image), options).unwrap_or_else(|error| panic!("{self:?}: {error}"));
        for program in programs {
            code.compile_program(program).unwrap_or_else(|error| panic!("{self:?}: {error}"));
        }
        code
    }

    /// A machine that runs them so.
    pub(crate) fn machine(self, image: &Arc<Image>, limits: Limits) -> Machine {
        let reach = match self.memory {
            Memory::Sandbox => Reach::Arena,
            Memory::Strict => Reach::Exact,
            Memory::Trusted => Reach::Any,
        };
        let mut machine = run::machine(image.arena(), image, Driver::Step, limits, reach);
        machine.set_native(Some(Arc::new(self.compile(image, 0..image.programs().len())))).expect("a native stack");
        machine
    }
}
