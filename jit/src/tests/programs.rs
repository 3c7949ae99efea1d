//! Compiled programs that return, against the interpreter.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::rig::{Rig, program};
use crate::{Code, CompileLimits, JitError, Memory, OptLevel, Options};

fn all() -> impl Iterator<Item = Options> {
    let modes = [Memory::Sandbox, Memory::Strict, Memory::Trusted];
    modes.into_iter().flat_map(|memory| {
        let baseline = (OptLevel::None, CompileLimits::NONE.work(0));
        let levels = [OptLevel::None, OptLevel::Speed].map(|opt| (opt, CompileLimits::NONE));
        levels.into_iter().chain([baseline]).flat_map(move |(opt, limits)| {
            [false, true].map(|fuel| Options {
                memory,
                opt,
                fuel,
                keep_registers: true,
                limits,
                verify: true,
                ..Options::default()
            })
        })
    })
}

#[track_caller]
pub(super) fn same(rig: &Rig) {
    for options in all() {
        let expected = rig.for_memory(options.memory).interpret();
        let mut end = rig.run(options);
        if !options.fuel {
            end.executed = expected.executed;
        }
        assert_eq!(end, expected, "{options:?}");
        let bare = rig.run(Options { keep_registers: false, ..options });
        assert_eq!((bare.r0, bare.memory), (expected.r0, end.memory), "{options:?}");
    }
}

#[test]
fn arithmetic() {
    let mut text = String::from("r2 = r1\nr9 = 0x8000000000000000 ll\nr8 = -1\nr7 = 0\nr6 = r4\n");
    for op in ["+=", "-=", "*=", "/=", "s/=", "|=", "&=", "<<=", ">>=", "%=", "s%=", "^=", "=", "s>>="] {
        for (dst, src) in [("5", "4"), ("9", "8"), ("5", "7"), ("9", "7"), ("4", "-1"), ("4", "7"), ("9", "0x7fffffff")]
        {
            let src = if ["4", "8", "7"].contains(&src) && dst != "4" { format!("r{src}") } else { src.into() };
            let _ = writeln!(text, "r0 = r{dst}\nr0 {op} {src}\n*(u64 *)(r2 + 0) = r0\nr2 += 8");
            let src = src.replace('r', "w");
            let _ = writeln!(text, "r0 = r{dst}\nw0 {op} {src}\n*(u64 *)(r2 + 0) = r0\nr2 += 8");
        }
    }
    same(&Rig::new(&(text + "exit\n")));
}

#[test]
fn loads_stores_and_atomics() {
    same(&Rig::new(
        "r0 = *(u8 *)(r1 + 9)
         r2 = *(s16 *)(r1 + 9)
         r3 = *(u32 *)(r1 + 10)
         r4 = *(s32 *)(r1 + 11)
         r5 = *(u64 *)(r1 + 13)
         *(u64 *)(r10 - 8) = r5
         *(u32 *)(r10 - 12) = r4
         r6 = *(u16 *)(r10 - 10)
         *(u8 *)(r1 + 100) = 7
         *(u16 *)(r1 + 105) = -2
         r7 = r10
         r7 += -8
         *(u32 *)(r7 + 0) = 99
         r8 = *(u64 *)(r10 - 8)
         lock *(u64 *)(r1 + 16) += r5
         w5 = atomic_fetch_add((u32 *)(r1 + 20), w5)
         r0 = cmpxchg_64(r1 + 24, r0, r3)
         w4 = xchg32_32(r1 + 32, w4)
         r9 = load_acquire((u16 *)(r1 + 40))
         store_release((u64 *)(r1 + 48), r9)
         r7 = 0
         exit\n",
    ));
}

