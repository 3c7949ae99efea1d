//! How long from validated bytecode to code that can run: for a small program again and again, as a service does that
//! loads many, in contexts and caches that are warm; for one of 40,000 instructions? How long from bytes to the first
//! result of that one? And how long from the first call of a cold program until a call of native code has returned?

use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

use twinbpf::{Engine, Object};
use twinbpf_benches::bench::{Case, Machine, is_selected, run};
use twinbpf_benches::clock::wall_ns;
use twinbpf_benches::compiling::{
    Wall, in_first_tier, in_rbpf, in_sbpf, in_twinbpf, large, large_program, small, warm,
};
use twinbpf_benches::left_out::{complete, leave_out};
use twinbpf_benches::peers::twinbpf::{Mode, instantiate, instantiate_in};
use twinbpf_benches::peers::{Make, Runner, rbpf, sbpf};
use twinbpf_benches::performance;
use twinbpf_benches::promise::Promises;
use twinbpf_benches::table::Table;
use twinbpf_benches::workload::{BLOCK, Dialect, corpus_object};
use twinbpf_isa::program::Program;
use twinbpf_jit::{Memory, OptLevel, Options};

const SMALL: &str = "64 instructions, each time";
const LARGE: &str = "large program, each instruction";
const TRUSTED: &str = "trusted";
const SANDBOX: &str = "jit";
/// Sandboxed, with an instruction budget.
const FUEL: &str = "jit+fuel";
/// Trusted, without the optimiser: `--opt-level none`.
const PLAIN: &str = "none";
/// Sandboxed, what the default engine makes first.
const FIRST_TIER: &str = "first tier";
const RBPF_CRANELIFT: &str = "rbpf cranelift";
const COLUMNS: &[&str] = &[TRUSTED, SANDBOX, FUEL, PLAIN, FIRST_TIER, RBPF_CRANELIFT, "rbpf jit", "sbpf jit"];

/// How the small program is measured.
const WARM: &str = "\nEach sample of the 64 instructions follows as many runs that are not measured, so that caches are warm. `none` is \
     trusted code without the optimiser (`--opt-level none`), `first tier` sandboxed code that is made before the optimiser's.\n";

/// What is called while it is cold.
const COLD: &str = "bench/memcpy64.bpf.o";
const COLD_ROUNDS: usize = 300;

/// Work of every workload inside the large program.
const LEN: u64 = 64;

fn main() -> ExitCode {
    complete(bench)
}

fn bench() {
    let large = large();
    if let Err(error) = &large
        && is_selected(LARGE)
    {
        leave_out("the large program", error);
    }
    let program = large.as_ref().ok().map(|object| large_program(object).unwrap_or_else(|error| panic!("{error}")));
    let mut promises = Promises::default();
    let cases = [Some(small_case()), program.map(large_case)].into_iter().flatten().collect();
    let Some(table) = run("compilation", COLUMNS, cases) else { return };
    compilation(&table, &mut promises);
    let mut body = table.markdown() + WARM;
    if let Some(case) = large.ok().map(|object| cold_case(Rc::new(object)))
        && let Some(table) = run("first result", &["interp", "auto"], vec![case])
    {
        promises.at_most("first result of the large program, auto / interpreter", table.mean_ratio(1, 0), 1.2, "");
        body += &format!("\n{}", table.markdown());
    }
    body += &cold_returns(&mut promises).unwrap_or_else(|error| panic!("{error}"));
    promises.print();
    performance::write("compile", "Compiling", &format!("{}\n{body}", promises.markdown()));
}

/// twinbpf's columns, with the measurement of each.
fn ours(program: &Program, measured: fn(Runner) -> Runner) -> Vec<Machine> {
    let (sandbox, trusted) = (Options::default(), Options { memory: Memory::Trusted, ..Options::default() });
    let fuel = Options { fuel: true, ..sandbox };
    let plain = Options { opt: OptLevel::None, ..trusted };
    let columns = [(TRUSTED, trusted), (SANDBOX, sandbox), (FUEL, fuel), (PLAIN, plain)];
    let machine = |(name, options)| {
        let program = program.clone();
        Machine::ours(name, Box::new(move || Ok(measured(in_twinbpf(&program, options)?))) as Make)
    };
    let mut machines: Vec<Machine> = columns.map(machine).into();
    let program = program.clone();
    let first = move || Ok(measured(in_first_tier(&program, sandbox)?));
    machines.push(Machine::ours(FIRST_TIER, Box::new(first) as Make));
    machines
}

fn small_case() -> Case {
    let (program, v2) = (small(Dialect::V3), small(Dialect::V2));
    let mut machines = ours(&program, warm);
    for (name, engine) in [(RBPF_CRANELIFT, rbpf::Engine::Cranelift), ("rbpf jit", rbpf::Engine::Jit)] {
        let program = program.clone();
        machines.push(Machine::peer(name, Box::new(move || Ok(warm(in_rbpf(&program, engine))))));
    }
    machines.push(Machine::peer("sbpf jit", Box::new(move || Ok(warm(in_sbpf(&v2, sbpf::Engine::Jit))))));
    Case { name: SMALL.to_owned(), operations: 1, expected: 64, machines }
}

