//! Cases made of cases: changed at random for coverage-guided fuzzers, and changed without changing their result.

use twinbpf_isa::{AluOp, Insn, Operand, Raw, Reg, Width, splice};

use super::case::{Case, Input};
use super::{Choices, program_of};

/// A change of a program that leaves every result as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Meta {
    /// Instructions that nothing leads to.
    DeadCode,
    /// A jump to the next instruction.
    SplitBlock,
    /// Registers that calls keep, under each other's names.
    RenamedRegisters,
    /// An immediate loaded into a register before it is used.
    ImmediateInRegister,
}

impl Meta {
    /// All semantics-preserving changes.
    pub const ALL: [Meta; 4] = [Meta::DeadCode, Meta::SplitBlock, Meta::RenamedRegisters, Meta::ImmediateInRegister];

    /// Its name, in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Meta::DeadCode => "dead code",
            Meta::SplitBlock => "a split block",
            Meta::RenamedRegisters => "other registers",
            Meta::ImmediateInRegister => "an immediate in a register",
        }
    }
}

/// Replaces slots of a program; jumps lead where they led. Nothing where that cannot be.
pub(super) fn replaced(insns: &[Insn], at: usize, remove: usize, insert: &[Insn]) -> Option<Vec<Insn>> {
    let mut raws: Vec<Raw> = insns.iter().map(|insn| insn.encode()).collect();
    let insert: Vec<Raw> = insert.iter().map(|insn| insn.encode()).collect();
    splice(&mut raws, at, remove, &insert).ok()?;
    raws.into_iter().map(Insn::decode).collect::<Result<_, _>>().ok()
}

/// A place to change: not the second half of an `lddw`.
fn position(insns: &[Insn], choices: &mut Choices<'_>) -> usize {
    let at = choices.below(insns.len());
    if matches!(insns[at], Insn::LoadImmHi { .. }) { at.saturating_sub(1) } else { at }
}

/// Whether an instruction is an entry of the table of a `gotox` or the one after them: a `goto` before it would be one
/// more entry.
pub(super) fn follows_entries(insns: &[Insn], at: usize) -> bool {
    let goto = |insn: &&Insn| matches!(insn, Insn::Goto { .. });
    matches!(insns[..at].iter().rev().find(|insn| !goto(insn)), Some(Insn::Gotox { .. }))
}

/// A case that must do what this one does, but for the instructions it executes; `None` where the change is not
/// possible at the place that was chosen. Limits on instructions go away.
pub fn equivalent(case: &Case, meta: Meta, choices: &mut Choices<'_>) -> Option<Case> {
    let insns = &case.main;
    let main = match meta {
        Meta::DeadCode => {
            let at = Some(position(insns, choices)).filter(|at| !follows_entries(insns, *at))?;
            let dead: Vec<Insn> = (0..1 + choices.below(4)).map(|_| insns[position(insns, choices)]).collect();
            let fits = |insn: &Insn| matches!(insn, Insn::Alu { .. } | Insn::Endian { .. } | Insn::Exit);
            let dead: Vec<Insn> = dead.into_iter().filter(fits).collect();
            let over = Insn::Goto { off: dead.len() as i16 };
            replaced(insns, at, 0, &[&[over], &dead[..]].concat())?
        }
        Meta::SplitBlock => {
            let at = Some(position(insns, choices)).filter(|at| !follows_entries(insns, *at))?;
            replaced(insns, at, 0, &[Insn::Goto { off: 0 }])?
        }
        Meta::RenamedRegisters => {
            let mut names: [u8; 11] = std::array::from_fn(|reg| reg as u8);
            let (one, other) = (6 + choices.below(4), 6 + choices.below(4));
            names.swap(one, other);
            insns.iter().map(|insn| renamed(*insn, &names)).collect::<Option<_>>()?
        }
        Meta::ImmediateInRegister => in_register(insns, choices)?,
    };
    let mut inputs = case.inputs.clone();
    inputs.iter_mut().for_each(|input| input.limit = None);
    Some(Case { main, tails: case.tails.clone(), inputs })
}

