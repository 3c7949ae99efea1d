//! Programs that end early: the same words, places and callers.

use super::*;

#[test]
fn bad_pointers() {
    let rig = Rig::new(
        "r6 = r1
         if r2 != 0 goto +3
         r1 = 16
         call f
         exit
         r2 = 0x7fff0000
         r1 += r2
         call f
         exit
         f: r2 = r1
         call g
         exit
         g: r3 = *(u32 *)(r2 + 8)
         r0 = r3
         exit",
    );
    let text = rig.agree(0);
    assert!(text.contains("a null pointer plus 24") && text.matches("called from").count() == 2, "{text}");
    assert!(rig.agree(1).contains("no memory there; nearest is"));
}

#[test]
fn a_store_to_nothing() {
    let rig = Rig::new("*(u64 *)(r1 + 0) = 1\nr2 = 0\n*(u16 *)(r2 + 4) = 7\nr0 = 0\nexit");
    assert!(rig.agree(0).contains("2-byte store to 0x4"));
}

/// What is left undone after a load that faults lies 250 sites further in the program, but next in the code.
fn far(near: &str, rest: &str) -> Rig {
    let mut text = format!("r6 = r1\nr4 = 0x7fff0000\nr6 += r4\nr5 = r2\nif r2 != 0 goto +3\n{near}\ngoto +251\n");
    text += &"*(u64 *)(r1 + 8) = r2\n".repeat(249);
    Rig::new(&(text + "r0 = 0\nexit\n" + rest))
}

#[test]
fn accesses_of_one_code_stay_apart() {
    let rig = far("r3 = *(u64 *)(r6 + 0)\nr3 += 1", "*(u64 *)(r6 + 0) = r3\nr0 = 0\nexit");
    assert!(rig.agree(0).contains("8-byte load"));
}

#[test]
fn a_load_is_done_where_it_stands() {
    let rig = far("r3 = *(u64 *)(r6 + 0)\nr7 = 1", "r5 += r3\n*(u64 *)(r1 + 8) = r5\nr0 = 0\nexit");
    assert!(rig.agree(0).contains("8-byte load"));
    let rig = far(
        "r3 = *(u64 *)(r6 + 0)\nr7 = 1",
        "r5 += r3\nr0 = r5\nif r5 == 7 goto +1\nexit\n*(u64 *)(r1 + 8) = r5\nexit",
    );
    assert!(rig.agree(0).contains("8-byte load"));
}

#[test]
fn misaligned_atomics() {
    let rig = Rig::new("r1 += 3\nr2 = 1\nlock *(u64 *)(r1 + 8) += r2\nr0 = 0\nexit");
    assert!(rig.agree(0).contains("which is not a multiple of 8"));
}

#[test]
fn endless_recursion() {
    let mut rig = Rig::new("call f\nexit\nf: r1 += 1\ncall f\nr0 = 0\nexit");
    assert!(rig.agree(0).contains("the limit is 1024"));
    rig.limits.max_depth = 7;
    assert!(rig.agree(0).contains("the limit is 7"));
    rig.limits.stack_bytes = 512 * 5 + 100;
    assert!(rig.agree(0).contains("the limit is 2660"));
    rig.limits.max_depth = 1;
    assert!(rig.agree(0).contains("the call of f2 is one too many, the limit is 1"));
    rig.limits.stack_bytes = 100;
    assert!(rig.agree(0).contains("stack bytes exceeded"));
}

