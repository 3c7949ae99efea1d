//! Generation of straight-line code: arithmetic, memory accesses, calls.

use twinbpf_isa::{AluOp, AtomicOp, ByteOrder, CallKind, Insn, Operand, Reg, Shape, Size, Width};

use super::body::{CONTEXT_SLOT, Dialect, Generator, word};
use super::helpers::{CPU_NUMBER, TAIL_CALL};
use super::insns::{load, mov, reg, value_address};
use super::regs::Kind;
use super::world::{JUMPS, MEMORY, MEMORY_SIZE, SLOTS, STATE};

/// Slots that branches, loops and calls want, and the first of these among the items.
const ROOM: usize = 10;
const LARGE: usize = 23;

/// Calls of functions that a program with a leaf has, about.
const MOST_CALLS: usize = 12;

/// Where an access goes: base, the offsets it may have, whether it must be aligned, and for atomics may be at all.
pub(super) struct AccessWindow {
    pub(super) base: Reg,
    low: i16,
    high: i16,
    aligned: bool,
    atomic: bool,
    /// Offsets are aligned where they differ from a multiple by this.
    phase: i16,
}

impl Generator<'_, '_> {
    /// One thing more.
    pub(super) fn item(&mut self) {
        if self.in_leaf() {
            return self.leaf_item();
        }
        // Most things that take many slots are left out where there is no room for them.
        let full = self.code.len() + ROOM > self.end && !self.choices.once_in(4);
        match self.choices.below(if full { LARGE } else { 34 }) {
            0..10 => self.arithmetic(),
            10 => self.endian(),
            11 => self.constant(),
            12..15 => self.load(),
            15..18 => self.store(),
            18..20 => self.atomic(),
            20 => self.ordered(),
            21 => {
                self.point();
            }
            22 => self.point_somewhere(),
            LARGE..27 => self.branch(),
            27..29 => self.repeat(),
            29 if self.indirect_once_in(3) => self.call_back(),
            29 => self.call_any(),
            30 if self.leaf => self.call_any(),
            30..32 => self.call_helper(),
            _ => self.word_in_bytes(),
        }
    }

    /// One thing more in a leaf.
    fn leaf_item(&mut self) {
        match self.choices.below(12) {
            0 => self.endian(),
            1 => self.constant(),
            2..4 => self.load(),
            4 => self.store(),
            5 => self.atomic(),
            6..8 => self.branch(),
            _ => self.arithmetic(),
        }
    }

    /// Arithmetic or an access to memory.
    pub(super) fn simple(&mut self) {
        match self.choices.below(4) {
            0 => self.load(),
            1 => self.store(),
            _ => self.arithmetic(),
        }
    }

    /// An operation of the table.
    pub(super) fn arithmetic(&mut self) {
        let row = self.choices.pick(AluOp::TABLE);
        let dst = if row.op.reads_dst() { self.number() } else { self.target() };
        let width = match row.shape {
            Shape::BinaryReg64 => Width::W64,
            Shape::Binary | Shape::BinaryReg | Shape::Unary => self.choices.pick(&[Width::W64, Width::W32]),
        };
        let src = match row.shape {
            Shape::Unary => Operand::Imm(0),
            Shape::BinaryReg | Shape::BinaryReg64 => Operand::Reg(self.source()),
            Shape::Binary if self.choices.once_in(2) => Operand::Reg(self.source()),
            Shape::Binary => Operand::Imm(self.alu_imm(row.op, width)),
        };
        // The source may have been made where the destination was.
        self.emit(Insn::Alu { width, op: row.op, dst, src });
        self.set(dst, Kind::Number);
    }

    /// A register to read.
    pub(super) fn source(&mut self) -> Reg {
        match self.some_number() {
            Some(number) => number,
            None => self.number(),
        }
    }

    fn alu_imm(&mut self, op: AluOp, width: Width) -> i32 {
        let imm = self.choices.imm();
        if self.dialect == Dialect::Machine {
            return imm;
        }
        match op {
            AluOp::Lsh | AluOp::Rsh | AluOp::Arsh => {
                let edge = self.choices.pick(&[0, 1, 8, 31, 32, 63, imm]);
                edge & (width.bits() as i32 - 1)
            }
            AluOp::Div | AluOp::Sdiv | AluOp::Mod | AluOp::Smod if imm == 0 => self.choices.pick(&[-1, 1, 3, i32::MIN]),
            _ => imm,
        }
    }

    fn endian(&mut self) {
        let dst = self.number();
        let (order, bits) = (self.choices.pick(&ByteOrder::ALL), self.choices.pick(&[16, 32, 64]));
        self.emit(Insn::Endian { order, bits, dst });
    }

    fn constant(&mut self) {
        let (dst, value) = (self.target(), self.choices.number());
        self.code.push(Insn::LoadImm { dst, kind: 0, imm: value as i32 });
        self.emit(Insn::LoadImmHi { imm: (value >> 32) as i32 });
        self.set(dst, Kind::Number);
    }