/// An instruction with other registers. Only what the wire form has in its register fields; r0 to r5, which calls
/// name silently, must keep their names.
fn renamed(insn: Insn, names: &[u8; 11]) -> Option<Insn> {
    if matches!(insn, Insn::Call { .. } | Insn::LoadImm { .. }) {
        let Insn::LoadImm { dst, kind, imm } = insn else { return Some(insn) };
        return Some(Insn::LoadImm { dst: Reg::new(names[dst.index()])?, kind, imm });
    }
    let raw = insn.encode();
    let name = |field: u8| names.get(usize::from(field)).copied();
    let regs = name(raw.src())? << 4 | name(raw.dst())?;
    Insn::decode(Raw { regs, ..raw }).ok()
}

/// Registers that calls keep and the program does not name.
pub(super) fn unused(insns: &[Insn]) -> Option<Reg> {
    let mut used = [false; 16];
    for raw in insns.iter().map(|insn| insn.encode()) {
        used[usize::from(raw.dst())] = true;
        used[usize::from(raw.src())] = true;
    }
    (6..10).find(|reg| !used[usize::from(*reg)]).and_then(Reg::new)
}

fn in_register(insns: &[Insn], choices: &mut Choices<'_>) -> Option<Vec<Insn>> {
    let free = unused(insns)?;
    let first = choices.below(insns.len());
    let order = (first..insns.len()).chain(0..first);
    for at in order {
        let (imm, insn) = match insns[at] {
            Insn::Alu { width, op, dst, src: Operand::Imm(imm) } if op != AluOp::Neg => {
                (imm, Insn::Alu { width, op, dst, src: Operand::Reg(free) })
            }
            Insn::Store { size, base, off, src: Operand::Imm(imm) } => {
                (imm, Insn::Store { size, base, off, src: Operand::Reg(free) })
            }
            Insn::Branch { width, cond, dst, src: Operand::Imm(imm), off } => {
                // Forwards the distance stays; backwards, the new slot is in between.
                let off = if off < 0 { off - 1 } else { off };
                (imm, Insn::Branch { width, cond, dst, src: Operand::Reg(free), off })
            }
            _ => continue,
        };
        let constant = Insn::Alu { width: Width::W64, op: AluOp::Mov, dst: free, src: Operand::Imm(imm) };
        // A jump to the instruction executes the constant first.
        return replaced(insns, at, 1, &[constant, insn]);
    }
    None
}

/// Changes a case at random, keeping its form: instructions deleted, doubled, exchanged, their fields
/// changed, inputs changed. The result may behave differently; it is one that validation takes, or `None`.
pub fn mutate(case: &Case, choices: &mut Choices<'_>) -> Option<Case> {
    let mut case = case.clone();
    for _ in 0..1 + choices.below(4) {
        let at = position(&case.main, choices);
        let wide = usize::from(matches!(case.main[at], Insn::LoadImm { .. })) + 1;
        match choices.below(6) {
            0 => case.main = replaced(&case.main, at, wide, &[])?,
            1 => {
                let from = position(&case.main, choices);
                let insn = case.main[from];
                if !matches!(insn, Insn::LoadImm { .. }) {
                    case.main = replaced(&case.main, at, 0, &[insn])?;
                }
            }
            2 if at + 1 < case.main.len() => case.main.swap(at, at + 1),
            3 => {
                let input = choices.below(case.inputs.len().max(1));
                if let Some(input) = case.inputs.get_mut(input) {
                    *input = Input::new(choices);
                }
            }
            _ => {
                let mut raw = case.main[at].encode();
                match choices.below(3) {
                    0 => raw.imm = choices.imm(),
                    1 => raw.regs ^= 1 << choices.below(8),
                    _ => raw.opcode ^= 1 << choices.below(8),
                }
                case.main[at] = Insn::decode(raw).ok()?;
            }
        }
    }
    let policy = twinbpf_isa::Policy::default();
    program_of(case.main.clone()).validate(&policy, &|_| true).ok().map(|_| case)
}
