//! The table of superinstructions: one row for each, in the order of `docs/superinstructions.md`.
//!
//! `A => B`: the second operation reads the result of the first as its left operand or base, and gets it in a host register.
//! `A, B`: any two that follow each other. More pairs are more code and little speed.

use super::super::handlers::pair;
use super::super::ops::{Alu, Branch, Byte, Double, Goto, Half, Load, LoadImm, Op, Store, Word};
use super::super::rows::{Add, And, Div, Lsh, Mov, Mul, Or, Rsh, Sub, Xor, cond};
use super::patterns::{rotation, sign_extend, three_operand, zero_extend};
use super::{Key, Link, Pair, Pattern, Row};

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

/// A pair. Only jumps have a handler of their own for going back.
macro_rules! entry {
    ($A:ty, $B:ty, $link:ident) => {
        Pair {
            key: Key { first: <$A>::KIND, second: <$B>::KIND, link: Link::$link },
            forward: pair::<$A, $B, { matches!(Link::$link, Link::Fed) }, false>,
            back: pair::<$A, $B, { matches!(Link::$link, Link::Fed) }, { <$B>::KIND.jumps() }>,
        }
    };
}

macro_rules! pairs {
    (@ [$($done:expr,)*]) => { &[$($done,)*] };
    (@ [$($done:expr,)*] $A:ident, $B:ident $(; $($rest:tt)*)?) => {
        pairs!(@ [$($done,)* entry!($A, $B, Any),] $($($rest)*)?)
    };
    (@ [$($done:expr,)*] $A:ident => $B:ident $(; $($rest:tt)*)?) => {
        pairs!(@ [$($done,)* entry!($A, $B, Fed),] $($($rest)*)?)
    };
    ($name:literal, $reason:literal: $($pairs:tt)*) => {
        Row { name: $name, pattern: Pattern::Pairs(pairs!(@ [] $($pairs)*)), reason: $reason }
    };
}

