//! What does a call cost: of a whole program, of a subprogram, of a callback, of a number of an iterator, of a program that takes
//! over? All but the first two beside the kernel.

use std::process::ExitCode;

use twinbpf_benches::bench::{Case, Machine, run};
use twinbpf_benches::left_out::complete;
use twinbpf_benches::peers::twinbpf::Mode;
use twinbpf_benches::peers::{Make, calls, rbpf, sbpf};
use twinbpf_benches::performance;
use twinbpf_benches::promise::Promises;

/// Calls a run makes, as in `corpus/bench/call.bpf.c`.
const ROUNDS: u32 = 1000;
/// The sum of the numbers below it.
const SUM: u64 = (ROUNDS as u64 - 1) * ROUNDS as u64 / 2;

/// Tail calls that a run makes.
const TAIL_CALLS: u32 = 33;

const COLUMNS: &[&str] =
    &["trusted", "jit", "jit+fuel", "interp", "rbpf jit", "sbpf raw", "sbpf jit", "rbpf interp", "sbpf interp", KERNEL];
const KERNEL: &str = "kernel";

fn main() -> ExitCode {
    complete(bench)
}

fn bench() {
    let cases = vec![
        case("empty", 1, 0, true),
        case("local", ROUNDS, SUM, true),
        case("callback", ROUNDS, SUM, false),
        case("numbers", ROUNDS, SUM, false),
        case("tail", TAIL_CALLS, 0, false),
        case("any_tail", TAIL_CALLS, 0, false),
    ];
    let Some(table) = run("call", COLUMNS, cases) else { return };
    let mut promises = Promises::default();
    for own in ["trusted", "jit"] {
        let ratio = table.column(own).zip(table.column("rbpf jit")).and_then(|(own, peer)| {
            table.ratios(own, peer).into_iter().find(|(case, _)| *case == "empty").map(|(_, ratio)| ratio)
        });
        promises.at_most(&format!("empty call, {own} / rbpf's JIT"), ratio, 1.0, "");
    }
    for name in ["callback", "numbers", "tail", "any_tail"] {
        let figure = |column| table.rows.iter().find(|row| row.name == name)?.figures[table.column(column)?].as_ref();
        let ratio = figure("jit").zip(figure(KERNEL)).map(|(own, kernel)| own.ratio_to(kernel));
        promises.at_most(&format!("{name}, jit / kernel"), ratio, 1.0, "");
    }
    promises.print();
    performance::write("call", "Calls", &format!("{}\n{}\n{LEGEND}", promises.markdown(), table.markdown()));
}

/// What the rows mean, for the documentation.
const LEGEND: &str = "\
- empty: a run of a program that does nothing; local: a call of a subprogram; callback: `bpf_loop`'s of its callback
- numbers: a number of `bpf_iter_num_next`, which `bpf_for` calls; tail, any_tail: a tail call with constant map and index, and with an index
  that the program loads, 33 a run
- kernel: the same program by `BPF_PROG_TEST_RUN` and the kernel's own clock, what a run costs there included";

/// No other peer can call back into a program.
fn case(program: &'static str, operations: u32, expected: u64, peers: bool) -> Case {
    let ours = |name, mode| Machine::ours(name, Box::new(move || calls::in_twinbpf(program, mode)) as Make);
    let rbpf = |name, engine| Machine::peer(name, Box::new(move || calls::in_rbpf(program, engine)) as Make);
    let sbpf = |name, engine| Machine::peer(name, Box::new(move || calls::in_sbpf(program, engine)) as Make);
    let mut machines = vec![
        ours("trusted", Mode::Trusted),
        ours("jit", Mode::Sandbox),
        ours("jit+fuel", Mode::Fuel),
        ours("interp", Mode::Interpreter),
    ];
    if !peers {
        machines.push(Machine::known(KERNEL, Box::new(move || calls::in_kernel(program)) as Make));
    }
    if peers {
        machines.extend([
            rbpf("rbpf jit", rbpf::Engine::Jit),
            sbpf("sbpf raw", sbpf::Engine::Raw),
            sbpf("sbpf jit", sbpf::Engine::Jit),
            rbpf("rbpf interp", rbpf::Engine::Interpreter),
            sbpf("sbpf interp", sbpf::Engine::Interpreter),
        ]);
    }
    Case { name: program.to_owned(), operations, expected, machines }
}
