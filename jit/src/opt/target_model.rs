//! Target model: the registers that decide whether a transformation pays.

use cranelift_codegen::isa::TargetIsa;

/// Properties of a target that decide whether a transformation pays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TargetModel {
    /// General registers that the register allocator has.
    pub(crate) registers: u32,
    /// A 32-bit result has zeros in the upper half of its register.
    pub(crate) zero_extends: bool,
    /// An access within a page takes as long at any address.
    pub(crate) unaligned: bool,
}

/// 16 less stack and frame pointer.
const X86_64: TargetModel = TargetModel { registers: 14, zero_extends: true, unaligned: true };

/// AArch64 and RISC-V have some 24 left of 32, after stack and frame pointer, link, platform and scratch registers.
const AARCH64: TargetModel = TargetModel { registers: 24, zero_extends: false, unaligned: true };

/// Not every RISC-V machine has unaligned accesses; some emulate them.
const RISCV64: TargetModel = TargetModel { unaligned: false, ..AARCH64 };

impl TargetModel {
    /// The model of the machine that code is made for.
    pub(crate) fn of(isa: &dyn TargetIsa) -> &'static TargetModel {
        TargetModel::named(isa.name())
    }

    /// The model of a machine by the name that Cranelift has for it.
    pub(super) fn named(name: &str) -> &'static TargetModel {
        match name {
            "x64" => &X86_64,
            "aarch64" => &AARCH64,
            _ => &RISCV64,
        }
    }
}
