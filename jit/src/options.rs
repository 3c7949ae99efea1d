//! How code is to be made.

/// How an address in a program becomes an address of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Memory {
    /// The low 32 bits, inside the arena. No branch; a wild pointer hits the arena or a guard.
    Sandbox,
    /// As `Sandbox`, but a pointer whose upper half is neither zero nor the arena's traps.
    Strict,
    /// The address itself.
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
    /// Has Cranelift check its input and its register allocation: twice the time, for tests.
    pub verify: bool,
}

impl Default for Options {
    /// Sandboxed, optimised, without fuel.
    fn default() -> Options {
        Options {
            memory: Memory::Sandbox,
            fuel: false,
            keep_registers: false,
            opt: OptLevel::Speed,
            verify: cfg!(debug_assertions),
        }
    }
}