#[test]
fn sums_are_what_their_terms_were() {
    same(&Rig::new(
        "r2 = r1
         r2 += 8
         r3 = r2
         r1 += 16
         *(u64 *)(r2 + 0) = r1
         r2 += 8
         *(u64 *)(r2 + 8) = r3
         w4 = w2
         r2 += 0x7fffffff
         r2 += 0x7fffffff
         r5 = r2
         r2 += -0x7fffffff
         r2 += -0x7fffffff
         *(u64 *)(r2 + 16) = r5
         r6 = r2
         r6 += 24
         if r6 > r2 goto +1
         r6 = r2
         *(u64 *)(r6 + 8) = r4
         top: r2 += 1
         r7 = r2
         r7 -= r3
         r2 += 1
         if w7 < 40 goto top
         r8 = r10
         r8 += -16
         *(u64 *)(r8 + 8) = r7
         r8 += 4
         r0 = *(u32 *)(r8 + 4)
         lock *(u64 *)(r8 + 4) += r0
         r3 += 80
         r9 = r3
         r3 = r9
         w9 += 0
         r8 = 0
         exit\n",
    ));
}

#[test]
fn a_sum_that_nothing_uses() {
    // It is of a register whose low half has two definitions.
    same(&Rig::new(
        "r3 = *(u32 *)(r1 + 0)
         r2 = *(u32 *)(r1 + 4)
         if r2 > 5 goto +4
         r3 = *(u32 *)(r1 + 8)
         r4 = *(u32 *)(r1 + 12)
         *(u32 *)(r1 + 16) = r4
         *(u32 *)(r1 + 20) = r3
         r3 += 8
         r1 = r2
         call extern(1)
         r1 = 0
         r3 = 0
         exit\n",
    ));
}

#[test]
fn control_flow() {
    // Two entries into a loop, and code that nothing reaches.
    same(&Rig::new(
        "r0 = 0
         r2 = 10
         r6 = r3
         if r6 s> 5 goto middle
         top: r0 += 3
         middle: r0 += r2
         r2 -= 1
         if w2 & 3 goto top
         if r2 != 0 goto middle
         may_goto +1
         goto out
         r0 = 77
         out: gotol last
         r0 = 1
         exit
         last: exit\n",
    ));
}

#[test]
fn calls_pass_what_callees_read() {
    same(&Rig::new(
        "r6 = 60
         r7 = 70
         r0 = 5
         call inner
         r1 = r0
         r2 = 3
         r3 = 4
         r4 = 5
         r5 = r7
         call extern(0)
         r8 = r0
         r1 = r0
         call extern(1)
         r9 = func(leaf) ll
         callx r9
         exit
         inner: r0 += r6
         r6 = 1
         r1 = r9
         call leaf
         r0 += r6
         exit
         leaf: r7 = r1
         exit\n",
    ));
}

#[test]
fn recursion_goes_until_the_frames_end() {
    same(&Rig::new(
        "r1 = 40
         call down
         exit
         down: *(u64 *)(r10 - 8) = r1
         if r1 == 0 goto end
         r1 -= 1
         call down
         r1 = *(u64 *)(r10 - 8)
         r0 += r1
         exit
         end: r0 = 0
         exit\n",
    ));
}

#[test]
fn computed_jumps() {
    let text = "r6 = 0
         r0 = 0
         r7 = 0
         next: r7 += 1
         if r7 > 7 goto out
         r2 = r7
         r2 &= 1
         r2 <<= 3
         r3 = r1
         r3 += r2
         r3 = *(u64 *)(r3 + 4080)
         gotox r3
         r0 += 100
         goto next
         r0 *= 3
         goto next
         out: exit\n";
    same(&Rig::with(program(text), &[(0, 12), (0, 14)]));
}

#[test]
fn a_listing_shows_both_kinds_of_instructions() {
    let rig = Rig::new(
        "r2 = *(u64 *)(r1 + 8)
         if r2 == 0 goto end
         r2 *= 5
         *(u64 *)(r1 + 16) = r2
         call extern(1)
         end: r0 = 0
         exit\n",
    );
    let code = rig.compile(Options { memory: Memory::Trusted, verify: true, ..Options::default() });
    let text = code.disassemble(0).unwrap().text;
    let expected = [";     0: r2 = *(u64 *)(r1 + 8)", ";     4: call extern(0) (next)", ";     6: exit"];
    let at: Vec<_> = expected.iter().map(|line| text.find(line)).collect();
    assert!(at.is_sorted() && at[0].is_some(), "{text}");
    assert!(!text.contains("debug @") && text.contains("call"), "{text}");
}

