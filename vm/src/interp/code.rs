//! Translation of an image, made once and shared by its machines: one [`Step`] per slot for the step driver, and
//! threaded code when the first machine has that driver.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use super::handlers::Threaded;
use super::kind::Kind;
use super::layout;
use super::ops::{Mem, Op, Operands, Pick, R};
use super::state::Run;
use super::superinstructions::{Superinstruction, SuperinstructionSet, SuperinstructionUse};
use crate::image::{Image, Link};
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

/// See the module documentation.
pub(super) struct Code {
    pub(super) steps: Vec<Step>,
    threaded: OnceLock<Threaded>,
}

struct PickStep;

impl Pick for PickStep {
    type Out = (Run, Option<Mem>);

    fn pick<O: Op>(&self) -> Self::Out {
        (|o, s| O::run(o, s, None, &mut 0), O::MEM)
    }
}

impl Code {
    pub(super) fn new(image: &Image) -> Code {
        let mut steps = Vec::with_capacity(image.insns().len());
        for function in image.functions() {
            let (start, end) = (function.start as usize, function.end as usize);
            let slots = image.insns()[start..end].iter().zip(&image.links()[start..end]);
            steps.extend((function.start..).zip(slots).map(|(pc, (insn, link))| {
                let (kind, o) = translate(*insn, pc, *link, pc + 1 == function.end);
                Step { how: HOW[kind].get_or_init(|| How::of(Kind::of(*insn))), o }
            }));
        }
        Code { steps, threaded: OnceLock::new() }
    }

    /// Threaded code of the same image.
    pub(super) fn threaded(&self, image: &Image) -> &Threaded {
        self.threaded.get_or_init(|| self.threaded_with(image, SuperinstructionSet::ALL))
    }

    /// The same with the superinstructions of a set, made anew.
    pub(super) fn threaded_with(&self, image: &Image, set: SuperinstructionSet) -> Threaded {
        layout::threaded(image, &self.steps, set, &mut |_, _| ())
    }
}

impl SuperinstructionSet {
    /// How often the threaded code of an image has each of its superinstructions: by function, then in the order of the table.
    pub fn uses(self, image: &Image) -> Vec<SuperinstructionUse> {
        let mut counts = BTreeMap::new();
        let mut used = |pc, row| *counts.entry((image.function_at(pc as usize), row)).or_default() += 1;
        layout::threaded(image, &image.translation(Code::new).steps, self, &mut used);
        let all = Superinstruction::all();
        let uses = counts.into_iter();
        uses.map(|((function, row), count)| SuperinstructionUse { function, name: all[row].name, count }).collect()
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
