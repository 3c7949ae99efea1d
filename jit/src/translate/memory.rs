//! Loads, stores, atomic operations: RFC 9669 section 5.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{F32, I8, I16, I32, I64};
use cranelift_codegen::ir::{AtomicRmwOp, InstBuilder as _, MemFlagsData, Type, Value};
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
        let low = self.b.ins().ireduce(I32, pointer);
        let low = self.b.ins().uextend(I64, low);
        self.b.ins().iadd(arena, low)
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
        let ins = self.b.ins();
        match size {
            Size::B => ins.istore8(flags, value, addr, off),
            Size::H => ins.istore16(flags, value, addr, off),
            Size::W => ins.istore32(flags, value, addr, off),
            Size::Dw => ins.store(flags, value, addr, off),
        };
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
