//! Translation of instructions for the step driver: a [`Step`] for each slot.

use std::sync::OnceLock;

use super::kind::Kind;
use super::operands::{Mem, Operands, R};
use super::ops::{Op, Pick};
use super::state::Run;
use crate::image::Link;
use twinbpf_isa::{Insn, Operand, Reg};

/// One slot for the step driver.
pub(super) struct Step {
    pub(super) how: &'static How,
    pub(super) o: Operands,
}

impl Step {
    /// Of a call: it is the last instruction of its function, so that returning there is a trap.
    pub(super) fn is_last(&self) -> bool {
        self.o.imm != 0
    }
}

/// What the step driver executes for all instructions of a kind.
pub(super) struct How {
    pub(super) kind: Kind,
    pub(super) run: Run,
    pub(super) mem: Option<Mem>,
    /// Slots to the next instruction: 2 for `lddw`.
    pub(super) len: u8,
}

/// Of each kind that has occurred, by its index.
static HOW: [OnceLock<How>; Kind::COUNT] = [const { OnceLock::new() }; Kind::COUNT];

impl How {
    fn of(kind: Kind) -> How {
        let (run, mem) = kind.select(PickStep);
        How { kind, run, mem, len: if kind == Kind::LoadImm { 2 } else { 1 } }
    }
}

struct PickStep;

impl Pick for PickStep {
    type Out = (Run, Option<Mem>);

    fn pick<O: Op>(&self) -> Self::Out {
        (|o, s| O::run(o, s, None, &mut 0), O::MEM)
    }
}

impl Step {
    /// Of the instruction at a flat pc.
    pub(super) fn of(insn: Insn, pc: u32, link: Link, last: bool) -> Step {
        let (kind, o) = translate(insn, pc, link, last);
        Step { how: HOW[kind].get_or_init(|| How::of(Kind::of(insn))), o }
    }
}

const NONE: Operands = Operands { a: R::R0, b: R::R0, c: R::R0, x: 0, imm: 0, y: 0 };

/// Index of the kind of the instruction at a flat pc, and its operand fields, with a flat pc as jump target. In one match,
/// in whose arms the kind is known.
fn translate(insn: Insn, pc: u32, link: Link, last: bool) -> (usize, Operands) {
    #[inline(always)]
    fn of(insn: Insn, o: Operands) -> (usize, Operands) {
        (Kind::of(insn).index(), o)
    }
    let target = |off: i32| pc as i32 + 1 + off;
    let right = |o: Operands, operand: Operand| match operand {
        Operand::Reg(reg) => Operands { c: R::new(reg), ..o },
        Operand::Imm(imm) => Operands { imm, ..o },
    };
    let both = |a: Reg, b: Reg| Operands { a: R::new(a), b: R::new(b), ..NONE };
    match insn {
        Insn::Alu { dst, src, .. } => of(insn, right(both(dst, dst), src)),
        Insn::Endian { dst, .. } => of(insn, both(dst, dst)),
        Insn::LoadImm { dst, .. } => {
            let Link::Value(value) = link else { unreachable!("an image gives every lddw a value") };
            of(insn, Operands { imm: value as i32, x: (value >> 32) as i32, ..both(dst, dst) })
        }
        Insn::Load { dst, base, off, .. } | Insn::LoadAcquire { dst, base, off, .. } => {
            of(insn, Operands { x: off.into(), ..both(dst, base) })
        }
        Insn::Store { base, off, src, .. } => of(insn, right(Operands { x: off.into(), ..both(base, base) }, src)),
        Insn::StoreRelease { base, off, src, .. } | Insn::Atomic { base, off, src, .. } => {
            of(insn, Operands { c: R::new(src), x: off.into(), ..both(base, base) })
        }
        Insn::Branch { dst, src, off, .. } => {
            of(insn, right(Operands { x: target(off.into()), ..both(dst, dst) }, src))
        }
        Insn::Goto { off } | Insn::MayGoto { off } => of(insn, Operands { x: target(off.into()), ..NONE }),
        Insn::Gotol { off } => of(insn, Operands { x: target(off), ..NONE }),
        Insn::AddrSpaceCast { dst, src, .. } => of(insn, both(dst, src)),
        Insn::Call { .. } | Insn::Callx { .. } => of(insn, Operands { imm: last.into(), ..NONE }),
        Insn::LoadImmHi { .. } | Insn::LoadPacket { .. } | Insn::Gotox { .. } | Insn::Exit => of(insn, NONE),
    }
}
