//! Calls of small leaf functions, which are inlined: values, traps with their callers, budgets.

use twinbpf_vm::interp::Limits;

use super::budgets::{agree_with_each_budget, named};
use super::*;
use crate::lower::inlining::{CALLEE_REGISTERS, UNPAID};

/// Modes in which code counts.
const COUNTED: [Options; 3] =
    [FUEL, Options { memory: Memory::Strict, ..FUEL }, Options { keep_registers: true, ..FUEL }];

/// Whether the program's first function calls something.
#[track_caller]
fn calls(text: &str) -> bool {
    let listing = Code::new(Arc::clone(&Rig::new(text).image), OPTIONS).unwrap().disassemble(0).unwrap();
    listing.text.lines().any(|line| !line.starts_with(';') && line.contains("call"))
}

#[test]
fn results_and_arguments() {
    let text = "r6 = 1000
         r7 = r2
         r1 = 1
         r3 = 300
         r4 = 4000
         r5 = 50000
         call f
         r0 += r6
         r0 += r7
         exit
         f: r0 = r1
         r0 += r2
         w0 += w3
         r0 += r4
         r0 += r5
         exit";
    assert!(!calls(text));
    assert_eq!(Rig::new(text).agree(20), "0xd82d, memory 0, 0 insns");
}

/// What a program finds in registers after a call, and the callee in those of its caller.
#[test]
fn registers_across_calls() {
    for register in 0..10 {
        let text = format!(
            "r0 = 10\n w6 = w2\n w6 += 5\n r7 = 17\n r7 += r2\n r8 = r1\n r8 += 8\n r9 = 19\n call f\n *(u64 *)(r8 + 0) = r6
             r0 = r{register}\n exit\n f: r0 += r{register}\n r7 = 3\n r8 = r0\n w9 = w8\n r1 = 5\n r2 += r9\n r6 += r2\n r0 += r6\n exit"
        );
        assert!(!calls(&text));
        let rig = Rig::new(&text);
        rig.agree(3);
        rig.agree(u64::MAX - 2);
    }
}

#[test]
fn forward_branches() {
    let text = "r6 = r1
         r7 = r2
         r8 = 0
         again: r1 = r7
         r2 = r8
         call f
         r8 += r0
         r1 = r8
         r2 = 7
         call f
         r8 ^= r0
         r7 += -1
         if r7 s> 0 goto again
         *(u64 *)(r6 + 0) = r8
         r0 = r8
         exit
         f: if r1 & 1 goto odd
         r0 = r1
         r0 *= r2
         if w0 s< 50 goto small
         r0 -= 9
         exit
         small: r0 += 3
         goto end
         odd: r7 = r2
         r7 /= r1
         r0 = r7
         w6 = 8
         end: r0 += 1
         exit";
    assert!(!calls(text));
    let rig = Rig::new(text);
    (0..12).for_each(|argument| _ = rig.agree(argument));
}

#[test]
fn memory_of_the_caller() {
    let text = "*(u64 *)(r10 - 8) = 77
         *(u32 *)(r10 - 16) = 5
         r6 = r1
         r1 = r10
         r1 += -8
         r2 = r6
         call f
         r0 = *(u64 *)(r10 - 8)
         r1 = *(u32 *)(r10 - 16)
         r0 += r1
         exit
         f: r0 = *(u64 *)(r1 + 0)
         *(u64 *)(r1 + 0) = 9
         *(u64 *)(r2 + 24) = r0
         lock *(u64 *)(r2 + 24) += r1
         r0 = 0
         lock *(u64 *)(r2 + 24) &= r0
         *(u8 *)(r2 + 24) = 44
         exit";
    assert!(!calls(text));
    assert_eq!(Rig::new(text).agree(0), "0xe, memory 44, 0 insns");
}