    /// A pointer into the memory of the state, or to the context.
    fn point(&mut self) -> Reg {
        let dst = self.target();
        // Where programs may be tail called, the context is none that they could read.
        if self.context && self.tails == 0 && self.choices.once_in(3) {
            self.emit(load(dst, Reg::FP, CONTEXT_SLOT));
            self.set(dst, Kind::Context);
            return dst;
        }
        let off = self.choices.below(MEMORY_SIZE - 16);
        let address = value_address(dst, STATE, MEMORY + off);
        self.code.extend(address);
        self.set(dst, Generator::memory(off as i16, off as i16));
        dst
    }

    /// A pointer whose place in the memory depends on a number.
    fn point_somewhere(&mut self) {
        let number = self.number();
        let dst = self.target();
        if dst == number {
            return self.endian();
        }
        if self.choices.once_in(4) {
            // A sum that wraps around at 16 bits.
            let src = Operand::Imm(self.choices.imm());
            self.emit(Insn::Alu { width: Width::W32, op: AluOp::Add, dst: number, src });
            self.emit(Insn::Endian { order: ByteOrder::ToLe, bits: 16, dst: number });
        }
        let mask = self.choices.pick(&[1, 7, 31, 63]);
        self.emit(Insn::Alu { width: Width::W64, op: AluOp::And, dst: number, src: Operand::Imm(mask) });
        let address = value_address(dst, STATE, MEMORY);
        self.code.extend(address);
        self.emit(Insn::Alu { width: Width::W64, op: AluOp::Add, dst, src: Operand::Reg(number) });
        self.set(dst, Generator::memory(0, mask as i16));
    }

    /// Somewhere to load from or store to.
    fn window(&mut self) -> AccessWindow {
        let stack = self.words > 0 && self.choices.once_in(3);
        if stack {
            let low = word(self.words - 1);
            let aligned = self.dialect == Dialect::Kernel || !self.choices.once_in(8);
            let base = if self.choices.once_in(3) { self.copy_of_fp() } else { Reg::FP };
            return AccessWindow { base, low, high: 0, aligned, atomic: true, phase: 0 };
        }
        let base = match self.some(self.regs.pointers) {
            Some(base) => base,
            None => self.point(),
        };
        self.window_at(base)
    }

    /// A register that points to the frame, for the next instruction.
    fn copy_of_fp(&mut self) -> Reg {
        let copy = self.target();
        self.emit(mov(copy, Operand::Reg(Reg::FP)));
        self.set(copy, Kind::Nothing);
        copy
    }

    pub(super) fn window_at(&self, base: Reg) -> AccessWindow {
        let kind = self.regs[base];
        let (low, high) = Generator::room(kind).expect("a pointer");
        match kind {
            Kind::Value { low: from, high: to, .. } => {
                let sloppy = self.dialect == Dialect::Machine;
                AccessWindow { base, low, high, aligned: false, atomic: from == to || sloppy, phase: from & 7 }
            }
            Kind::Context | Kind::Nothing | Kind::Number | Kind::Counter => {
                AccessWindow { base, low, high, aligned: true, atomic: false, phase: 0 }
            }
        }
    }

    pub(super) fn offset(&mut self, window: &AccessWindow, size: Size, aligned: bool) -> i16 {
        let bytes = size.bytes() as i16;
        let span = (window.high - window.low - bytes).max(0) as usize;
        let off = window.low + self.choices.below(span + 1) as i16;
        if !aligned {
            return off;
        }
        let off = off - (off + window.phase).rem_euclid(bytes);
        if off < window.low { off + bytes } else { off }
    }

    fn load(&mut self) {
        let window = self.window();
        let size = self.choices.pick(&Size::ALL);
        let off = self.offset(&window, size, window.aligned);
        let dst = self.target();
        let signed = size != Size::Dw && self.choices.once_in(3);
        self.emit(Insn::Load { size, signed, dst, base: window.base, off });
        self.set(dst, Kind::Number);
    }

    fn store(&mut self) {
        let window = self.window();
        let size = self.choices.pick(&Size::ALL);
        let off = self.offset(&window, size, window.aligned);
        let src = match self.some_number() {
            Some(number) if !self.choices.once_in(4) => Operand::Reg(number),
            _ => Operand::Imm(self.choices.imm()),
        };
        self.emit(Insn::Store { size, base: window.base, off, src });
    }

    /// An atomic operation of the table.
    fn atomic(&mut self) {
        let window = self.window();
        if !window.atomic {
            return self.store();
        }
        let op = self.choices.pick(AtomicOp::TABLE).op;
        if op == AtomicOp::Cmpxchg && !self.compare_with(window.base) {
            return self.store();
        }
        let src = self.some_number().filter(|number| self.regs[*number] == Kind::Number);
        let Some(src) = src else { return self.store() };
        let width = self.choices.pick(&[Width::W64, Width::W32]);
        let size = if width == Width::W64 { Size::Dw } else { Size::W };
        let aligned = self.dialect == Dialect::Kernel || !self.choices.once_in(16);
        let off = self.offset(&window, size, aligned);
        self.emit(Insn::Atomic { width, op, base: window.base, off, src });
    }

