//! A program for every superinstruction, and `docs/superinstructions.md`, which is made of the table; `BLESS=1` writes it.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::*;

/// Of each superinstruction: programs that have it once, one for each sequence that it replaces.
#[rustfmt::skip]
const PROGRAMS: &[(&str, &[&str])] = &[
    ("three-operand", &["r3 = r2; r3 += r4", "w3 = w2; w3 *= 5", "r3 = r2; r3 = be16 r3"]),
    ("zero-extend", &["r3 <<= 32; r3 >>= 32"]),
    ("sign-extend", &["r3 <<= 32; r3 s>>= 32"]),
    ("rotate", &["r4 = r3; r4 >>= 25; r3 <<= 39; r3 |= r4", "w4 = w3; w4 >>= 25; w3 <<= 7; w3 |= w4"]),
    ("add-load", &["r1 += r2; r4 = *(u8 *)(r1 + 8)", "r1 += 8; r4 = *(u64 *)(r1 + 8)", "r1 += r2; r4 = *(u16 *)(r1 + 8)", "r1 += r2; r4 = *(u64 *)(r1 + 8)", "r3 += 6; r4 = *(u64 *)(r1 + 8)"]),
    ("add-add", &["r3 += 6; r4 += 7", "r3 += r2; r4 += 7", "w3 += w2; r4 += 7", "r3 += r2; r4 += r5", "w3 += 6; w4 += 7", "w3 += w2; r4 += r5", "r3 += r2; w4 += 7"]),
    ("add-move", &["r3 += 6; r4 = r5", "r3 += 6; w4 = w5", "r3 += r2; w4 = w5"]),
    ("shift-add", &["r3 <<= 6; r4 += r5"]),
    ("xor-multiply", &["r3 ^= r2; r3 *= r5", "r3 ^= r2; r4 *= 7", "w3 ^= w2; w4 *= 7"]),
    ("load-store", &["r3 = *(u64 *)(r1 + 16); *(u64 *)(r1 + 8) = r5"]),
    ("store-add", &["*(u64 *)(r1 + 16) = r2; r4 += 7", "*(u8 *)(r1 + 16) = r2; r4 += r5"]),
    ("move-move", &["r3 = r2; r4 = r5", "w3 = w2; w4 = w5"]),
    ("add-shift", &["r3 += r2; r4 >>= 7", "w3 += w2; w4 >>= 7", "r3 += r2; r3 <<= 7", "r3 += r2; r3 >>= 7"]),
    ("load-add", &["r3 = *(u64 *)(r1 + 16); r4 += r5"]),
    ("load-multiply", &["r3 = *(u64 *)(r1 + 16); r4 *= r5"]),
    ("multiply-add", &["r3 *= 6; r3 += r5", "r3 *= r2; r3 += r5", "r3 *= 6; r4 += r5", "w3 *= 6; w3 += w5"]),
    ("add-store", &["r1 += r2; *(u8 *)(r1 + 8) = r5", "r1 += r2; *(u64 *)(r1 + 8) = r5"]),
    ("shift-or", &["r3 <<= 6; r3 |= r5", "r3 >>= r2; r3 |= 7", "w3 <<= 6; w3 |= w5"]),
    ("shift-xor", &["r3 <<= 6; r3 ^= r5", "r3 >>= 6; r3 ^= r5", "w3 <<= 6; w3 ^= w5", "w3 >>= 6; w3 ^= w5"]),
    ("or-add", &["r3 |= r2; r3 += r5", "w3 |= w2; w3 += w5", "r3 |= r2; r4 += r5"]),
    ("add-xor", &["r3 += r2; r4 ^= r5", "r3 += r2; r3 ^= r5"]),
    ("load-load", &["r3 = *(u64 *)(r1 + 16); r4 = *(u64 *)(r1 + 8)", "r3 = *(u8 *)(r1 + 16); r4 = *(u8 *)(r1 + 8)"]),
    ("and-load", &["r3 &= 6; r4 = *(u64 *)(r1 + 8)"]),
    ("subtract-multiply", &["r3 -= r2; r4 *= 7"]),
    ("divide-multiply", &["r3 /= r2; r3 *= r5"]),
    ("load-shift", &["r3 = *(u32 *)(r1 + 16); w3 >>= 7"]),
    ("and-shift", &["r3 &= r2; r3 >>= 7", "w3 &= 6; r3 <<= 7"]),
    ("and-and", &["w3 &= 6; w4 &= 7"]),
    ("store-shift", &["*(u64 *)(r1 + 16) = r2; r4 <<= 7"]),
    ("or-move", &["r3 |= 6; r4 = r5"]),
    ("xor-shift", &["r3 ^= r2; r3 >>= 7", "w3 ^= w2; w4 >>= 7", "r3 ^= r2; r4 <<= 7"]),
    ("or-divide", &["w3 |= 6; w4 /= w5"]),
    ("constant-multiply", &["r3 = 0x123456789abcdef ll; r4 *= r5"]),
    ("shift-shift", &["r3 >>= 6; r3 <<= 7"]),
    ("load-and", &["r3 = *(u64 *)(r1 + 16); r3 &= 7"]),
    ("xor-add", &["r3 ^= r2; r4 += 7"]),
    ("move-add", &["w3 = w2; r4 += r5"]),
    ("xor-load", &["r3 ^= r2; r4 = *(u64 *)(r1 + 8)"]),
    ("move-constant", &["r3 = r2; r4 = 0x123456789abcdef ll"]),
    ("add-branch", &["r3 += 6; if r3 < r2 goto +1; r0 = 7", "r3 += 6; if r3 == 9 goto +1; r0 = 7", "w3 += w2; if w3 < w2 goto +1; r0 = 7", "w3 += 6; if w3 < w2 goto +1; r0 = 7", "r3 += 6; if w4 != 9 goto +1; r0 = 7", "r3 += 1; if r3 < r2 goto -2"]),
    ("move-jump", &["r3 = r2; goto +1; r0 = 7", "r3 = 6; goto +1; r0 = 7", "w3 = w2; goto +1; r0 = 7"]),
    ("load-branch", &["r3 = *(u8 *)(r1 + 16); if w3 != w2 goto +1; r0 = 7", "r3 = *(u64 *)(r1 + 16); if r3 <= r2 goto +1; r0 = 7"]),
    ("move-branch", &["r3 = r2; if r4 <= r2 goto +1; r0 = 7", "w3 = 6; if w4 == 9 goto +1; r0 = 7", "w3 = 6; if w4 != 9 goto +1; r0 = 7"]),
    ("and-branch", &["w3 &= 6; if w3 != 9 goto +1; r0 = 7"]),
];

