//! The mapping from the identity of an operation to its type.

use super::kind::{Bits, Extension, Kind, Right};
use super::ops::{
    Acquire, Byte, Cast, Double, Endian, Event, Goto, Half, Load, LoadImm, MayGoto, Order, Pick, Release, Store, Swap,
    ToBe, ToLe, Unit, Word,
};
use super::rows;
use twinbpf_isa::{ByteOrder, Size};

impl Kind {
    /// Finds its type.
    pub(super) fn select<P: Pick>(self, pick: P) -> P::Out {
        match self {
            Kind::Alu(width, op, right) => rows::alu(width, op, right, pick),
            Kind::Branch(width, cond, imm) => rows::branch(width, cond, imm, pick),
            Kind::Atomic(width, op) => rows::atomic(width, op, pick),
            Kind::Endian(ByteOrder::ToLe, bits) => endian::<P, ToLe>(bits, pick),
            Kind::Endian(ByteOrder::ToBe, bits) => endian::<P, ToBe>(bits, pick),
            Kind::Endian(ByteOrder::Swap, bits) => endian::<P, Swap>(bits, pick),
            Kind::LoadImm => pick.pick::<LoadImm>(),
            Kind::Load(Size::B, extension) => load::<P, Byte>(extension, pick),
            Kind::Load(Size::H, extension) => load::<P, Half>(extension, pick),
            Kind::Load(Size::W, extension) => load::<P, Word>(extension, pick),
            Kind::Load(Size::Dw, extension) => load::<P, Double>(extension, pick),
            Kind::Store(Size::B, right) => store::<P, Byte>(right, pick),
            Kind::Store(Size::H, right) => store::<P, Half>(right, pick),
            Kind::Store(Size::W, right) => store::<P, Word>(right, pick),
            Kind::Store(Size::Dw, right) => store::<P, Double>(right, pick),
            Kind::Acquire(Size::B) => pick.pick::<Acquire<Byte>>(),
            Kind::Acquire(Size::H) => pick.pick::<Acquire<Half>>(),
            Kind::Acquire(Size::W) => pick.pick::<Acquire<Word>>(),
            Kind::Acquire(Size::Dw) => pick.pick::<Acquire<Double>>(),
            Kind::Release(Size::B) => pick.pick::<Release<Byte>>(),
            Kind::Release(Size::H) => pick.pick::<Release<Half>>(),
            Kind::Release(Size::W) => pick.pick::<Release<Word>>(),
            Kind::Release(Size::Dw) => pick.pick::<Release<Double>>(),
            Kind::Goto => pick.pick::<Goto>(),
            Kind::MayGoto => pick.pick::<MayGoto>(),
            Kind::CastKernel => pick.pick::<Cast<false>>(),
            Kind::CastUser => pick.pick::<Cast<true>>(),
            Kind::Event => pick.pick::<Event>(),
        }
    }
}

fn endian<P: Pick, T: Order>(bits: Bits, pick: P) -> P::Out {
    match bits {
        Bits::B16 => pick.pick::<Endian<T, 16>>(),
        Bits::B32 => pick.pick::<Endian<T, 32>>(),
        Bits::B64 => pick.pick::<Endian<T, 64>>(),
    }
}

fn load<P: Pick, T: Unit>(extension: Extension, pick: P) -> P::Out {
    match extension {
        Extension::Zero => pick.pick::<Load<T, false>>(),
        Extension::Sign => pick.pick::<Load<T, true>>(),
    }
}

fn store<P: Pick, T: Unit>(right: Right, pick: P) -> P::Out {
    match right {
        Right::Reg => pick.pick::<Store<T, false>>(),
        Right::Imm => pick.pick::<Store<T, true>>(),
    }
}
