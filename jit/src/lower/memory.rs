//! Loads, stores, atomic operations: RFC 9669 section 5.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{F32, I8, I16, I32, I64};
use cranelift_codegen::ir::{
    AtomicRmwOp, InstBuilder as _, InstructionData, MemFlagsData, Opcode, Type, Value, ValueDef,
};
use twinbpf_isa::{AtomicOp, Operand, Reg, Size, Width};
use twinbpf_vm::host::native::SiteKind;

use super::alu::ty;
use super::flags::frame;
use super::{Translator, forward};
use crate::context::reaches;
use crate::options::{Memory, OptLevel};

/// Base register and offset, as instructions have them.
pub(super) type At = (Reg, i16);

/// An address ready to be accessed.
struct NativeAddress {
    addr: Value,
    off: i32,
    flags: MemFlagsData,
}

/// What was made from pointers of the current block: the optimiser would find it again, but that takes it longer.
#[derive(Clone, Debug, Default)]
pub(super) struct Pointers {
    /// Values, and their low halves.
    lows: Vec<(Value, Value)>,
    /// Pointers, their low halves without constants, and these: the same sums are not made anew by each access.
    sums: Vec<(Value, (Value, i32))>,
    /// Low halves, and the addresses in the arena.
    addresses: Vec<(Value, Value)>,
    /// Constant low halves, and likewise.
    constants: Vec<(u32, Value)>,
    /// Values whose upper halves are known to be fine.
    checked: Vec<Value>,
}

/// Number of most recent entries that are searched.
const REMEMBERED: usize = 8;

impl Pointers {
    pub(super) fn forget(&mut self) {
        self.lows.clear();
        self.sums.clear();
        self.addresses.clear();
        self.constants.clear();
        self.checked.clear();
    }
}

fn remembered<T: Copy>(known: &[(Value, T)], from: Value) -> Option<T> {
    known.iter().rev().take(REMEMBERED).find(|known| known.0 == from).map(|known| known.1)
}

pub(super) fn size_ty(size: Size) -> Type {
    match size {
        Size::B => I8,
        Size::H => I16,
        Size::W => I32,
        Size::Dw => I64,
    }
}

