//! What programs have exercised: operation, kind of operands, and whether an operand was at an edge.

use hashbrown::HashMap;

use crate::isa::{AluOp, AtomicOp, ByteOrder, CallKind, Cond, Insn, Operand, Size, Width};

/// How the operands of an instruction relate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OperandClass {
    /// No second operand.
    None,
    /// An immediate.
    Imm,
    /// Another register.
    Reg,
    /// The same register twice.
    Same,
    /// An access relative to r10.
    Stack,
    /// An access by another register.
    Pointer,
}

/// What kind of number an immediate or offset is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Edge {
    /// There is none.
    None,
    /// 0.
    Zero,
    /// 1.
    One,
    /// -1.
    MinusOne,
    /// The most an `i32` holds, or the least.
    Extreme,
    /// Another negative one.
    Negative,
    /// Another positive one; of an offset, aligned.
    Positive,
    /// Not a multiple of the size of the access.
    Misaligned,
}

impl Edge {
    fn of(imm: i32) -> Edge {
        match imm {
            0 => Edge::Zero,
            1 => Edge::One,
            -1 => Edge::MinusOne,
            i32::MAX | i32::MIN => Edge::Extreme,
            ..0 => Edge::Negative,
            _ => Edge::Positive,
        }
    }

    fn of_access(off: i16, size: usize) -> Edge {
        if off % size as i16 == 0 { Edge::of(off.into()) } else { Edge::Misaligned }
    }
}

/// An operation, whatever its operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Operation {
    Alu(Width, AluOp),
    Endian(ByteOrder, u8),
    Wide(u8),
    Load(Size, bool),
    Store(Size),
    Atomic(Width, AtomicOp),
    Acquire(Size),
    Release(Size),
    Packet(Size),
    Branch(Width, Cond),
    Jump(u8),
    Call(CallKind, i32),
    Callx,
    Cast,
    Exit,
}

type Point = (Operation, OperandClass, Edge);

/// The points that were reached, with how often.
#[derive(Clone, Debug, Default)]
pub struct Coverage {
    points: HashMap<Point, u64>,
}

impl Coverage {
    /// Counts the instructions of a program.
    pub fn add(&mut self, insns: &[Insn]) {
        for point in insns.iter().filter_map(point) {
            *self.points.entry(point).or_default() += 1;
        }
    }

    /// Counts what another has counted.
    pub fn merge(&mut self, other: &Coverage) {
        for (point, count) in &other.points {
            *self.points.entry(*point).or_default() += count;
        }
    }

    /// Points of (operation x class of operands x edge) that were reached.
    pub fn len(&self) -> usize {
        self.points.len()
    }

    /// Whether nothing was counted.
    pub fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    /// Operations that were reached, whatever their operands.
    pub fn operations(&self) -> usize {
        let mut all: Vec<String> = self.points.keys().map(|point| format!("{:?}", point.0)).collect();
        all.sort_unstable();
        all.dedup();
        all.len()
    }
}

fn point(insn: &Insn) -> Option<Point> {
    // exhaustive match
    let second = |dst, src| match src {
        Operand::Imm(imm) => (OperandClass::Imm, Edge::of(imm)),
        Operand::Reg(reg) if reg == dst => (OperandClass::Same, Edge::None),
        Operand::Reg(_) => (OperandClass::Reg, Edge::None),
    };
    let at = |base: crate::isa::Reg, off, size: Size| {
        let class = if base == crate::isa::Reg::FP { OperandClass::Stack } else { OperandClass::Pointer };
        (class, Edge::of_access(off, size.bytes()))
    };
    let none = (OperandClass::None, Edge::None);
    let (operation, (class, edge)) = match *insn {
        Insn::Alu { width, op, dst, src } => (Operation::Alu(width, op), second(dst, src)),
        Insn::Endian { order, bits, .. } => (Operation::Endian(order, bits), none),
        Insn::LoadImm { kind, imm, .. } => (Operation::Wide(kind), (OperandClass::Imm, Edge::of(imm))),
        Insn::LoadImmHi { .. } => return None,
        Insn::Load { size, signed, base, off, .. } => (Operation::Load(size, signed), at(base, off, size)),
        Insn::Store { size, base, off, .. } => (Operation::Store(size), at(base, off, size)),
        Insn::Atomic { width, op, base, off, .. } => {
            let size = if width == Width::W32 { Size::W } else { Size::Dw };
            (Operation::Atomic(width, op), at(base, off, size))
        }
        Insn::LoadAcquire { size, base, off, .. } => (Operation::Acquire(size), at(base, off, size)),
        Insn::StoreRelease { size, base, off, .. } => (Operation::Release(size), at(base, off, size)),
        Insn::LoadPacket { size, imm, .. } => (Operation::Packet(size), (OperandClass::Imm, Edge::of(imm))),
        Insn::Branch { width, cond, dst, src, .. } => (Operation::Branch(width, cond), second(dst, src)),
        Insn::Goto { off } => (Operation::Jump(0), (OperandClass::None, Edge::of(off.into()))),
        Insn::Gotol { off } => (Operation::Jump(1), (OperandClass::None, Edge::of(off))),
        Insn::Gotox { .. } => (Operation::Jump(2), none),
        Insn::MayGoto { off } => (Operation::Jump(3), (OperandClass::None, Edge::of(off.into()))),
        Insn::Call { kind, imm, .. } => {
            let id = if kind == CallKind::Helper { imm } else { 0 };
            (Operation::Call(kind, id), none)
        }
        Insn::Callx { .. } => (Operation::Callx, none),
        Insn::AddrSpaceCast { .. } => (Operation::Cast, none),
        Insn::Exit => (Operation::Exit, none),
    };
    Some((operation, class, edge))
}
