//! Superinstructions: pairs of operations that one handler executes, chosen by a profile of the workloads of
//! `corpus/bench`.
//!
//! `=>`: the second operation reads the result of the first as its left operand or base, and gets it in a host register.
//! More pairs are more code and little speed.

use super::kind::Kind;
use super::ops::{Alu, Branch, Byte, Double, Goto, Half, Load, LoadImm, Op, Store, Word};
use super::rows::{Add, And, Div, Lsh, Mov, Mul, Or, Rsh, Sub, Xor, cond};
use super::threaded::{Handler, pair};

/// First and second operation, whether the second reads the first's result, and the handlers for a second that
/// goes forward or jumps back.
type Pair = ((Kind, Kind, bool), [Handler; 2]);

// 64 or 32 bits; `I`: the right operand is an immediate.
type Add32 = Alu<Add, false, false>;
type Add32I = Alu<Add, false, true>;
type Add64 = Alu<Add, true, false>;
type Add64I = Alu<Add, true, true>;
type And32I = Alu<And, false, true>;
type And64 = Alu<And, true, false>;
type And64I = Alu<And, true, true>;
type Div32 = Alu<Div, false, false>;
type Div64 = Alu<Div, true, false>;
type Lsh32I = Alu<Lsh, false, true>;
type Lsh64I = Alu<Lsh, true, true>;
type Mov32 = Alu<Mov, false, false>;
type Mov32I = Alu<Mov, false, true>;
type Mov64 = Alu<Mov, true, false>;
type Mov64I = Alu<Mov, true, true>;
type Mul32I = Alu<Mul, false, true>;
type Mul64 = Alu<Mul, true, false>;
type Mul64I = Alu<Mul, true, true>;
type Or32 = Alu<Or, false, false>;
type Or32I = Alu<Or, false, true>;
type Or64 = Alu<Or, true, false>;
type Or64I = Alu<Or, true, true>;
type Rsh32I = Alu<Rsh, false, true>;
type Rsh64 = Alu<Rsh, true, false>;
type Rsh64I = Alu<Rsh, true, true>;
type Sub64 = Alu<Sub, true, false>;
type Xor32 = Alu<Xor, false, false>;
type Xor64 = Alu<Xor, true, false>;
type Jeq32I = Branch<cond::Eq, false, true>;
type Jeq64I = Branch<cond::Eq, true, true>;
type Jle64 = Branch<cond::Le, true, false>;
type Jlt32 = Branch<cond::Lt, false, false>;
type Jlt64 = Branch<cond::Lt, true, false>;
type Jne32 = Branch<cond::Ne, false, false>;
type Jne32I = Branch<cond::Ne, false, true>;
type LdB = Load<Byte, false>;
type LdD = Load<Double, false>;
type LdH = Load<Half, false>;
type LdW = Load<Word, false>;
type StB = Store<Byte, false>;
type StD = Store<Double, false>;

macro_rules! entry {
    ($A:ty, $B:ty, $chained:literal, $back:literal) => {
        ((<$A>::KIND, <$B>::KIND, $chained), [pair::<$A, $B, $chained, false>, pair::<$A, $B, $chained, $back>])
    };
}

macro_rules! pairs {
    (@ $back:literal [$($done:expr,)*]) => { [$($done,)*] };
    (@ $back:literal [$($done:expr,)*] $A:ident, $B:ident; $($rest:tt)*) => {
        pairs!(@ $back [$($done,)* entry!($A, $B, false, $back),] $($rest)*)
    };
    (@ $back:literal [$($done:expr,)*] $A:ident => $B:ident; $($rest:tt)*) => {
        pairs!(@ $back [$($done,)* entry!($A, $B, true, $back),] $($rest)*)
    };
}

/// Second operations that fall through.
const FORWARD: &[Pair] = &pairs! {
    @ false []
    Add64 => LdB;
    Add64I , Add64I;
    Add64 , Add64I;
    Add64I , Mov64;
    Lsh64I , Add64;
    Xor64 => Mul64;
    LdD , StD;
    StD , Add64I;
    Add64I => LdD;
    Mov64 , Mov64;
    Add64 , Rsh64I;
    LdD , Add64;
    Add64 => LdH;
    LdD , Mul64;
    Mul64I => Add64;
    Add32 , Add64I;
    Add64 => StB;
    Lsh64I => Or64;
    Lsh64I => Xor64;
    Or64 => Add64;
    Xor64 , Mul64I;
    Add64 , Add64;
    Add64 , Xor64;
    Add64 => StD;
    Mul64 => Add64;
    Rsh64I => Xor64;
    LdD , LdD;
    Rsh64 => Or64I;
    And64I , LdD;
    Mul64I , Add64;
    Sub64 , Mul64I;
    Div64 => Mul64;
    LdW => Rsh32I;
    And64 => Rsh64I;
    Lsh32I => Or32;
    Or32 => Add32;
    Lsh32I => Xor32;
    Mul32I => Add32;
    Add32I , Add32I;
    Rsh32I => Xor32;
    Add32 , Rsh32I;
    Xor32 , Mul32I;
    Add32 , Add64;
    Add64 , Add32I;
    And32I => Lsh64I;
    And32I , And32I;
    StD , Lsh64I;
    Or64I , Mov64;
    Xor64 => Rsh64I;
    Mov32 , Mov32;
    Or32I , Div32;
    LoadImm , Mul64;
    Rsh64I => Lsh64I;
    LdD => And64I;
    Add64I , Mov32;
    Add64 , Mov32;
    Xor32 , Rsh32I;
    Xor64 , Add64I;
    Add64 => Lsh64I;
    Mov32 , Add64;
    StB , Add64;
    Add64 => LdD;
    LdB , LdB;
    Xor64 , LdD;
    Add64 => Xor64;
    Add64I , LdD;
    Xor64 , Lsh64I;
    Add64 => Rsh64I;
    Or64 , Add64;
    Mov64 , LoadImm;
};

/// Second operations that jump.
const JUMPS: &[Pair] = &pairs! {
    @ true []
    Add64I => Jlt64;
    Mov64 , Goto;
    Add64I => Jeq64I;
    Add32 => Jlt32;
    LdB => Jne32;
    LdD => Jle64;
    Mov64 , Jle64;
    Add32I => Jlt32;
    Mov64I , Goto;
    Mov32I , Jeq32I;
    And32I => Jne32I;
    Mov32I , Jne32I;
    Add64I , Jne32I;
    Mov32 , Goto;
};

/// Every pair.
pub(super) fn all() -> impl Iterator<Item = Pair> {
    FORWARD.iter().chain(JUMPS).copied()
}