/// No peer has local calls in code by Cranelift; the others make no comparable code. By the clock on the wall: several
/// threads compile it.
fn large_case(program: Program) -> Case {
    let insns = program.insns.len();
    println!("the large program has {insns} instructions");
    let machines = ours(&program, |mut compile| Box::new(Wall(move || compile.run())));
    Case { name: LARGE.to_owned(), operations: insns as u32, expected: insns as u64, machines }
}

/// From the bytes of an object to the result of its program, all of it by the clock on the wall: tiers compile in
/// another thread.
fn cold_case(object: Rc<Vec<u8>>) -> Case {
    let first = |mode| {
        let object = Rc::clone(&object);
        move || first_result(&object, mode)
    };
    let expected = first(Mode::Interpreter)().unwrap_or_else(|error| panic!("{error}"));
    let machine = |name, mode| {
        let first = first(mode);
        Machine::ours(name, Box::new(move || Ok(Box::new(Wall(first.clone())) as Runner)) as Make)
    };
    let machines = vec![machine("interp", Mode::Interpreter), machine("auto", Mode::Auto)];
    Case { name: "large program, cold".to_owned(), operations: 1, expected, machines }
}

fn first_result(object: &[u8], mode: Mode) -> Result<u64, String> {
    let object = Object::open("large.o", object).map_err(|error| error.to_string())?;
    let pre = instantiate(&object, mode)?;
    let entry = pre.program("prog").ok_or("no program")?;
    let mut instance = pre.instance(()).map_err(|error| error.to_string())?;
    let mut bytes = vec![0; BLOCK];
    bytes[..8].copy_from_slice(&LEN.to_le_bytes());
    let block = instance.context(&bytes).map_err(|error| error.to_string())?;
    instance.call(entry, &[block.addr()]).map_err(|trap| trap.to_string())
}

/// Times from the first call of a program until a call has returned that began with native code, in the engine that users get.
fn cold_returns(promises: &mut Promises) -> Result<String, String> {
    let object = corpus_object(COLD)?;
    let engine = Mode::Auto.engine().map_err(|error| error.to_string())?;
    let times: Result<Vec<f64>, String> = (0..COLD_ROUNDS).map(|_| cold_return(&object, &engine)).collect();
    let mut times = times?;
    times.sort_by(f64::total_cmp);
    let at = |percent: usize| times[times.len() * percent / 100];
    for percent in [50, 99] {
        let what = format!("first native return of a cold program, p{percent}");
        promises.at_most(&what, Some(at(percent)), 150.0, " us");
    }
    Ok(format!(
        "\nFirst native return: {COLD_ROUNDS} times `{COLD}`, a block of {LEN} bytes a call; p50 {:.0} us, p90 {:.0} us, p99 {:.0} us.\n",
        at(50),
        at(90),
        at(99)
    ))
}

fn cold_return(object: &Object, engine: &Engine) -> Result<f64, String> {
    let pre = instantiate_in(object, engine)?;
    let entry = pre.program("prog").ok_or("no program")?;
    let mut instance = pre.instance(()).map_err(|error| error.to_string())?;
    let mut bytes = vec![0; BLOCK];
    bytes[..8].copy_from_slice(&LEN.to_le_bytes());
    let block = instance.context(&bytes).map_err(|error| error.to_string())?;
    let start = wall_ns();
    loop {
        let native = pre.is_native(entry);
        instance.call(entry, &[block.addr()]).map_err(|trap| trap.to_string())?;
        if native {
            break;
        }
    }
    let took = wall_ns() - start;
    // The optimiser works on in the background.
    std::thread::sleep(Duration::from_millis(2));
    Ok(took as f64 / 1000.0)
}

fn compilation(table: &Table, promises: &mut Promises) {
    let row = |name: &str| table.rows.iter().find(|row| row.name == name);
    let ns = |name: &str, column: &str| Some(row(name)?.figures[table.column(column)?].as_ref()?.ns());
    let ratio = |column: &str, base: &str| {
        let figure = |column| row(SMALL)?.figures[table.column(column)?].as_ref();
        Some(figure(column)?.ratio_to(figure(base)?))
    };
    let us = ns(SMALL, TRUSTED).map(|ns| ns / 1000.0);
    promises.at_most("compile and publish 64 instructions, trusted", us, 75.0, " us");
    let first = ns(SMALL, FIRST_TIER).map(|ns| ns / 1000.0);
    promises.at_most("the same for the first tier", first, 40.0, " us");
    for (name, shape) in [(SMALL, "64 instructions"), (LARGE, "the large program")] {
        let ratio = ns(name, SANDBOX).zip(ns(name, FIRST_TIER)).map(|(sandbox, first)| sandbox / first);
        promises.at_least(&format!("sandboxed / first tier, {shape}"), ratio, 3.0, "");
    }
    promises.at_most("the same, sandboxed / trusted", ratio(SANDBOX, TRUSTED), 1.5, "");
    promises.at_least("rbpf's Cranelift / trusted", ratio(RBPF_CRANELIFT, TRUSTED), 5.0, "");
    promises.at_least("rbpf's Cranelift / sandboxed", ratio(RBPF_CRANELIFT, SANDBOX), 5.0, "");
    for mode in [TRUSTED, SANDBOX] {
        let rate = ns(LARGE, mode).map(|ns| 1e6 / ns);
        promises.at_least(&format!("rate of compilation, large program, {mode}"), rate, 600.0, " k instructions/s");
    }
}
