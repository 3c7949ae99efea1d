//! How code is to be made.

use crate::limits::CompileLimits;
use crate::opt::PassSet;
use twinbpf_vm::image::Image;

/// How an address in a program becomes an address of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Memory {
    /// The low 32 bits, inside the arena. No branch; a wild pointer hits the arena or a guard.
    Sandbox,
    /// As `Sandbox`, but a pointer whose upper half is neither zero nor the arena's traps.
    Strict,
    /// The address itself. Needs an image in an arena of [`Arena::trusted`](twinbpf_vm::mem::Arena::trusted).
    Trusted,
}

/// How hard the compiler works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OptLevel {
    /// Register allocation only: code sooner.
    None,
    /// All of Cranelift's optimisations.
    Speed,
}

/// What code is made for. Code for different options can run side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Options {
    /// Addresses.
    pub memory: Memory,
    /// Counts instructions, as the interpreter does. Without it a run has no instruction limit.
    pub fuel: bool,
    /// Leaves r0 to r9 in [`Context::regs`](twinbpf_vm::host::native::Context::regs) at every exit, for tests.
    pub keep_registers: bool,
    /// Effort.
    pub opt: OptLevel,
    /// Above these a function gets baseline code.
    pub limits: CompileLimits,
    /// Passes of the optimiser that run.
    pub passes: PassSet,
    /// Has Cranelift check its input and its register allocation: twice the time, for tests.
    pub verify: bool,
}

impl Options {
    /// Whether code for them may run in the arena of an image: code that works with raw pointers only in a trusted one.
    pub(crate) fn suit(&self, image: &Image) -> bool {
        self.memory != Memory::Trusted || image.arena().is_trusted()
    }
}

impl Default for Options {
    /// Sandboxed, optimised, without fuel.
    fn default() -> Options {
        Options {
            memory: Memory::Sandbox,
            fuel: false,
            keep_registers: false,
            opt: OptLevel::Speed,
            limits: CompileLimits::default(),
            passes: PassSet::ALL,
            verify: cfg!(debug_assertions),
        }
    }
}
