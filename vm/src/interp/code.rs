//! Translation of an image, made once and shared by its machines: one [`Step`] per slot for the step driver, and
//! threaded code when the first machine has that driver.

use std::sync::OnceLock;

use super::kind::Kind;
use super::layout;
use super::ops::{Flow, Mem, Op, Operands, Pick, R};
use super::state::State;
use super::threaded::Threaded;
use crate::image::{Image, Link};
use crate::isa::{Insn, Operand, Reg};

/// One slot for the step driver.
pub(super) struct Step {
    pub(super) run: fn(&Operands, &mut State) -> Flow,
    pub(super) o: Operands,
    /// Slots to the next instruction: 2 for `lddw`.
    pub(super) len: u8,
    /// The last instruction of its function, and a call: returning to behind it is a trap.
    pub(super) last: bool,
    pub(super) mem: Option<Mem>,
    pub(super) kind: Kind,
}

/// See the module documentation.
pub(super) struct Code {
    pub(super) steps: Vec<Step>,
    threaded: OnceLock<Threaded>,
}

struct PickStep;

impl Pick for PickStep {
    type Out = (fn(&Operands, &mut State) -> Flow, Option<Mem>);

    fn pick<O: Op>(&self) -> Self::Out {
        (|o, s| O::run(o, s, None, &mut 0), O::MEM)
    }
}

impl Code {
    pub(super) fn new(image: &Image) -> Code {
        let mut steps = Vec::with_capacity(image.insns().len());
        for function in image.functions() {
            for pc in function.start..function.end {
                let insn = image.insns()[pc as usize];
                let kind = Kind::of(insn);
                let (run, mem) = kind.select(PickStep);
                let o = operands(insn, pc, image.links()[pc as usize]);
                let len = if matches!(insn, Insn::LoadImm { .. }) { 2 } else { 1 };
                steps.push(Step { run, o, len, last: pc + 1 == function.end, mem, kind });
            }
        }
        Code { steps, threaded: OnceLock::new() }
    }

    /// Threaded code of the same image.
    pub(super) fn threaded(&self, image: &Image) -> &Threaded {
        self.threaded.get_or_init(|| layout::threaded(image, &self.steps))
    }
}

const NONE: Operands = Operands { a: R::R0, b: R::R0, c: R::R0, x: 0, imm: 0, y: 0 };

/// Operand fields of the instruction at a flat pc, with a flat pc as jump target.
fn operands(insn: Insn, pc: u32, link: Link) -> Operands {
    let target = |off: i32| pc as i32 + 1 + off;
    let right = |o: Operands, operand: Operand| match operand {
        Operand::Reg(reg) => Operands { c: R::new(reg), ..o },
        Operand::Imm(imm) => Operands { imm, ..o },
    };
    let both = |a: Reg, b: Reg| Operands { a: R::new(a), b: R::new(b), ..NONE };
    match insn {
        Insn::Alu { dst, src, .. } => right(both(dst, dst), src),
        Insn::Endian { dst, .. } => both(dst, dst),
        Insn::LoadImm { dst, .. } => {
            let Link::Value(value) = link else { unreachable!("an image gives every lddw a value") };
            Operands { imm: value as i32, x: (value >> 32) as i32, ..both(dst, dst) }
        }
        Insn::Load { dst, base, off, .. } | Insn::LoadAcquire { dst, base, off, .. } => {
            Operands { x: off.into(), ..both(dst, base) }
        }
        Insn::Store { base, off, src, .. } => right(Operands { x: off.into(), ..both(base, base) }, src),
        Insn::StoreRelease { base, off, src, .. } | Insn::Atomic { base, off, src, .. } => {
            Operands { c: R::new(src), x: off.into(), ..both(base, base) }
        }
        Insn::Branch { dst, src, off, .. } => right(Operands { x: target(off.into()), ..both(dst, dst) }, src),
        Insn::Goto { off } | Insn::MayGoto { off } => Operands { x: target(off.into()), ..NONE },
        Insn::Gotol { off } => Operands { x: target(off), ..NONE },
        Insn::AddrSpaceCast { dst, src, .. } => both(dst, src),
        Insn::LoadImmHi { .. }
        | Insn::LoadPacket { .. }
        | Insn::Gotox { .. }
        | Insn::Call { .. }
        | Insn::Callx { .. }
        | Insn::Exit => NONE,
    }
}