/// What a run leaves: its result, registers, the instructions it took, and the memory.
type Outcome = (u64, [u64; 11], u64, Vec<u8>);

fn outcome(rig: &Rig, driver: Driver, set: SuperinstructionSet) -> Outcome {
    let memory: Vec<u8> = (0..64u8).map(|at| at.wrapping_mul(37)).collect();
    rig.memory.write(0, &memory);
    let mut machine = machine(rig, driver, Limits::default());
    machine.set_superinstructions(set);
    let result = machine.run(0, [rig.memory.addr(), 8, 3, 0x89ab_cdef_0123_4567, 5]).unwrap();
    (result, machine.registers(), machine.insns_executed(), rig.memory.to_vec(0, 64))
}

/// Places of a program that have a superinstruction.
fn count(rig: &Rig, set: SuperinstructionSet, name: &str) -> usize {
    set.uses(&rig.image()).iter().filter(|uses| uses.name == name).map(|uses| uses.count).sum()
}

#[test]
fn each_superinstruction_is_used_where_its_sequence_is_and_nowhere_if_it_is_off() {
    for (name, programs) in PROGRAMS {
        let off: SuperinstructionSet = format!("-{name}").parse().unwrap();
        for program in *programs {
            let rig = Rig::with(&format!("r0 = 0\n{}\nexit", program.replace("; ", "\n")));
            assert_eq!(
                (count(&rig, SuperinstructionSet::ALL, name), count(&rig, off, name)),
                (1, 0),
                "{name}: {program}"
            );
            let expected = outcome(&rig, Driver::Step, off);
            for set in [SuperinstructionSet::ALL, off] {
                assert_eq!(outcome(&rig, Driver::Threaded, set), expected, "{name}, {set}: {program}");
            }
        }
    }
}

#[test]
fn every_sequence_of_the_table_has_a_program() {
    for superinstruction in Superinstruction::all() {
        let programs = PROGRAMS.iter().find(|(name, _)| *name == superinstruction.name);
        let count = programs.map_or(0, |(_, programs)| programs.len());
        assert!(count >= superinstruction.replaces.len(), "{superinstruction:?} has {count} programs");
    }
}

#[test]
fn a_set_is_a_list_of_changes() {
    let parse = |text: &str| text.parse::<SuperinstructionSet>();
    assert_eq!(parse(""), Ok(SuperinstructionSet::ALL));
    assert_eq!(parse("-all,all"), Ok(SuperinstructionSet::ALL));
    assert_eq!(parse("-all,+rotate,-rotate"), parse("-all"));
    assert_eq!(parse("-rotate,-add-load").unwrap().to_string(), "-rotate,-add-load");
    let error = parse("-rotate,-spin").unwrap_err().to_string();
    assert!(error.starts_with("no superinstruction is called \"spin\"; there are three-operand, "), "{error}");
}

#[test]
fn without_superinstructions_each_instruction_is_a_slot() {
    let rig = Rig::with("r0 = r1\nr0 += r2\nr0 += 3\nr0 <<= 2\nexit");
    let none: SuperinstructionSet = "-all".parse().unwrap();
    assert_ne!(SuperinstructionSet::ALL.uses(&rig.image()), []);
    assert_eq!(none.uses(&rig.image()), []);
    assert_eq!(outcome(&rig, Driver::Threaded, none), outcome(&rig, Driver::Step, none));
}

const HEAD: &str = "# Superinstructions of the interpreter

Written by a test of `vm/src/interp/` from the table in `vm/src/interp/superinstructions/table.rs`. `BLESS=1 cargo test --lib
superinstructions_md` renews it.

A superinstruction executes several instructions in one handler of the threaded driver, which saves the jump from one handler to the
next. The pairs are chosen by a profile of the workloads of `corpus/bench`. `A → B`: B reads what A computes, and gets it in a register
of the host; `A, B`: the two follow each other. None reaches over an instruction that something jumps to.

`--superinstructions=-NAME,...` switches some off, and `twinbpf disasm --stats` prints how often each function has each.

| name | replaces | where it pays |
|---|---|---|
";

fn table() -> String {
    let mut text = HEAD.to_owned();
    for Superinstruction { name, replaces, reason } in Superinstruction::all() {
        let replaces: Vec<String> =
            replaces.iter().map(|sequence| format!("`{}`", sequence.replace('|', "\\|"))).collect();
        writeln!(text, "| `{name}` | {} | {reason} |", replaces.join("; ")).unwrap();
    }
    text
}

#[test]
fn superinstructions_md_is_the_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/superinstructions.md");
    match std::env::var_os("BLESS") {
        Some(_) => fs::write(path, table()).unwrap(),
        None => assert_eq!(fs::read_to_string(path).unwrap(), table(), "BLESS=1 writes it"),
    }
}
