//! Words of a frame whose address escapes: what is stored is forwarded to loads, until something else may have been written.

use super::budgets::{agree, is_found};
use crate::lower::forward::MUTANT;

/// A program that stores to the frame, does this, and adds up what words of the frame hold; r2 points to one of them.
fn around(work: &str) -> String {
    format!(
        "r2 = r10\nr2 += -16\nr3 = 0x1234567890abcdef ll\n*(u64 *)(r10 - 8) = r3\n*(u64 *)(r10 - 16) = r3\n*(u32 *)(r10 - 20) = r3
         {work}
         r0 = *(u64 *)(r10 - 16)\nr4 = *(u64 *)(r10 - 8)\nr0 ^= r4\nr4 = *(u32 *)(r10 - 20)\nr0 += r4\nr4 = *(s32 *)(r10 - 20)\nr0 ^= r4
         r4 = *(u8 *)(r10 - 13)\nr0 += r4\n*(u64 *)(r1 + 0) = r0\nexit"
    )
}

#[test]
fn stores_by_pointers() {
    for store in ["*(u64 *)(r2 + 0) = 7", "*(u8 *)(r2 + 3) = 7", "*(u32 *)(r2 + 6) = r2", "*(u32 *)(r2 - 4) = -9"] {
        agree(&around(store));
    }
    // By one that may lead elsewhere, on one of two paths, and by one that memory holds.
    agree(&around("if r1 & 8 goto on\nr2 = r1\non: *(u64 *)(r2 + 0) = 7"));
    agree(&around("if r1 & 8 goto on\n*(u64 *)(r2 + 0) = 7\non: r5 = 1"));
    agree(&around("*(u64 *)(r1 + 8) = r2\nr5 = *(u64 *)(r1 + 8)\n*(u16 *)(r5 + 1) = 7"));
}

#[test]
fn stores_to_parts_of_words() {
    for store in
        ["*(u8 *)(r10 - 9) = 7", "*(u64 *)(r10 - 12) = r3", "*(u32 *)(r10 - 16) = r2", "*(u64 *)(r10 - 24) = 5"]
    {
        agree(&around(store));
    }
}

#[test]
fn atomic_operations() {
    agree(&around("r5 = 9\nr5 = atomic_fetch_add((u64 *)(r10 - 16), r5)\nr5 ^= 1\n*(u64 *)(r1 + 8) = r5"));
    agree(&around("r5 = 9\nlock *(u32 *)(r2 + 4) += r5"));
    agree(&around("r5 = 9\nstore_release((u64 *)(r2 + 8), r5)\nr5 = load_acquire((u64 *)(r10 - 8))"));
}

#[test]
fn callees_write() {
    agree(&around("r6 = r1\nr1 = r2\ncall f\nr1 = r6").replace("exit", "exit\nf: *(u64 *)(r1 + 8) = 3\nr0 = 1\nexit"));
    let far = format!("exit\nf: *(u64 *)(r1 + 8) = 3\n{}r0 = 1\nexit", "r0 = r1\n".repeat(40));
    agree(&around("r6 = r1\nr1 = r2\ncall f\nr1 = r6").replace("exit", &far));
}

#[test]
fn loops() {
    agree(&around(
        "r5 = 0\nagain: *(u64 *)(r10 - 8) = r5\nr4 = *(u64 *)(r10 - 8)\nr4 <<= 3\nr2 = r10\nr2 += -32\nr2 += r4\n*(u64 *)(r2 + 0) = r5
         r4 = *(u64 *)(r10 - 8)\nr5 += r4\nr5 += 1\nif r5 < 3 goto again",
    ));
}

#[test]
fn its_mutant_is_found() {
    assert!(is_found(MUTANT, &around("*(u64 *)(r2 + 0) = 7")));
}