/// A bad access in a callee, in its first block or another, at some call of several.
#[test]
fn traps_name_the_callee_and_its_callers() {
    let text = "r6 = r1
         r7 = r2
         call outer
         exit
         outer: r1 = r6
         r2 = 8
         call f
         r1 = r6
         r2 = 24
         if r7 != 1 goto +1
         r1 = 0
         call f
         r0 += 5
         if r7 != 2 goto +2
         r1 = 3
         call g
         r1 = r6
         if r7 != 3 goto +2
         r1 += 3
         call h
         exit
         f: r1 += r2
         r0 = *(u64 *)(r1 + 0)
         exit
         g: if r1 == 0 goto +2
         r3 = r1
         *(u16 *)(r3 + 4) = 7
         r0 = 0
         exit
         h: r2 = 1
         lock *(u64 *)(r1 + 8) += r2
         r0 = 0
         exit";
    let rig = Rig::new(text);
    assert_eq!(rig.agree(0), "0x5, memory 0, 0 insns");
    for (argument, what) in [(1, "a null pointer plus 24"), (2, "2-byte store"), (3, "not a multiple of 8")] {
        let text = rig.agree(argument);
        assert!(text.contains(what) && text.matches("called from").count() == 2, "{text}");
    }
}

/// 300 sites, of which several have the same trap code, in callees that are inlined again and again.
#[test]
fn sites_of_one_callee_stay_apart() {
    // A function may grow as far as it is long.
    let mut text = "r6 = r1\nr7 = r2\nr8 = 0x7fff0000\n".to_owned() + &"r0 = 1\n".repeat(160);
    for call in 0..36 {
        text += &format!("r1 = r6\nif r7 != {call} goto +1\nr1 += r8\nr2 = {call}\ncall f\n");
    }
    text += "r0 = 0\nexit\nf: r3 = *(u64 *)(r1 + 0)\n*(u32 *)(r1 + 8) = r2\nr4 = *(u16 *)(r1 + 24)\nr3 += r4
        *(u64 *)(r1 + 16) = r3\n*(u8 *)(r1 + 1) = r3\nr3 = *(u8 *)(r1 + 2)\n*(u16 *)(r1 + 32) = r3\nexit";
    assert!(!calls(&text));
    let rig = Rig::new(&text);
    for argument in [0, 1, 17, 34, 35, 99] {
        let text = rig.agree(argument);
        assert_eq!(text.contains("8-byte load") && text.matches("called from").count() == 1, argument != 99, "{text}");
    }
}

#[test]
fn a_call_needs_room_for_a_frame() {
    let mut rig =
        Rig::new("r6 = r1\ncall g\nexit\ng: r1 = 1\ncall f\n*(u8 *)(r6 + 0) = 1\ncall f\nexit\nf: r0 = r1\nexit");
    rig.agree(0);
    for depth in 1..4 {
        rig.limits.max_depth = depth;
        let text = rig.agree(0);
        assert_eq!(text.contains(&format!("the limit is {depth}")), depth < 3, "{text}");
    }
    rig.limits = Limits { stack_bytes: 512 * 2 + 100, ..Limits::default() };
    assert!(rig.agree(0).contains("stack bytes exceeded"));
}

#[test]
fn other_callees_are_called() {
    let main = "r6 = r1\nr1 = r2\ncall f\nr0 += 1\nexit\n";
    for callee in [
        "f: *(u64 *)(r10 - 8) = r1\nr0 = *(u64 *)(r10 - 8)\nexit",
        "f: r0 = r10\nr0 -= r10\nexit",
        "f: r0 = 1\nif r10 > 5 goto +1\nr0 = 2\nexit",
        "f: r0 = 0\nr0 += r1\nr1 += -1\nif r1 s> 0 goto -3\nexit",
        "f: call g\nexit\ng: *(u64 *)(r10 - 8) = 5\nr0 = *(u64 *)(r10 - 8)\nexit",
        "f: r1 = 1\nr2 = 2\ncall extern(0)\nexit",
        &format!("f: r0 = r1\n{}exit", "r0 *= 3\n".repeat(30)),
    ] {
        let text = format!("{main}{callee}");
        assert!(calls(&text), "{callee}");
        Rig::new(&text).agree(4);
    }
    let last = "r1 = r2\ncall g\nexit\nf: r0 = r1\nexit\ng: r1 += 1\ncall f";
    assert!(Rig::new(last).agree(3).contains("was not expected to return"));
}

