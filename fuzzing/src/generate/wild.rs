//! Cases that leave their memory: accesses of what registers happen to hold, close to the ends of what a register or a
//! displacement can say, calls and jumps through addresses that are slightly wrong, and calls without an end.

use twinbpf_isa::{AluOp, AtomicOp, CallKind, Insn, Operand, Reg, Size, Width};
use twinbpf_vm::mem::MARGIN;

use super::mutate::{follows_entries, replaced};
use super::{Case, Choices};

/// The kind of an `lddw` with the address of a function.
const ADDRESS: u8 = 4;
const SIZES: [Size; 4] = [Size::B, Size::H, Size::W, Size::Dw];
const ATOMICS: [AtomicOp; 4] = [AtomicOp::Add, AtomicOp::FetchOr, AtomicOp::Xchg, AtomicOp::Cmpxchg];

/// A case with up to four of these put into its program.
pub fn wild(case: &Case, choices: &mut Choices<'_>) -> Case {
    let mut wild = case.clone();
    for _ in 0..1 + choices.below(4) {
        let at = match choices.below(3) {
            0 => indirect(&wild.main, choices).unwrap_or(0),
            1 => choices.below(wild.main.len().min(16)),
            _ => choices.below(wild.main.len()),
        };
        if let Some(main) = part(&wild.main, at, choices).and_then(|more| replaced(&wild.main, at, 0, &more)) {
            wild.main = main;
        }
    }
    wild
}

/// An instruction that jumps or calls through a register.
fn indirect(insns: &[Insn], choices: &mut Choices<'_>) -> Option<usize> {
    let all = (0..insns.len()).filter(|at| matches!(insns[*at], Insn::Gotox { .. } | Insn::Callx { .. }));
    let all: Vec<usize> = all.collect();
    (!all.is_empty()).then(|| choices.pick(&all))
}

/// What is inserted before an instruction, if anything can be.
fn part(insns: &[Insn], at: usize, choices: &mut Choices<'_>) -> Option<Vec<Insn>> {
    if follows_entries(insns, at) {
        return None;
    }
    Some(match insns[at] {
        Insn::LoadImmHi { .. } => return None,
        Insn::Gotox { dst } | Insn::Callx { dst } if choices.below(4) > 0 => vec![moved(dst, choices)],
        _ => match choices.below(8) {
            0 => call_through(at, choices),
            // The function calls itself.
            1 => vec![Insn::Call { kind: CallKind::Local, imm: -(at as i32) - 1, off: 0 }],
            2 => near_end(choices),
            _ => access_of_anything(choices),
        },
    })
}

fn alu(width: Width, op: AluOp, dst: Reg, src: Operand) -> Insn {
    Insn::Alu { width, op, dst, src }
}

fn constant(dst: Reg, imm: i32) -> Insn {
    alu(Width::W64, AluOp::Mov, dst, Operand::Imm(imm))
}

fn number(dst: Reg, choices: &mut Choices<'_>) -> [Insn; 2] {
    let number = choices.number();
    [Insn::LoadImm { dst, kind: 0, imm: number as i32 }, Insn::LoadImmHi { imm: (number >> 32) as i32 }]
}

fn reg(choices: &mut Choices<'_>) -> Reg {
    Reg::new(choices.below(10) as u8).expect("below 11")
}

/// An address of a function or label, moved by a few.
fn moved(dst: Reg, choices: &mut Choices<'_>) -> Insn {
    let (few, some) = (choices.below(5) as i32, choices.below(24) as i32 - 8);
    let by = choices.pick(&[few * 32, few * 32, some * 32, some, i32::MAX & !15, i32::MIN]);
    alu(Width::W64, AluOp::Add, dst, Operand::Imm(by))
}

