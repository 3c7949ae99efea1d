//! What does a call of a host function cost? A thousand calls of a function that adds two numbers, in a loop.

use twinbpf_benches::peers::twinbpf::Mode;
use twinbpf_benches::peers::{Make, calls, rbpf, sbpf};
use twinbpf_benches::performance;
use twinbpf_benches::promise::Promises;
use twinbpf_benches::question::{Case, Machine, ask};

/// Calls a run makes, as in `corpus/bench/call.bpf.c`.
const ROUNDS: u32 = 1000;

const COLUMNS: &[&str] =
    &["trusted", "jit", "jit+fuel", "interp", "rbpf jit", "rbpf cranelift", "sbpf raw", "sbpf jit"];

fn main() {
    let ours = |name, mode| Machine::ours(name, Box::new(move || calls::in_twinbpf("host", mode)) as Make);
    let rbpf = |name, engine| Machine::peer(name, Box::new(move || calls::in_rbpf("host", engine)) as Make);
    let sbpf = |name, engine| Machine::peer(name, Box::new(move || calls::in_sbpf("host", engine)) as Make);
    let case = Case {
        name: "closure".to_owned(),
        operations: ROUNDS,
        expected: u64::from(ROUNDS - 1) * u64::from(ROUNDS) / 2,
        machines: vec![
            ours("trusted", Mode::Trusted),
            ours("jit", Mode::Sandbox),
            ours("jit+fuel", Mode::Fuel),
            ours("interp", Mode::Interpreter),
            rbpf("rbpf jit", rbpf::Engine::Jit),
            rbpf("rbpf cranelift", rbpf::Engine::Cranelift),
            sbpf("sbpf raw", sbpf::Engine::Raw),
            sbpf("sbpf jit", sbpf::Engine::Jit),
        ],
    };
    let Some(table) = ask("host call", COLUMNS, vec![case]) else { return };
    let mut promises = Promises::default();
    for own in ["trusted", "jit"] {
        let ns = table.column(own).and_then(|at| Some(table.rows.first()?.figures[at].as_ref()?.ns()));
        promises.at_most(&format!("host call, {own}"), ns, 1.5, " ns");
    }
    promises.print();
    performance::write("host", "Host calls", &format!("{}\n{}", promises.markdown(), table.markdown()));
}