/// Functions that a callback has called, innermost first, whatever ran on their stack since.
#[test]
fn callers_inside_callbacks_are_told() {
    let chain: String = (0..9)
        .map(|index| format!("f{index}: *(u64 *)(r10 - 8) = {index}\n call f{}\n r0 += {index}\n exit\n", index + 1))
        .collect();
    for last in ["r0 = *(u64 *)(r10 - 8)\n r1 = 1\n r0 = *(u64 *)(r1 + 0)", "r1 = 0\n call extern(2)", "call extern(4)"]
    {
        let text = format!(
            "r1 = func(f0) ll\n r2 = 5\n call extern(1)\n exit
             {chain} f9: *(u64 *)(r10 - 8) = r1\n {last}\n r0 += 1\n exit"
        );
        let text = Rig::new(&text).agree(0);
        assert_eq!(text.matches("called from").count(), 10, "{text}");
    }
    // Recursion until there is no room.
    let text = "r1 = func(f) ll\n r2 = 5\n call extern(1)\n exit\n f: *(u64 *)(r10 - 8) = r1\n call f\n exit";
    for max_depth in [3, 40] {
        let rig = Rig { limits: Limits { max_depth, ..Limits::default() }, ..Rig::new(text) };
        let text = rig.agree(0);
        assert!(text.contains(&format!("one too many, the limit is {max_depth}")), "{text}");
    }
}

#[test]
fn recursion_through_pointers_and_callbacks() {
    let rig = Rig::new("call f\nexit\nf: r6 = func(f) ll\ncallx r6\nexit");
    assert!(rig.agree(0).contains("the limit is 1024"));
    let mut rig = Rig::new("call f\nexit\nf: call g\nexit\ng: r1 = func(f) ll\ncall extern(1)\nexit");
    rig.limits.max_depth = 60;
    assert!(rig.agree(0).contains("the limit is 60"));
}

#[test]
fn host_functions_that_fail() {
    let rig = Rig::new("r1 = r2\ncall f\nexit\nf: call extern(2)\nr0 += 1\nexit");
    assert!(rig.agree(0).starts_with("host function failed: as asked"));
    assert!(rig.agree(1).starts_with("exit() called"));
    assert!(rig.agree(2).starts_with("host function panicked: end: as asked: 2"));
    assert!(rig.agree(3).starts_with("0x4"));
    let rig =
        Rig::new("r1 = r2\nr2 = func(f) ll\nr3 = r1\nr1 = r2\nr2 = r3\ncall extern(1)\nexit\nf: call extern(2)\nexit");
    assert!(rig.agree(2).starts_with("host function panicked: end: as asked: 2"));
    let rig = Rig::new("call f\nexit\nf: call extern(4)\nexit");
    assert!(rig.agree(0).contains("missing is weak"));
}

#[test]
fn interrupts_are_seen_after_host_functions() {
    let rig = Rig::new("call f\nexit\nf: call extern(3)\ncall extern(3)\nr0 = 0\nexit");
    assert!(rig.agree(0).starts_with("the call was cancelled"));
}

#[test]
fn calls_that_must_not_return() {
    let rig = Rig::new("call f\nexit\ng: r0 = 0\nexit\nf: call g");
    assert!(rig.agree(0).contains("was not expected to return"));
    let rig = Rig::new("call f\nexit\nf: r1 = 1\nr2 = 2\ncall extern(0)");
    assert!(rig.agree(0).contains("was not expected to return"));
}

#[test]
fn budgets_end_at_the_same_instruction() {
    let mut rig = Rig::with(&[
        "r6 = r1
         r7 = 5
         r1 = r7
         r2 = 3
         call extern(0)
         r1 = r0
         call f
         *(u64 *)(r6 + 0) = r0
         r7 += -1
         if r7 != 0 goto -8
         r1 = func(f) ll
         r2 = 4
         call extern(1)
         r1 = r6
         r2 = map_fd(0) ll
         r3 = 1
         call 12
         exit
         f: r0 = 0
         r0 += r1
         r1 += -1
         if r1 > 0 goto -3
         exit",
        "r0 = 0\nr0 += 1\nif r0 < 20 goto -2\nexit",
    ]);
    for budget in 1..400 {
        rig.limits.max_insns = Some(budget);
        let expected = rig.run(Backend::Interpreter, 0);
        for backend in
            [Backend::Compiled(FUEL), Backend::Program(0, FUEL), Backend::Program(1, FUEL), Backend::Compiled(OPTIONS)]
        {
            assert_eq!(rig.run(backend, 0), expected, "{budget} {backend:?}");
        }
    }
}