/// A call of a function's address, moved.
fn call_through(at: usize, choices: &mut Choices<'_>) -> Vec<Insn> {
    let dst = reg(choices);
    let mut all = match choices.below(3) {
        0 => number(dst, choices).to_vec(),
        _ => {
            let first = Insn::LoadImm { dst, kind: ADDRESS, imm: -(at as i32) - 1 };
            vec![first, Insn::LoadImmHi { imm: 0 }, moved(dst, choices)]
        }
    };
    if choices.once_in(3) {
        let high = alu(Width::W64, AluOp::Lsh, Reg::R6, Operand::Imm(choices.pick(&[31, 32, 36, 40])));
        all.extend([constant(Reg::R6, 1 + choices.below(7) as i32), high]);
        all.push(alu(Width::W64, AluOp::Add, dst, Operand::Reg(Reg::R6)));
    }
    all.push(Insn::Callx { dst });
    all
}

/// An access of so many bytes.
fn access(base: Reg, off: i16, size: Size, choices: &mut Choices<'_>) -> Insn {
    let other = reg(choices);
    match choices.below(6) {
        0 => {
            let width = if size == Size::Dw { Width::W64 } else { Width::W32 };
            Insn::Atomic { width, op: choices.pick(&ATOMICS), base, off, src: other }
        }
        1 => Insn::Store { size, base, off, src: Operand::Imm(choices.imm()) },
        2 => Insn::Store { size, base, off, src: Operand::Reg(other) },
        3 if size != Size::Dw => Insn::Load { size, signed: true, dst: other, base, off },
        _ => Insn::Load { size, signed: false, dst: other, base, off },
    }
}

/// An access whose first or last byte is about as far from the arena as it may be.
fn near_end(choices: &mut Choices<'_>) -> Vec<Insn> {
    let (base, size) = (reg(choices), choices.pick(&SIZES));
    let (margin, few) = (MARGIN as i32, choices.below(12) as i32);
    let bytes = size.bytes() as i32;
    let far =
        choices.pick(&[margin - few, margin - bytes, few - margin, 2 * margin - few, few - 2 * margin, margin / 2]);
    let first = if far > 0 { -1 - choices.below(3) as i32 } else { choices.below(3) as i32 };
    let off = choices.pick(&[0, 0, 8, -8]);
    let op = alu(Width::W64, AluOp::Add, base, Operand::Imm(far - i32::from(off)));
    // The result is not known statically.
    let hidden = match choices.below(2) {
        0 => Insn::Atomic { width: Width::W64, op: AtomicOp::Xchg, base: Reg::FP, off: -504, src: base },
        _ => Insn::Load { size: Size::Dw, signed: false, dst: base, base: Reg::FP, off: -504 },
    };
    let store = Insn::Store { size: Size::Dw, base: Reg::FP, off: -504, src: Operand::Imm(first) };
    vec![store, hidden, op, access(base, off, size, choices)]
}

/// An access of what a register holds, after some arithmetic.
fn access_of_anything(choices: &mut Choices<'_>) -> Vec<Insn> {
    const OPS: [AluOp; 8] =
        [AluOp::Add, AluOp::Add, AluOp::Sub, AluOp::Lsh, AluOp::Mul, AluOp::And, AluOp::Rsh, AluOp::Mov];
    let (base, mut all) = (reg(choices), Vec::new());
    if choices.once_in(3) {
        all.extend(number(base, choices));
    } else if choices.once_in(3) {
        let (size, word) = (choices.pick(&SIZES), 8 * choices.below(8) as i16);
        let (from, off) = choices.pick(&[(Reg::FP, -8 - word), (Reg::R1, word), (Reg::R1, word)]);
        let signed = size != Size::Dw && choices.once_in(2);
        all.push(Insn::Load { size, signed, dst: base, base: from, off });
    }
    for _ in 0..choices.below(4) {
        let (width, op) = (choices.pick(&[Width::W32, Width::W32, Width::W64]), choices.pick(&OPS));
        let src = match op {
            AluOp::Lsh | AluOp::Rsh => Operand::Imm(1 + choices.below(31) as i32),
            _ if choices.once_in(2) => Operand::Reg(reg(choices)),
            _ => Operand::Imm(choices.imm()),
        };
        all.push(alu(width, op, base, src));
    }
    let random = choices.word() as i16;
    let (off, size) = (choices.pick(&[0, 8, -8, random]), choices.pick(&SIZES));
    all.push(access(base, off, size, choices));
    all
}
