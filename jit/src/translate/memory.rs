//! Loads, stores, atomic operations: RFC 9669 section 5.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{F32, I8, I16, I32, I64};
use cranelift_codegen::ir::{
    AtomicRmwOp, InstBuilder as _, InstructionData, MemFlagsData, Opcode, Type, Value, ValueDef,
};
use twinbpf_vm::host::native::SiteKind;
use twinbpf_vm::isa::{AtomicOp, Operand, Reg, Size, Width};

use super::Translator;
use super::alu::ty;
use crate::options::Memory;

/// Base register and offset, as instructions have them.
type At = (Reg, i16);

/// An address ready to be accessed.
struct Place {
    addr: Value,
    off: i32,
    flags: MemFlagsData,
}

fn size_ty(size: Size) -> Type {
    match size {
        Size::B => I8,
        Size::H => I16,
        Size::W => I32,
        Size::Dw => I64,
    }
}

impl Translator<'_> {
    /// Where an access goes. Other threads and the kernel may see it, so Cranelift must neither merge it with others nor
    /// leave it out; the frame is nobody else's, and validation has checked the offset.
    fn place(&mut self, (base, off): At, size: Size, write: bool) -> Place {
        let pointer = self.get(base);
        let off32 = i32::from(off);
        if base == Reg::FP {
            return Place { addr: pointer, off: off32, flags: MemFlagsData::new().with_notrap() };
        }
        let kind = SiteKind::Access { base, off, size, write };
        let addr = match (self.input.options.memory, self.arena) {
            (Memory::Trusted, _) => pointer,
            (Memory::Strict, Some(arena)) => {
                self.check_half(pointer, arena, kind);
                self.in_arena(pointer, arena)
            }
            (Memory::Sandbox, Some(arena)) => self.in_arena(pointer, arena),
            (Memory::Sandbox | Memory::Strict, None) => unreachable!("loaded at the start"),
        };
        let point = self.b.ins().sequence_point();
        self.mark(point);
        let flags = MemFlagsData::new().with_trap_code(Some(self.site(kind)));
        Place { addr, off: off32, flags }
    }

    fn in_arena(&mut self, pointer: Value, arena: Value) -> Value {
        let low = self.low(pointer, 4);
        let low = self.b.ins().uextend(I64, low);
        self.b.ins().iadd(arena, low)
    }

    /// The low half of a pointer. Sums are made anew from low halves, to `depth` levels, because 32-bit instructions
    /// extend for nothing.
    fn low(&mut self, value: Value, depth: u32) -> Value {
        let value = self.b.func.dfg.resolve_aliases(value);
        let made = match self.b.func.dfg.value_def(value) {
            ValueDef::Result(inst, _) if depth > 0 => Some(self.b.func.dfg.insts[inst]),
            ValueDef::Result(..) | ValueDef::Param(..) | ValueDef::Union(..) => None,
        };
        match made {
            Some(InstructionData::UnaryImm { opcode: Opcode::Iconst, imm }) => {
                return self.b.ins().iconst(I32, i64::from(imm.bits() as u32));
            }
            Some(InstructionData::Binary { opcode: Opcode::Iadd, args: [a, b] }) => {
                let (a, b) = (self.low(a, depth - 1), self.low(b, depth - 1));
                return self.b.ins().iadd(a, b);
            }
            Some(InstructionData::Binary { opcode: Opcode::Ishl, args: [a, by] }) => {
                let by = self.b.func.dfg.resolve_aliases(by);
                if let ValueDef::Result(by, _) = self.b.func.dfg.value_def(by)
                    && let InstructionData::UnaryImm { opcode: Opcode::Iconst, imm } = self.b.func.dfg.insts[by]
                    && (0..32).contains(&imm.bits())
                {
                    let a = self.low(a, depth - 1);
                    return self.b.ins().ishl_imm_u(a, imm.bits());
                }
            }
            _ => {}
        }
        self.b.ins().ireduce(I32, value)
    }

    /// Traps unless the upper half of a pointer is zero or the arena's.
    fn check_half(&mut self, pointer: Value, arena: Value, kind: SiteKind) {
        let half = self.b.ins().ushr_imm_u(pointer, 32);
        let ours = self.b.ins().ushr_imm_u(arena, 32);
        let foreign = self.b.ins().icmp(IntCC::NotEqual, half, ours);
        let zero = self.b.ins().iconst(I64, 0);
        let foreign = self.b.ins().select(foreign, half, zero);
        let SiteKind::Access { off, .. } = kind else { unreachable!("a pointer is checked where it is used") };
        let addr = self.b.ins().iadd_imm_s(pointer, i64::from(off));
        self.refuse_if(foreign, addr, kind);
    }

    pub(super) fn load(&mut self, size: Size, signed: bool, dst: Reg, at: At) {
        if let Some(value) = self.spilt(size, signed, at) {
            self.set(dst, value);
            return;
        }
        let Place { addr, off, flags } = self.place(at, size, false);
        let ins = self.b.ins();
        let value = match (size, signed) {
            (Size::B, false) => ins.uload8(I64, flags, addr, off),
            (Size::B, true) => ins.sload8(I64, flags, addr, off),
            (Size::H, false) => ins.uload16(I64, flags, addr, off),
            (Size::H, true) => ins.sload16(I64, flags, addr, off),
            (Size::W, false) => ins.uload32(flags, addr, off),
            (Size::W, true) => ins.sload32(flags, addr, off),
            (Size::Dw, _) => ins.load(I64, flags, addr, off),
        };
        self.set(dst, value);
    }

    pub(super) fn store(&mut self, size: Size, at: At, src: Operand) {
        let value = self.operand(Width::W64, src);
        let Place { addr, off, flags } = self.place(at, size, true);
        // Not `istore`, which wants constants in registers.
        let low = if size == Size::Dw { value } else { self.b.ins().ireduce(size_ty(size), value) };
        self.b.ins().store(flags, low, addr, off);
        if at.0 == Reg::FP
            && let Some(word) = self.slots.index(at.1)
        {
            self.b.def_var(self.words.values[word], value);
        }
    }

    /// What a load gets, if it is known.
    fn spilt(&mut self, size: Size, signed: bool, (base, off): At) -> Option<Value> {
        let word = self.slots.index(off).filter(|_| base == Reg::FP)?;
        if usize::from(self.words.known[word]) < size.bytes() {
            return None;
        }
        let value = self.b.use_var(self.words.values[word]);
        if size == Size::Dw {
            return Some(value);
        }
        let low = self.b.ins().ireduce(size_ty(size), value);
        let ins = self.b.ins();
        Some(if signed { ins.sextend(I64, low) } else { ins.uextend(I64, low) })
    }

    /// The address of an atomic access, which must be a multiple of its size. That is checked first, as in the
    /// interpreter.
    fn atomic_place(&mut self, at: At, size: Size, write: bool) -> (Value, MemFlagsData) {
        if size != Size::B {
            let pointer = self.get(at.0);
            let addr = self.b.ins().iadd_imm_s(pointer, i64::from(at.1));
            let rest = self.b.ins().band_imm_u(addr, size.bytes() as i64 - 1);
            self.refuse_if(rest, addr, SiteKind::Misaligned { size });
        }
        let Place { addr, off, flags } = self.place(at, size, write);
        let addr = if off == 0 { addr } else { self.b.ins().iadd_imm_s(addr, i64::from(off)) };
        (addr, flags)
    }

    pub(super) fn atomic(&mut self, width: Width, op: AtomicOp, at: At, src: Reg) {
        let size = if width == Width::W32 { Size::W } else { Size::Dw };
        let value = self.read(width, src);
        let (addr, flags) = self.atomic_place(at, size, true);
        let ty = ty(width);
        let rmw = match op {
            AtomicOp::Add | AtomicOp::FetchAdd => Some(AtomicRmwOp::Add),
            AtomicOp::Or | AtomicOp::FetchOr => Some(AtomicRmwOp::Or),
            AtomicOp::And | AtomicOp::FetchAnd => Some(AtomicRmwOp::And),
            AtomicOp::Xor | AtomicOp::FetchXor => Some(AtomicRmwOp::Xor),
            AtomicOp::Xchg => Some(AtomicRmwOp::Xchg),
            AtomicOp::Cmpxchg => None,
        };
        let old = match rmw {
            Some(rmw) => self.b.ins().atomic_rmw(ty, flags, rmw, addr, value),
            None => {
                let expected = self.expected(width);
                self.b.ins().atomic_cas(flags, addr, expected, value)
            }
        };
        let dst = match op {
            AtomicOp::Add | AtomicOp::Or | AtomicOp::And | AtomicOp::Xor => return,
            AtomicOp::FetchAdd | AtomicOp::FetchOr | AtomicOp::FetchAnd | AtomicOp::FetchXor | AtomicOp::Xchg => src,
            AtomicOp::Cmpxchg => Reg::R0,
        };
        let old = if width == Width::W32 { self.b.ins().uextend(I64, old) } else { old };
        self.set(dst, old);
    }

    /// What a compare-exchange expects in memory. On aarch64 Cranelift compares the whole register with the old value, also
    /// where that has 32 bits; only a move from a float register clears the upper half and is not optimised away.
    fn expected(&mut self, width: Width) -> Value {
        let value = self.read(width, Reg::R0);
        if width == Width::W64 || self.input.isa.name() != "aarch64" {
            return value;
        }
        let float = self.b.ins().bitcast(F32, MemFlagsData::new(), value);
        self.b.ins().bitcast(I32, MemFlagsData::new(), float)
    }

    /// Whether plain loads acquire and plain stores release.
    fn ordered(&self) -> bool {
        self.input.isa.name() == "x64"
    }

    pub(super) fn load_acquire(&mut self, size: Size, dst: Reg, at: At) {
        let (addr, flags) = self.atomic_place(at, size, false);
        let ty = size_ty(size);
        let value = if self.ordered() {
            self.b.ins().load(ty, flags, addr, 0)
        } else {
            self.b.ins().atomic_load(ty, flags, addr)
        };
        // What follows must not be answered by what was read before.
        self.b.ins().sequence_point();
        let value = if size == Size::Dw { value } else { self.b.ins().uextend(I64, value) };
        self.set(dst, value);
    }

    pub(super) fn store_release(&mut self, size: Size, at: At, src: Reg) {
        let value = self.get(src);
        let (addr, flags) = self.atomic_place(at, size, true);
        let value = if size == Size::Dw { value } else { self.b.ins().ireduce(size_ty(size), value) };
        if self.ordered() {
            self.b.ins().store(flags, value, addr, 0);
        } else {
            self.b.ins().atomic_store(flags, value, addr);
        }
    }
}
