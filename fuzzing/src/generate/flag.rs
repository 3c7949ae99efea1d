//! Numbers that record which path control took.

use twinbpf_isa::{AluOp, Cond, Insn, Operand, Width};

use super::body::Generator;
use super::insns::mov;

impl Generator<'_, '_> {
    /// Sets a register to one of two constants and compares it some instructions later, as clang writes a comparison
    /// whose result is needed as a number. The paths with and without the second constant join before the comparison or
    /// after it.
    pub(super) fn flag(&mut self) {
        self.branches -= 3;
        let dst = self.number();
        let values = [self.choices.pick(&[0, 1]), self.choices.imm()];
        self.emit(mov(dst, Operand::Imm(values[0])));
        let before = self.regs;
        let mut open = [Some(self.skip()), None];
        let meet = self.choices.once_in(2);
        if meet || self.choices.once_in(2) {
            self.emit(mov(dst, Operand::Imm(values[1])));
        }
        if let Some(at) = open[0].take_if(|_| meet) {
            self.land(at);
        }
        let between = if self.choices.once_in(4) { self.choices.below(32) } else { self.choices.below(3) };
        if let Some(other) = self.some(self.regs.numbers & !(1 << dst.index())) {
            let src = Operand::Imm(self.choices.imm());
            (0..between).for_each(|_| self.emit(Insn::Alu { width: Width::W64, op: AluOp::Add, dst: other, src }));
        }
        if !meet {
            open[1] = Some(self.skip());
        }
        let (cond, imm) = (self.choices.pick(Cond::TABLE).op, self.choices.pick(&values));
        let (width, asked) = (self.choices.pick(&[Width::W64, Width::W32]), self.code.len());
        self.emit(Insn::Branch { width, cond, dst, src: Operand::Imm(imm), off: 0 });
        self.level += 1;
        let len = 1 + self.choices.below(3);
        self.block(len);
        self.level -= 1;
        [Some(asked), open[0], open[1]].into_iter().flatten().for_each(|at| self.land(at));
        self.regs.meet(&before);
    }
}