#[test]
fn cancelled_compilation_compiles_nothing() {
    let rig = Rig::new("call f\nr0 += 1\nexit\nf: r0 = 7\nexit");
    let code = Code::new(Arc::clone(&rig.image), Options::default()).unwrap();
    let asked = AtomicU32::new(0);
    let first = code.compile_program_while(0, &|| asked.fetch_add(1, Ordering::Relaxed) == 0);
    assert!(matches!(first, Err(JitError::Unwanted)), "{first:?}");
    assert!(!code.is_compiled(0) && !code.is_compiled(1));
    code.compile_program(0).unwrap();
    assert!(code.is_compiled(0) && code.is_compiled(1));
}

#[test]
fn a_listing_is_of_the_code_that_runs() {
    let rig = Rig::new(
        "r0 = 0
         L: r3 = *(u64 *)(r1 + 0)
         r0 += r3
         *(u64 *)(r1 + 8) = r0
         r1 += 16
         r2 += -1
         if r2 != 0 goto L
         exit\n",
    );
    let text = rig
        .compile(Options { memory: Memory::Trusted, verify: true, ..Options::default() })
        .disassemble(0)
        .unwrap()
        .text;
    assert!(
        text.contains("subq $0xffffffffffffffc0, %r"),
        "the increment is after the last use of the old value: {text}"
    );
    let cases: String = (0..9).map(|case| format!("if r2 == {case} goto C{case}\n")).collect();
    let bodies: String = (0..9).map(|case| format!("C{case}: r0 = {}\nexit\n", case * case)).collect();
    let rig = Rig::new(&format!("r2 = *(u8 *)(r1 + 0)\n{cases}r0 = 7\nexit\n{bodies}"));
    let text = rig.compile(Options { verify: true, ..Options::default() }).disassemble(0).unwrap().text;
    assert!(text.contains("br_table"), "compares are a table: {text}");
}

#[test]
fn branches_that_become_selects_or_tables() {
    // Every value of a switch, inside and outside, over and over, with moves and sums around branches.
    for (subject, scale) in [("w", 1_i64), ("r", 1), ("w", -1), ("r", -1)] {
        let mut text = String::from("r6 = -40\nr0 = 0\nr9 = 7\n");
        let top = "L";
        let _ = write!(text, "{top}:\n{subject}2 = {subject}6\nr3 = 1\nif r6 s> 3 goto A\nr3 = 0\nA:\nr0 += r3\n");
        for case in 0..9 {
            let _ = writeln!(text, "if {subject}2 == {} goto C{case}", case * scale);
        }
        text += "r0 *= 31\ngoto E\n";
        for case in 0..9 {
            let _ = writeln!(text, "C{case}:\nr0 ^= {}\nr9 += r0\ngoto E", case * 37 + 5);
        }
        let _ = write!(text, "E:\nr0 *= 9\nr6 += 1\nif r6 s< 40 goto {top}\nr0 += r9\nexit\n");
        same(&Rig::new(&text));
    }
}

/// A search as clang writes it: after the loop, a register that records how it ended is tested.
const SEARCH: &str = "r6 = *(u64 *)(r1 + 8)
     r7 = 40
     r0 = 0
     next: w2 = 1
     if r6 == 0 goto known
     w2 = 0
     known: if r6 == 0 goto found
     if r6 == r7 goto found
     r6 += -1
     r6 &= 0xff
     r0 += 3
     goto next
     found: w2 &= 1
     if w2 != 0 goto empty
     *(u64 *)(r1 + 16) = r6
     r0 += r6
     exit
     empty: *(u64 *)(r1 + 24) = r0
     exit\n";

