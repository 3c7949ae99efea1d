//! How code is to be made.

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
///
/// ```
/// use twinbpf_jit::{OptLevel, Options};
///
/// let soon = Options { opt: OptLevel::None, ..Options::default() };
/// # assert_eq!(Options::default().opt, OptLevel::Speed);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OptLevel {
    /// Register allocation only: code sooner.
    None,
    /// All of Cranelift's optimisations.
    Speed,
}

/// How much work compiling one function may be before it gets [baseline code](crate::limits::Strategy::Baseline).
///
/// Work is an estimate: instructions x blocks x (1 + depth of loops / 16), and 512 x blocks for each computed jump. A `callx`
/// ends a block; with an instruction budget all calls do. 64 atomic operations count as a block. It is at
/// least the square of the instructions of the longest loop, divided by 16. A function whose instructions, squared and divided by
/// 4096, are more is compiled without the optimiser.
///
/// ```
/// use twinbpf_jit::CompileLimits;
///
/// let quick = CompileLimits::default().work(1 << 20);
/// assert!(quick.work < CompileLimits::NONE.work);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct CompileLimits {
    /// Work for one function, at most. The default is 2^24: about a second.
    pub work: u64,
}

impl CompileLimits {
    /// No function gets baseline code, however long it takes to compile.
    pub const NONE: CompileLimits = CompileLimits { work: u64::MAX };

    /// The same with another limit of work; 0 gives all functions baseline code.
    #[must_use]
    pub const fn work(self, work: u64) -> CompileLimits {
        CompileLimits { work }
    }
}

impl Default for CompileLimits {
    fn default() -> CompileLimits {
        CompileLimits { work: 1 << 24 }
    }
}

/// What code is made for. Code for different options can run side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Options {
    /// How generated code confines and translates addresses.
    pub memory: Memory,
    /// Counts instructions, as the interpreter does. Without it a run has no instruction limit.
    pub fuel: bool,
    /// Leaves r0 to r9 in [`Context::regs`](twinbpf_vm::host::native::Context::regs) at every exit, for tests.
    pub keep_registers: bool,
    /// How much the compiler optimises.
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
