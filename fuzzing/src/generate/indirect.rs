//! Control that follows a register: `callx` and `gotox`. Kernels take neither, so only the machine gets them.

use twinbpf_isa::{AluOp, CallKind, Cond, Insn, Operand, Reg, Width};

use super::body::{Dialect, Generator, NESTING};
use super::helpers::LOOP;
use super::insns::{load, mov, value_address};
use super::regs::Kind;
use super::world::{LABELS, TABLE};

/// The kind of an `lddw` with the address of a function.
const ADDRESS: u8 = 4;

impl Generator<'_, '_> {
    /// Whether control may follow a register, once in so many times.
    pub(super) fn indirect_once_in(&mut self, of: usize) -> bool {
        self.dialect == Dialect::Machine && self.choices.once_in(of)
    }

    /// An `lddw` whose address is filled in later, at the pc that is returned.
    pub(super) fn address(&mut self, dst: Reg) -> usize {
        self.emit(Insn::LoadImm { dst, kind: ADDRESS, imm: 0 });
        self.code.push(Insn::LoadImmHi { imm: 0 });
        self.code.len() - 2
    }

    /// Has the `lddw` at `pc` load the address of `target`.
    pub(super) fn point_at(&mut self, pc: usize, target: usize) {
        let Insn::LoadImm { imm, .. } = &mut self.code[pc] else { unreachable!("an address was to come here") };
        *imm = target as i32 - pc as i32 - 1;
    }

    /// Skips the next `lddw` or not, as a register says.
    fn choose(&mut self, by: Reg) {
        let (width, cond) = (self.choices.pick(&[Width::W64, Width::W32]), self.choices.pick(Cond::TABLE).op);
        let src = Operand::Imm(self.choices.imm());
        self.emit(Insn::Branch { width, cond, dst: by, src, off: 2 });
    }

    /// A register other than this that holds a number.
    fn number_beside(&mut self, other: Reg) -> Option<Reg> {
        self.some(self.regs.readable() & !(1 << other.index()))
    }

    /// Calls one of two functions of the program, or the first, by its address in r0.
    pub(super) fn call_through(&mut self, functions: [usize; 2]) {
        let arity = functions.map(|function| self.arity[function]).into_iter().max().unwrap_or(0);
        self.arguments(arity);
        let at = self.address(Reg::R0);
        self.addresses.push((at, functions[0]));
        if let Some(by) = self.number_beside(Reg::R0) {
            self.choose(by);
            let at = self.address(Reg::R0);
            self.addresses.push((at, functions[1]));
        }
        self.emit(Insn::Callx { dst: Reg::R0 });
        self.called();
    }

    /// Has `bpf_loop` call a later function a few times. A number decides on it sometimes.
    pub(super) fn call_back(&mut self) {
        let later = self.functions - self.function - 1;
        if later == 0 || self.loops > 0 || self.calls.len() + self.addresses.len() > self.functions + 1 {
            return self.arithmetic();
        }
        let context = self.some_number().map_or(Operand::Imm(self.choices.imm()), Operand::Reg);
        self.emit(mov(Reg::R3, context));
        // A flag that the helper does not know, and more rounds than it allows.
        let flags = self.choices.pick(&[0, 0, 0, 0, 0, 1]);
        self.emit(mov(Reg::R4, Operand::Imm(flags)));
        let rounds = self.choices.pick(&[0, 1, 2, 2, 3, 3, 3, 9 << 20]);
        self.code.push(Insn::LoadImm { dst: Reg::R1, kind: 0, imm: rounds });
        // The helper takes the lower half.
        let imm = self.choices.pick(&[0, 0, 1]);
        self.code.push(Insn::LoadImmHi { imm });
        let function = self.function + 1 + self.choices.below(later);
        let at = self.address(Reg::R2);
        self.addresses.push((at, function));
        let kept = self.some(self.regs.readable() & !0b11110);
        if let Some(by) = kept.filter(|_| self.choices.once_in(4)) {
            self.choose(by);
            let at = self.address(Reg::R2);
            self.addresses.push((at, self.function + 1 + self.choices.below(later)));
        }
        self.call(CallKind::Helper, LOOP);
    }

    /// A jump to one of several blocks, which join after it, through the table of the world. After the `gotox` comes a
    /// `goto` for each block.
    pub(super) fn jump_table(&mut self) {
        let (dst, count) = (self.target(), self.choices.pick(&[2, 4]));
        let by = self.number_beside(dst).filter(|by| self.regs[*by] == Kind::Number);
        let full = self.labels + count > LABELS;
        let Some(by) = by.filter(|_| !full && self.level < NESTING && self.loops == 0 && self.branches > 0) else {
            return self.arithmetic();
        };
        self.branches -= 1;
        for (op, imm) in [(AluOp::And, count as i32 - 1), (AluOp::Lsh, 3)] {
            self.emit(Insn::Alu { width: Width::W64, op, dst: by, src: Operand::Imm(imm) });
        }
        let table = value_address(dst, TABLE, self.labels * 8);
        self.code.extend(table);
        self.emit(Insn::Alu { width: Width::W64, op: AluOp::Add, dst, src: Operand::Reg(by) });
        self.emit(load(dst, dst, 0));
        self.emit(Insn::Gotox { dst });
        self.labels += count;
        let first = self.code.len();
        self.code.extend(vec![Insn::Goto { off: 0 }; count]);
        self.set(dst, Kind::Nothing);
        let (before, mut ends, mut meeting) = (self.regs, Vec::new(), None);
        self.level += 1;
        for slot in first..first + count {
            self.land(slot);
            self.regs = before;
            let len = 1 + self.choices.below(4);
            self.block(len);
            ends.push(self.code.len());
            self.emit(Insn::Goto { off: 0 });
            if let Some(others) = meeting {
                self.regs.meet(&others);
            }
            meeting = Some(self.regs);
        }
        self.level -= 1;
        ends.into_iter().for_each(|end| self.land(end));
    }
}
