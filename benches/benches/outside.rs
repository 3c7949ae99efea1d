//! How long do workloads from outside run, those by which nothing is chosen? Next to the same C as native code: the scalar
//! baseline of the other tables, and plain `clang -O2` with vectors, unrolled loops and the C library; and as WebAssembly in
//! wasmtime, another sandbox on the same Cranelift. `-- --selection` takes the workloads that tuning may use, and writes nothing.

use twinbpf::PassSet;
use twinbpf_benches::bench::{Case, Machine, has_flag, run};
use twinbpf_benches::outside::Outside;
use twinbpf_benches::peers::twinbpf::Mode;
use twinbpf_benches::peers::{Make, native, wasmtime};
use twinbpf_benches::performance;
use twinbpf_benches::sets::{dropped, reported, selection};
use twinbpf_benches::table::Table;

const NATIVE: &str = "native";
const UNBOUND: &str = "clang -O2";
/// Ours, in the order of the columns.
const OURS: &[(&str, Mode)] =
    &[("trusted", Mode::Trusted), ("jit", Mode::Sandbox), ("jit+fuel", Mode::Fuel), ("none", Mode::Plain)];
/// WebAssembly, each with or without a budget.
const WASMS: &[(&str, bool)] = &[("wasmtime", false), ("wasmtime+fuel", true)];

/// What the columns mean, for the documentation.
const LEGEND: &str = "\
- native: the same C by `clang-19 -O2 -fno-vectorize -fno-slp-vectorize -fno-unroll-loops -fno-builtin -ffreestanding`
- clang -O2: the same by `clang-19 -O2` alone
- trusted, jit, jit+fuel, none: twinbpf without checks, in the sandbox, in the sandbox with an instruction budget, without checks
  and without the optimiser (`--opt-level none`)
- wasmtime, wasmtime+fuel: the same C for wasm32 with the options of native, `-mbulk-memory` in place of a C library's `memcpy`,
  and a stack of 1 MiB; by wasmtime on the Cranelift that twinbpf has, in its default sandbox, and with `consume_fuel`";

fn main() {
    let with_native = native::available();
    if !with_native {
        println!("no {}: the columns of native code are left out", native::clang());
    }
    let wasm = wasmtime::available();
    if let Err(why) = &wasm {
        println!("the columns of wasmtime are left out: {}", why.trim());
    }
    let ours = OURS.iter().map(|(name, _)| *name);
    let natives = if with_native { &[NATIVE, UNBOUND][..] } else { &[] };
    let wasms = if wasm.is_ok() { WASMS } else { &[] };
    let names = wasms.iter().map(|(name, _)| *name);
    let columns: Vec<_> = natives.iter().copied().chain(ours.clone()).chain(names).collect();
    let (mut plain, mut real) = (Vec::new(), Vec::new());
    let tuning = has_flag("--selection");
    for subject in if tuning { selection() } else { reported() } {
        match subject.object() {
            Err(why) => println!("{} left out: {}", subject.name, why.trim()),
            Ok(_) if subject.is_plain_c() => plain.push(case(subject, with_native, wasms)),
            Ok(_) => real.push(case(subject, false, &[])),
        }
    }
    dropped().iter().for_each(|(name, reason)| println!("{name} dropped: {reason}"));
    let tables = [run("outside", &columns, plain), run("with packets", &ours.collect::<Vec<_>>(), real)];
    let [Some(plain), Some(real)] = tables else { return };
    let means = means(&plain);
    println!("\n{means}");
    if tuning {
        return;
    }
    let base = columns[0];
    let body = format!(
        "Workloads by which nothing was chosen (the report set of `benches/sets.toml`). Times of {base} in nanoseconds, all \
         others as multiples of it.\n\n{}\n\n{LEGEND}\n\n{means}\n\nReal programs with packets:\n\n{}",
        plain.markdown().trim_end(),
        real.markdown()
    );
    performance::write("outside", "Workloads from outside", &body);
}

fn case(subject: Outside, with_native: bool, wasms: &[(&'static str, bool)]) -> Case {
    let native = |name, flags| Machine::known(name, Box::new(move || subject.native(flags)) as Make);
    let natives = [native(NATIVE, native::FLAGS), native(UNBOUND, native::UNBOUND)];
    let ours = OURS
        .iter()
        .map(|&(name, mode)| Machine::ours(name, Box::new(move || subject.run_in(mode, PassSet::ALL)) as Make));
    let natives = natives.into_iter().filter(|_| with_native);
    let wasms = wasms.iter().map(|&(name, fuel)| Machine::peer(name, Box::new(move || subject.wasm(fuel)) as Make));
    Case {
        name: subject.name.to_owned(),
        operations: 1,
        expected: subject.expected(),
        machines: natives.chain(ours).chain(wasms).collect(),
    }
}

/// Geometric means of our columns and of wasmtime's over both native ones.
fn means(table: &Table) -> String {
    let mean = |name: &str, base: &str| table.mean_ratio(table.column(name)?, table.column(base)?);
    let names = OURS.iter().map(|(name, _)| name).chain(WASMS.iter().map(|(name, _)| name));
    let lines = names.filter_map(|name| {
        let (scalar, unbound) = (mean(name, NATIVE)?, mean(name, UNBOUND)?);
        Some(format!("- {name}: {scalar:.2} times {NATIVE}, {unbound:.2} times {UNBOUND}, geometric means"))
    });
    lines.collect::<Vec<_>>().join("\n")
}
