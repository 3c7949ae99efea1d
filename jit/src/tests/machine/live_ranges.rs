//! Many values that live through a loop and are used in it: live-range splitting, and frame words of two widths.

use std::fmt::Write as _;

use super::FUEL;
use super::budgets::{agree, agree_with_each_budget, is_found};
use crate::lower::stack_slots::MUTANT as PIECED_MUTANT;
use crate::opt::SPLITTING_MUTANT;

/// Words of the frame that are live at once.
const WORDS: i32 = 16;

/// Two loops in which words of the frame, all live to the end, are used: the same ones, at different places.
fn crowded() -> String {
    let mut text = String::from("r0 = 0\n");
    for word in 1..=WORDS {
        writeln!(text, "r4 = *(u64 *)(r1 + 0)\nr4 += 1\nr4 *= {}\n*(u64 *)(r10 - {}) = r4", 0x12345 + word, word * 8)
            .unwrap();
    }
    for (label, first) in [("one", 3), ("other", 7)] {
        let (a, b) = (first * 8, first * 8 + 16);
        write!(
            text,
            "r3 = 0\n{label}: r4 = *(u64 *)(r10 - {a})\nr0 += r4\nr0 ^= r3\nr4 = *(u64 *)(r10 - {b})\nr0 *= r4\n*(u64 *)(r1 + 8) = r0\nr3 += 1
             if r3 < 9 goto {label}\n"
        )
        .unwrap();
    }
    for word in 1..=WORDS {
        writeln!(text, "r4 = *(u64 *)(r10 - {})\nr0 *= 31\nr0 += r4", word * 8).unwrap();
    }
    text + "exit"
}

#[test]
fn split_ranges_have_their_values() {
    let text = crowded();
    agree(&text);
    agree_with_each_budget(&text, &[FUEL]);
    assert!(is_found(SPLITTING_MUTANT, &text));
}

/// The word is narrow on one path and in one half of the loop's trips, wide otherwise.
#[test]
fn words_of_two_widths_have_their_values() {
    let text = "r0 = 0\nr3 = 0\nagain: r4 = r3\nr4 *= -7\nif r3 & 1 goto narrow\n*(u64 *)(r10 - 8) = r4\nr5 = *(u64 *)(r10 - 8)\nr0 += r5
         goto on\nnarrow: *(u32 *)(r10 - 8) = r4\nr5 = *(u32 *)(r10 - 8)\nr0 ^= r5\non: r3 += 1\nif r3 < 9 goto again\nexit";
    agree_with_each_budget(text, &[FUEL]);
    let pieced = "r0 = 0\n*(u64 *)(r10 - 8) = -1\nr3 = 0\nagain: r4 = *(u64 *)(r10 - 8)\nr0 *= 5\nr0 += r4\n*(u16 *)(r10 - 8) = r3\nr3 += 1
         if r3 < 9 goto again\nexit";
    agree_with_each_budget(pieced, &[FUEL]);
    assert!(is_found(PIECED_MUTANT, pieced));
    let unwritten =
        "if r2 == 77 goto on\n*(u64 *)(r10 - 8) = 1\non: *(u32 *)(r10 - 8) = 5\nr0 = *(u32 *)(r10 - 8)\nexit";
    agree(unwritten);
}