#[test]
fn branches_that_their_path_decides() {
    for key in [0, 1, 40, 41, 255] {
        same(&Rig::new(&SEARCH.replace("*(u64 *)(r1 + 8)", &key.to_string())));
    }
    // All that is compared before, and then with each other condition, with both widths.
    let conds = ["==", "!=", ">", ">=", "<", "<=", "s>", "s>=", "s<", "s<=", "&"];
    let mut text = String::from("r6 = 1\nr0 = 0\nr9 = 0\nround:\nr7 = r9\nr7 -= 2\nr7 <<= 31\n");
    let mut label = 0;
    for (first, second) in conds.iter().flat_map(|first| conds.iter().map(move |second| (first, second))) {
        for (wide, operand) in [("r", "r6"), ("w", "w6"), ("r", "-1"), ("w", "1")] {
            label += 1;
            let _ = writeln!(
                text,
                "r3 = 5\nif {wide}7 {first} {operand} goto A{label}\nr3 = 9\nA{label}:\nif {wide}7 {second} {operand} goto B{label}
                 r3 ^= 2\nif r3 & 2 goto B{label}\nr0 += r3\nB{label}:\nr0 *= 7\nr0 += r3"
            );
        }
    }
    text += "r9 += 1\nif r9 < 5 goto round\nexit\n";
    same(&Rig::new(&text));
}

/// Terms of a sum whose difference is small only modulo 2^64.
#[test]
fn sums_of_the_least_and_the_greatest_number() {
    for (then, other) in [(i64::MAX, i64::MIN), (i64::MIN, i64::MAX), (i64::MIN + 3, i64::MAX), (5, 4), (4, 8)] {
        for argument in [6, 7] {
            same(&Rig::new(&format!(
                "r0 = 9\nr1 = {argument}\nr2 = *(u64 *)(r10 - 8)\nr2 &= 0\nr1 += r2\nr3 = {other} ll\nif r1 != 7 goto sum
                 r3 = {then} ll\nsum: r0 += r3\nexit\n"
            )));
        }
    }
}

#[test]
fn facts_about_distant_code_are_forgotten() {
    let mut text = String::from("r6 = 1\nr0 = 0\nif r2 == 12345 goto X\nr6 = 2\n");
    text += &"r0 += 1\n".repeat(17);
    text += "if r2 == 99 goto X\nif r6 == 1 goto Z\nr0 = 7\nexit\nZ: r0 = 666\nexit\nX: r0 = 1\nexit\n";
    same(&Rig::new(&text));
}

#[test]
fn nothing_is_queried_twice() {
    let rig = Rig::new(SEARCH);
    let code = rig.compile(Options { memory: Memory::Trusted, verify: true, ..Options::default() });
    let text = code.disassemble(0).unwrap().text;
    assert_eq!(text.matches("; j label").count(), 4 * 2, "{text}");
}

#[test]
fn words_of_the_frame() {
    same(&Rig::new(
        "r6 = 0
         *(u64 *)(r10 - 8) = r6
         *(u64 *)(r10 - 16) = -5
         L:
         r2 = *(u64 *)(r10 - 8)
         r2 += 3
         *(u64 *)(r10 - 8) = r2
         r3 = *(s32 *)(r10 - 16)
         r3 ^= r2
         *(u32 *)(r10 - 16) = r3
         r4 = *(u64 *)(r10 - 16)
         r0 += r4
         *(u16 *)(r10 - 14) = r6
         r5 = *(u32 *)(r10 - 16)
         r0 += r5
         r5 = *(u8 *)(r10 - 8)
         r0 ^= r5
         r6 += 1
         if r6 < 50 goto L
         exit\n",
    ));
    // The frame's address is known to others.
    same(&Rig::new(
        "r6 = r10
         r6 += -8
         *(u64 *)(r10 - 8) = 1
         *(u64 *)(r6 + 0) = 2
         r0 = *(u64 *)(r10 - 8)
         *(u64 *)(r10 - 8) = r0
         r1 = r6
         call f
         r2 = *(u64 *)(r10 - 8)
         r0 += r2
         r6 = 0
         exit
         f:
         r0 = *(u64 *)(r1 + 0)
         r0 *= 77
         *(u32 *)(r1 + 0) = r0
         exit\n",
    ));
}

