//! What does a call of a host function cost? A thousand calls in a loop: of a closure that adds two numbers, and of a
//! function of the C library that no machine of others can call.

use std::process::ExitCode;

use twinbpf_benches::bench::{Case, Machine, run};
use twinbpf_benches::left_out::complete;
use twinbpf_benches::peers::twinbpf::Mode;
use twinbpf_benches::peers::{Make, calls, rbpf, sbpf};
use twinbpf_benches::performance;
use twinbpf_benches::promise::Promises;

/// Calls a run makes, as in `corpus/bench/call.bpf.c`.
const ROUNDS: u32 = 1000;

const COLUMNS: &[&str] =
    &["trusted", "jit", "jit+fuel", "interp", "rbpf jit", "rbpf cranelift", "sbpf raw", "sbpf jit"];

fn main() -> ExitCode {
    complete(bench)
}

fn bench() {
    let ours = |name, program, mode| Machine::ours(name, Box::new(move || calls::in_twinbpf(program, mode)) as Make);
    let all_of_ours = |program| {
        vec![
            ours("trusted", program, Mode::Trusted),
            ours("jit", program, Mode::Sandbox),
            ours("jit+fuel", program, Mode::Fuel),
            ours("interp", program, Mode::Interpreter),
        ]
    };
    let rbpf = |name, engine| Machine::peer(name, Box::new(move || calls::in_rbpf("host", engine)) as Make);
    let sbpf = |name, engine| Machine::peer(name, Box::new(move || calls::in_sbpf("host", engine)) as Make);
    let mut closure = all_of_ours("host");
    closure.extend([
        rbpf("rbpf jit", rbpf::Engine::Jit),
        rbpf("rbpf cranelift", rbpf::Engine::Cranelift),
        sbpf("sbpf raw", sbpf::Engine::Raw),
        sbpf("sbpf jit", sbpf::Engine::Jit),
    ]);
    let cases = [("closure", closure), ("C function", all_of_ours("c"))];
    let cases = cases.into_iter().map(|(name, machines)| Case {
        name: name.to_owned(),
        operations: ROUNDS,
        expected: u64::from(ROUNDS - 1) * u64::from(ROUNDS) / 2,
        machines,
    });
    let Some(table) = run("host call", COLUMNS, cases.collect()) else { return };
    let mut promises = Promises::default();
    for own in ["trusted", "jit"] {
        let ns = table.column(own).and_then(|at| Some(table.rows.first()?.figures[at].as_ref()?.ns()));
        promises.at_most(&format!("host call, {own}"), ns, 1.5, " ns");
    }
    promises.print();
    performance::write("host", "Host calls", &format!("{}\n{}", promises.markdown(), table.markdown()));
}