/// Loops that count, up and down, to bounds near which numbers wrap: with any budget they do what the interpreter does.
#[test]
fn loops_end_at_the_same_instruction() {
    for width in ["r", "w"] {
        for (body, branch) in [
            ("{w}7 += 1", "if {w}7 < {w}8 goto -3"),
            ("{w}7 += 3", "if {w}7 < {w}8 goto -3"),
            ("{w}7 += 16", "if {w}8 > {w}7 goto -3"),
            ("{w}7 += {w}9", "if {w}7 < {w}8 goto -3"),
            ("{w}7 += 1", "if {w}7 != {w}8 goto -3"),
            ("{w}7 += -1", "if {w}8 != {w}7 goto -3"),
            ("{w}7 += 12", "if {w}7 != {w}8 goto -3"),
            ("{w}7 += -6", "if {w}7 != {w}8 goto -3"),
            ("{w}7 += 8", "if {w}7 == {w}8 goto +1\ngoto -4"),
            ("{w}7 += 2", "if {w}7 >= {w}8 goto +1\ngoto -4"),
            ("{w}7 += 5", "if {w}8 <= {w}7 goto +1\ngoto -4"),
        ] {
            let code = format!("r6 = 0\nr7 = r1\n{body}\nr6 += 1\n{branch}\nr0 = r6\nr0 ^= r7\nexit");
            loops(
                &code.replace("{w}8", &format!("{width}2")).replace("{w}9", &format!("{width}3")).replace("{w}", width),
            );
        }
    }
}

#[test]
fn each_run_has_the_whole_budget() {
    let code = "r6 = r2\nr7 = 0\nif r6 == 0 goto +6\nr1 = r7\nr2 = r6\ncall extern(0)\nr7 = r0\nr6 += -1\nif r6 != 0 goto -6\nr0 = r7\nexit";
    for code in [
        code.to_owned(),
        code.replace("call extern(0)", "r0 = r7\nr0 += r6").replace("goto +6", "goto +7").replace("goto -6", "goto -7"),
    ] {
        let mut rig = Rig::new(&code);
        rig.limits.max_insns = Some(100);
        let mut machines = [rig.machine(Backend::Interpreter), rig.machine(Backend::Compiled(FUEL))];
        for turns in [3, 2, 1000, 3, 0, 10, 1000, 1000, 11, 12, 13, 14, 15, 16, 1] {
            let [expected, found] = machines.each_mut().map(|machine| match machine.run(0, [0, turns, 0, 0, 0]) {
                Ok(r0) => format!("{r0:#x}, {} insns", machine.insns_executed()),
                Err(trap) => format!("{trap:#}"),
            });
            assert_eq!(found, expected, "{turns} turns");
        }
    }
}

/// Bounds before, at and after each start; a step that is 0 among those in registers.
fn loops(code: &str) {
    let rig = Rig::new(code);
    let mut machines = [rig.machine(Backend::Interpreter), rig.machine(Backend::Compiled(FUEL))];
    for start in [0, 1, 7, 0x7fff_ffff, 0x8000_0000, 0xffff_fff0, u64::MAX - 40, u64::MAX] {
        for ahead in [0u64, 1, 2, 24, 25, 48, 96, 0x1_0000_0018, u64::MAX, 24u64.wrapping_neg()] {
            for (step, budget) in
                (0..3).flat_map(|step| [4, 5, 6, 7, 8, 77, 78, 79, 80, 81, 500].map(|all| (step, all)))
            {
                let [expected, found] = machines.each_mut().map(|machine| {
                    machine.set_limits(Limits { max_insns: Some(budget), ..rig.limits });
                    match machine.run(0, [start, start.wrapping_add(ahead), step * 5, 0, 0]) {
                        Ok(r0) => format!("{r0:#x}, {} insns", machine.insns_executed()),
                        Err(trap) => format!("{trap:#}"),
                    }
                });
                assert_eq!(found, expected, "{code}\nfrom {start:#x}, {ahead:#x} ahead, step {step}, {budget} insns");
            }
        }
    }
}