/// A loop that counts with `w` or `r` registers from `start` by `step`, continues or ends by `goes_on`, ends early in
/// iteration `ends`, and then compares the induction variable with `bound`.
fn counting(wide: &str, start: &str, step: i64, goes_on: &str, (ends, bound): (i64, i64)) -> String {
    let mut text = format!("r6 = {ends}\nr0 = 0\nr9 = 0\n{start}\nnext: r9 += 1\nif r9 > 40 goto out\n");
    let _ = write!(text, "if r9 == r6 goto out\n{goes_on}\n{wide}7 += {step}\ngoto next\nout: r0 = r7\nr0 <<= 24\n");
    for (bit, cond) in ["==", "!=", ">", ">=", "<", "<=", "s>", "s>=", "s<", "s<="].into_iter().enumerate() {
        for (nth, wide) in ["r", "w"].into_iter().enumerate() {
            let label = format!("no{bit}{nth}");
            let _ = write!(text, "if {wide}7 {cond} {bound} goto {label}\nr0 ^= {}\n{label}:\n", 1 << (2 * bit + nth));
        }
    }
    text + "exit\n"
}

#[test]
fn induction_variable_ranges_decide_branches() {
    // One test before the increment or none, two, and two back edges with different tests, or increments.
    let guards = [
        "if {w}7 == {b} goto out",
        "if {w}7 >= {b} goto out",
        "if {w}7 s> {b} goto out",
        "if {w}7 < {b} goto on\ngoto out\non: r0 += 1",
        "if r9 == 30 goto out",
        "if {w}7 == {b} goto out\nif {w}7 == 9 goto out",
        "if r9 & 1 goto odd\nif {w}7 == {b} goto out\n{w}7 += {s}\ngoto next\nodd: if {w}7 > 12 goto out",
        "if r9 & 1 goto odd\nif {w}7 >= {b} goto out\n{w}7 += 40\ngoto next\nodd: if {w}7 >= {b} goto out",
    ];
    // Some have two entry edges with different values; which is taken is not known statically.
    let starts = ["", "{w}7 = {c}\nif r1 & 1 goto next\n", "{w}7 = {c}\nif r1 != 0 goto next\n"];
    let numbers = [(0, 1, 6), (0, 2, 6), (1, 2, 6), (0, 3, 7), (6, 1, 6), (7, 1, 6), (-2, 1, 3), (0, -1, 6)];
    let wides = ["r", "w"].into_iter().flat_map(|wide| starts.map(|start| (wide, format!("{start}{{w}}7 = {{a}}"))));
    for ((wide, start), guard) in wides.flat_map(|first| guards.map(|guard| (first.clone(), guard))) {
        for (from, step, bound) in numbers {
            let [start, guard] = [&*start, guard].map(|text| {
                let text = text.replace("{w}", wide).replace("{b}", &bound.to_string());
                text.replace("{s}", &step.to_string())
                    .replace("{a}", &from.to_string())
                    .replace("{c}", &(from + 1).to_string())
            });
            for last in [(3, bound), (50, bound + step), (50, bound - step), (1, 0), (50, 12), (50, 13)] {
                let rig = Rig::new(&counting(wide, &start, step, &guard, last));
                let expected = rig.interpret().r0;
                for memory in [Memory::Sandbox, Memory::Trusted] {
                    let options = Options { memory, ..Options::default() };
                    assert_eq!(rig.run(options).r0, expected, "{start}, {guard}, by {step}, end and question {last:?}");
                }
            }
        }
    }
    same(&Rig::new(&counting("r", "r7 = 0", 1, "if r7 == 6 goto out", (50, 6))));
}
