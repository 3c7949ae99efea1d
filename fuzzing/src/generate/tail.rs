//! What is tail called: it counts its entries, computes a little, and may continue to the next one.

use twinbpf_isa::{AluOp, CallKind, Insn, Operand, Reg, Shape, Width};

use super::Choices;
use super::helpers::TAIL_CALL;
use super::insns::{load, mov, reg, store, value_address};
use super::world::{COUNTER, JUMPS, SLOTS, STATE, TAIL_OUT};

/// Slots that one has at most.
const LONGEST: usize = 17;

/// A target of tail calls.
pub(super) fn program(choices: &mut Choices<'_>) -> Vec<Insn> {
    let (context, state, number) = (Reg::R6, reg(7), reg(8));
    let mut code = Vec::with_capacity(LONGEST);
    code.push(mov(context, Operand::Reg(Reg::R1)));
    code.extend(value_address(state, STATE, COUNTER));
    code.push(load(number, state, 0));
    code.push(Insn::Alu { width: Width::W64, op: AluOp::Add, dst: number, src: Operand::Imm(1) });
    code.push(store(state, 0, number));
    let plain = |op: &AluOp| op.row().shape == Shape::Binary && op.reads_dst();
    for _ in 0..choices.below(4) {
        let op = choices.pick(AluOp::TABLE).op;
        // Counts and divisors that every checker takes.
        let src = Operand::Imm(1 + choices.below(31) as i32);
        let width = choices.pick(&[Width::W64, Width::W32]);
        code.extend(plain(&op).then_some(Insn::Alu { width, op, dst: number, src }));
    }
    code.push(store(state, (TAIL_OUT - COUNTER) as i16, number));
    if choices.once_in(2) {
        code.push(mov(Reg::R1, Operand::Reg(context)));
        code.extend([Insn::LoadImm { dst: Reg::R2, kind: 1, imm: JUMPS as i32 }, Insn::LoadImmHi { imm: 0 }]);
        code.push(mov(Reg::R3, Operand::Imm(choices.below(SLOTS as usize) as i32)));
        code.push(Insn::Call { kind: CallKind::Helper, off: 0, imm: TAIL_CALL });
    }
    code.extend([mov(Reg::R0, Operand::Reg(number)), Insn::Exit]);
    code
}
