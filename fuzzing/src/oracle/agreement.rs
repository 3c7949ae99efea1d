//! Agreement with the kernel's verifier: runs the programs that it accepts in the checked interpreter.
//!
//! Valid programs and nearly valid ones go to a verifier and to our validation. A program that validation refuses for its
//! fields must be refused there, and vice versa. What both take runs in the interpreter, where each access is
//! checked and each read watched: one that leaves its memory, or reads a register before it is written, was accepted
//! wrongly; and where the verifier's engine comes to another result, one of them is wrong.

use std::collections::BTreeMap;
use std::fmt;

use twinbpf_isa::validate::{Reason, ValidateError};
use twinbpf_isa::{CallKind, Group, Groups, Insn, Mode, Policy, Raw, Reg, Size};
use twinbpf_vm::helper;
use twinbpf_vm::mem::MemError;
use twinbpf_vm::trap::TrapCode;

use crate::backend::{Doubt, End, Engine as _, Outcome, Ran, Verifier, Vm};
use crate::generate::{Case, Choices, near_valid, program_of};

/// See the module documentation.
pub struct Agreement {
    machine: Vm,
    /// The interpreter with its memory elsewhere: results that are of addresses mean nothing.
    witness: Vm,
    verifier: Box<dyn Verifier>,
    /// How often what was the case.
    pub counts: BTreeMap<String, u64>,
    /// Instructions of the programs that it was given, slot by slot.
    pub slots: u64,
}

/// Something that should not be.
#[derive(Clone, Debug)]
pub struct Disagreement {
    /// In a few words, without numbers.
    pub what: String,
    /// More about it.
    pub detail: String,
    /// The program, as far as it is instructions.
    pub case: Option<Case>,
}

impl fmt::Debug for Agreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Agreement").field("counts", &self.counts).finish_non_exhaustive()
    }
}

/// Nearly valid programs made of each valid one.
const MUTANTS: usize = 3;

/// Instructions after which a program is left alone.
const ENOUGH: u64 = 1 << 14;

/// Parts of what the kernel says of fields and of control, rather than of values: validation must say so too.
const STRUCTURE: [&str; 9] = [
    "reserved field",
    "unknown opcode",
    "invalid atomic opcode",
    "invalid BPF_LD_IMM",
    "jump out of range",
    "jump into the middle",
    "last insn is not an exit",
    "is invalid",
    "frame pointer is read only",
];

/// Helpers that do the same every time, and nothing to the system.
const HARMLESS: [i32; 3] = [1, 2, 3];

impl Agreement {
    /// A comparison with this verifier.
    ///
    /// # Errors
    /// There is no room for the memory of the interpreters.
    pub fn new(verifier: Box<dyn Verifier>) -> Result<Agreement, MemError> {
        let (machine, witness) = (Vm::watched()?, Vm::witness()?);
        Ok(Agreement { machine, witness, verifier, counts: BTreeMap::new(), slots: 0 })
    }

    fn count(&mut self, what: impl Into<String>) {
        *self.counts.entry(what.into()).or_default() += 1;
    }

    /// Compares what becomes of these programs and of some made of them.
    pub fn run(&mut self, cases: &[Case], choices: &mut Choices<'_>) -> Vec<Disagreement> {
        let mut found = Vec::new();
        // Tail calls are of another type of program.
        for case in cases.iter().filter(|case| !case.uses().jumps) {
            self.slots += case.main.len() as u64;
            let valid: Vec<Raw> = case.main.iter().map(|insn| insn.encode()).collect();
            found.extend(self.judge("valid", case, &valid, None));
            for _ in 0..MUTANTS {
                let near = near_valid(case, choices);
                found.extend(self.judge("nearly valid", case, &near.slots, Some(near.pc)));
            }
        }
        found
    }

    fn judge(&mut self, kind: &str, base: &Case, slots: &[Raw], changed: Option<usize>) -> Option<Disagreement> {
        let insns: Option<Vec<Insn>> = slots.iter().map(|raw| Insn::decode(*raw).ok()).collect();
        let case = insns.map(|main| Case { main, ..base.clone() });
        let ours = case.as_ref().map_or(Err(None), |case| validated(case).map_err(Some));
        let theirs = self.verifier.verify(slots);
        let disagree = |what: &str, detail: String| {
            let slots: Vec<String> = slots.iter().map(|raw| format!("{raw:x?}")).collect();
            let detail = if case.is_none() { format!("{detail}\n{}", slots.join("\n")) } else { detail };
            Some(Disagreement { what: what.to_owned(), detail, case: case.clone() })
        };
        match (ours, theirs) {
            (Ok(()), Ok(())) => {
                self.count(format!("{kind}: accepted by both"));
                self.execute(case.as_ref().expect("it is valid"))
            }
            (Err(_), Err(_)) => {
                self.count(format!("{kind}: refused by both"));
                None
            }
            (Ok(()), Err(why)) => {
                self.count(format!("{kind}: refused by the verifier: {why}"));
                let structural = STRUCTURE.iter().any(|part| why.contains(part)) && !why.contains("invalid mem access");
                if structural {
                    disagree("validation accepts what the verifier refuses for its form", why)
                } else {
                    None
                }
            }
            (Err(Some(why)), Ok(())) if is_ours(&why) => {
                self.count(format!("{kind}: refused by validation: it names what only a kernel has"));
                None
            }
            (Err(_), Ok(())) if changed.is_some_and(|pc| is_lax(slots[pc])) => {
                self.count(format!("{kind}: refused by validation: the kernel does not check the offset of exit"));
                None
            }
            (Err(_), Ok(())) if changed.is_some_and(|pc| self.is_dead(slots, pc)) => {
                self.count(format!("{kind}: refused by validation, accepted as code that is never reached"));
                None
            }
            (Err(why), Ok(())) => {
                let field = || changed.map_or_else(String::new, |pc| format!("slot {pc} is {:x?}", slots[pc]));
                let text = why.map_or_else(field, |why| why.to_string());
                disagree("the verifier accepts what validation refuses", text)
            }
        }
    }

