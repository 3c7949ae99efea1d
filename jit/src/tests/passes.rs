//! Programs for what the compiler finds out about them.

use super::programs::same;
use super::rig::Rig;
use crate::Options;

/// Where a division goes that is not to be made.
const END: &str = "exit\nzero: r0 = 7\nexit\n";

/// What says that the divisor is not zero.
const SURE: [&str; 6] = [
    "if {r} == 0 goto zero\n",
    "if {r} != 0 goto on\ngoto zero\non: r3 = 1\n",
    "if {r} < 2 goto zero\nr3 = 2\nif r1 == 0 goto zero\n",
    "if {r} s<= 0 goto zero\n",
    "{r} |= 64\n",
    "{r} |= -64\n",
];

/// What does not, or not any more.
const UNSURE: [&str; 9] = [
    "",
    "{r} |= 0\n",
    "if {r} s< 0 goto zero\n",
    "if r3 == 0 goto zero\n{r} |= 1\nr4 = r2\n",
    "if {r} == 0 goto on\nr3 = 1\non: r3 = 2\n",
    "if r4 == 0 goto zero\n",
    "r4 |= 0\nif r4 != 0 goto on\non: r3 = 1\n",
    "r6 = 3\nagain: if {r} == 0 goto on\n{r} += -1\nr6 += -1\nif r6 != 0 goto again\non: r3 = 1\n",
    "if {r} == 0 goto zero\nr4 = r2\n{far}",
];

/// More instructions than any pass searches backwards.
fn far() -> String {
    "r3 += 1\n".repeat(40)
}

#[test]
fn divisors_that_the_path_proves_nonzero() {
    let divisors = [
        "r4 = 0",
        "r4 = 3",
        "r4 = r2",
        "r4 = 0x100000000 ll",
        // A constant of which only 32 bits are zero, but for a constant no guard is needed.
        "r4 = -1\nw5 = -1\nr4 ^= r5",
        "*(u64 *)(r1 + 8) = 0\nr4 = *(u64 *)(r1 + 8)",
        "*(u64 *)(r1 + 8) = -1\nr4 = *(u64 *)(r1 + 8)",
    ];
    for (divisor, guard) in divisors.iter().flat_map(|from| SURE.iter().chain(&UNSURE).map(move |guard| (from, guard)))
    {
        for (width, op) in ["/=", "%=", "s/=", "s%="].into_iter().flat_map(|op| [("r", op), ("w", op)]) {
            let guard = guard.replace("{r}", &format!("{width}4")).replace("{far}", &far());
            let least = if width == "r" { "0x8000000000000000" } else { "0x80000000" };
            let start = format!("r2 = 0\n{divisor}\nr0 = {least} ll\n");
            same(&Rig::new(&format!("{start}{guard}{width}0 {op} {width}4\n{END}")));
        }
    }
}

#[test]
fn a_division_that_is_sure_has_no_guard() {
    let moves = |guard: &str| {
        let guard = guard.replace("{r}", "r4").replace("{far}", &far());
        let rig = Rig::new(&format!("r4 = *(u64 *)(r1 + 0)\n{guard}r2 /= r4\nr0 = r2\n{END}"));
        rig.compile(Options { verify: true, ..Options::default() }).disassemble(0).unwrap().text.matches("cmov").count()
    };
    assert_eq!(SURE.map(moves), [0; 6]);
    assert!(moves("") > 0 && moves("if w4 == 0 goto zero\n") > 0);
}

/// The latch of the outer loop is where the inner one begins, and has a table after it.
#[test]
fn an_iteration_that_ends_where_another_begins() {
    let cases: String = (1..10).map(|case| format!("if r4 == {case} goto c{}\n", (case - 1) % 7 + 1)).collect();
    let bodies = ["+= 77", "*= 3", "^= 7000", "-= 5", "*= r0", ">>= 1", "|= 5"];
    let bodies = bodies.iter().zip(1..).map(|(body, case)| format!("c{case}: r0 {body}\ngoto c8\n"));
    same(&Rig::new(&format!(
        "r0 = 0\nr2 = 0\nr3 = 8\nr6 = 100\nr7 = r1\nr7 += 2048
         head: *(u64 *)(r7 + 16) = r2
         block: r4 = r1
         r4 += r3
         r5 = *(u64 *)(r4 + 0)
         r5 += 37
         *(u64 *)(r4 + 0) = r5
         r6 += -1
         *(u64 *)(r7 + 24) = r6
         r5 &= 0x7f8
         r4 = r5
         r4 >>= 3
         r4 &= 15
         r2 = r3
         r3 = r5
         if r4 == 0 goto head
         {cases}r0 += 3
         goto c8
         {}c8: r8 = *(u64 *)(r7 + 24)
         r3 = r2
         if r8 != 0 goto block
         exit\n",
        bodies.collect::<String>()
    )));
}

