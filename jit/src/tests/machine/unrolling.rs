//! Loops that are unrolled, and those that are not: results, traps in copies, budgets.

use super::budgets::{agree, agree_with_each_budget, is_found};
use super::*;
use crate::lower::UNROLLING_MUTANT;
use crate::opt::HOISTING_MUTANT;

/// How often the code of a program has this constant, which a loop of it multiplies by.
fn copies(text: &str, options: Options) -> usize {
    let listing = Code::new(Arc::clone(&Rig::new(text).image), options).unwrap().disassemble(0).unwrap();
    listing.text.lines().filter(|line| !line.starts_with(';') && line.contains("0x1234567")).count()
}

/// A loop with this body, which counts r3 down from r2.
fn counting(body: &str) -> String {
    format!(
        "r0 = 1\nr3 = r2\nagain: r0 *= 0x1234567\n*(u64 *)(r1 + 8) = r0\n{body}\nr3 += -1\nif r3 s> 0 goto again\n*(u64 *)(r1 + 0) = r0\nexit"
    )
}

#[test]
fn short_loops_are_unrolled() {
    // In a function that may grow by more than any of the loops has.
    let copies_in_long = |insns, options| {
        copies(&format!("{}{}", "r5 += r2\n".repeat(256), counting(&"r0 ^= r3\n".repeat(insns))), options)
    };
    for options in [OPTIONS, FUEL] {
        assert_eq!(copies(&counting("r0 += r3"), options), 4);
        assert_eq!(copies(&counting(&"r0 ^= r3\n".repeat(21)), options), 2);
        assert_eq!(copies_in_long(21, options), 3);
        assert_eq!(copies_in_long(59, options), 2);
        assert_eq!(copies_in_long(71, options), 1);
    }
    let none = Options { opt: OptLevel::None, ..OPTIONS };
    assert_eq!(copies(&counting("r0 += r3"), none), 1);
}

#[test]
fn each_trip_count_gives_the_same() {
    let text = counting("r0 += r3\nif r0 & 4 goto even\nr0 ^= 5\neven: *(u8 *)(r1 + 9) = r0");
    for trips in 0..13 {
        Rig::new(&text).agree(trips);
        agree_with_each_budget(&text.replace("r3 = r2", &format!("r3 = {trips}")), &[FUEL]);
    }
}

#[test]
fn several_exits_and_latches() {
    agree(
        "r0 = 0\nr3 = 0\nagain: r3 += 1\nif r3 == 7 goto left\nif r3 & 1 goto again\nr0 += r3\nif r0 > 90 goto right
         if r3 < 30 goto again\nleft: r0 += 100\nright: *(u64 *)(r1 + 0) = r3\nexit",
    );
    agree("r3 = 9\nagain: r3 += -1\nr4 = r3\nr4 &= 3\nif r4 == 2 goto again\nif r3 s> -5 goto again\nr0 = r3\nexit");
}

#[test]
fn nested_loops() {
    agree(
        "r0 = 0\nr6 = 0\nouter: r3 = 0\ninner: r0 += r3\nr3 += 1\nif r3 < 3 goto inner\nr6 += 1\nif r6 < 5 goto outer
         other: r0 ^= r6\nr6 += -1\nif r6 != 0 goto other\n*(u64 *)(r1 + 0) = r0\nexit",
    );
}

/// The entry is the loop's header.
#[test]
fn a_loop_at_the_start() {
    agree("again: r2 += 3\nif r2 < 40 goto again\nr0 = r2\nexit");
}

/// A jump into the middle of a loop: it has two entries, so a copy of its middle is one of its header's successors only.
#[test]
fn a_loop_with_two_entries() {
    agree(
        "r0 = 0\nr3 = 12\nif r2 & 1 goto middle\nagain: r0 += 5\nr3 += -1\nmiddle: r0 ^= r3\nr3 += -1\nif r3 s> 0 goto again
         *(u64 *)(r1 + 0) = r0\nexit",
    );
}

#[test]
fn loops_with_calls() {
    let text = "r6 = 4\nagain: r1 = r6\nr1 *= 0x1234567\ncall f\nr6 += -1\nif r6 != 0 goto again\nexit
         f: *(u64 *)(r10 - 8) = r1\nr2 = r10\nr0 = *(u64 *)(r2 - 8)\nexit";
    assert_eq!(copies(text, FUEL), 1);
    agree(text);
    // An inlined call is none.
    agree(
        "r6 = 9\nr0 = 0\nagain: r1 = r6\ncall f\nr6 += -1\nif r6 != 0 goto again\nexit\nf: if r1 & 1 goto odd\nr0 = r1\nr0 += 7\nexit\nodd: r0 = 4\nexit",
    );
}

/// The frame's words are variables; another is read through a pointer.
#[test]
fn frames_and_may_goto() {
    agree(
        "*(u64 *)(r10 - 8) = 3\nr3 = 0\nagain: r4 = *(u64 *)(r10 - 8)\nr4 *= 5\n*(u64 *)(r10 - 8) = r4\nr3 += 1
         if r3 < 9 goto again\nr0 = *(u64 *)(r10 - 8)\nexit",
    );
    agree("r0 = 0\nr3 = 0\nagain: r3 += 1\nmay_goto left\nr0 += r3\nif r3 < 11 goto again\nleft: exit");
}

/// The n-th iteration reads what is not there, before or after the budget ends.
#[test]
fn traps_in_copies_name_the_instruction() {
    for last in [0, 1, 2, 3, 4, 6, 9] {
        let text = format!(
            "r6 = 0\nr0 = 0\nagain: r0 += 3\n*(u64 *)(r1 + 0) = r0\nif r6 != {last} goto on\nr1 = 8\non: r4 = *(u64 *)(r1 + 0)
             r0 ^= r4\nr6 += 1\nif r6 < 20 goto again\nexit"
        );
        let mut rig = Rig::new(&text);
        rig.agree(0);
        for budget in (0..90).step_by(3) {
            rig.limits.max_insns = Some(budget);
            assert_eq!(rig.run(Backend::Compiled(FUEL), 0), rig.run(Backend::Interpreter, 0), "{last}, {budget}");
        }
    }
}

#[test]
fn mutants_are_found() {
    let sum = "r0 = 0\nr3 = 0\nagain: r0 += r3\nr3 += 1\nif r3 != 9 goto again\nexit";
    assert!(is_found(UNROLLING_MUTANT, sum));
    // Too long to be unrolled: the exit has one predecessor.
    let exits = format!(
        "r0 = 0\nr3 = 0\nagain: r4 = *(u64 *)(r1 + 0)\nr3 += 1\nif r3 == 5 goto left\nr4 += 100\nr0 ^= r4\n{}
         if r3 < 20 goto again\nexit\nleft: r4 += 200\nr0 ^= r4\nexit",
        "*(u64 *)(r1 + 8) = r0\n".repeat(64)
    );
    assert!(is_found(HOISTING_MUTANT, &exits));
    agree(&exits);
}
