//! Constructors of single instructions, as cases are made of them.

use twinbpf_isa::{AluOp, Insn, Operand, Reg, Size, Width};

pub(super) fn reg(index: usize) -> Reg {
    Reg::new(index as u8).expect("below 11")
}

pub(super) fn mov(dst: Reg, src: Operand) -> Insn {
    Insn::Alu { width: Width::W64, op: AluOp::Mov, dst, src }
}

pub(super) fn load(dst: Reg, base: Reg, off: i16) -> Insn {
    Insn::Load { size: Size::Dw, signed: false, dst, base, off }
}

pub(super) fn store(base: Reg, off: i16, src: Reg) -> Insn {
    Insn::Store { size: Size::Dw, base, off, src: Operand::Reg(src) }
}

pub(super) fn value_address(dst: Reg, map: usize, off: usize) -> [Insn; 2] {
    [Insn::LoadImm { dst, kind: 2, imm: map as i32 }, Insn::LoadImmHi { imm: off as i32 }]
}
