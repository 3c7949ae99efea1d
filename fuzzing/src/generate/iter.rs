//! Numeric iterators: `bpf_iter_num_*`, which only programs for the machine call.

use twinbpf_isa::{CallKind, Cond, Insn, Operand, Reg, Size, Width};

use super::body::{Generator, ITER_SLOT};
use super::insns::{mov, value_address};
use super::regs::Kind;
use super::world::{MEMORY, STATE};

/// Indices of `bpf_iter_num_new`, `_next` and `_destroy` among the externs.
const NEW: i32 = 0;
const NEXT: i32 = 1;
const DESTROY: i32 = 2;

/// Ends of ranges: short, empty, none, longer than an iterator takes, and one that leaves 32 bits.
const RANGES: [(i32, i32); 8] =
    [(0, 2), (-1, 1), (5, 5), (5, 4), (0, 8 << 20), (0, 9 << 20), (i32::MAX - 1, i32::MAX), (i32::MIN, i32::MAX)];

impl Generator<'_, '_> {
    /// An iterator over a range, a few of its numbers, and its end.
    pub(super) fn iterate(&mut self) {
        let slot = (!self.choices.once_in(8)).then_some(ITER_SLOT);
        let (first, past) = self.choices.pick(&RANGES);
        for (dst, number) in [(Reg::R2, first), (Reg::R3, past)] {
            let src = match self.some(self.regs.readable() & !0b1110) {
                Some(number) if self.choices.once_in(6) => Operand::Reg(number),
                _ => Operand::Imm(number),
            };
            self.emit(mov(dst, src));
        }
        self.iterator(slot);
        self.call(CallKind::Extern, NEW);
        for _ in 0..self.choices.below(4) {
            self.iterator(slot);
            self.call(CallKind::Extern, NEXT);
            let at = self.code.len();
            let src = Operand::Imm(0);
            self.emit(Insn::Branch { width: Width::W64, cond: Cond::Eq, dst: Reg::R0, src, off: 0 });
            self.emit(Insn::Load { size: Size::W, signed: true, dst: Reg::R0, base: Reg::R0, off: 0 });
            self.land(at);
            if self.choices.once_in(2) {
                let dst = self.target();
                self.emit(mov(dst, Operand::Reg(Reg::R0)));
                self.set(dst, Kind::Number);
            }
        }
        if self.choices.once_in(2) {
            self.iterator(slot);
            self.call(CallKind::Extern, DESTROY);
        }
    }

    /// Loads r1 with the address of the iterator, in the frame or in the memory of the state.
    fn iterator(&mut self, slot: Option<i16>) {
        match slot {
            Some(slot) => self.address_of(Reg::R1, slot),
            None => self.code.extend(value_address(Reg::R1, STATE, MEMORY)),
        }
    }
}
