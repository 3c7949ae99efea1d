//! Words that are loaded and stored byte by byte, as clang does it where memory may be unaligned.

use twinbpf_isa::{AluOp, Insn, Operand, Reg, Size, Width};

use super::body::{Generator, word};
use super::insns::mov;
use super::regs::Kind;

/// A word in memory, and the registers that it goes through.
struct Word {
    base: Reg,
    off: i16,
    /// Offsets of its bytes, in the order of the program.
    order: Vec<i16>,
    big_endian: bool,
    width: Width,
    whole: Reg,
    part: Reg,
}

impl Word {
    /// By how many bits the byte at an offset is shifted.
    fn shift(&self, byte: i16) -> i32 {
        let place = if self.big_endian { self.order.len() as i16 - 1 - byte } else { byte };
        8 * i32::from(place)
    }
}

impl Generator<'_, '_> {
    /// Puts a word together from its bytes, or stores it so.
    pub(super) fn word_in_bytes(&mut self) {
        let Some(word) = self.word() else { return self.arithmetic() };
        if self.choices.once_in(2) { self.gather(&word) } else { self.scatter(&word) }
    }

    fn word(&mut self) -> Option<Word> {
        let size: i16 = self.choices.pick(&[2, 4, 4, 8]);
        let (base, low, high) = match self.some(self.regs.pointers) {
            Some(base) if !self.choices.once_in(4) => match self.regs[base] {
                Kind::Value { .. } => Generator::room(self.regs[base]).map(|(low, high)| (base, low, high))?,
                _ => return None,
            },
            _ if self.words > 0 => (Reg::FP, word(self.words - 1), 0),
            _ => return None,
        };
        let room = usize::try_from(high - low - size).ok()?;
        let mut order: Vec<i16> = (0..size).collect();
        match self.choices.below(4) {
            0 => order.reverse(),
            1 => order.rotate_left(1),
            2 => order.swap(0, size as usize - 1),
            _ => {}
        }
        let (whole, part) = (self.target(), self.target());
        let apart = whole != part && whole != base && part != base;
        let width = if size < 8 { self.choices.pick(&[Width::W64, Width::W32]) } else { Width::W64 };
        let big_endian = self.choices.once_in(2);
        let off = low + self.choices.below(room + 1) as i16;
        apart.then_some(Word { base, off, order, big_endian, width, whole, part })
    }

    fn gather(&mut self, word: &Word) {
        let &Word { base, whole, part, width, .. } = word;
        self.emit(mov(whole, Operand::Imm(0)));
        self.set(whole, Kind::Number);
        for byte in &word.order {
            self.emit(Insn::Load { size: Size::B, signed: false, dst: part, base, off: word.off + byte });
            self.set(part, Kind::Number);
            let shift = word.shift(*byte);
            if shift > 0 {
                self.emit(Insn::Alu { width, op: AluOp::Lsh, dst: part, src: Operand::Imm(shift) });
            }
            self.emit(Insn::Alu { width, op: AluOp::Or, dst: whole, src: Operand::Reg(part) });
            if !self.between(word) {
                return;
            }
        }
    }

    fn scatter(&mut self, word: &Word) {
        let &Word { base, whole, part, width, .. } = word;
        if self.regs[whole] != Kind::Number {
            let imm = self.choices.imm();
            self.emit(mov(whole, Operand::Imm(imm)));
            self.set(whole, Kind::Number);
        }
        for byte in &word.order {
            self.emit(mov(part, Operand::Reg(whole)));
            self.set(part, Kind::Number);
            self.emit(Insn::Alu { width, op: AluOp::Rsh, dst: part, src: Operand::Imm(word.shift(*byte)) });
            self.emit(Insn::Store { size: Size::B, base, off: word.off + byte, src: Operand::Reg(part) });
            if !self.between(word) {
                return;
            }
        }
    }

    /// Sometimes something else between two bytes. False if the registers of the word are not its own any more.
    fn between(&mut self, word: &Word) -> bool {
        if self.choices.once_in(16) {
            self.simple();
        }
        let kinds = [word.whole, word.part].map(|reg| self.regs[reg]);
        let pointer = word.base == Reg::FP || matches!(self.regs[word.base], Kind::Value { .. });
        pointer && kinds == [Kind::Number; 2]
    }
}
