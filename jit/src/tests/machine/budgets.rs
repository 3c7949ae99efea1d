//! Loops with every budget: result, instructions executed and memory are the interpreter's.

use twinbpf_vm::interp::Limits;

use super::{Backend, FUEL, OPTIONS, Rig, program};
use crate::opt::PAYMENTS_MUTANT as MUTANT;
use crate::{Memory, OptLevel, Options};

/// Budgets that are tried: all below this, and these.
const EACH: u64 = 44;
const MORE: [u64; 4] = [77, 200, 1001, 30_000];

const CONDS: [&str; 9] = ["!=", "<", ">", "s<", "s>", "<=", ">=", "s<=", "s>="];
const STEPS: [i32; 9] = [1, -1, 2, -2, 3, -3, 8, -5, 1 << 30];
/// Where loops begin and end. The last are where induction variables wrap around.
const RANGES: [(i64, i64); 14] = [
    (0, 6),
    (6, 0),
    (3, 3),
    (0, 7),
    (9, -4),
    (-4, 9),
    (0, 24),
    (-6, -1),
    (-2, 3),
    (i32::MAX as i64 - 3, i32::MAX as i64),
    (i32::MIN as i64 + 5, i32::MIN as i64),
    (i64::MAX - 4, i64::MAX),
    (i64::MIN + 4, i64::MIN),
    (-9, i64::MAX),
];

/// What a loop does besides counting: nothing, what takes paths of different lengths, and what leaves early.
const BODIES: [&str; 3] = [
    "r0 += 7",
    "r0 += 7\nif r0 & 8 goto short\nr0 ^= 3\nr0 += r3\nshort: r0 += 1",
    "r0 += 3\nif r0 == 15 goto left\nr0 *= 5",
];

/// All that can be seen of a call with each budget.
pub(super) fn outcomes(rig: &Rig, backend: Backend) -> Vec<String> {
    let mut machine = rig.machine(backend);
    let budgets = (0..EACH).chain(MORE);
    let outcome = |budget| {
        machine.set_limits(Limits { max_insns: Some(budget), ..rig.limits });
        rig.memory.fill(0, 4096, 0);
        let ended = machine.run(0, [rig.memory.addr(), 1, 2, 3, 4]).map_err(|trap| format!("{trap:#}"));
        format!("{budget}: {ended:?}, {} insns, {:?}", machine.insns_executed(), rig.memory.to_vec(0, 64))
    };
    budgets.map(outcome).collect()
}

/// The rig for a program whose function has this name.
pub(super) fn named(name: &str, text: &str) -> Rig {
    let mut program = program(text);
    program.functions[0].name = name.into();
    let rig = Rig::of(vec![program]);
    Rig { limits: Limits { max_insns: Some(1), ..rig.limits }, ..rig }
}

#[track_caller]
pub(super) fn agree_with_each_budget(text: &str, options: &[Options]) {
    let rig = named("f0", text);
    let expected = outcomes(&rig, Backend::Interpreter);
    for options in options {
        assert_eq!(outcomes(&rig, Backend::Compiled(*options)), expected, "{options:?}\n{text}");
    }
}

#[test]
fn loops_end_where_the_budget_does() {
    let mut seed = 0;
    for (width, cond) in ["r", "w"].iter().flat_map(|width| CONDS.map(|cond| (width, cond))) {
        for (step, (from, to)) in STEPS.iter().flat_map(|step| RANGES.map(|range| (step, range))) {
            seed += 1;
            let body = BODIES[seed % BODIES.len()];
            let (adds, bound) = match seed % 4 {
                0 => ("r", format!("{width}4")),
                1 => (*width, format!("{width}4")),
                _ if i32::try_from(to).is_err() => continue,
                2 => ("r", to.to_string()),
                _ => (*width, to.to_string()),
            };
            // The bound is where the comparison of the loop is, or the exit's.
            let end = match seed % 5 {
                0 => format!("if {width}3 {cond} {bound} goto again"),
                _ => format!("if {width}3 {cond} {bound} goto again\ngoto left"),
            };
            let first = match i32::try_from(from) {
                Ok(_) if seed % 3 != 0 => format!("{adds}3 = {from}"),
                _ => format!("r3 = {from} ll"),
            };
            let text = format!(
                "{first}\nr4 = {to} ll\nr0 = 0\nagain: {body}\n*(u64 *)(r1 + 8) = r0\n{adds}3 += {step}\n{end}
                 left: *(u64 *)(r1 + 0) = r3\nexit"
            );
            agree_with_each_budget(&text, &[FUEL]);
        }
    }
}

#[test]
fn nests_and_other_modes_count_alike() {
    let text = "r6 = 0\nr0 = 0\nouter: r3 = r6\ninner: r0 += r3\nif r0 & 1 goto odd\nr0 += 9\nodd: r3 += 1\nif r3 s< 5 goto inner
                *(u64 *)(r1 + 0) = r0\nr6 += 1\nif r6 != 7 goto outer\nr2 = 8\ndown: r0 ^= r2\nr2 += -2\nif r2 != 0 goto down\nexit";
    let modes = [Memory::Sandbox, Memory::Strict].map(|memory| Options { memory, ..FUEL });
    let none = Options { opt: OptLevel::None, ..FUEL };
    agree_with_each_budget(text, &[modes[0], modes[1], none, Options { keep_registers: true, ..FUEL }]);
}

#[test]
fn a_payment_that_is_lost_is_found() {
    let text =
        "r0 = 0\nr3 = 9\nagain: r0 += r3\nif r0 & 1 goto odd\nr0 += 5\nodd: r3 -= 1\nif r3 != 0 goto again\nexit";
    let rig = named(&format!("__fault_{MUTANT}"), text);
    assert_ne!(outcomes(&rig, Backend::Compiled(FUEL)), outcomes(&rig, Backend::Interpreter));
}

/// Compiled and counted code agree with the interpreter, with each budget.
#[track_caller]
pub(super) fn agree(text: &str) {
    Rig::new(text).agree(3);
    agree_with_each_budget(
        text,
        &[FUEL, Options { memory: Memory::Strict, ..FUEL }, Options { keep_registers: true, ..FUEL }],
    );
}

/// Whether a mutant of the compiler gives another result.
pub(super) fn is_found(mutant: &str, text: &str) -> bool {
    let outcomes = ["f0".into(), format!("__fault_{mutant}")].map(|name| {
        let rig = named(&name, text);
        let mut machine = rig.machine(Backend::Compiled(OPTIONS));
        machine.set_limits(Limits { max_insns: None, ..rig.limits });
        machine.run(0, [rig.memory.addr(), 0, 0, 0, 0]).ok()
    });
    assert!(outcomes[0].is_some(), "it traps without a mutant");
    outcomes[0] != outcomes[1]
}

/// Headers after a call that always traps are compiled, and nothing leads there. How much a trap leaves of the budget is not kept.
#[test]
fn headers_after_a_trap_leave_the_budget_exact() {
    let rig = named("f0", "r0 = 0\ncall 4242\nagain: r0 += 1\nif r0 < 9 goto again\nexit");
    let [native, expected] = [Backend::Compiled(FUEL), Backend::Interpreter].map(|backend| outcomes(&rig, backend));
    assert_eq!(native[..2], expected[..2]);
}