    /// Has r0 hold a number to compare with; sometimes the one that is there.
    fn compare_with(&mut self, base: Reg) -> bool {
        if base == Reg::R0 || self.regs[Reg::R0] == Kind::Counter {
            return false;
        }
        if self.regs[Reg::R0] != Kind::Number {
            let imm = self.choices.imm();
            self.emit(mov(Reg::R0, Operand::Imm(imm)));
            self.set(Reg::R0, Kind::Number);
        }
        true
    }

    /// Loads and stores with an order.
    fn ordered(&mut self) {
        let window = self.window();
        if !window.atomic {
            return self.load();
        }
        let size = self.choices.pick(&Size::ALL);
        let off = self.offset(&window, size, true);
        match self.some_number() {
            Some(src) if self.choices.once_in(2) => {
                self.emit(Insn::StoreRelease { size, base: window.base, off, src });
            }
            _ => {
                let dst = self.target();
                self.emit(Insn::LoadAcquire { size, dst, base: window.base, off });
                self.set(dst, Kind::Number);
            }
        }
    }

    fn call_any(&mut self) {
        let later = self.functions - self.function - 1;
        if self.leaf && later > 0 && self.calls.len() < MOST_CALLS && self.choices.once_in(2) {
            return self.call_local(self.functions - 1);
        }
        if later == 0 || self.loops > 0 || self.calls.len() + self.addresses.len() > self.functions + 1 {
            return self.arithmetic();
        }
        let function = self.function + 1 + self.choices.below(later);
        if self.indirect_once_in(3) {
            let other = self.function + 1 + self.choices.below(later);
            return self.call_through([function, other]);
        }
        self.call_local(function);
    }

    /// Has the first registers hold arguments.
    pub(super) fn arguments(&mut self, arity: usize) {
        for dst in (1..=arity).map(reg) {
            if self.regs[dst] != Kind::Number {
                let src = self.some_number().map_or(Operand::Imm(self.choices.imm()), Operand::Reg);
                self.emit(mov(dst, src));
                self.set(dst, Kind::Number);
            }
        }
    }

    /// Calls a function of the program.
    pub(super) fn call_local(&mut self, function: usize) {
        self.arguments(self.arity[function]);
        self.calls.push((self.code.len(), function));
        self.call(CallKind::Local, 0);
    }

    pub(super) fn call(&mut self, kind: CallKind, imm: i32) {
        self.emit(Insn::Call { kind, off: 0, imm });
        self.called();
    }

    /// What registers hold after a call.
    pub(super) fn called(&mut self) {
        self.set(Reg::R0, Kind::Number);
        [Reg::R1, Reg::R2, Reg::R3, Reg::R4, Reg::R5].into_iter().for_each(|reg| self.set(reg, Kind::Nothing));
    }

    fn call_helper(&mut self) {
        if self.function > 0 {
            return self.arithmetic();
        }
        match self.choices.below(16) {
            0 if self.dialect == Dialect::Machine => self.call(CallKind::Helper, CPU_NUMBER),
            1 if self.dialect == Dialect::Machine => self.iterate(),
            2 if self.dialect == Dialect::Machine => self.walk(),
            3 if self.dialect == Dialect::Machine => self.lookup_inside(),
            0..8 => self.lookup(),
            8..12 => self.change(),
            _ => self.tail_call(),
        }
    }

    pub(super) fn address_of(&mut self, dst: Reg, slot: i16) {
        self.emit(mov(dst, Operand::Reg(Reg::FP)));
        self.emit(Insn::Alu { width: Width::W64, op: AluOp::Add, dst, src: Operand::Imm(slot.into()) });
    }

    /// Goes to another program, if the slot has one and there were not too many.
    fn tail_call(&mut self) {
        if self.tails == 0 || self.level > 0 {
            return self.lookup();
        }
        match self.some_number() {
            Some(number) if self.choices.once_in(2) => {
                self.emit(mov(Reg::R3, Operand::Reg(number)));
                let src = Operand::Imm(self.choices.pick(&[1, 2]) * SLOTS as i32 - 1);
                self.emit(Insn::Alu { width: Width::W64, op: AluOp::And, dst: Reg::R3, src });
            }
            _ => {
                let slot = self.choices.below(SLOTS as usize + 1) as i32;
                self.emit(mov(Reg::R3, Operand::Imm(slot)));
            }
        }
        self.emit(load(Reg::R1, Reg::FP, CONTEXT_SLOT));
        self.map(Reg::R2, JUMPS);
        self.call(CallKind::Helper, TAIL_CALL);
        self.set(Reg::R0, Kind::Nothing);
    }
}
