//! The seeded bugs (mutants): each a rewrite of one kind of instruction.

use twinbpf_isa::{AluOp, AtomicOp, ByteOrder, CallKind, Cond, Insn, Operand, Reg, Size, Width};

use super::{Bug, NOTHING, alu, another, back, branch, constant, distance, spare, unless, upper_stays};

use Operand::Imm;
use Width::{W32, W64};

/// An operation of this width with another in its place.
fn other_op(insn: Insn, width: Width, from: AluOp, to: AluOp) -> Option<Vec<Insn>> {
    let Insn::Alu { width: w, op, dst, src } = insn else { return None };
    (w == width && op == from).then(|| vec![alu(width, to, dst, src)])
}

/// A condition taken for another.
fn other_cond(insn: Insn, from: Cond, to: Cond) -> Option<Vec<Insn>> {
    let Insn::Branch { width, cond, dst, src, off } = insn else { return None };
    (cond == from).then(|| vec![branch(width, to, dst, src, off)])
}

/// A 32-bit operation that does not clear the upper half.
fn no_extension(insn: Insn, wanted: AluOp) -> Option<Vec<Insn>> {
    match insn {
        Insn::Alu { width: W32, op, dst, .. } if op == wanted => Some(upper_stays(insn, dst)),
        _ => None,
    }
}

/// A shift by a register whose count is not masked.
fn unmasked(insn: Insn, width: Width, wanted: AluOp) -> Option<Vec<Insn>> {
    let Insn::Alu { width: w, op, dst, src: Operand::Reg(src) } = insn else { return None };
    let small = (Cond::Lt, src, Imm(width.bits() as i32));
    (w == width && op == wanted).then(|| unless(width, small, constant(dst, 0), insn))
}

/// A division by a register that gives something else for a divisor.
fn divisor(insn: Insn, width: Width, wanted: AluOp, by: i32, gives: i32) -> Option<Vec<Insn>> {
    let Insn::Alu { width: w, op, dst, src: Operand::Reg(src) } = insn else { return None };
    let fine = (w == width && op == wanted).then_some((Cond::Ne, src, Imm(by)))?;
    Some(unless(width, fine, constant(dst, gives), insn))
}

/// A jump that compares with an immediate that is not sign-extended.
fn unsigned_imm(insn: Insn) -> Option<Vec<Insn>> {
    let Insn::Branch { width: W64, cond, dst, src: Imm(imm @ ..0), off } = insn else { return None };
    let temp = another(dst);
    let load = alu(W32, AluOp::Mov, temp, Imm(imm));
    let jump = branch(W64, cond, dst, Operand::Reg(temp), 2);
    let leave = Insn::Goto { off: distance(off, 7) };
    Some(vec![spare(temp, Size::Dw), load, jump, back(temp), Insn::Goto { off: 2 }, back(temp), leave])
}

/// Division by an immediate that is not sign-extended.
fn unsigned_divisor(insn: Insn) -> Option<Vec<Insn>> {
    let Insn::Alu { width: W64, op: op @ (AluOp::Div | AluOp::Mod), dst, src: Imm(imm @ ..0) } = insn else {
        return None;
    };
    let temp = another(dst);
    let load = alu(W32, AluOp::Mov, temp, Imm(imm));
    Some(vec![spare(temp, Size::Dw), load, alu(W64, op, dst, Operand::Reg(temp)), back(temp)])
}

fn shift_by_zero(insn: Insn, wanted: AluOp) -> Option<Vec<Insn>> {
    match insn {
        Insn::Alu { width: W64, op, dst, src: Imm(0) } if op == wanted => Some(vec![constant(dst, 0)]),
        _ => None,
    }
}

fn endian(insn: Insn, wanted: ByteOrder, size: u8, to: Option<ByteOrder>) -> Option<Vec<Insn>> {
    let Insn::Endian { order, bits, dst } = insn else { return None };
    let becomes = to.map_or(NOTHING, |order| Insn::Endian { order, bits, dst });
    (order == wanted && bits == size).then(|| vec![becomes])
}

