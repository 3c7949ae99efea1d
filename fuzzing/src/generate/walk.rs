//! Walks over maps: `bpf_for_each_map_elem`, which only programs for the machine call, with callbacks of their own.

use twinbpf_isa::{AluOp, AtomicOp, CallKind, Insn, Operand, Reg, Size, Width};

use super::body::{Generator, SPILL_SLOT};
use super::helpers::{DELETE, FOR_EACH, UPDATE};
use super::insns::{load, mov, store};
use super::regs::Kind;
use super::world::VALUE;

/// Callbacks of walks that a program has at most.
const MOST: usize = 3;

impl Generator<'_, '_> {
    /// A walk over a map whose callback changes a word of this frame.
    pub(super) fn walk(&mut self) {
        if self.walks.len() == MOST {
            return self.arithmetic();
        }
        let src = self.some_number().map_or(Operand::Imm(self.choices.imm()), Operand::Reg);
        self.emit(mov(Reg::R4, src));
        self.emit(store(Reg::FP, SPILL_SLOT, Reg::R4));
        // A flag that the helper does not know.
        let flags = self.choices.pick(&[0, 0, 0, 0, 0, 1]);
        self.emit(mov(Reg::R4, Operand::Imm(flags)));
        [Reg::R1, Reg::R2, Reg::R3, Reg::R4].into_iter().for_each(|reg| self.set(reg, Kind::Nothing));
        self.some_map();
        let at = self.address(Reg::R2);
        self.walks.push(at);
        self.address_of(Reg::R3, SPILL_SLOT);
        self.call(CallKind::Helper, FOR_EACH);
        self.emit(load(Reg::R1, Reg::FP, SPILL_SLOT));
        self.set(Reg::R1, Kind::Number);
    }

    /// The callbacks of all walks, after the program's functions.
    pub(super) fn walk_callbacks(&mut self) {
        for at in std::mem::take(&mut self.walks) {
            self.point_at(at, self.code.len());
            self.walk_callback();
        }
    }

    /// A callback: r1 is the map, r2 points to the key, r3 to the value, r4 to a word of the caller.
    fn walk_callback(&mut self) {
        let (word, sum) = (Reg::R5, Reg::R0);
        let alu = |op, dst, src| Insn::Alu { width: Width::W64, op, dst, src };
        self.emit(Insn::Load { size: Size::W, signed: false, dst: sum, base: Reg::R2, off: 0 });
        let size = self.choices.pick(&Size::ALL);
        let off = size.bytes() as i16 * self.choices.below(VALUE / size.bytes()) as i16;
        self.emit(Insn::Load { size, signed: false, dst: word, base: Reg::R3, off });
        self.emit(alu(AluOp::Xor, sum, Operand::Reg(word)));
        self.emit(load(word, Reg::R4, 0));
        self.emit(alu(AluOp::Mul, word, Operand::Imm(31)));
        self.emit(alu(AluOp::Add, sum, Operand::Reg(word)));
        self.emit(store(Reg::R4, 0, sum));
        match self.choices.below(5) {
            0 => {
                let op = AtomicOp::Add;
                self.emit(Insn::Atomic { width: Width::W64, op, base: Reg::R3, off: 0, src: sum });
            }
            1 => self.emit(Insn::Store { size, base: Reg::R3, off, src: Operand::Reg(sum) }),
            2 => self.emit(Insn::Call { kind: CallKind::Helper, off: 0, imm: DELETE }),
            3 => self.add_again(),
            _ => {}
        }
        // The walk goes on after 0.
        let imm = self.choices.pick(&[0, 0, 1, 2, -1]);
        self.emit(alu(AluOp::And, sum, Operand::Imm(imm)));
        self.emit(Insn::Exit);
    }

    /// In a callback: deletes the key, and adds it again or another one, with what r0 holds as the value. r0 is the result.
    fn add_again(&mut self) {
        let (map, key) = (-8, -16);
        let value = key - VALUE as i16;
        self.emit(store(Reg::FP, map, Reg::R1));
        self.emit(Insn::Load { size: Size::W, signed: false, dst: Reg::R4, base: Reg::R2, off: 0 });
        let other = self.choices.pick(&[0, 0, 1]);
        self.emit(Insn::Alu { width: Width::W64, op: AluOp::Xor, dst: Reg::R4, src: Operand::Imm(other) });
        self.emit(store(Reg::FP, key, Reg::R4));
        (value..key).step_by(8).for_each(|off| self.emit(store(Reg::FP, off, Reg::R0)));
        self.emit(Insn::Call { kind: CallKind::Helper, off: 0, imm: DELETE });
        self.emit(load(Reg::R1, Reg::FP, map));
        self.address_of(Reg::R2, key);
        self.address_of(Reg::R3, value);
        // Any, only if there is none, only if there is one.
        let flags = self.choices.pick(&[0, 0, 1, 2]);
        self.emit(mov(Reg::R4, Operand::Imm(flags)));
        self.emit(Insn::Call { kind: CallKind::Helper, off: 0, imm: UPDATE });
    }
}
