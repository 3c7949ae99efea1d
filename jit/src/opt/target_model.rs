//! Target model: the registers and latencies that decide whether a transformation pays.

use cranelift_codegen::isa::TargetIsa;

/// Properties of a target that decide whether a transformation pays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TargetModel {
    /// General registers that the register allocator has.
    pub(crate) registers: u32,
    /// Cycles from the address of a load to its result, in the first-level cache.
    pub(crate) load_latency: u32,
    /// Cycles of a multiplication.
    pub(crate) multiply_latency: u32,
    /// Arithmetic takes an operand from memory, and leaves its result in the place of its first operand.
    pub(crate) memory_operands: bool,
    /// A 32-bit result has zeros in the upper half of its register.
    pub(crate) zero_extends: bool,
}

/// 16 less stack and frame pointer.
const X86_64: TargetModel =
    TargetModel { registers: 14, load_latency: 5, multiply_latency: 3, memory_operands: true, zero_extends: true };

/// AArch64 and RISC-V have some 24 left of 32, after stack and frame pointer, link, platform and scratch registers.
const RISC: TargetModel =
    TargetModel { registers: 24, load_latency: 4, multiply_latency: 3, memory_operands: false, zero_extends: false };

impl TargetModel {
    /// The model of the machine that code is made for.
    pub(crate) fn of(isa: &dyn TargetIsa) -> &'static TargetModel {
        if isa.name() == "x64" { &X86_64 } else { &RISC }
    }
}
