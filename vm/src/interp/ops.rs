//! Operations as types: how a row reads its operands and writes its result.
//!
//! An [`Op`] is executed by calling [`Op::run`]; which driver calls it makes no difference to what it does.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

use super::kind::{Bits, Extension, Kind, Right};
use super::operands::{Flow, Mem, Operands, R};
use super::state::State;
use crate::mem::{Access, View};
use twinbpf_isa::{AluOp, AtomicOp, ByteOrder, Cond, Size, Width};

/// An operation.
pub(super) trait Op {
    const KIND: Kind;
    /// What it accesses at `b + x`.
    const MEM: Option<Mem> = None;

    /// Executes it. `first` is the value of `b` where the caller has it; `out` gets the value written to
    /// `a`. Operations that can miss do nothing before they know that they hit.
    fn run(o: &Operands, s: &mut State, first: Option<u64>, out: &mut u64) -> Flow;
}

/// Receives the type of an operation.
pub(super) trait Pick {
    type Out;
    fn pick<O: Op>(&self) -> Self::Out;
}

#[inline(always)]
fn left(o: &Operands, s: &State, first: Option<u64>) -> u64 {
    match first {
        Some(value) => value,
        None => s.r[o.b as usize],
    }
}

#[inline(always)]
fn right<const IMM: bool>(o: &Operands, s: &State) -> u64 {
    if IMM { i64::from(o.imm) as u64 } else { s.r[o.c as usize] }
}

#[inline(always)]
fn address(o: &Operands, s: &State, first: Option<u64>) -> u64 {
    left(o, s, first).wrapping_add(i64::from(o.x) as u64)
}

#[inline(always)]
fn write(o: &Operands, s: &mut State, out: &mut u64, value: u64) -> Flow {
    s.r[o.a as usize] = value;
    *out = value;
    Flow::Next
}

const fn width(wide: bool) -> Width {
    if wide { Width::W64 } else { Width::W32 }
}

/// Arithmetic of one operation at both widths.
pub(super) trait Binary {
    const OP: AluOp;
    fn w32(a: u32, b: u32) -> u32;
    fn w64(a: u64, b: u64) -> u64;
}

/// One branch condition at both widths.
pub(super) trait Compare {
    const OP: Cond;
    fn w32(a: u32, b: u32) -> bool;
    fn w64(a: u64, b: u64) -> bool;
}

/// Register that gets the old value of an atomic operation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Old {
    /// The old value is not kept.
    Dropped,
    /// The source register.
    Src,
    /// Register r0 gets the old value.
    R0,
}

/// One atomic operation at both widths: gives the old value. `r0` is what `cmpxchg` compares with.
pub(super) trait Rmw {
    const OP: AtomicOp;
    const OLD: Old;
    fn w32(cell: &AtomicU32, src: u32, r0: u32) -> u32;
    fn w64(cell: &AtomicU64, src: u64, r0: u64) -> u64;
}

/// Arithmetic, RFC 9669 section 4.1.
pub(super) struct Alu<B, const WIDE: bool, const IMM: bool>(PhantomData<B>);

impl<B: Binary, const WIDE: bool, const IMM: bool> Op for Alu<B, WIDE, IMM> {
    const KIND: Kind = Kind::Alu(width(WIDE), B::OP, Right::new(IMM));

    #[inline(always)]
    fn run(o: &Operands, s: &mut State, first: Option<u64>, out: &mut u64) -> Flow {
        let (a, b) = (left(o, s, first), right::<IMM>(o, s));
        let value = if WIDE { B::w64(a, b) } else { u64::from(B::w32(a as u32, b as u32)) };
        write(o, s, out, value)
    }
}

/// Conditional jumps, RFC 9669 section 4.3.
pub(super) struct Branch<C, const WIDE: bool, const IMM: bool>(PhantomData<C>);

impl<C: Compare, const WIDE: bool, const IMM: bool> Op for Branch<C, WIDE, IMM> {
    const KIND: Kind = Kind::Branch(width(WIDE), C::OP, Right::new(IMM));

    #[inline(always)]
    fn run(o: &Operands, s: &mut State, first: Option<u64>, _: &mut u64) -> Flow {
        let (a, b) = (left(o, s, first), right::<IMM>(o, s));
        let taken = if WIDE { C::w64(a, b) } else { C::w32(a as u32, b as u32) };
        if taken { Flow::Taken } else { Flow::Next }
    }
}

/// `goto` and `gotol`.
pub(super) struct Goto;

impl Op for Goto {
    const KIND: Kind = Kind::Goto;

    #[inline(always)]
    fn run(_: &Operands, _: &mut State, _: Option<u64>, _: &mut u64) -> Flow {
        Flow::Taken
    }
}

/// `may_goto`: taken when the frame's loop budget is used up.
pub(super) struct MayGoto;