impl Translator<'_> {
    /// Where an access goes. Other threads and the kernel may see it, so Cranelift must neither merge it with others nor
    /// leave it out; the frame is private to the run, and validation has checked the offset.
    fn native_address(&mut self, (base, off): At, size: Size, write: bool) -> NativeAddress {
        let off32 = i32::from(off);
        if base == Reg::FP {
            return NativeAddress { addr: self.fp, off: off32, flags: frame() };
        }
        if write && self.input.mutant != forward::MUTANT {
            // An unknown address may be in the frame.
            self.stored.forget();
        }
        let kind = SiteKind::Access { base, off, size, write, lead: 0 };
        let (addr, off32) = match (self.input.options.memory, self.arena) {
            (Memory::Trusted, _) => match self.terms(base) {
                // Other machines have no such offsets.
                (addr, term) if self.input.isa.name() == "x64" && term.checked_add(off32).is_some() => {
                    (addr, term + off32)
                }
                _ => (self.get(base), off32),
            },
            (Memory::Strict, Some(arena)) => {
                let pointer = self.get(base);
                self.check_half(pointer, kind);
                self.in_arena((pointer, 0), (off32, size), arena)
            }
            (Memory::Sandbox, Some(arena)) => {
                let pointer = self.terms(base);
                self.in_arena(pointer, (off32, size), arena)
            }
            (Memory::Sandbox | Memory::Strict, None) => unreachable!("loaded at the start"),
        };
        // Only the optimiser would merge accesses or leave them out.
        if self.input.options.opt != OptLevel::None || self.input.listing {
            let point = self.b.ins().sequence_point();
            self.mark(point);
        }
        let flags = MemFlagsData::new().with_trap_code(Some(self.site(kind)));
        NativeAddress { addr, off: off32, flags }
    }

    /// Address and offset of an access in the arena. What a pointer has added to it goes into the offset, so that
    /// accesses that differ in it alone share one address. That may go past an end of the arena where the pointer
    /// would have wrapped around, but nothing is mapped within [`MARGIN`] of the ends, on either side.
    fn in_arena(&mut self, (pointer, term): (Value, i32), (off, size): (i32, Size), arena: Value) -> (Value, i32) {
        let (low, constant) = self.low_sum(pointer);
        let term = i64::from(term.wrapping_add(constant));
        let far = term + i64::from(off);
        let (low, off) = match low {
            Some(low) if reaches(far, size.bytes() as u64) => (low, far as i32),
            Some(low) => (self.b.ins().iadd_imm_u(low, i64::from(term as u32)), off),
            None => return self.constant_in_arena(term as u32, (off, size), arena),
        };
        let known = remembered(&self.pointers.addresses, low);
        let addr = known.unwrap_or_else(|| {
            let wide = self.b.ins().uextend(I64, low);
            let addr = self.b.ins().iadd(arena, wide);
            self.pointers.addresses.push((low, addr));
            addr
        });
        (addr, off)
    }

    /// The same for a pointer that is a constant. It shares its address with others nearby.
    fn constant_in_arena(&mut self, low: u32, (off, size): (i32, Size), arena: Value) -> (Value, i32) {
        let far = |from: u32| i64::from(low) + i64::from(off) - i64::from(from);
        let known = self.pointers.constants.iter().rev().take(REMEMBERED);
        if let Some((from, addr)) = known.copied().find(|(from, _)| reaches(far(*from), size.bytes() as u64)) {
            return (addr, far(from) as i32);
        }
        let wide = self.b.ins().iconst(I64, i64::from(low));
        let addr = self.b.ins().iadd(arena, wide);
        self.pointers.constants.push((low, addr));
        (addr, off)
    }

    /// The low half of a pointer without the constants in it, if anything is left, and these. Sums are made anew from low halves, because
    /// 32-bit instructions extend for nothing.
    fn low_sum(&mut self, pointer: Value) -> (Option<Value>, i32) {
        let pointer = self.b.func.dfg.resolve_aliases(pointer);
        if let Some((low, constant)) = remembered(&self.pointers.sums, pointer) {
            return (Some(low), constant);
        }
        let mut constant = 0;
        let low = self.low(pointer, 4, &mut constant);
        let constant = constant as i32;
        self.pointers.sums.extend(low.map(|low| (pointer, (low, constant))));
        (low, constant)
    }

    /// The low half of a value, as in [`Translator::low_sum`]; constants are added to `term`. Sums are made anew to `depth` levels.
    fn low(&mut self, value: Value, depth: u32, term: &mut i64) -> Option<Value> {
        let value = self.b.func.dfg.resolve_aliases(value);
        if let Some(imm) = self.constant(value) {
            // Whatever is added up wraps around at 32 bits.
            *term = i64::from((*term as i32).wrapping_add(imm as i32));
            return None;
        }
        match self.definition(value).filter(|_| depth > 0) {
            Some(InstructionData::Binary { opcode: Opcode::Iadd, args: [a, b] }) => {
                return match (self.low(a, depth - 1, term), self.low(b, depth - 1, term)) {
                    (Some(a), Some(b)) => Some(self.b.ins().iadd(a, b)),
                    (one, other) => one.or(other),
                };
            }
            Some(InstructionData::Binary { opcode: Opcode::Ishl, args: [a, by] }) => {
                if let Some(by) = self.constant(by).filter(|by| (0..32).contains(by)) {
                    let mut inner = 0;
                    let low = self.low(a, depth - 1, &mut inner);
                    *term = i64::from((*term as i32).wrapping_add((inner as i32) << by));
                    return low.map(|low| self.b.ins().ishl_imm_u(low, by));
                }
            }
            Some(InstructionData::Unary { opcode: Opcode::Uextend, arg }) if self.b.func.dfg.value_type(arg) == I32 => {
                return Some(arg);
            }
            _ => {}
        }
        let known = remembered(&self.pointers.lows, value);
        Some(known.unwrap_or_else(|| {
            let low = self.b.ins().ireduce(I32, value);
            self.pointers.lows.push((value, low));
            low
        }))
    }

    /// The instruction that defines a value.
    pub(super) fn definition(&self, value: Value) -> Option<InstructionData> {
        let dfg = &self.b.func.dfg;
        match dfg.value_def(value) {
            ValueDef::Result(inst, _) => Some(dfg.insts[inst]),
            ValueDef::Param(..) | ValueDef::Union(..) => None,
        }
    }

    pub(super) fn constant(&self, value: Value) -> Option<i64> {
        match self.definition(value)? {
            InstructionData::UnaryImm { opcode: Opcode::Iconst, imm } => Some(imm.bits()),
            _ => None,
        }
    }

    /// Traps unless the upper half of a pointer is zero or the arena's.
    fn check_half(&mut self, pointer: Value, kind: SiteKind) {
        let pointer = self.b.func.dfg.resolve_aliases(pointer);
        if self.pointers.checked.iter().rev().take(REMEMBERED).any(|checked| *checked == pointer) {
            return;
        }
        self.pointers.checked.push(pointer);
        let half = self.b.ins().ushr_imm_u(pointer, 32);
        let ours = self.arena_half.expect("made at the start");
        let foreign = self.b.ins().icmp(IntCC::NotEqual, half, ours);
        let zero = self.b.ins().iconst(I64, 0);
        let foreign = self.b.ins().select(foreign, half, zero);
        let SiteKind::Access { off, .. } = kind else { unreachable!("a pointer is checked where it is used") };
        self.refuse_if(foreign, |t| t.b.ins().iadd_imm_s(pointer, i64::from(off)), kind);
    }

    pub(super) fn load(&mut self, size: Size, signed: bool, dst: Reg, at: At) {
        if let Some((word, ty)) = self.word(at) {
            let value = self.b.use_var(word);
            if size == Size::W && !signed {
                let low = if ty == I32 { value } else { self.b.ins().ireduce(I32, value) };
                self.set32(dst, low);
            } else {
                let value = self.widen(size, signed, value);
                self.set(dst, value);
            }
            return;
        }
        if at.0 == Reg::FP
            && let Some(value) = self.stored.get(at.1, size)
        {
            return match (size, signed) {
                (Size::W, false) => self.set32(dst, value),
                _ => {
                    let value = self.widen(size, signed, value);
                    self.set(dst, value);
                }
            };
        }
        let NativeAddress { addr, off, flags } = self.native_address(at, size, false);
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
        if at.0 == Reg::FP && size == Size::Dw {
            self.stored.note(at.1, size, value);
        }
        self.set(dst, value);
    }

    pub(super) fn store(&mut self, size: Size, at: At, src: Operand) {
        if let Some((word, ty)) = self.word(at) {
            let value = self.operand(if ty == I64 { Width::W64 } else { Width::W32 }, src);
            self.b.def_var(word, value);
            return;
        }
        let value = self.operand(if size == Size::Dw { Width::W64 } else { Width::W32 }, src);
        let NativeAddress { addr, off, flags } = self.native_address(at, size, true);
        if at.0 == Reg::FP {
            self.stored.store(at.1, size, value);
        }
        if self.constant(value).is_none() && matches!(size, Size::B | Size::H) {
            // Narrower arithmetic is longer code.
            let ins = self.b.ins();
            if size == Size::B {
                ins.istore8(flags, value, addr, off)
            } else {
                ins.istore16(flags, value, addr, off)
            };
            return;
        }
        // Not `istore`, which wants constants in registers.
        let low = match size {
            Size::Dw | Size::W => value,
            Size::H | Size::B => self.b.ins().ireduce(size_ty(size), value),
        };
        self.b.ins().store(flags, low, addr, off);
    }

    /// The low bytes of a value as a register.
    fn widen(&mut self, size: Size, signed: bool, value: Value) -> Value {
        let (ty, from) = (size_ty(size), self.b.func.dfg.value_type(value));
        let low = if ty == from { value } else { self.b.ins().ireduce(ty, value) };
        match (size, signed) {
            (Size::Dw, _) => low,
            (Size::B | Size::H | Size::W, true) => self.b.ins().sextend(I64, low),
            (Size::B | Size::H | Size::W, false) => self.b.ins().uextend(I64, low),
        }
    }

    /// The address of an atomic access, which must be a multiple of its size. That is checked first, as in the
    /// interpreter.
    fn atomic_place(&mut self, at: At, size: Size, write: bool) -> (Value, MemFlagsData) {
        if size != Size::B {
            let pointer = self.get(at.0);
            let addr = self.b.ins().iadd_imm_s(pointer, i64::from(at.1));
            let rest = self.b.ins().band_imm_u(addr, size.bytes() as i64 - 1);
            self.refuse_if(rest, |_| addr, SiteKind::Misaligned { size });
        }
        let NativeAddress { addr, off, flags } = self.native_address(at, size, write);
        self.stored.forget();
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
        self.write(width, dst, old);
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
        if self.input.options.opt != OptLevel::None {
            self.b.ins().sequence_point();
        }
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
