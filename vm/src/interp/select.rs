//! The mapping from the identity of an operation to its type.

use super::kind::{Bits, Kind};
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
            Kind::Alu(width, op, imm) => rows::alu(width, op, imm, pick),
            Kind::Branch(width, cond, imm) => rows::branch(width, cond, imm, pick),
            Kind::Atomic(width, op) => rows::atomic(width, op, pick),
            Kind::Endian(ByteOrder::ToLe, bits) => endian::<P, ToLe>(bits, pick),
            Kind::Endian(ByteOrder::ToBe, bits) => endian::<P, ToBe>(bits, pick),
            Kind::Endian(ByteOrder::Swap, bits) => endian::<P, Swap>(bits, pick),
            Kind::LoadImm => pick.pick::<LoadImm>(),
            Kind::Load(Size::B, signed) => load::<P, Byte>(signed, pick),
            Kind::Load(Size::H, signed) => load::<P, Half>(signed, pick),
            Kind::Load(Size::W, signed) => load::<P, Word>(signed, pick),
            Kind::Load(Size::Dw, signed) => load::<P, Double>(signed, pick),
            Kind::Store(Size::B, imm) => store::<P, Byte>(imm, pick),
            Kind::Store(Size::H, imm) => store::<P, Half>(imm, pick),
            Kind::Store(Size::W, imm) => store::<P, Word>(imm, pick),
            Kind::Store(Size::Dw, imm) => store::<P, Double>(imm, pick),
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

fn load<P: Pick, T: Unit>(signed: bool, pick: P) -> P::Out {
    if signed { pick.pick::<Load<T, true>>() } else { pick.pick::<Load<T, false>>() }
}

fn store<P: Pick, T: Unit>(imm: bool, pick: P) -> P::Out {
    if imm { pick.pick::<Store<T, true>>() } else { pick.pick::<Store<T, false>>() }
}
