//! Arithmetic, byte order, constants: RFC 9669 section 4.1 and 4.2, and `lddw`.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I8, I16, I32, I64};
use cranelift_codegen::ir::{InstBuilder as _, Type, Value};
use twinbpf_isa::{AluOp, ByteOrder, Operand, Reg, Width};
use twinbpf_vm::image::Link;

use super::{Translator, constant, field};
use crate::options::OptLevel;

pub(super) fn ty(width: Width) -> Type {
    match width {
        Width::W32 => I32,
        Width::W64 => I64,
    }
}

/// Guards of the last divisions of a block that are searched.
const GUARDS: usize = 4;

/// Values computed from a divisor in the current block.
#[derive(Clone, Copy)]
pub(super) struct Guard {
    /// The divisor as it is.
    of: Value,
    signed: bool,
    is_zero: Value,
    /// Whether the machine would fault.
    special: Value,
    /// The divisor, or 1.
    divisor: Value,
}

impl Translator<'_> {
    /// A register at this width.
    pub(super) fn read(&mut self, width: Width, reg: Reg) -> Value {
        match width {
            Width::W32 => self.get32(reg),
            Width::W64 => self.get(reg),
        }
    }

    /// The right operand at this width.
    pub(super) fn operand(&mut self, width: Width, src: Operand) -> Value {
        match src {
            Operand::Reg(reg) => self.read(width, reg),
            Operand::Imm(imm) => self.imm(width, imm),
        }
    }

    /// Writes a result of this width: one of 32 bits is zero-extended.
    pub(super) fn write(&mut self, width: Width, dst: Reg, value: Value) {
        match width {
            Width::W32 => self.set32(dst, value),
            Width::W64 => self.set(dst, value),
        }
    }

    pub(super) fn alu(&mut self, width: Width, op: AluOp, dst: Reg, src: Operand) {
        let noted = match (width, op, src) {
            (Width::W64, AluOp::Add, Operand::Imm(imm)) => self.set_sum(dst, dst, imm),
            (Width::W64, AluOp::Mov, Operand::Reg(src)) => self.set_sum(dst, src, 0),
            _ => false,
        };
        if noted {
            return;
        }
        let value = match op {
            AluOp::Mov => self.operand(width, src),
            AluOp::Movsx8 => self.movsx(width, I8, src),
            AluOp::Movsx16 => self.movsx(width, I16, src),
            AluOp::Movsx32 => self.movsx(width, I32, src),
            AluOp::Neg => {
                let a = self.read(width, dst);
                self.b.ins().ineg(a)
            }
            AluOp::Div | AluOp::Mod | AluOp::Sdiv | AluOp::Smod => self.divide(width, op, dst, src),
            AluOp::Add
            | AluOp::Sub
            | AluOp::Mul
            | AluOp::Or
            | AluOp::And
            | AluOp::Xor
            | AluOp::Lsh
            | AluOp::Rsh
            | AluOp::Arsh => {
                let (a, b) = (self.read(width, dst), self.operand(width, src));
                self.binary(op, a, b)
            }
        };
        self.write(width, dst, value);
    }

    /// Operations that are one instruction of Cranelift's. Its shifts take the count modulo the width, as BPF's do.
    fn binary(&mut self, op: AluOp, a: Value, b: Value) -> Value {
        let ins = self.b.ins();
        match op {
            AluOp::Add => ins.iadd(a, b),
            AluOp::Sub => ins.isub(a, b),
            AluOp::Mul => ins.imul(a, b),
            AluOp::Or => ins.bor(a, b),
            AluOp::And => ins.band(a, b),
            AluOp::Xor => ins.bxor(a, b),
            AluOp::Lsh => ins.ishl(a, b),
            AluOp::Rsh => ins.ushr(a, b),
            AluOp::Arsh => ins.sshr(a, b),
            AluOp::Div => ins.udiv(a, b),
            AluOp::Mod => ins.urem(a, b),
            AluOp::Sdiv => ins.sdiv(a, b),
            AluOp::Smod => ins.srem(a, b),
            AluOp::Neg | AluOp::Mov | AluOp::Movsx8 | AluOp::Movsx16 | AluOp::Movsx32 => {
                unreachable!("not a binary operation")
            }
        }
    }

    /// A register and a constant.
    pub(super) fn plus(&mut self, value: Value, imm: i32) -> Value {
        let imm = self.imm(Width::W64, imm);
        self.b.ins().iadd(value, imm)
    }

    fn movsx(&mut self, width: Width, from: Type, src: Operand) -> Value {
        let Operand::Reg(src) = src else { unreachable!("validated: movsx has a source register") };
        let value = self.get(src);
        let value = self.b.ins().ireduce(from, value);
        if from == ty(width) { value } else { self.b.ins().sextend(ty(width), value) }
    }

    fn divide(&mut self, width: Width, op: AluOp, dst: Reg, src: Operand) -> Value {
        let a = self.read(width, dst);
        match src {
            Operand::Imm(imm) => self.divide_imm(width, op, a, imm),
            Operand::Reg(src) => {
                let b = self.read(width, src);
                let plain = matches!(op, AluOp::Div | AluOp::Mod) && self.is_nonzero(width, src);
                if plain { self.binary(op, a, b) } else { self.divide_reg(width, op, a, b) }
            }
        }
    }

    /// Whether the path to this instruction proves that a register is not zero.
    fn is_nonzero(&self, width: Width, reg: Reg) -> bool {
        let here = (self.block, self.pc);
        self.input.options.opt == OptLevel::Speed && self.flow.nonzero(self.input.image, here, (width, reg))
    }

    fn divide_imm(&mut self, width: Width, op: AluOp, a: Value, imm: i32) -> Value {
        let signed = matches!(op, AluOp::Sdiv | AluOp::Smod);
        let remainder = matches!(op, AluOp::Mod | AluOp::Smod);
        match imm {
            0 if remainder => a,
            0 => self.imm(width, 0),
            -1 if signed && remainder => self.imm(width, 0),
            -1 if signed => self.b.ins().ineg(a),
            _ => {
                let b = self.imm(width, imm);
                self.binary(op, a, b)
            }
        }
    }

    /// Dividing by zero gives 0, or the dividend as remainder; the smallest number divided by -1 wraps. The machine
    /// would fault, so it divides by 1 then, and the result is chosen afterwards.
    fn divide_reg(&mut self, width: Width, op: AluOp, a: Value, b: Value) -> Value {
        let signed = matches!(op, AluOp::Sdiv | AluOp::Smod);
        let Guard { is_zero, special, divisor, .. } = self.guard(width, signed, b);
        let result = self.binary(op, a, divisor);
        let zero = self.imm(width, 0);
        let remainder = matches!(op, AluOp::Mod | AluOp::Smod);
        let without = if remainder { a } else { zero };
        if !signed {
            return self.b.ins().select(is_zero, without, result);
        }
        let minus = if remainder { zero } else { self.b.ins().ineg(a) };
        let rare = self.b.ins().select(is_zero, without, minus);
        self.b.ins().select(special, rare, result)
    }

    /// What dividing by `b` needs besides the dividend. The divisor of one division is often that of the next.
    fn guard(&mut self, width: Width, signed: bool, b: Value) -> Guard {
        let b = self.b.func.dfg.resolve_aliases(b);
        let mut known = self.guards.iter().rev().take(GUARDS);
        if let Some(guard) = known.find(|guard| (guard.of, guard.signed) == (b, signed)) {
            return *guard;
        }
        let (zero, one) = (self.imm(width, 0), self.imm(width, 1));
        let is_zero = self.b.ins().icmp(IntCC::Equal, b, zero);
        let special = match signed {
            false => is_zero,
            // b is 0 or -1 when b + 1 is 0 or 1.
            true => {
                let next = self.b.ins().iadd(b, one);
                self.b.ins().icmp(IntCC::UnsignedLessThanOrEqual, next, one)
            }
        };
        let divisor = self.b.ins().select(special, one, b);
        let guard = Guard { of: b, signed, is_zero, special, divisor };
        self.guards.push(guard);
        guard
    }

    pub(super) fn endian(&mut self, order: ByteOrder, bits: u8, dst: Reg) {
        let little = self.input.isa.endianness() == cranelift_codegen::ir::Endianness::Little;
        let swap = match order {
            ByteOrder::ToLe => !little,
            ByteOrder::ToBe => little,
            ByteOrder::Swap => true,
        };
        let value = match bits {
            16 => {
                let low = self.get32(dst);
                self.b.ins().ireduce(I16, low)
            }
            32 => self.get32(dst),
            _ => self.get(dst),
        };
        let value = if swap { self.b.ins().bswap(value) } else { value };
        match bits {
            16 => {
                let low = self.b.ins().uextend(I32, value);
                self.set32(dst, low);
            }
            32 => self.set32(dst, value),
            _ => self.set(dst, value),
        }
    }

    pub(super) fn load_imm(&mut self, dst: Reg) {
        let Link::Value(value) = self.input.image.links()[self.pc as usize] else {
            unreachable!("an image gives every lddw a value")
        };
        let value = match self.input.values.and_then(|values| values.index(self.pc)) {
            Some(index) => {
                let values = self.load_cx(I64, constant(), field!(values));
                self.b.ins().load(I64, constant(), values, 8 * index as i32)
            }
            None => self.b.ins().iconst(I64, value as i64),
        };
        self.set(dst, value);
    }

    /// `addr_space_cast`: into address space 0 clears the upper half; from there puts the arena's in, and keeps null.
    pub(super) fn cast(&mut self, dst: Reg, src: Reg, imm: i32) {
        let low = self.get32(src);
        if imm >> 16 == 0 {
            self.set32(dst, low);
            return;
        }
        let arena = match self.arena {
            Some(arena) => arena,
            None => self.load_cx(I64, constant(), field!(arena_base)),
        };
        let null = self.b.ins().uextend(I64, low);
        let user = self.b.ins().bor(arena, null);
        let value = self.b.ins().select(low, user, null);
        self.set(dst, value);
    }
}