    /// Whether the verifier does not check an instruction: it would refuse this one in its place.
    fn is_dead(&self, slots: &[Raw], pc: usize) -> bool {
        let outside = Insn::Load { size: Size::Dw, signed: false, dst: Reg::R0, base: Reg::FP, off: i16::MIN };
        let (mut slots, wide) = (slots.to_vec(), Insn::LoadImm { dst: Reg::R0, kind: 0, imm: 0 }.encode().opcode);
        // Of a wide instruction, in place of both halves.
        let first = if pc > 0 && slots[pc - 1].opcode == wide { pc - 1 } else { pc };
        if slots[first].opcode == wide && first + 1 < slots.len() {
            slots[first + 1] = Insn::Goto { off: 0 }.encode();
        }
        slots[first] = outside.encode();
        // Without a jump something else may become unreachable, of which it says another thing.
        self.verifier.verify(&slots).err().is_none_or(|why| !why.contains("stack"))
    }

    /// Runs a program that both accept.
    fn execute(&mut self, case: &Case) -> Option<Disagreement> {
        let harmless = |insn: &Insn| match insn {
            Insn::Call { kind: CallKind::Helper, imm, .. } => HARMLESS.contains(imm),
            Insn::Call { kind: CallKind::Extern, .. } => false,
            _ => true,
        };
        if !case.main.iter().all(harmless) {
            self.count("not run: it calls what is not the same every time");
            return None;
        }
        let one = std::slice::from_ref(case);
        let mut limited = case.clone();
        limited.inputs.iter_mut().for_each(|input| input.limit = Some(ENOUGH));
        let ours = self.machine.run(std::slice::from_ref(&limited)).pop();
        let doubt = self.machine.doubts().first().copied().flatten();
        let disagree =
            |what: &str, detail: String| Some(Disagreement { what: what.to_owned(), detail, case: Some(case.clone()) });
        let Some(Ran::Ended(outcomes)) = ours else {
            return disagree("the machine does not take what validation accepts", format!("{ours:?}"));
        };
        if let Some(Doubt::Register(pc)) = doubt {
            return disagree("an accepted program reads a register before it is written", format!("insn {pc}"));
        }
        if let Some((code, pc)) = outcomes.iter().flatten().find_map(trap) {
            if code == TrapCode::OutOfInsns {
                self.count("not run there: it takes too long");
                return None;
            }
            if let (Some(Doubt::Context(at)), TrapCode::OutOfBounds) = (doubt, code)
                && pc == Some(at)
            {
                self.count("not run: the context would have to be longer");
                return None;
            }
            return disagree("an accepted program traps", format!("{} at insn {pc:?}", code.text()));
        }
        if let Some(doubt) = doubt {
            self.count(match doubt {
                Doubt::Stack(_) => "not compared: it reads stack before it is written, as the privileged may",
                Doubt::Address(_) | Doubt::Register(_) | Doubt::Context(_) => {
                    "not compared: it computes with addresses"
                }
            });
            return None;
        }
        let Some(Ran::Ended(theirs)) = self.verifier.run(one).pop() else {
            self.count("not run there: it was refused as what it is run as");
            return None;
        };
        let Some(Ran::Ended(elsewhere)) = self.witness.run(one).pop() else { return None };
        if !same(&outcomes, &elsewhere) {
            self.count("not compared: addresses show");
            return None;
        }
        self.count("ran on both");
        let pairs = || outcomes.iter().flatten().zip(theirs.iter().flatten());
        let (one, other) = pairs().find(|(one, other)| !one.agrees(other))?;
        disagree("an accepted program has another result", one.difference(other))
    }
}

fn same(one: &[Option<Outcome>], other: &[Option<Outcome>]) -> bool {
    one.iter().flatten().zip(other.iter().flatten()).all(|(one, other)| one.agrees(other))
}

fn trap(outcome: &Outcome) -> Option<(TrapCode, Option<usize>)> {
    match outcome.end {
        End::Trapped(code, pc) => Some((code, pc)),
        End::Returned(_) => None,
    }
}

/// Whether validation accepts the program as a kernel of today would.
fn validated(case: &Case) -> Result<(), ValidateError> {
    let groups = Groups::ALL.without(Group::Callx).without(Group::Gotox);
    let policy = Policy { groups, mode: Mode::Kernel };
    program_of(case.main.clone()).validate(&policy, &helper::exists).map(drop)
}

/// `do_check` in kernel/bpf/verifier.c does not check the offset of an `exit`. Here it must be 0, as the RFC has it.
fn is_lax(slot: Raw) -> bool {
    slot.opcode == Insn::Exit.encode().opcode && slot.regs == 0 && slot.imm == 0
}

/// Refused for what only the machine has or lacks: helpers, kinds of references, and the bounds of its frames.
fn is_ours(error: &ValidateError) -> bool {
    matches!(error.reason(), Reason::UnknownHelper(_) | Reason::Binding { .. } | Reason::FunctionTable)
}
