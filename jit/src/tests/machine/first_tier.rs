//! Code of the first tier hands loops over to better code, and is replaced.

use super::*;

/// Turns that a loop takes before it hands over.
const TURNS: u64 = 1 << 14;

/// Nested loops with values in registers, in the frame and in memory, and a `may_goto` in the inner one.
const NESTED: &str = "r6 = r1
    r7 = 0
    r8 = 0
    *(u64 *)(r10 - 8) = 7
    outer: r9 = 0
    inner: may_goto +1
    goto +1
    goto out
    r3 = *(u64 *)(r10 - 8)
    r3 *= 5
    r3 += r9
    *(u64 *)(r10 - 8) = r3
    r4 = *(u64 *)(r10 - 8)
    r4 ^= r3
    *(u64 *)(r10 - 8) = r3
    r8 += r4
    r4 = *(u64 *)(r10 - 8)
    *(u64 *)(r10 - 8) = r4
    r8 += r3
    w8 ^= w7
    r9 += 1
    if r9 < 3 goto inner
    r7 += 1
    if r7 < r2 goto outer
    out: *(u64 *)(r6 + 0) = r8
    r0 = *(u64 *)(r10 - 8)
    exit";

#[test]
fn loops_go_on_in_better_code() {
    let rig = Rig::new(NESTED);
    for turns in [1, 100, TURNS / 3, TURNS, 3 * TURNS + 1, 40_000] {
        rig.agree(turns);
    }
}

/// The budget of `may_goto` is the frame's, whichever code runs.
#[test]
fn turns_of_may_goto_count() {
    let rig = Rig::new("r0 = 0\n again: may_goto +2\n r0 += 1\n goto again\n exit");
    for backend in [Backend::FirstTier(OPTIONS), Backend::FirstTier(FUEL), Backend::Interpreter] {
        assert_eq!(rig.run(backend, 0), format!("{:#x}, memory 0, 0 insns", 8 << 20), "{backend:?}");
    }
}

/// Loops of functions that others call, of which the machine hands over each.
#[test]
fn callers_wait_for_what_is_handed_over() {
    let rig = Rig::new(
        "r6 = r1
         r7 = r2
         r8 = 0
         again: r1 = r7
         call f
         r8 += r0
         r7 += -1
         if r7 > 3 goto again
         *(u64 *)(r6 + 0) = r8
         r0 = r8
         exit
         f: r0 = 0
         r2 = 0
         turn: r0 += r2
         r2 += 1
         r3 = r1
         r3 *= 100
         if r2 < r3 goto turn
         exit",
    );
    [5, 50, 200].into_iter().for_each(|argument| drop(rig.agree(argument)));
}

#[test]
fn traps_after_a_hand_over_say_where() {
    let text = "r0 = 0
        call f
        exit
        f: r3 = 0
        turn: r3 += 1
        r4 = r1
        r4 += r3
        *(u8 *)(r4 + 0) = 1
        r3 &= 2047
        r0 += 1
        if r0 < r2 goto turn
        r1 = 3
        *(u8 *)(r1 + 0) = 1
        exit";
    let rig = Rig::new(text);
    for turns in [10, 9000] {
        let text = rig.agree(turns);
        assert!(text.contains("null pointer plus 3") && text.contains("called from t.bpf.o"), "{text}");
    }
}

/// A loop that is entered at its condition, and one that goes back to a block before it.
const ENTERED_INSIDE: [&str; 2] = [
    "r0 = 0
     goto cond
     body: r0 += 3
     r3 = *(u64 *)(r1 + 0)
     r0 += r3
     cond: r2 += -1
     if r2 s> 0 goto body
     exit",
    "r0 = 0
     r6 = 0
     goto on
     shared: r0 += 7
     goto back
     on: r6 += 1
     r0 += r6
     if r6 > r2 goto out
     goto shared
     back: goto on
     out: exit",
];

#[test]
fn budgets_end_in_loops_of_any_shape() {
    for text in ENTERED_INSIDE {
        for insns in (0..90).chain([100_000]) {
            let limits = Limits { max_insns: Some(insns), ..Limits::default() };
            let rig = Rig { limits, ..Rig::new(text) };
            let expected = rig.run(Backend::Interpreter, 9);
            for turns in [0, 1, 5] {
                let mut machine = rig.machine(Backend::FirstTier(FUEL));
                machine.hand_over_after(turns);
                assert_eq!(rig.run_on(&mut machine, 9), expected, "{insns} {turns}");
            }
        }
        [3, 20_000].into_iter().for_each(|argument| drop(Rig::new(text).agree(argument)));
    }
}

#[test]
fn budgets_end_where_they_end() {
    let rig = |insns| Rig { limits: Limits { max_insns: Some(insns), ..Limits::default() }, ..Rig::new(NESTED) };
    for insns in (0..40).chain(60_000..60_040).chain([100_000, 200_000, 1_000_000]) {
        let rig = rig(insns);
        assert_eq!(rig.run(Backend::FirstTier(FUEL), 20_000), rig.run(Backend::Interpreter, 20_000), "{insns}");
    }
}

#[test]
fn callbacks_of_bpf_loop_hand_over() {
    let rig = Rig::new(
        "r6 = r2
         *(u64 *)(r10 - 8) = 0
         r1 = 5
         r2 = func(f) ll
         r3 = r10
         r3 += -8
         r4 = 0
         call 181
         r0 = *(u64 *)(r10 - 8)
         exit
         f: r3 = r1
         turn: r4 = *(u64 *)(r2 + 0)
         r4 += r3
         *(u64 *)(r2 + 0) = r4
         r3 += 1
         if r3 < 10000 goto turn
         r0 = 0
         exit",
    );
    rig.agree(0);
}

/// Loops in callbacks, in functions called by address, and in what host functions call.
#[test]
fn callbacks_hand_over() {
    for call in ["call extern(1)", "r3 = r1\n r1 = r2\n callx r3"] {
        let rig = Rig::new(&format!(
            "r1 = func(f) ll
             {call}
             exit
             f: r0 = 0
             turn: r0 += r1
             r1 += -1
             if r1 != 0 goto turn
             exit"
        ));
        [3, 5000, 20_000].into_iter().for_each(|argument| drop(rig.agree(argument)));
    }
}

#[test]
fn better_code_replaces_the_first_tier() {
    let rig = Rig::new("r0 = r1\n r0 = 4\n exit");
    let code = Code::new(Arc::clone(&rig.image), OPTIONS).unwrap();
    code.compile_first_tier(0).unwrap();
    let first = code.entry(0).unwrap();
    assert!(!code.is_final(0));
    code.compile_program(0).unwrap();
    let stays = code.entry(0).unwrap();
    assert!(code.is_final(0) && stays != first);
    code.compile_first_tier(0).unwrap();
    assert_eq!(code.entry(0), Some(stays));
    // A machine may still be in either.
    for address in [first, stays] {
        let inside = (address..address + 64).find_map(|address| code.site(address));
        assert!(inside.is_some(), "{address:#x}");
    }
    let plain = Code::new(Arc::clone(&rig.image), Options { opt: OptLevel::None, ..OPTIONS }).unwrap();
    plain.compile_first_tier(0).unwrap();
    assert!(plain.is_final(0), "without an optimiser there is nothing better");
}
