//! A program for the bytecode machine of `stackvm.bpf.c`, and the same computation without a machine.

use super::reference::fold;

/// The operations, numbered as in the C source.
#[derive(Clone, Copy)]
#[rustfmt::skip]
enum Op {
    Halt, Push8, Push32, Dup, Drop, Swap, Over, Rot,
    Add, Sub, Mul, Div, Mod, And, Or, Xor,
    Shl, Shr, Sar, Not, Neg, Eq, Lt, Below,
    Jmp, Jz, Jnz, Get, Set, Inc, Load, Store,
    Call, Ret, Pick, IsZero,
}

use Op::{
    Add, And, Below, Call, Div, Drop, Dup, Eq, Get, Halt, Inc, IsZero, Jmp, Jnz, Jz, Load, Lt, Mod, Mul, Neg, Not, Or,
    Over, Pick, Push8, Push32, Ret, Rot, Sar, Set, Shl, Shr, Store, Sub, Swap, Xor,
};

/// Places in the code that others jump to.
#[derive(Clone, Copy, PartialEq)]
enum Label {
    Next,
    Histogram,
    Collatz,
    Step,
    Even,
    Stepped,
    Arrived,
    Gcd,
    Found,
}

/// One item of the program.
enum Item {
    /// An operation alone.
    O(Op),
    /// With a byte.
    B(Op, u8),
    /// With a word.
    W(Op, u32),
    /// With a place.
    J(Op, Label),
    /// The place itself.
    At(Label),
}

use Item::{At, B, J, O, W};

const BINS: u8 = 64;
const MULTIPLIER: u32 = 0x9e37_79b9;
const LIMIT: u32 = 0x0123_4567;

/// For i in 1..=len: steps of the Collatz sequence from i, a histogram of them, gcd(i, len), some mixing.
/// Locals: 0 len, 1 i, 2 sum, 3 and 4 those of `Collatz`.
#[rustfmt::skip]
const PROGRAM: &[Item] = &[
    B(Push8, 1), B(Set, 1),
    At(Label::Next),
    B(Get, 1), J(Call, Label::Collatz),
    O(Dup), B(Push8, BINS - 1), O(And), O(Dup), O(Load), B(Push8, 1), O(Add), O(Swap), O(Store),
    B(Get, 2), W(Push32, MULTIPLIER), O(Mul), O(Add), B(Set, 2),
    B(Get, 1), B(Get, 0), J(Call, Label::Gcd), B(Get, 2), O(Xor), O(Dup), B(Push8, 17), O(Shr), O(Xor), B(Set, 2),
    B(Get, 1), B(Get, 0), B(Get, 2), O(Rot), B(Push8, 1), O(Pick), O(Sub), O(Neg), O(Not), B(Push8, 3), O(Sar), O(Or),
    O(Swap), B(Push8, 7), O(Add), O(Div), W(Push32, LIMIT), O(Below), O(IsZero), B(Get, 2), O(Add), B(Set, 2),
    B(Inc, 1), B(Get, 0), B(Get, 1), O(Lt), J(Jz, Label::Next),
    B(Push8, 0), B(Set, 1),
    At(Label::Histogram),
    B(Get, 2), B(Push8, 31), O(Mul), B(Get, 1), O(Load), O(Add), B(Set, 2),
    B(Inc, 1), B(Get, 1), B(Push8, BINS), O(Lt), J(Jnz, Label::Histogram),
    B(Get, 2), O(Halt),
    At(Label::Collatz),
    B(Set, 3), B(Push8, 0), B(Set, 4),
    At(Label::Step),
    B(Get, 3), B(Push8, 1), O(Eq), J(Jnz, Label::Arrived),
    B(Get, 3), B(Push8, 1), O(And), J(Jz, Label::Even),
    B(Get, 3), O(Dup), B(Push8, 1), O(Shl), O(Add), B(Push8, 1), O(Add), B(Set, 3), J(Jmp, Label::Stepped),
    At(Label::Even),
    B(Get, 3), B(Push8, 1), O(Shr), B(Set, 3),
    At(Label::Stepped),
    B(Inc, 4), J(Jmp, Label::Step),
    At(Label::Arrived),
    B(Get, 4), O(Ret),
    At(Label::Gcd),
    O(Dup), J(Jz, Label::Found), O(Swap), O(Over), O(Mod), J(Jmp, Label::Gcd),
    At(Label::Found),
    O(Drop), O(Ret),
];

pub(super) fn shape(input: &mut [u8]) {
    let code = assemble();
    input[..code.len()].copy_from_slice(&code);
}

fn assemble() -> Vec<u8> {
    let size = |item: &Item| match item {
        O(_) => 1,
        B(..) => 2,
        J(..) => 3,
        W(..) => 5,
        At(_) => 0,
    };
    let place = |label: Label| {
        let before = PROGRAM.iter().take_while(|item| !matches!(item, At(at) if *at == label));
        before.map(size).sum::<usize>() as u16
    };
    let bytes = PROGRAM.iter().flat_map(|item| match *item {
        O(op) => vec![op as u8],
        B(op, byte) => vec![op as u8, byte],
        W(op, word) => [&[op as u8], &word.to_le_bytes()[..]].concat(),
        J(op, label) => [&[op as u8], &place(label).to_le_bytes()[..]].concat(),
        At(_) => vec![],
    });
    bytes.collect()
}

pub(super) fn reference(_input: &[u8], len: u64) -> u64 {
    let mut bins = [0_u64; BINS as usize];
    let mut sum = 0_u64;
    for i in 1..=len {
        let steps = std::iter::successors(Some(i), |&x| (x != 1).then(|| if x % 2 == 0 { x / 2 } else { 3 * x + 1 }));
        let steps = steps.count() as u64 - 1;
        bins[(steps % u64::from(BINS)) as usize] += 1;
        sum = sum.wrapping_mul(u64::from(MULTIPLIER)).wrapping_add(steps);
        let divisor = (1..=i).rev().find(|d| i.is_multiple_of(*d) && len.is_multiple_of(*d)).expect("1 divides all");
        sum ^= divisor;
        sum ^= sum >> 17;
        let mixed = !i.wrapping_sub(sum).wrapping_neg();
        let quotient = (sum | (mixed as i64 >> 3) as u64) / (len + 7);
        sum = sum.wrapping_add(u64::from(quotient >= u64::from(LIMIT)));
    }
    bins.into_iter().fold(sum, fold)
}
