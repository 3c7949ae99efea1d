//! Indexes that are added to the frame's address: small ones without a mask, and others.

use super::budgets::{agree, is_found};
use crate::opt::FOLDING_MUTANT;

/// A program that takes a number from memory, makes an index in r3 of it, and accesses the frame there.
fn at(index: &str) -> String {
    format!(
        "r4 = 0x1122334455667788 ll\n*(u64 *)(r10 - 8) = r4\n*(u64 *)(r10 - 16) = r4\nr3 = *(u64 *)(r1 + 0)
         {index}
         r2 = r10\nr2 += r3\nr0 = *(u8 *)(r2 - 16)\n*(u8 *)(r2 - 15) = 77\nr4 = *(u64 *)(r10 - 16)\nr0 += r4
         *(u64 *)(r1 + 8) = r0\nexit"
    )
}

#[test]
fn small() {
    for index in [
        "r3 &= 7",
        "w3 &= 6\nr3 += 1",
        "r3 = *(u8 *)(r1 + 1)\nr3 &= 3\nr3 <<= 2",
        "w3 >>= 29",
        "r3 >>= 61",
        "r3 %= 7",
        "r5 = *(u16 *)(r1 + 2)\nw5 &= 1\nr3 &= 4\nr3 |= r5",
        "if r3 > 3 goto many\nr3 = 1\ngoto on\nmany: r3 = 5\non: r5 = 0",
    ] {
        agree(&at(index));
    }
}

/// What the backend has single instructions for, that the verifier has to know.
#[test]
fn of_bits() {
    for index in [
        "r5 = *(u64 *)(r1 + 8)\nr5 ^= -1\nr3 &= 7\nr3 &= r5",
        "r5 = *(u32 *)(r1 + 8)\nw5 ^= -1\nw3 &= 7\nw3 &= w5",
        "r3 &= 7\nr5 = r3\nr5 -= 1\nr3 &= r5",
        "w3 &= 7\nw5 = w3\nw5 = -w5\nw3 &= w5",
        "r5 = *(u8 *)(r1 + 1)\nr4 = 1\nr4 <<= r5\nr4 -= 1\nr3 &= 7\nr3 &= r4",
        "r5 = *(u64 *)(r1 + 8)\nr5 >>= 62\nr3 &= 1\nr3 <<= 2\nr3 |= r5",
    ] {
        agree(&at(index));
    }
}

#[test]
fn of_any_size() {
    for index in ["r3 |= -8", "w3 |= -4\nr3 <<= 32\nr3 s>>= 32", "r3 &= 3\nr3 -= 3"] {
        agree(&at(index));
    }
}

#[test]
fn its_mutant_is_found() {
    assert!(is_found(FOLDING_MUTANT, &at("w3 |= -8")));
}
