//! Superinstructions that are found by more than two kinds: operations that fold into one, and rotations.

use super::super::handlers::{Handler, rotate};
use super::super::kind::{Kind, Right};
use super::super::operands::{Operands, R};
use super::super::unit::Unit;
use twinbpf_isa::{AluOp, Width};

/// `r1 = r2; r1 op= r3`, unless the right operand is r1 too. A 32-bit copy cuts off what a 64-bit operation would see.
pub(super) fn three_operand(first: &Unit, second: &Unit) -> Option<(Kind, Operands)> {
    let (a, b) = (&first.o, &second.o);
    let Kind::Alu(width, AluOp::Mov, Right::Reg) = first.kind else { return None };
    let fits = match second.kind {
        Kind::Alu(_, op, _) if !op.reads_dst() => false,
        Kind::Alu(second, _, right) => {
            (width == Width::W64 || second == Width::W32) && (right == Right::Imm || b.c != a.a)
        }
        Kind::Endian(..) | Kind::CastKernel | Kind::CastUser => width == Width::W64,
        Kind::LoadImm
        | Kind::Load(..)
        | Kind::Store(..)
        | Kind::Atomic(..)
        | Kind::Acquire(_)
        | Kind::Release(_)
        | Kind::Branch(..)
        | Kind::Goto
        | Kind::MayGoto
        | Kind::Event => false,
    };
    (fits && updates(a, b)).then_some((second.kind, Operands { b: a.c, ..*b }))
}

/// `r1 <<= 32; r1 >>= 32`.
pub(super) fn zero_extend(first: &Unit, second: &Unit) -> Option<(Kind, Operands)> {
    extend(first, second, AluOp::Rsh, Kind::Alu(Width::W32, AluOp::Mov, Right::Reg))
}

/// `r1 <<= 32; r1 s>>= 32`.
pub(super) fn sign_extend(first: &Unit, second: &Unit) -> Option<(Kind, Operands)> {
    extend(first, second, AluOp::Arsh, Kind::Alu(Width::W64, AluOp::Movsx32, Right::Reg))
}

fn extend(first: &Unit, second: &Unit, right: AluOp, kind: Kind) -> Option<(Kind, Operands)> {
    let (a, b) = (&first.o, &second.o);
    let shifts = |op| Kind::Alu(Width::W64, op, Right::Imm);
    let fits = first.kind == shifts(AluOp::Lsh) && second.kind == shifts(right) && (a.imm, b.imm) == (32, 32);
    (fits && updates(a, b)).then_some((kind, Operands { c: a.b, ..*b }))
}

/// Whether the second operation changes the result of the first in place.
fn updates(first: &Operands, second: &Operands) -> bool {
    second.b == first.a && second.a == first.a
}

/// `t = x >> n; d = x << (bits - n); d |= t` at the start of `units`, if the registers are different ones.
pub(super) fn rotation(units: &[Unit]) -> Option<Handler> {
    let [right, left, or, ..] = units else { return None };
    let (
        Kind::Alu(width, AluOp::Rsh, Right::Imm),
        Kind::Alu(second, AluOp::Lsh, Right::Imm),
        Kind::Alu(third, AluOp::Or, Right::Reg),
    ) = (right.kind, left.kind, or.kind)
    else {
        return None;
    };
    let bits = if width == Width::W64 { 64 } else { 32 };
    let (t, x, d): (R, R, R) = (right.o.a, right.o.b, left.o.a);
    let fits = width == second
        && width == third
        && !left.leader
        && !or.leader
        && (1..bits).contains(&right.o.imm)
        && left.o.imm == bits - right.o.imm
        && left.o.b == x
        && t != d
        && t != x
        && (or.o.a, or.o.b, or.o.c) == (d, d, t);
    fits.then_some(if width == Width::W64 { rotate::<true> } else { rotate::<false> })
}
