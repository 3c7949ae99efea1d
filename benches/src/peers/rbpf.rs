//! `rbpf`'s three engines on the raw machine: r1 points at the block.
//!
//! The interpreter checks every access against the memory it is given, its own JIT checks none, the one on Cranelift
//! compares each address with three regions and stops the process where none has it. The buffer of its own JIT is one
//! page: larger programs stop it too. [`probe`](crate::probe) keeps both from us.
#![expect(unsafe_code, reason = "calls of the C library and of generated code")]

use super::Runner;
use crate::workload::{Block, Dialect, Workload, code};

/// Which of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// All accesses checked.
    Interpreter,
    /// rbpf's own compiler, which checks no access.
    Jit,
    /// All accesses checked.
    Cranelift,
}

/// A runner of this workload.
pub fn workload(workload: &Workload, engine: Engine) -> Result<Runner, String> {
    // The machine borrows its code. Both live as long as the process, which measures a few dozen programs.
    program(code(workload.name, Dialect::V3).leak(), &workload.block(), engine)
}

/// Number of the helper that adds two numbers.
pub const ADD: i32 = 1;

/// Any bytecode over any block of memory.
pub fn program(code: &'static [u8], block: &[u8], engine: Engine) -> Result<Runner, String> {
    let mut block = Block::new(block);
    let vm = compile(code, engine)?;
    Ok(Box::new(move || {
        // Shortens the machine's lifetime parameter to this borrow of the block.
        let vm: &rbpf::EbpfVmRaw<'_> = &vm;
        let result = match engine {
            Engine::Interpreter => vm.execute_program(block.bytes()),
            // SAFETY: the program is one of ours, and does no more than its C source: it stays inside its block.
            Engine::Jit => unsafe { vm.execute_program_jit(block.bytes()) },
            Engine::Cranelift => vm.execute_program_cranelift(block.bytes()),
        };
        result.map_err(|error| error.to_string())
    }))
}

/// The machine with the bytecode, compiled where the engine compiles.
pub fn compile(code: &'static [u8], engine: Engine) -> Result<rbpf::EbpfVmRaw<'static>, String> {
    let mut vm = rbpf::EbpfVmRaw::new(Some(code)).map_err(|error| error.to_string())?;
    let add = |a: u64, b: u64, _: u64, _: u64, _: u64| a.wrapping_add(b);
    vm.register_helper(ADD as u32, add).map_err(|error| error.to_string())?;
    match engine {
        Engine::Interpreter => Ok(()),
        Engine::Jit => vm.jit_compile(),
        Engine::Cranelift => vm.cranelift_compile(),
    }
    .map_err(|error| error.to_string())?;
    Ok(vm)
}
