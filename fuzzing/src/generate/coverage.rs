//! What programs have exercised: operation, kind of operands, and whether an operand was at an edge.

use twinbpf_isa::{CallKind, Insn, Operand, Reg, Size, Width};

/// How the operands of an instruction relate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OperandClass {
    /// No second operand.
    None,
    /// The second operand is an immediate.
    Imm,
    /// The second operand is another register.
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
    /// The number 0.
    Zero,
    /// The number 1.
    One,
    /// The number -1.
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
    /// Selects between two values each, since a branch here is unpredictable.
    #[inline(always)]
    fn of(imm: i32) -> Edge {
        let either = |is: bool, edge, other| if is { edge } else { other };
        let edge = either(imm < 0, Edge::Negative, Edge::Positive);
        let edge = either(imm == i32::MAX || imm == i32::MIN, Edge::Extreme, edge);
        let edge = either(imm == -1, Edge::MinusOne, edge);
        either(imm == 0, Edge::Zero, either(imm == 1, Edge::One, edge))
    }

    fn of_access(off: i16, size: Size) -> Edge {
        let edge = Edge::of(off.into());
        if off as usize & (size.bytes() - 1) == 0 { edge } else { Edge::Misaligned }
    }
}

/// What kind of instruction an operation is of.
#[derive(Clone, Copy)]
enum Form {
    Alu,
    Endian,
    Wide,
    Load,
    Store,
    Atomic,
    Acquire,
    Release,
    Packet,
    Branch,
    Jump,
    Helper,
    Call,
    Callx,
    Cast,
    Exit,
}

const FORMS: usize = Form::Exit as usize + 1;
/// Room for the operations of a form, and for the edges of a class of operands.
const OPERATIONS: usize = 256;
const EDGES: usize = 8;

/// An operation, whatever its operands: its form, and which one of that.
type Operation = (Form, u8);

/// The points that were reached.
#[derive(Clone, Debug)]
pub struct Coverage {
    /// Of each operation a bit for each class of operands and edge.
    reached: Box<[u64; FORMS * OPERATIONS]>,
}

impl Default for Coverage {
    fn default() -> Coverage {
        Coverage { reached: Box::new([0; FORMS * OPERATIONS]) }
    }
}

impl Coverage {
    /// Notes the instructions of a program.
    pub fn add(&mut self, insns: &[Insn]) {
        for ((form, which), class, edge) in insns.iter().filter_map(point) {
            let point = class as usize * EDGES + edge as usize;
            self.reached[form as usize * OPERATIONS + usize::from(which)] |= 1 << point;
        }
    }

    /// Notes what another has noted.
    pub fn merge(&mut self, other: &Coverage) {
        self.reached.iter_mut().zip(&*other.reached).for_each(|(points, others)| *points |= others);
    }

    /// Points of (operation x class of operands x edge) that were reached.
    pub fn len(&self) -> usize {
        self.reached.iter().map(|points| points.count_ones() as usize).sum()
    }

    /// Whether nothing was noted.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Operations that were reached, whatever their operands.
    pub fn operations(&self) -> usize {
        self.reached.iter().filter(|points| **points != 0).count()
    }
}

/// Of the rows of a table, or of sizes, at one of two widths, or signed or not.
const fn either(row: u8, other: bool) -> u8 {
    row << 1 | other as u8
}

fn point(insn: &Insn) -> Option<(Operation, OperandClass, Edge)> {
    // exhaustive match
    let second = |dst, src| match src {
        Operand::Imm(imm) => (OperandClass::Imm, Edge::of(imm)),
        Operand::Reg(reg) => (if reg == dst { OperandClass::Same } else { OperandClass::Reg }, Edge::None),
    };
    let at = |base: Reg, off, size: Size| {
        let class = if base == Reg::FP { OperandClass::Stack } else { OperandClass::Pointer };
        (class, Edge::of_access(off, size))
    };
    let none = (OperandClass::None, Edge::None);
    let wide = |width| width == Width::W64;
    let ((form, which), (class, edge)) = match *insn {
        Insn::Alu { width, op, dst, src } => ((Form::Alu, either(op as u8, wide(width))), second(dst, src)),
        Insn::Endian { order, bits, .. } => ((Form::Endian, bits | order as u8), none),
        Insn::LoadImm { kind, imm, .. } => ((Form::Wide, kind), (OperandClass::Imm, Edge::of(imm))),
        Insn::LoadImmHi { .. } => return None,
        Insn::Load { size, signed, base, off, .. } => ((Form::Load, either(size as u8, signed)), at(base, off, size)),
        Insn::Store { size, base, off, .. } => ((Form::Store, size as u8), at(base, off, size)),
        Insn::Atomic { width, op, base, off, .. } => {
            let size = if wide(width) { Size::Dw } else { Size::W };
            ((Form::Atomic, either(op as u8, wide(width))), at(base, off, size))
        }
        Insn::LoadAcquire { size, base, off, .. } => ((Form::Acquire, size as u8), at(base, off, size)),
        Insn::StoreRelease { size, base, off, .. } => ((Form::Release, size as u8), at(base, off, size)),
        Insn::LoadPacket { size, imm, .. } => ((Form::Packet, size as u8), (OperandClass::Imm, Edge::of(imm))),
        Insn::Branch { width, cond, dst, src, .. } => {
            ((Form::Branch, either(cond as u8, wide(width))), second(dst, src))
        }
        Insn::Goto { off } => ((Form::Jump, 0), (OperandClass::None, Edge::of(off.into()))),
        Insn::Gotol { off } => ((Form::Jump, 1), (OperandClass::None, Edge::of(off))),
        Insn::Gotox { .. } => ((Form::Jump, 2), none),
        Insn::MayGoto { off } => ((Form::Jump, 3), (OperandClass::None, Edge::of(off.into()))),
        // No kernel has as many helpers as there is room for.
        Insn::Call { kind: CallKind::Helper, imm, .. } => ((Form::Helper, imm.clamp(0, 255) as u8), none),
        Insn::Call { kind: kind @ (CallKind::Local | CallKind::Extern), .. } => ((Form::Call, kind as u8), none),
        Insn::Callx { .. } => ((Form::Callx, 0), none),
        Insn::AddrSpaceCast { .. } => ((Form::Cast, 0), none),
        Insn::Exit => ((Form::Exit, 0), none),
    };
    Some(((form, which), class, edge))
}