/// See the module documentation.
pub(super) static ROWS: &[Row] = &[
    Row {
        name: "three-operand",
        pattern: Pattern::Fold(three_operand, "r1 = r2; r1 += r3"),
        reason: "compilers copy what they need later; every workload",
    },
    Row {
        name: "zero-extend",
        pattern: Pattern::Fold(zero_extend, "r1 <<= 32; r1 >>= 32"),
        reason: "code for `-mcpu=v2`, which has no operations on 32 bits, and C's conversions",
    },
    Row {
        name: "sign-extend",
        pattern: Pattern::Fold(sign_extend, "r1 <<= 32; r1 s>>= 32"),
        reason: "as `zero-extend`, of signed numbers",
    },
    Row {
        name: "rotate",
        pattern: Pattern::Triple(rotation, "r3 = r1; r3 >>= 25; r1 <<= 39; r1 |= r3"),
        reason: "clang has no rotation to emit: ciphers and hashes. The first two are one by `three-operand`",
    },
    pairs!("add-load", "the address of an element, then the element":
        Add64 => LdB; Add64I => LdD; Add64 => LdH; Add64 => LdD; Add64I, LdD),
    pairs!("add-add", "two cursors of a loop, or rounds of a hash":
        Add64I, Add64I; Add64, Add64I; Add32, Add64I; Add64, Add64; Add32I, Add32I; Add32, Add64;
        Add64, Add32I),
    pairs!("add-move", "the next value of a cursor, then its copies at the end of a loop":
        Add64I, Mov64; Add64I, Mov32; Add64, Mov32),
    pairs!("shift-add", "an index scaled to bytes, then another address":
        Lsh64I, Add64),
    pairs!("xor-multiply", "hash functions: a step of FNV-1a and of murmur's finalizer":
        Xor64 => Mul64; Xor64, Mul64I; Xor32, Mul32I),
    pairs!("load-store", "copies of memory":
        LdD, StD),
    pairs!("store-add", "a cursor that moves past what was written":
        StD, Add64I; StB, Add64),
    pairs!("move-move", "values that change places at the end of a loop":
        Mov64, Mov64; Mov32, Mov32),
    pairs!("add-shift", "rounds of hashes and ciphers; a sum that becomes an index":
        Add64, Rsh64I; Add32, Rsh32I; Add64 => Lsh64I; Add64 => Rsh64I),
    pairs!("load-add", "a value from memory while an address is made: json, lz4":
        LdD, Add64),
    pairs!("load-multiply", "products of elements: matrices":
        LdD, Mul64),
    pairs!("multiply-add", "the address of an element of a structure's size; numbers read digit by digit; polynomial hashes":
        Mul64I => Add64; Mul64 => Add64; Mul64I, Add64; Mul32I => Add32),
    pairs!("add-store", "the address of an element, then a store into it":
        Add64 => StB; Add64 => StD),
    pairs!("shift-or", "numbers put together from bytes; rotations that need their source afterwards":
        Lsh64I => Or64; Rsh64 => Or64I; Lsh32I => Or32),
    pairs!("shift-xor", "shifts that mix a value with itself":
        Lsh64I => Xor64; Rsh64I => Xor64; Lsh32I => Xor32; Rsh32I => Xor32),
    pairs!("or-add", "rotations whose result is added, as hash functions do":
        Or64 => Add64; Or32 => Add32; Or64, Add64),
    pairs!("add-xor", "rounds of SipHash":
        Add64, Xor64; Add64 => Xor64),
    pairs!("load-load", "two elements to compare, or two bytes of a number":
        LdD, LdD; LdB, LdB),
    pairs!("and-load", "a masked index while the next value is loaded":
        And64I, LdD),
    pairs!("subtract-multiply", "a remainder, made of a quotient, that goes into a hash":
        Sub64, Mul64I),
    pairs!("divide-multiply", "a remainder as clang makes it: the quotient times the divisor":
        Div64 => Mul64),
    pairs!("load-shift", "a rotation of a word of memory: SHA-256":
        LdW => Rsh32I),
    pairs!("and-shift", "a field cut out of a word, then moved or scaled: decoders":
        And64 => Rsh64I; And32I => Lsh64I),
    pairs!("and-and", "two fields of one instruction: decoders":
        And32I, And32I),
    pairs!("store-shift", "a spilled value before a rotation":
        StD, Lsh64I),
    pairs!("or-move", "the second child of a heap: `2 * i | 1`":
        Or64I, Mov64),
    pairs!("xor-shift", "the rotation after each xor of ChaCha20 and SipHash":
        Xor64 => Rsh64I; Xor32, Rsh32I; Xor64, Lsh64I),
    pairs!("or-divide", "a divisor that must not be 0":
        Or32I, Div32),
    pairs!("constant-multiply", "multiplicative hashes":
        LoadImm, Mul64),
    pairs!("shift-shift", "bits of a hash that become a scaled index":
        Rsh64I => Lsh64I),
    pairs!("load-and", "a bit of a word of memory":
        LdD => And64I),
    pairs!("xor-add", "rounds of SipHash":
        Xor64, Add64I),
    pairs!("move-add", "an index cut to 32 bits, before an address":
        Mov32, Add64),
    pairs!("xor-load", "a hash over words: one is mixed in, the next loaded":
        Xor64, LdD),
    pairs!("move-constant", "a value that is kept while a mask of 64 bits is loaded":
        Mov64, LoadImm),
    pairs!("add-branch", "the latch of a counted loop":
        Add64I => Jlt64; Add64I => Jeq64I; Add32 => Jlt32; Add32I => Jlt32; Add64I, Jne32I),
    pairs!("move-jump", "a result, then the jump to where branches join":
        Mov64, Goto; Mov64I, Goto; Mov32, Goto),
    pairs!("load-branch", "an element that is compared at once: searches":
        LdB => Jne32; LdD => Jle64),
    pairs!("move-branch", "a default value, then the branch that decides if it stays":
        Mov64, Jle64; Mov32I, Jeq32I; Mov32I, Jne32I),
    pairs!("and-branch", "a test of bits that keeps them":
        And32I => Jne32I),
];
