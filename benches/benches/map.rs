//! What does a map operation of a program cost, by kind of map? No peer has maps.

use twinbpf_benches::bench::{Case, Machine, run};
use twinbpf_benches::peers::twinbpf::Mode;
use twinbpf_benches::peers::{Make, Runner, twinbpf};
use twinbpf_benches::performance;

/// Operations a run makes, as in `corpus/bench/maps.bpf.c`.
const ROUNDS: u32 = 1000;
/// Where the programs are.
const OBJECT: &str = "bench/maps.bpf.o";
/// The program that fills the maps.
const FILL: &str = "fill";

fn main() {
    let (instance, _) = twinbpf::instance(OBJECT, FILL, Mode::Interpreter).unwrap_or_else(|error| panic!("{error}"));
    let names = instance.pre().programs().filter(|name| *name != FILL).map(str::to_owned);
    let cases = names.map(|name| {
        let machine = |column, mode| {
            let program = name.clone();
            Machine::ours(column, Box::new(move || operations(&program, mode)) as Make)
        };
        let machines = vec![machine("jit", Mode::Sandbox), machine("interp", Mode::Interpreter)];
        Case { name, operations: ROUNDS, expected: 0, machines }
    });
    if let Some(table) = run("map operation", &["jit", "interp"], cases.collect()) {
        performance::write("map", "Maps", &table.markdown());
    }
}

fn operations(program: &str, mode: Mode) -> Result<Runner, String> {
    let (mut instance, entry) = twinbpf::instance(OBJECT, program, mode)?;
    let fill = instance.pre().program(FILL).ok_or("no program that fills")?;
    let failed = instance.call(fill, &[]).map_err(|trap| trap.to_string())?;
    if failed != 0 {
        return Err(format!("{failed} operations failed while filling"));
    }
    let ring = (program == "ring_output").then(|| instance.pre().map_ops("ring").cloned()).flatten();
    Ok(Box::new(move || {
        let result = instance.call(entry, &[]).map_err(|trap| trap.to_string());
        if let Some(ring) = &ring {
            // The consumer; without it the buffer would be full at once.
            ring.take_sent();
        }
        result
    }))
}