/// An index of several terms, of which some change in each iteration.
#[test]
fn an_index_of_many_terms() {
    same(&Rig::new(
        "r9 = r1
         r2 = *(u32 *)(r1 + 0)
         w2 &= 0xf8
         r3 = *(u32 *)(r1 + 12)
         w3 &= 0xf8
         w6 = 0
         w7 = 3
         r0 = 0
         L: w5 = w6
         w5 += w2
         w5 += w7
         w5 += w3
         r1 = r9
         r1 += r5
         r4 = *(u8 *)(r1 + 0)
         r0 += r4
         w7 += 5
         w6 += 8
         if w6 != 80 goto L
         r1 = 0
         exit\n",
    ));
}

/// Loads from the frame after stores of other sizes, beside it, through another pointer, and by a callee.
#[test]
fn loads_from_the_frame_see_the_last_store() {
    let others = [
        "",
        "*(u8 *)(r10 - 5) = 7\n",
        "*(u16 *)(r10 - 8) = 7\n",
        "*(u32 *)(r10 - 4) = 7\n",
        "*(u32 *)(r10 - 12) = 7\n",
        "*(u64 *)(r10 - 12) = 7\n",
        "*(u64 *)(r10 - 16) = 7\n",
        "r4 = r10\n*(u8 *)(r4 - 3) = 7\n",
        "r4 = r10\nlock *(u64 *)(r4 - 8) += r2\n",
        "lock *(u32 *)(r10 - 8) += r2\n",
        "r3 = 9\nif r3 == 9 goto on\n*(u64 *)(r10 - 8) = r3\non: r3 = 1\n",
    ];
    let loads =
        ["*(u64 *)(r10 - 8)", "*(u32 *)(r10 - 8)", "*(s32 *)(r10 - 8)", "*(u16 *)(r10 - 8)", "*(u32 *)(r10 - 4)"];
    // With the address of the frame in a register, its words are no variables.
    for copy in ["", "r5 = r10\n"] {
        for (other, load) in others.iter().flat_map(|other| loads.iter().map(move |load| (other, load))) {
            same(&Rig::new(&format!(
                "r2 = *(u64 *)(r1 + 8)
                 {copy}*(u64 *)(r10 - 16) = r2
                 *(u64 *)(r10 - 8) = r2
                 r0 = *(u64 *)(r10 - 8)
                 {other}r0 = {load}
                 *(u64 *)(r10 - 8) = r0
                 *(u32 *)(r10 - 8) = r0
                 r3 = {load}
                 r0 += r3
                 r5 = 0
                 r4 = 0
                 exit\n"
            )));
        }
    }
}

/// Divisors that change between divisions, as one register or another.
#[test]
fn divisions_by_one_divisor_share_its_guard() {
    for (width, op) in ["/=", "%=", "s/=", "s%="].into_iter().flat_map(|op| [("r", op), ("w", op)]) {
        for divisor in [0_i64, 1, -1, 7, 1 << 32] {
            same(&Rig::new(&format!(
                "r2 = {divisor} ll
                 r3 = *(u64 *)(r1 + 8)
                 r4 = 0x8000000080000000 ll
                 {width}3 {op} {width}2
                 {width}4 {op} {width}2
                 r0 = r3
                 r5 = r2
                 {width}0 {op} {width}5
                 r2 += 1
                 {width}4 {op} {width}2
                 w3 /= w5
                 r3 s%= r2
                 r0 ^= r4
                 r0 ^= r3
                 exit\n"
            )));
        }
    }
}
