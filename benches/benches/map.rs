//! What does a map operation of a program cost, by kind of map? No peer has maps.

use twinbpf_benches::peers::{Make, Runner, twinbpf};
use twinbpf_benches::question::{Case, ask};

/// Operations a run makes, as in `corpus/bench/maps.bpf.c`.
const ROUNDS: u32 = 1000;
/// Where the programs are.
const OBJECT: &str = "bench/maps.bpf.o";
/// The program that fills the maps.
const FILL: &str = "fill";

fn main() {
    let (instance, _) = twinbpf::instance(OBJECT, FILL).unwrap_or_else(|error| panic!("{error}"));
    let names = instance.pre().programs().filter(|name| *name != FILL).map(str::to_owned);
    let cases = names.map(|name| {
        let program = name.clone();
        let machine: Make = Box::new(move || operations(&program));
        Case { name, operations: ROUNDS, expected: 0, machines: vec![("twinbpf", machine)] }
    });
    ask("map operation", &["twinbpf"], cases.collect());
}

fn operations(program: &str) -> Result<Runner, String> {
    let (mut instance, entry) = twinbpf::instance(OBJECT, program)?;
    let fill = instance.pre().program(FILL).ok_or("no program that fills")?;
    let failed = instance.call(fill, &[]).map_err(|trap| trap.to_string())?;
    if failed != 0 {
        return Err(format!("{failed} operations failed while filling"));
    }
    let ring = (program == "ring_output").then(|| instance.pre().map("ring").cloned()).flatten();
    Ok(Box::new(move || {
        let result = instance.call(entry, &[]).map_err(|trap| trap.to_string());
        if let Some(ring) = &ring {
            // The consumer; without it the buffer would be full at once.
            ring.take_sent();
        }
        result
    }))
}