/// A function that calls a small one a thousand times does not grow without limit.
#[test]
fn growth_is_limited() {
    let text = "call f\n".repeat(1000) + "exit\nf: r0 ^= 5\nr0 *= 3\nr0 += 1\nexit";
    let text = format!("r0 = r2\n{text}");
    assert!(calls(&text));
    Rig::new(&text).agree(4);
}

/// Each budget from 0 to more than the program takes, on paths of several lengths.
#[test]
fn budgets() {
    let branches = "f: if r1 & 1 goto odd\nr0 += r1\nif r0 & 2 goto end\nr0 *= 3\nr0 += 1\nr0 ^= 3\nend: exit
        odd: r7 = 3\nr0 += r7\nexit";
    let straight = "f: r0 += r1\nr6 = 7 ll\nr0 ^= r6\nexit";
    for callee in [branches, straight] {
        for main in [
            "r0 = r1\ncall f\nexit",
            "r6 = r1\nr0 = 0\nr1 = 2\ncall f\nr1 = 3\ncall f\nr1 = r0\ncall f\n*(u64 *)(r6 + 0) = r0\nexit",
            "r6 = r1\nr7 = 3\nr0 = 0\nagain: r1 = r7\ncall f\n*(u64 *)(r6 + 0) = r0\nr7 += -1\nif r7 != 0 goto again\nr1 = 1\ncall f\nexit",
            "r6 = 5\nr0 = 0\nagain: r1 = r6\ncall f\nif r0 & 4 goto past\nr1 = 4\ncall f\npast: r6 += -1\nif r6 != 0 goto again\nexit",
            "r0 = 0\nr1 = 1\ncall f\nr1 = r0\nr2 = 3\ncall extern(0)\nr1 = r0\ncall f\nr1 = r0\ncall g\nexit
             g: r1 += 5\ncall f\nr0 += 1\n*(u64 *)(r10 - 8) = r0\nr0 = *(u64 *)(r10 - 8)\nexit",
        ] {
            agree_with_each_budget(&format!("{main}\n{callee}"), &COUNTED);
        }
    }
}

/// Where the budget ends and where memory is bad, in either order.
#[test]
fn budgets_and_traps() {
    let text = "r6 = r1\nr1 = 1\ncall f\nr1 = r6\nr1 = 0\ncall f\nexit\nf: r0 = 1\nif r1 == 1 goto +2\nr0 = *(u8 *)(r1 + 9)\nr0 += 1\nexit";
    let mut rig = Rig::new(text);
    for budget in 0..20 {
        rig.limits.max_insns = Some(budget);
        let expected = rig.run(Backend::Interpreter, 0);
        for options in COUNTED {
            assert_eq!(rig.run(Backend::Compiled(options), 0), expected, "{budget}");
        }
    }
}

#[test]
fn mutants_are_found() {
    let text = "r6 = 1\nr7 = 2\nr1 = 5\ncall f\nr0 += r6\nr0 ^= r1\nexit\nf: r6 = 9\nr0 = r1\nr1 = 4\nexit";
    for mutant in [CALLEE_REGISTERS, UNPAID] {
        let rig = named(&format!("__fault_{mutant}"), text);
        let [expected, found] = [Backend::Interpreter, Backend::Compiled(FUEL)].map(|backend| {
            let mut machine = rig.machine(backend);
            machine.set_limits(Limits { max_insns: Some(100), ..rig.limits });
            (machine.run(0, [0; 5]).unwrap(), machine.insns_executed())
        });
        assert_ne!(found, expected, "{mutant}");
    }
}
