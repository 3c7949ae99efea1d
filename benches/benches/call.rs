//! What does a call cost: of a whole program, of a host function, of a subprogram, of a callback?

use twinbpf_benches::kernel::{Calls, code_with, link};
use twinbpf_benches::peers::{Make, Runner, rbpf, sbpf, twinbpf};
use twinbpf_benches::question::{Case, ask};

/// Calls a run makes, as in `corpus/bench/call.bpf.c`.
const ROUNDS: u32 = 1000;
/// The sum of the numbers below it.
const SUM: u64 = (ROUNDS as u64 - 1) * ROUNDS as u64 / 2;

fn main() {
    let case = |program: &'static str, operations, expected, peers: bool| {
        let mut machines: Vec<(_, Make)> = vec![("twinbpf", Box::new(move || in_twinbpf(program)))];
        if peers {
            machines.push(("rbpf", Box::new(move || in_rbpf(program))));
            machines.push(("solana-sbpf", Box::new(move || in_sbpf(program))));
        }
        Case { name: program.to_owned(), operations, expected, machines }
    };
    let cases = vec![
        case("empty", 1, 0, true),
        case("host", ROUNDS, SUM, true),
        case("local", ROUNDS, SUM, true),
        // No peer can call back into a program.
        case("callback", ROUNDS, SUM, false),
    ];
    ask("call", &["twinbpf", "rbpf", "solana-sbpf"], cases);
}

fn in_twinbpf(program: &str) -> Result<Runner, String> {
    let (mut instance, entry) = twinbpf::instance("bench/call.bpf.o", program)?;
    Ok(Box::new(move || instance.call(entry, &[]).map_err(|trap| trap.to_string())))
}

/// The bytes of a program, and where its subprograms start.
fn code(program: &str, calls: Calls) -> (Vec<u8>, Vec<usize>) {
    let linked = link("bench/call.bpf.o");
    let program = &linked.programs[linked.program(program).expect("the object has it")];
    let starts = program.functions[1..].iter().map(|function| function.start);
    (code_with(program, calls), starts.collect())
}

fn in_rbpf(program: &str) -> Result<Runner, String> {
    let (code, _) = code(program, Calls { host: rbpf::ADD, by_pc: false });
    rbpf::program(code.leak(), vec![0; 64])
}

fn in_sbpf(program: &str) -> Result<Runner, String> {
    let (code, starts) = code(program, Calls { host: sbpf::add(), by_pc: true });
    sbpf::program(&code, vec![0; 64], &starts)
}