fn extension_of_load(insn: Insn, wanted: Size, was: bool) -> Option<Vec<Insn>> {
    match insn {
        Insn::Load { size, signed, dst, base, off } if size == wanted && signed == was => {
            Some(vec![Insn::Load { size, signed: !signed, dst, base, off }])
        }
        _ => None,
    }
}

/// An atomic operation taken for another.
fn other_atomic(insn: Insn, from: AtomicOp, to: AtomicOp) -> Option<Vec<Insn>> {
    let Insn::Atomic { width, op, base, off, src } = insn else { return None };
    (op == from).then(|| vec![Insn::Atomic { width, op: to, base, off, src }])
}

/// An atomic operation that gives the new value.
fn new_value(insn: Insn, wanted: AtomicOp, plain: AtomicOp) -> Option<Vec<Insn>> {
    let Insn::Atomic { width, op, base, off, src } = insn else { return None };
    let size = if width == W32 { Size::W } else { Size::Dw };
    let load = Insn::Load { size, signed: false, dst: src, base, off };
    (op == wanted).then(|| vec![Insn::Atomic { width, op: plain, base, off, src }, load])
}

fn fetch_extension(insn: Insn, wanted: AtomicOp, result: Option<Reg>) -> Option<Vec<Insn>> {
    match insn {
        Insn::Atomic { width: W32, op, src, .. } if op == wanted => Some(upper_stays(insn, result.unwrap_or(src))),
        _ => None,
    }
}

macro_rules! bugs {
    ($($name:literal: |$insn:pat_param, $next:pat_param| $rewrite:expr;)*) => {
        /// Every bug of this module.
        pub const ALL: &[Bug] = &[$(Bug { name: $name, rewrite: |$insn, $next| $rewrite }),*];
    };
}

