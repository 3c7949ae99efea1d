//! Operands of an operation, and what it says of how it ended.

use crate::mem::Access;
use twinbpf_isa::Reg;

/// A register number whose type says that it is below 16: indexing the register file needs no check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum R {
    R0,
    R1,
    R2,
    R3,
    R4,
    R5,
    R6,
    R7,
    R8,
    R9,
    R10,
    R11,
    R12,
    R13,
    R14,
    R15,
}

impl R {
    #[rustfmt::skip]
    const ALL: [R; 16] = [
        R::R0, R::R1, R::R2, R::R3, R::R4, R::R5, R::R6, R::R7, R::R8, R::R9, R::R10, R::R11, R::R12, R::R13, R::R14, R::R15,
    ];

    pub(super) fn new(reg: Reg) -> R {
        R::ALL[reg.index() & 15]
    }
}

/// Operand fields of one instruction, ready to use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operands {
    /// Register that gets the result.
    pub(super) a: R,
    /// Left operand, or base of an address.
    pub(super) b: R,
    /// Right operand, or value to store.
    pub(super) c: R,
    /// Jump target, address offset, or upper half of `lddw`.
    pub(super) x: i32,
    /// Immediate.
    pub(super) imm: i32,
    /// Jumps in the threaded driver: what they add to the fuel.
    pub(super) y: i32,
}

/// How an operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    /// Continue after it.
    Next,
    /// Jump to `x`.
    Taken,
    /// Nothing was done: the address is not in the window of its base register.
    Miss,
    /// The machine itself must act: calls, returns.
    Event,
}

/// A memory access, for the path after a miss.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mem {
    pub(super) size: usize,
    pub(super) access: Access,
    pub(super) aligned: bool,
}
