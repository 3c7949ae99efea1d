//! `bpf_loop` as a loop gives what the helper gives.

use super::*;

/// Calls `f` back `r1` times, as the argument chooses among these: `(r1, r4)`.
const ROUNDS: [(i64, i32); 9] =
    [(0, 0), (1, 0), (3, 0), (1 << 32 | 2, 0), (8 << 20 | 1, 0), (-1, 0), (3, 1), (0, -1), (8 << 20 | 1, 2)];

/// A program that calls `f` back with the address of a sum at r10 - 8; r0 and the sum go to the memory.
fn looped((rounds, flags): (i64, i32), f: &str) -> String {
    format!(
        "r6 = r1
         *(u64 *)(r10 - 8) = 0
         r1 = {rounds} ll
         r2 = func(f) ll
         r3 = r10
         r3 += -8
         r4 = {flags}
         call 181
         *(u64 *)(r6 + 0) = r0
         r1 = *(u64 *)(r10 - 8)
         r0 <<= 32
         r0 |= r1
         exit
         f: {f}
         exit"
    )
}

/// Adds index + 1 to the sum.
const ADD: &str = "r3 = *(u64 *)(r2 + 0)\n r3 += r1\n r3 += 1\n *(u64 *)(r2 + 0) = r3\n r0 = 0";

#[test]
fn rounds_and_flags_are_the_helpers() {
    let results = ROUNDS.map(|how| Rig::new(&looped(how, ADD)).agree(0));
    let [none, one, three, lower, many, ..] = results.each_ref().map(|text| text.split(',').next().unwrap_or_default());
    assert_eq!([none, one, three, lower], ["0x0", "0x100000001", "0x300000006", "0x200000003"]);
    assert_eq!(many, "0xfffffff900000000", "E2BIG");
    assert!(results[6].starts_with("0xffffffea00000000"), "EINVAL: {}", results[6]);
}

#[test]
fn a_callback_ends_the_loop() {
    for (result, calls) in [("r0 = r1\n r0 &= 2", 3), ("r0 = 1", 1), ("r0 = 1\n r0 <<= 40", 1), ("r0 = 0", 5)] {
        let text = Rig::new(&looped((5, 0), &format!("{ADD}\n {result}"))).agree(0);
        assert_eq!(text.split("00000").next(), Some(&*format!("0x{calls}")), "{text}");
    }
}

#[test]
fn callbacks_find_index_and_context_only() {
    for register in [3, 4, 5] {
        let zero = Rig::new(&looped((2, 0), &format!("*(u64 *)(r2 + 0) = r{register}\n r0 = 0"))).agree(0);
        assert!(zero.starts_with("0x200000000,"), "r{register}: {zero}");
    }
    // What no callback has: the helper says what it finds.
    for register in [0, 6, 9] {
        Rig::new(&looped((2, 0), &format!("*(u64 *)(r2 + 0) = r{register}\n r0 = 0"))).agree(0);
    }
    // Registers of the caller stay.
    let kept = looped((2, 0), &format!("r6 = 9\n r7 = 9\n {ADD}"));
    assert!(Rig::new(&kept).agree(0).starts_with("0x200000003, memory 2"));
}

#[test]
fn traps_of_callbacks_say_where() {
    let text = Rig::new(&looped((9, 0), "if r1 != 3 goto +1\n *(u64 *)(r1 + 0) = 1\n r0 = 0")).agree(0);
    assert!(text.contains("called from t.bpf.o: program f0, insn 9: call 181 (bpf_loop)"), "{text}");
    for how in [0, 1, 2] {
        Rig::new(&looped((9, 0), &format!("r1 = {how}\n call extern(2)\n r0 = 0"))).agree(0);
    }
    Rig::new(&looped((9, 0), "call extern(3)\n r0 = 0")).agree(0);
}

/// Calls itself back, in the way of `inner`, as deep as it can.
fn nested(inner: &str) -> String {
    format!(
        "f: r1 = 1
         r3 = r2
         r2 = func({inner}) ll
         r4 = 0
         call 181
         exit
         g: r1 = func(f) ll
         r2 = 0
         call extern(1)
         exit"
    )
}

#[test]
fn callbacks_nest_as_deep_as_the_helpers() {
    for inner in ["f", "g"] {
        let rig = Rig::new(&nested(inner));
        assert!(rig.agree(0).contains("more than 128 host functions call back inside each other"), "{inner}");
        for max_depth in [1, 2, 3, 7] {
            let rig = Rig { limits: Limits { max_depth, ..Limits::default() }, ..Rig::new(&nested(inner)) };
            let text = rig.agree(0);
            assert!(text.contains(&format!("one too many, the limit is {max_depth}")), "{text}");
        }
    }
}

#[test]
fn no_rounds_need_no_room() {
    let limits = Limits { max_depth: 1, ..Limits::default() };
    let rig = Rig { limits, ..Rig::new(&looped((0, 0), ADD)) };
    assert!(rig.agree(0).starts_with("0x0,"));
    let rig = Rig { limits, ..Rig::new(&looped((1, 0), ADD)) };
    assert!(rig.agree(0).contains("is one too many, the limit is 1"));
}

#[test]
fn callbacks_call_and_are_replaced() {
    let text = looped((3, 0), "r6 = r2\n call 8\n r2 = r6\n r1 = r0\n call g\n r0 = 0");
    let text = format!("{text}\n g: {ADD}\n exit");
    assert!(Rig::new(&text).agree(0).starts_with("0x300000009,"));
    let replaced = looped((3, 0), "r1 = r2\n r2 = map_fd(0) ll\n r3 = 1\n call 12\n r0 = 0");
    let rig = Rig::with(&[&replaced, "*(u64 *)(r1 + 0) = 5\n r0 = 0\n exit"]);
    assert!(rig.agree(0).starts_with("0x300000005,"));
}

#[test]
fn every_budget_ends_loops_alike() {
    let text = looped((4, 0), ADD);
    for insns in 0..60 {
        let limits = Limits { max_insns: Some(insns), ..Limits::default() };
        let rig = Rig { limits, ..Rig::new(&text) };
        let expected = rig.run(Backend::Interpreter, 0);
        for backend in [Backend::Compiled(FUEL), Backend::Program(0, FUEL), Backend::Hot(FUEL)] {
            assert_eq!(rig.run(backend, 0), expected, "{backend:?} with {insns}");
        }
    }
}
