//! Programs of which nothing is known but that validation takes them: they stray, loop and trap.
//!
//! The generator asks the decoder which slots are instructions and validation what is wrong with a program: the
//! instruction it names is replaced until nothing is wrong. So neither knows a rule that is repeated here.

use std::collections::BTreeMap;

use super::Choices;
use crate::isa::{AluOp, CallKind, Groups, Insn, Mode, Operand, Policy, Raw, Reg, Size, Width};
use crate::program::{Binding, Function, Program};
use crate::validate::Valid;

/// Slots that load r0 to r9 from the context, which has them at its beginning.
const PROLOGUE: usize = 10;

/// A slot that decodes, with fields that are often meaningful.
fn insn(choices: &mut Choices<'_>) -> Insn {
    loop {
        let (dst, src) = (choices.below(11) as u8, choices.below(11) as u8);
        let off = match choices.below(4) {
            0 => 0,
            1 => choices.pick(&[1, 8, 16, 32, -1, -8]),
            2 => choices.below(24) as i16 - 8,
            _ => -8 * choices.below(65) as i16,
        };
        let imm = match choices.below(4) {
            0 => 0,
            1 => choices.pick(&[1, 16, 32, 64, 0x40, 0x50, 0xa0, 0xe1, 0xf1, 0x100, 0x110, 0x41]),
            2 => choices.below(64) as i32 - 16,
            _ => choices.pick(&[-1, i32::MAX, i32::MIN, 0xffff, 0x1234_5678, -128]),
        };
        let mut regs = src << 4 | dst;
        if choices.below(4) == 0 {
            regs &= choices.pick(&[0x0f, 0xf0, 0x00]);
        }
        let opcode = choices.word() as u8;
        if let Ok(insn) = Insn::decode(Raw { opcode, regs, off, imm }) {
            return insn;
        }
    }
}

/// A program of two functions with so many random slots together, that gets the address of a context and loads its
/// registers from there. It may call six externs, any helper number, and legacy packet access.
pub fn wild(choices: &mut Choices<'_>, slots: usize) -> Valid<Program> {
    let load = |reg: usize| {
        let (dst, off) = (Reg::new(reg as u8).expect("below 11"), reg as i16 * 8);
        Insn::Load { size: Size::Dw, signed: false, dst, base: Reg::R1, off }
    };
    let mut insns: Vec<Insn> = [0, 2, 3, 4, 5, 6, 7, 8, 9, 1].map(load).into();
    insns.extend((0..slots).map(|_| insn(choices)));
    for pc in PROLOGUE..PROLOGUE + slots - 1 {
        if let Insn::LoadImm { dst, imm, .. } = insns[pc] {
            insns[pc] = Insn::LoadImm { dst, kind: 0, imm };
            insns[pc + 1] = Insn::LoadImmHi { imm: imm >> 8 };
        }
    }
    repaired(insns, slots)
}

/// Something harmless in place of an instruction that validation refuses.
fn harmless() -> Insn {
    Insn::Alu { width: Width::W64, op: AluOp::Add, dst: Reg::R0, src: Operand::Imm(1) }
}

fn program(insns: Vec<Insn>, slots: usize) -> Program {
    let calls = insns.iter().enumerate();
    let externs = calls.filter(|(_, insn)| matches!(insn, Insn::Call { kind: CallKind::Extern, .. }));
    let bindings: BTreeMap<usize, Binding> = externs.map(|(pc, _)| (pc, Binding::Extern(pc % 6))).collect();
    let function = |name: &str, start| Function { name: name.into(), start, signature: None };
    Program {
        object: "random".into(),
        name: "main".into(),
        section: ".text".into(),
        insns,
        bindings,
        functions: vec![function("main", 0), function("second", PROLOGUE + slots / 2)],
        lines: Vec::new(),
        stack_size: 512,
    }
}

/// The program with what validation names replaced, one instruction at a time.
fn repaired(mut insns: Vec<Insn>, slots: usize) -> Valid<Program> {
    let policy = Policy { groups: Groups::ALL, mode: Mode::Rfc };
    loop {
        match program(insns.clone(), slots).validate(&policy, &|_| true) {
            Ok(valid) => return valid,
            Err(error) => {
                let end = [slots / 2, slots].map(|slots| PROLOGUE + slots).contains(&(error.pc() + 1));
                assert!(insns[error.pc()] != Insn::Exit, "{error:#}");
                insns[error.pc()] = if end { Insn::Exit } else { harmless() };
            }
        }
    }
}