impl Op for MayGoto {
    const KIND: Kind = Kind::MayGoto;

    #[inline(always)]
    fn run(_: &Operands, s: &mut State, _: Option<u64>, _: &mut u64) -> Flow {
        match s.loops.checked_sub(1) {
            Some(left) => {
                s.loops = left;
                Flow::Next
            }
            None => Flow::Taken,
        }
    }
}

/// A byte order conversion at every size.
pub(super) trait Order {
    const ORDER: ByteOrder;
    fn h(value: u16) -> u16;
    fn w(value: u32) -> u32;
    fn d(value: u64) -> u64;
}

macro_rules! orders {
    ($($Order:ident $method:ident;)*) => {$(
        pub(super) struct $Order;
        impl Order for $Order {
            const ORDER: ByteOrder = ByteOrder::$Order;
            #[inline(always)]
            fn h(value: u16) -> u16 { value.$method() }
            #[inline(always)]
            fn w(value: u32) -> u32 { value.$method() }
            #[inline(always)]
            fn d(value: u64) -> u64 { value.$method() }
        }
    )*};
}
orders! { ToLe to_le; ToBe to_be; Swap swap_bytes; }

/// Byte order, RFC 9669 section 4.2.
pub(super) struct Endian<T, const BITS: u32>(PhantomData<T>);

impl<T: Order, const BITS: u32> Op for Endian<T, BITS> {
    const KIND: Kind = Kind::Endian(
        T::ORDER,
        match BITS {
            16 => Bits::B16,
            32 => Bits::B32,
            _ => Bits::B64,
        },
    );

    #[inline(always)]
    fn run(o: &Operands, s: &mut State, first: Option<u64>, out: &mut u64) -> Flow {
        let value = left(o, s, first);
        let value = match BITS {
            16 => u64::from(T::h(value as u16)),
            32 => u64::from(T::w(value as u32)),
            _ => T::d(value),
        };
        write(o, s, out, value)
    }
}

/// `lddw`, whatever its value means.
pub(super) struct LoadImm;

impl Op for LoadImm {
    const KIND: Kind = Kind::LoadImm;

    #[inline(always)]
    fn run(o: &Operands, s: &mut State, _: Option<u64>, out: &mut u64) -> Flow {
        write(o, s, out, u64::from(o.imm as u32) | u64::from(o.x as u32) << 32)
    }
}

/// The unit of a memory access.
pub(super) trait Unit {
    const SIZE: Size;
    fn load(view: &View, reg: R, addr: u64) -> Option<u64>;
    fn load_signed(view: &View, reg: R, addr: u64) -> Option<u64>;
    fn store(view: &View, reg: R, addr: u64, value: u64) -> Option<()>;
    fn acquire(view: &View, reg: R, addr: u64) -> Option<u64>;
    fn release(view: &View, reg: R, addr: u64, value: u64) -> Option<()>;
}

macro_rules! units {
    ($($Unit:ident $Size:ident $bytes:literal $U:ident $I:ident $Cell:ident;)*) => {$(
        pub(super) struct $Unit;
        impl Unit for $Unit {
            const SIZE: Size = Size::$Size;
            #[inline(always)]
            fn load(view: &View, reg: R, addr: u64) -> Option<u64> {
                view.load::<$bytes>(reg as usize, addr).map(|bytes| u64::from($U::from_ne_bytes(bytes)))
            }
            #[inline(always)]
            fn load_signed(view: &View, reg: R, addr: u64) -> Option<u64> {
                view.load::<$bytes>(reg as usize, addr).map(|bytes| i64::from($I::from_ne_bytes(bytes)) as u64)
            }
            #[inline(always)]
            fn store(view: &View, reg: R, addr: u64, value: u64) -> Option<()> {
                view.store(reg as usize, addr, (value as $U).to_ne_bytes())
            }
            #[inline(always)]
            fn acquire(view: &View, reg: R, addr: u64) -> Option<u64> {
                view.load_acquire::<$Cell>(reg as usize, addr)
            }
            #[inline(always)]
            fn release(view: &View, reg: R, addr: u64, value: u64) -> Option<()> {
                use crate::mem::AtomicCell as _;
                view.atomic::<$Cell>(reg as usize, addr).map(|cell| cell.release(value))
            }
        }
    )*};
}
units! {
    Byte B 1 u8 i8 AtomicU8;
    Half H 2 u16 i16 AtomicU16;
    Word W 4 u32 i32 AtomicU32;
    Double Dw 8 u64 i64 AtomicU64;
}

const fn mem(size: Size, access: Access, aligned: bool) -> Option<Mem> {
    Some(Mem { size: size.bytes(), access, aligned })
}

/// Loads, RFC 9669 sections 5.1 and 5.2.
pub(super) struct Load<T, const SIGNED: bool>(PhantomData<T>);

