//! Frame words that values of two widths share: variables, but for those that a load puts together of two stores.

use super::budgets::{agree, agree_with_each_budget, is_found, named, outcomes};
use super::{Backend, FUEL};
use crate::lower::{WORDS_MUTANT, stack_slots::MUTANT};

/// The word is narrow in one half of the loop's trips, and wide in the other.
#[test]
fn words_of_two_widths_have_their_values() {
    let halves = "r0 = 0\nr3 = 0\nagain: r4 = r3\nr4 *= -7\nif r3 & 1 goto narrow\n*(u64 *)(r10 - 8) = r4\nr5 = *(u64 *)(r10 - 8)\nr0 += r5
         goto on\nnarrow: *(u32 *)(r10 - 8) = r4\nr5 = *(u32 *)(r10 - 8)\nr0 ^= r5\non: r3 += 1\nif r3 < 9 goto again\nexit";
    agree(halves);
    agree_with_each_budget(halves, &[FUEL]);
    agree(
        "*(u64 *)(r10 - 8) = r1\nif r2 == 77 goto on\n*(u32 *)(r10 - 8) = 5\nr0 = *(u32 *)(r10 - 8)\nexit\non: r0 = *(u64 *)(r10 - 8)\nexit",
    );
}

#[test]
fn words_of_two_stores_stay_in_memory() {
    let pieced = "r0 = 0\n*(u64 *)(r10 - 8) = -1\nr3 = 0\nagain: r4 = *(u64 *)(r10 - 8)\nr0 *= 5\nr0 += r4\n*(u16 *)(r10 - 8) = r3\nr3 += 1
         if r3 < 9 goto again\nexit";
    agree(pieced);
    agree_with_each_budget(pieced, &[FUEL]);
    assert!(is_found(MUTANT, pieced));
}

/// The interpreter finds each word where the function's frame has it, wherever the budget ends.
#[test]
fn words_are_given_to_the_interpreter() {
    let passed = "*(u64 *)(r10 - 16) = r1\n*(u64 *)(r10 - 8) = 77\nr0 = 0\nr3 = 0\nagain: r0 += r3\nr3 += 1\nif r3 < 9 goto again
         r4 = *(u64 *)(r10 - 8)\nr0 += r4\nr1 = *(u64 *)(r10 - 16)\n*(u64 *)(r1 + 0) = r0\nexit";
    agree_with_each_budget(passed, &[FUEL]);
    let [whole, mutant] = ["f0".into(), format!("__fault_{WORDS_MUTANT}")]
        .map(|name| outcomes(&named(&name, passed), Backend::Compiled(FUEL)));
    assert_ne!(whole, mutant);
}
