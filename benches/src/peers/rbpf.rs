//! `rbpf`'s interpreter. It checks every access against the memory it is given.

use super::Runner;
use crate::kernel::{Dialect, Kernel, code};

/// A kernel on the raw machine: r1 points at the block.
pub fn kernel(kernel: &Kernel) -> Result<Runner, String> {
    // The machine borrows its code. Both live as long as the process, which measures a few dozen programs.
    program(code(kernel.name, Dialect::V3).leak(), kernel.block())
}

/// Number of the helper that adds two numbers.
pub const ADD: i32 = 1;

/// Any bytecode over any block of memory.
pub fn program(code: &'static [u8], mut block: Vec<u8>) -> Result<Runner, String> {
    let mut vm = rbpf::EbpfVmRaw::new(Some(code)).map_err(|error| error.to_string())?;
    let add = |a: u64, b: u64, _: u64, _: u64, _: u64| a.wrapping_add(b);
    vm.register_helper(ADD as u32, add).map_err(|error| error.to_string())?;
    Ok(Box::new(move || {
        // Shortens the machine's lifetime parameter to this borrow of the block.
        let vm: &rbpf::EbpfVmRaw<'_> = &vm;
        vm.execute_program(&mut block).map_err(|error| error.to_string())
    }))
}