impl<T: Unit, const SIGNED: bool> Op for Load<T, SIGNED> {
    const KIND: Kind = Kind::Load(T::SIZE, Extension::new(SIGNED));
    const MEM: Option<Mem> = mem(T::SIZE, Access::Read, false);

    #[inline(always)]
    fn run(o: &Operands, s: &mut State, first: Option<u64>, out: &mut u64) -> Flow {
        let addr = address(o, s, first);
        let view = &s.runtime.view;
        let value = if SIGNED { T::load_signed(view, o.b, addr) } else { T::load(view, o.b, addr) };
        match value {
            Some(value) => write(o, s, out, value),
            None => Flow::Miss,
        }
    }
}

/// Stores, RFC 9669 section 5.1.
pub(super) struct Store<T, const IMM: bool>(PhantomData<T>);

impl<T: Unit, const IMM: bool> Op for Store<T, IMM> {
    const KIND: Kind = Kind::Store(T::SIZE, Right::new(IMM));
    const MEM: Option<Mem> = mem(T::SIZE, Access::Write, false);

    #[inline(always)]
    fn run(o: &Operands, s: &mut State, first: Option<u64>, _: &mut u64) -> Flow {
        let (addr, value) = (address(o, s, first), right::<IMM>(o, s));
        match T::store(&s.runtime.view, o.b, addr, value) {
            Some(()) => Flow::Next,
            None => Flow::Miss,
        }
    }
}

/// `load_acquire`.
pub(super) struct Acquire<T>(PhantomData<T>);

impl<T: Unit> Op for Acquire<T> {
    const KIND: Kind = Kind::Acquire(T::SIZE);
    const MEM: Option<Mem> = mem(T::SIZE, Access::Read, true);

    #[inline(always)]
    fn run(o: &Operands, s: &mut State, first: Option<u64>, out: &mut u64) -> Flow {
        match T::acquire(&s.runtime.view, o.b, address(o, s, first)) {
            Some(value) => write(o, s, out, value),
            None => Flow::Miss,
        }
    }
}

/// `store_release`.
pub(super) struct Release<T>(PhantomData<T>);

impl<T: Unit> Op for Release<T> {
    const KIND: Kind = Kind::Release(T::SIZE);
    const MEM: Option<Mem> = mem(T::SIZE, Access::Write, true);

    #[inline(always)]
    fn run(o: &Operands, s: &mut State, first: Option<u64>, _: &mut u64) -> Flow {
        match T::release(&s.runtime.view, o.b, address(o, s, first), right::<false>(o, s)) {
            Some(()) => Flow::Next,
            None => Flow::Miss,
        }
    }
}

/// Atomic read-modify-write, RFC 9669 section 5.3.
pub(super) struct Atomic<A, const WIDE: bool>(PhantomData<A>);

impl<A: Rmw, const WIDE: bool> Op for Atomic<A, WIDE> {
    const KIND: Kind = Kind::Atomic(width(WIDE), A::OP);
    const MEM: Option<Mem> = mem(if WIDE { Size::Dw } else { Size::W }, Access::Write, true);

    #[inline(always)]
    fn run(o: &Operands, s: &mut State, first: Option<u64>, _: &mut u64) -> Flow {
        let (addr, src, r0) = (address(o, s, first), right::<false>(o, s), s.r[0]);
        let view = &s.runtime.view;
        let old = if WIDE {
            view.atomic::<AtomicU64>(o.b as usize, addr).map(|cell| A::w64(cell, src, r0))
        } else {
            view.atomic::<AtomicU32>(o.b as usize, addr).map(|cell| A::w32(cell, src as u32, r0 as u32).into())
        };
        let Some(old) = old else { return Flow::Miss };
        match A::OLD {
            Old::Dropped => {}
            Old::Src => s.r[o.c as usize] = old,
            Old::R0 => s.r[0] = old,
        }
        Flow::Next
    }
}

/// `addr_space_cast`. A pointer into an arena works under both spellings, with an upper half of zero and with
/// the arena's; the kernel's instruction to address space 0 clears the upper half, the one from it restores it
/// and keeps null.
pub(super) struct Cast<const USER: bool>;

impl<const USER: bool> Op for Cast<USER> {
    const KIND: Kind = if USER { Kind::CastUser } else { Kind::CastKernel };

    #[inline(always)]
    fn run(o: &Operands, s: &mut State, first: Option<u64>, out: &mut u64) -> Flow {
        let low = left(o, s, first) & 0xffff_ffff;
        write(o, s, out, if USER && low != 0 { s.arena_base | low } else { low })
    }
}

/// Whatever the machine does itself.
pub(super) struct Event;

impl Op for Event {
    const KIND: Kind = Kind::Event;

    #[inline(always)]
    fn run(_: &Operands, _: &mut State, _: Option<u64>, _: &mut u64) -> Flow {
        Flow::Event
    }
}