bugs! {
    "rsh by immediate 0 gives 0": |i, _| shift_by_zero(i, AluOp::Rsh);
    "arsh by immediate 0 gives 0": |i, _| shift_by_zero(i, AluOp::Arsh);
    "lsh by immediate 0 gives 0": |i, _| shift_by_zero(i, AluOp::Lsh);
    "lsh has no masked count": |i, _| unmasked(i, W64, AluOp::Lsh);
    "rsh has no masked count": |i, _| unmasked(i, W64, AluOp::Rsh);
    "lsh32 has no masked count": |i, _| unmasked(i, W32, AluOp::Lsh);
    "arsh32 has no masked count": |i, _| unmasked(i, W32, AluOp::Arsh);
    "immediate counts are masked to 5 bits": |i, _| match i {
        Insn::Alu { width: W64, op: op @ (AluOp::Lsh | AluOp::Rsh | AluOp::Arsh), dst, src: Imm(imm @ 32..) } => {
            Some(vec![alu(W64, op, dst, Imm(imm & 31))])
        }
        _ => None,
    };
    "add32 leaves the upper half": |i, _| no_extension(i, AluOp::Add);
    "sub32 leaves the upper half": |i, _| no_extension(i, AluOp::Sub);
    "and32 leaves the upper half": |i, _| no_extension(i, AluOp::And);
    "xor32 leaves the upper half": |i, _| no_extension(i, AluOp::Xor);
    "lsh32 leaves the upper half": |i, _| no_extension(i, AluOp::Lsh);
    "neg32 leaves the upper half": |i, _| no_extension(i, AluOp::Neg);
    "mov32 leaves the upper half": |i, _| no_extension(i, AluOp::Mov);
    "movsx8 of 32 bits leaves the upper half": |i, _| no_extension(i, AluOp::Movsx8);
    "mod32 by 0 leaves the upper half": |i, _| match i {
        Insn::Alu { width: W32, op: AluOp::Mod, src: Operand::Reg(src), .. } => {
            Some(unless(W32, (Cond::Ne, src, Imm(0)), NOTHING, i))
        }
        _ => None,
    };
    "mov32 moves 64 bits": |i, _| match i {
        Insn::Alu { width: W32, op: AluOp::Mov, dst, src: Operand::Reg(src) } => {
            Some(vec![alu(W64, AluOp::Mov, dst, Operand::Reg(src))])
        }
        _ => None,
    };
    "le16 does not truncate": |i, _| endian(i, ByteOrder::ToLe, 16, None);
    "le32 does not truncate": |i, _| endian(i, ByteOrder::ToLe, 32, None);
    "be64 is le64": |i, _| endian(i, ByteOrder::ToBe, 64, Some(ByteOrder::ToLe));
    "bswap32 does nothing": |i, _| endian(i, ByteOrder::Swap, 32, None);
    "div by 0 gives -1": |i, _| divisor(i, W64, AluOp::Div, 0, -1);
    "mod by 0 gives 0": |i, _| divisor(i, W64, AluOp::Mod, 0, 0);
    "div32 compares 64 bits of the divisor": |i, _| match i {
        Insn::Alu { width: W32, op: AluOp::Div, dst, src: Operand::Reg(src) } => Some(vec![
            branch(W32, Cond::Ne, src, Imm(0), 3),
            branch(W64, Cond::Eq, src, Imm(0), 2),
            alu(W32, AluOp::Mov, dst, Imm(-1)),
            Insn::Goto { off: 1 },
            i,
        ]),
        _ => None,
    };
    "sdiv by -1 gives the largest number": |i, _| divisor(i, W64, AluOp::Sdiv, -1, i32::MAX);
    "smod32 by -1 gives 1": |i, _| divisor(i, W32, AluOp::Smod, -1, 1);
    "sdiv32 of the least number is unsigned": |i, _| match i {
        Insn::Alu { width: W32, op: AluOp::Sdiv, dst, src } => {
            Some(unless(W32, (Cond::Ne, dst, Imm(i32::MIN)), alu(W32, AluOp::Div, dst, src), i))
        }
        _ => None,
    };
    "sdiv is unsigned": |i, _| other_op(i, W64, AluOp::Sdiv, AluOp::Div);
    "smod is unsigned": |i, _| other_op(i, W64, AluOp::Smod, AluOp::Mod);
    "movsx8 is mov": |i, _| other_op(i, W64, AluOp::Movsx8, AluOp::Mov);
    "movsx16 is mov": |i, _| other_op(i, W64, AluOp::Movsx16, AluOp::Mov);
    "movsx32 is mov": |i, _| other_op(i, W64, AluOp::Movsx32, AluOp::Mov);
    "arsh is rsh": |i, _| other_op(i, W64, AluOp::Arsh, AluOp::Rsh);
    "arsh32 is rsh32": |i, _| other_op(i, W32, AluOp::Arsh, AluOp::Rsh);
    "smod has the sign of the divisor": |i, _| match i {
        Insn::Alu { width: W64, op: AluOp::Smod, dst, src } if src != Operand::Reg(dst) => {
            Some(vec![i, branch(W64, Cond::Sge, dst, Imm(0), 1), alu(W64, AluOp::Neg, dst, Imm(0))])
        }
        _ => None,
    };
    "div and mod zero-extend their immediate": |i, _| unsigned_divisor(i);
    "jumps zero-extend their immediate": |i, _| unsigned_imm(i);
    "32-bit jumps compare 64 bits": |i, _| match i {
        Insn::Branch { width: W32, cond, dst, src, off } if cond != Cond::Set => {
            Some(vec![branch(W64, cond, dst, src, off)])
        }
        _ => None,
    };
    "jset32 tests the upper half": |i, _| match i {
        Insn::Branch { width: W32, cond: Cond::Set, dst, src, off } => {
            Some(vec![branch(W64, Cond::Set, dst, src, off)])
        }
        _ => None,
    };
    "jset destroys its operand": |i, _| match i {
        Insn::Branch { width, cond: Cond::Set, dst, src, off } => {
            Some(vec![alu(width, AluOp::And, dst, src), branch(width, Cond::Ne, dst, Imm(0), distance(off, 2))])
        }
        _ => None,
    };
    "jsgt is unsigned": |i, _| other_cond(i, Cond::Sgt, Cond::Gt);
    "jsle is unsigned": |i, _| other_cond(i, Cond::Sle, Cond::Le);
    "jge is jgt": |i, _| other_cond(i, Cond::Ge, Cond::Gt);
    "jslt is jsle": |i, _| other_cond(i, Cond::Slt, Cond::Sle);
    "loads of bytes are signed": |i, _| extension_of_load(i, Size::B, false);
    "loads of words are signed": |i, _| extension_of_load(i, Size::W, false);
    "signed loads of two bytes are not": |i, _| extension_of_load(i, Size::H, true);
    "stores of immediates zero-extend": |i, _| match i {
        Insn::Store { size: Size::Dw, base, off, src: Imm(imm @ ..0) } => {
            let half = |off, imm| Insn::Store { size: Size::W, base, off, src: Imm(imm) };
            Some(vec![half(off, imm), half(off + 4, 0)])
        }
        _ => None,
    };
    "bytes from r6 to r9 are stored as 0": |i, _| match i {
        Insn::Store { size: Size::B, base, off, src: Operand::Reg(reg) } if reg >= Reg::R6 => {
            Some(vec![Insn::Store { size: Size::B, base, off, src: Imm(0) }])
        }
        _ => None,
    };
    "fetch_add gives the new value": |i, _| new_value(i, AtomicOp::FetchAdd, AtomicOp::Add);
    "fetch_xor gives the new value": |i, _| new_value(i, AtomicOp::FetchXor, AtomicOp::Xor);
    "fetch_and does not fetch": |i, _| other_atomic(i, AtomicOp::FetchAnd, AtomicOp::And);
    "xchg does not exchange": |i, _| match i {
        Insn::Atomic { width, op: AtomicOp::Xchg, base, off, src } => {
            let size = if width == W32 { Size::W } else { Size::Dw };
            Some(vec![Insn::Load { size, signed: false, dst: src, base, off }])
        }
        _ => None,
    };
    "atomic or is xor": |i, _| other_atomic(i, AtomicOp::Or, AtomicOp::Xor);
    "cmpxchg32 leaves the upper half of r0": |i, _| fetch_extension(i, AtomicOp::Cmpxchg, Some(Reg::R0));
    "fetch_or of 32 bits leaves the upper half": |i, _| fetch_extension(i, AtomicOp::FetchOr, None);
    "lddw sign-extends its lower half": |i, n| match (i, n) {
        (Insn::LoadImm { kind: 0, imm: ..0, .. }, Insn::LoadImmHi { .. }) => Some(vec![i, Insn::LoadImmHi { imm: -1 }]),
        _ => None,
    };
    "lddw loses its upper half": |i, n| match (i, n) {
        (Insn::LoadImm { kind: 0, .. }, Insn::LoadImmHi { .. }) => Some(vec![i, Insn::LoadImmHi { imm: 0 }]),
        _ => None,
    };
    "gotol does not jump": |i, _| matches!(i, Insn::Gotol { .. }).then(|| vec![NOTHING]);
    "helpers destroy r6": |i, _| match i {
        Insn::Call { kind: CallKind::Helper, .. } => Some(vec![i, constant(Reg::R6, 0)]),
        _ => None,
    };
    "tail calls fail": |i, _| match i {
        Insn::Call { kind: CallKind::Helper, imm: 12, .. } => Some(vec![constant(Reg::R0, -2)]),
        _ => None,
    };
    "store_release does not store": |i, _| matches!(i, Insn::StoreRelease { .. }).then(|| vec![NOTHING]);
    "load_acquire of a byte is signed": |i, _| match i {
        Insn::LoadAcquire { size: Size::B, dst, base, off } => {
            Some(vec![Insn::Load { size: Size::B, signed: true, dst, base, off }])
        }
        _ => None,
    };
}
