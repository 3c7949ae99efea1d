//! Bugs on purpose, to measure what a campaign finds: each rewrites programs before one engine sees them, so that this
//! engine does what one with the bug would do. They are of the classes that BPF machines have had.

mod bugs;

pub use bugs::ALL;

use twinbpf_isa::{AluOp, Cond, Insn, Operand, Raw, Reg, Size, Width, splice};

use crate::backend::{Engine, Ran};
use crate::generate::Case;

/// Mutants of the compiler, each of which makes invalid IR of some programs: the verifier finds them, whatever the results
/// are. For [`crate::Vm::with_compiler_mutant`].
pub const COMPILER: &[&str] = &["constants_stay_in_loops"];

/// A seeded bug (mutant): its name, and the rewrite of an instruction.
#[derive(Clone, Copy, Debug)]
pub struct Bug {
    /// What it does.
    pub name: &'static str,
    /// What an instruction (both slots, of an `lddw`) becomes, if it is one that the bug concerns.
    pub(crate) rewrite: fn(Insn, Insn) -> Option<Vec<Insn>>,
}

impl Bug {
    /// The program as an engine with this bug understands it.
    pub fn applied(&self, insns: &[Insn]) -> Vec<Insn> {
        let mut raws: Vec<Raw> = insns.iter().map(|insn| insn.encode()).collect();
        for pc in (0..insns.len()).rev() {
            let next = insns.get(pc + 1).copied().unwrap_or(Insn::Exit);
            let slots = if matches!(insns[pc], Insn::LoadImm { .. }) { 2 } else { 1 };
            if let Some(insert) = (self.rewrite)(insns[pc], next) {
                let insert: Vec<Raw> = insert.iter().map(|insn| insn.encode()).collect();
                // A jump may become too long; then this place is not concerned.
                let _ = splice(&mut raws, pc, slots, &insert);
            }
        }
        raws.into_iter().map(|raw| Insn::decode(raw).expect("made of instructions")).collect()
    }
}

/// An engine with a bug.
#[derive(Debug)]
pub struct Seeded<E> {
    engine: E,
    bug: Bug,
}

impl<E: Engine> Seeded<E> {
    /// The engine, with this bug.
    pub fn new(engine: E, bug: Bug) -> Seeded<E> {
        Seeded { engine, bug }
    }
}

impl<E: Engine> Engine for Seeded<E> {
    fn name(&self) -> String {
        format!("{} where {}", self.engine.name(), self.bug.name)
    }

    fn take_turn(&mut self, turn: u64) {
        self.engine.take_turn(turn);
    }

    fn run(&mut self, cases: &[Case]) -> Vec<Ran> {
        let apply = |insns: &Vec<Insn>| self.bug.applied(insns);
        let rewritten = cases.iter().map(|case| Case {
            main: apply(&case.main),
            tails: case.tails.iter().map(apply).collect(),
            inputs: case.inputs.clone(),
        });
        let rewritten: Vec<Case> = rewritten.collect();
        let mut all = self.engine.run(&rewritten);
        // There are more instructions, which is not the bug; and they lie elsewhere.
        for ran in &mut all {
            if let Ran::Ended(outcomes) = ran {
                outcomes.iter_mut().flatten().for_each(|outcome| outcome.executed = None);
            }
        }
        all
    }
}

/// A word of the stack that no program uses.
const SPARE: i16 = -200;

const NOTHING: Insn = Insn::Goto { off: 0 };

fn alu(width: Width, op: AluOp, dst: Reg, src: Operand) -> Insn {
    Insn::Alu { width, op, dst, src }
}

fn constant(dst: Reg, imm: i32) -> Insn {
    alu(Width::W64, AluOp::Mov, dst, Operand::Imm(imm))
}

fn branch(width: Width, cond: Cond, dst: Reg, src: Operand, off: i16) -> Insn {
    Insn::Branch { width, cond, dst, src, off }
}

fn spare(reg: Reg, size: Size) -> Insn {
    Insn::Store { size, base: Reg::FP, off: SPARE, src: Operand::Reg(reg) }
}

fn back(dst: Reg) -> Insn {
    Insn::Load { size: Size::Dw, signed: false, dst, base: Reg::FP, off: SPARE }
}

/// A 32-bit operation that leaves the upper half of this register.
fn upper_stays(insn: Insn, dst: Reg) -> Vec<Insn> {
    vec![spare(dst, Size::Dw), insn, spare(dst, Size::W), back(dst)]
}

/// `other` in place of `insn`, where the condition does not hold.
fn unless(width: Width, (cond, left, right): (Cond, Reg, Operand), other: Insn, insn: Insn) -> Vec<Insn> {
    vec![branch(width, cond, left, right, 2), other, Insn::Goto { off: 1 }, insn]
}

/// Any register but this one.
fn another(reg: Reg) -> Reg {
    if reg == Reg::R0 { Reg::R1 } else { Reg::R0 }
}

/// The distance of the last of `len` instructions that take the place of a jump.
fn distance(off: i16, len: i16) -> i16 {
    if off < 0 { off - (len - 1) } else { off }
}
