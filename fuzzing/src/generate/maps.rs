//! Calls of map helpers: look-ups in maps, and in inner maps of maps of maps, updates and deletes.

use twinbpf_isa::{AluOp, AtomicOp, CallKind, Cond, Insn, Operand, Reg, Size, Width};

use super::body::{Dialect, Generator, KEY_SLOT, LOWEST_SLOT, SPILL_SLOT, VALUE_SLOT};
use super::helpers::{DELETE, LOOKUP, UPDATE};
use super::insns::{load, mov, store, value_address};
use super::parts::AccessWindow;
use super::regs::Kind;
use super::world::{ARRAY, HASH, HASHES, KEYS, MEMORY, MEMORY_SIZE, OUTER, PERCPU, STATE, VALUE};

impl Generator<'_, '_> {
    /// Loads r2 with the address of a key. Only r1 changes besides.
    pub(super) fn key(&mut self) {
        let src = match self.some_number() {
            Some(number) if self.choices.once_in(3) => {
                self.emit(mov(Reg::R2, Operand::Reg(number)));
                let src = Operand::Imm(KEYS as i32 - 1);
                self.emit(Insn::Alu { width: Width::W32, op: AluOp::And, dst: Reg::R2, src });
                Operand::Reg(Reg::R2)
            }
            _ => Operand::Imm(self.choices.below(KEYS as usize) as i32),
        };
        if self.choices.once_in(8) {
            self.key_in_memory(src);
        } else {
            // Rarely at an end of the frame. A kernel has 512 bytes for all functions together.
            let alone = self.functions == 1 || self.dialect == Dialect::Machine;
            let slot = match self.choices.below(12) {
                0 if alone => LOWEST_SLOT,
                1 if self.words == 0 => -4,
                _ => KEY_SLOT,
            };
            self.emit(Insn::Store { size: Size::W, base: Reg::FP, off: slot, src });
            self.address_of(Reg::R2, slot);
        }
        [Reg::R1, Reg::R2].into_iter().for_each(|reg| self.set(reg, Kind::Nothing));
    }

    /// Loads r2 with the address of a key in the memory of the state.
    fn key_in_memory(&mut self, src: Operand) {
        let off = 4 * self.choices.below(MEMORY_SIZE / 4);
        let address = value_address(Reg::R1, STATE, MEMORY + off);
        self.code.extend(address);
        self.emit(Insn::Store { size: Size::W, base: Reg::R1, off: 0, src });
        self.emit(mov(Reg::R2, Operand::Reg(Reg::R1)));
    }

    /// Loads r1 with a map, which a number decides on sometimes.
    pub(super) fn some_map(&mut self) {
        let maps: &[usize] = match self.dialect {
            Dialect::Kernel => &[ARRAY, HASH],
            Dialect::Machine => &[ARRAY, HASH, HASH, PERCPU],
        };
        let map = self.choices.pick(maps);
        self.map(Reg::R1, map);
        if self.branches > 2 && self.loops == 0 && self.some_number().is_some() && self.choices.once_in(6) {
            self.branches -= 1;
            let at = self.skip();
            let other = self.choices.pick(maps);
            self.map(Reg::R1, other);
            self.land(at);
        }
    }

    pub(super) fn map(&mut self, dst: Reg, map: usize) {
        self.code.extend([Insn::LoadImm { dst, kind: 1, imm: map as i32 }, Insn::LoadImmHi { imm: 0 }]);
    }

    /// Looks up a value and works on it, if there is one.
    pub(super) fn lookup(&mut self) {
        self.key();
        self.some_map();
        self.use_value();
    }

    /// Goes elsewhere where r0 is null: where that is to be said.
    pub(super) fn unless_null(&mut self) -> usize {
        let src = Operand::Imm(0);
        self.emit(Insn::Branch { width: Width::W64, cond: Cond::Eq, dst: Reg::R0, src, off: 0 });
        self.code.len() - 1
    }

    /// Looks up the key in r2 in the map in r1, and works on the value, if there is one.
    pub(super) fn use_value(&mut self) {
        self.call(CallKind::Helper, LOOKUP);
        let at = self.unless_null();
        let before = self.regs;
        self.set(Reg::R0, Kind::Value { low: 0, high: 0, len: VALUE as i16, state: false });
        for _ in 0..1 + self.choices.below(3) {
            let window = self.window_at(Reg::R0);
            self.access(&window);
        }
        let off = 8 * self.choices.below(2) as i16;
        self.emit(load(Reg::R0, Reg::R0, off));
        self.set(Reg::R0, Kind::Number);
        self.land(at);
        self.regs.meet(&before);
    }

    /// A store, or an atomic operation that is no `cmpxchg`.
    fn access(&mut self, window: &AccessWindow) {
        let number = self.some_number().filter(|number| self.regs[*number] == Kind::Number);
        let (size, src) =
            (self.choices.pick(&Size::ALL), number.map_or(Operand::Imm(self.choices.imm()), Operand::Reg));
        match number {
            Some(src) if self.choices.once_in(3) => {
                let width = self.choices.pick(&[Width::W64, Width::W32]);
                let op = self.choices.pick(&[AtomicOp::Add, AtomicOp::FetchAdd, AtomicOp::Xchg, AtomicOp::FetchOr]);
                let off = self.offset(window, if width == Width::W64 { Size::Dw } else { Size::W }, true);
                self.emit(Insn::Atomic { width, op, base: window.base, off, src });
            }
            _ => {
                let off = self.offset(window, size, false);
                self.emit(Insn::Store { size, base: window.base, off, src });
            }
        }
    }

    /// Updates or deletes an element.
    pub(super) fn change(&mut self) {
        let update = !self.choices.once_in(3);
        if update {
            for half in [0, 8] {
                let src = self.some_number().map_or(Operand::Imm(self.choices.imm()), Operand::Reg);
                self.emit(Insn::Store { size: Size::Dw, base: Reg::FP, off: VALUE_SLOT + half, src });
            }
        }
        self.key();
        self.some_map();
        if !update {
            return self.call(CallKind::Helper, DELETE);
        }
        self.address_of(Reg::R3, VALUE_SLOT);
        // BPF_ANY, BPF_NOEXIST, BPF_EXIST, and one that no map knows.
        let flags = self.choices.pick(&[0, 0, 1, 2, 3]);
        self.emit(mov(Reg::R4, Operand::Imm(flags)));
        self.call(CallKind::Helper, UPDATE);
    }

    /// Looks up an inner map, then a value in that, if there are such.
    pub(super) fn lookup_inside(&mut self) {
        self.key();
        let outer = self.choices.pick(&[OUTER, OUTER, OUTER, HASHES]);
        self.map(Reg::R1, outer);
        self.call(CallKind::Helper, LOOKUP);
        let at = self.unless_null();
        let before = self.regs;
        // A handle, which is different from engine to engine.
        self.set(Reg::R0, Kind::Nothing);
        let spilled = self.choices.once_in(3);
        if spilled {
            self.emit(store(Reg::FP, SPILL_SLOT, Reg::R0));
        }
        self.key();
        self.emit(if spilled { load(Reg::R1, Reg::FP, SPILL_SLOT) } else { mov(Reg::R1, Operand::Reg(Reg::R0)) });
        self.use_value();
        self.land(at);
        self.regs.meet(&before);
    }
}
