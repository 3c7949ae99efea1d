//! Programs for kernels that do not know all instructions.

use twinbpf_isa::{AluOp, ByteOrder, Insn, Operand};

use super::Case;

/// Which instructions there may be, as clang's `-mcpu` names them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cpu {
    /// Linux 5.12: fetching atomic operations, compare and exchange.
    V3,
    /// Linux 6.6: signed loads, moves and division, swapped bytes, jumps of 32 bits.
    V4,
    /// All: `may_goto` and ordered loads and stores too, so Linux 6.15.
    #[default]
    Newest,
}

impl Cpu {
    /// Has a case use the older relatives of instructions that there are not. Each takes one slot, as does what it
    /// replaces, and reads and writes the same registers.
    pub(super) fn restrict(self, case: &mut Case) {
        let older: fn(Insn) -> Insn = match self {
            Cpu::V3 => |insn| in_v3(in_v4(insn)),
            Cpu::V4 => in_v4,
            Cpu::Newest => return,
        };
        for insn in std::iter::once(&mut case.main).chain(&mut case.tails).flatten() {
            *insn = older(*insn);
        }
    }
}

fn in_v4(insn: Insn) -> Insn {
    match insn {
        Insn::MayGoto { .. } => Insn::Goto { off: 0 },
        Insn::LoadAcquire { size, dst, base, off } => Insn::Load { size, signed: false, dst, base, off },
        Insn::StoreRelease { size, base, off, src } => Insn::Store { size, base, off, src: Operand::Reg(src) },
        Insn::Alu { .. }
        | Insn::Endian { .. }
        | Insn::LoadImm { .. }
        | Insn::LoadImmHi { .. }
        | Insn::Load { .. }
        | Insn::Store { .. }
        | Insn::Atomic { .. }
        | Insn::LoadPacket { .. }
        | Insn::Branch { .. }
        | Insn::Goto { .. }
        | Insn::Gotol { .. }
        | Insn::Gotox { .. }
        | Insn::Call { .. }
        | Insn::Callx { .. }
        | Insn::AddrSpaceCast { .. }
        | Insn::Exit => insn,
    }
}

fn in_v3(insn: Insn) -> Insn {
    match insn {
        Insn::Alu { width, op, dst, src } => Insn::Alu { width, op: unsigned(op), dst, src },
        Insn::Endian { order: ByteOrder::Swap, bits, dst } => Insn::Endian { order: ByteOrder::ToBe, bits, dst },
        Insn::Load { size, dst, base, off, signed: _ } => Insn::Load { size, signed: false, dst, base, off },
        // One that really needs its 32 bits stays.
        Insn::Gotol { off } => i16::try_from(off).map_or(insn, |off| Insn::Goto { off }),
        Insn::Endian { .. }
        | Insn::LoadImm { .. }
        | Insn::LoadImmHi { .. }
        | Insn::Store { .. }
        | Insn::Atomic { .. }
        | Insn::LoadAcquire { .. }
        | Insn::StoreRelease { .. }
        | Insn::LoadPacket { .. }
        | Insn::Branch { .. }
        | Insn::Goto { .. }
        | Insn::Gotox { .. }
        | Insn::MayGoto { .. }
        | Insn::Call { .. }
        | Insn::Callx { .. }
        | Insn::AddrSpaceCast { .. }
        | Insn::Exit => insn,
    }
}

/// The operation that was there before the one with signs.
fn unsigned(op: AluOp) -> AluOp {
    match op {
        AluOp::Sdiv => AluOp::Div,
        AluOp::Smod => AluOp::Mod,
        AluOp::Movsx8 | AluOp::Movsx16 | AluOp::Movsx32 => AluOp::Mov,
        AluOp::Add
        | AluOp::Sub
        | AluOp::Mul
        | AluOp::Div
        | AluOp::Or
        | AluOp::And
        | AluOp::Lsh
        | AluOp::Rsh
        | AluOp::Neg
        | AluOp::Mod
        | AluOp::Xor
        | AluOp::Mov
        | AluOp::Arsh => op,
    }
}
