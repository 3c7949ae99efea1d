//! How long do workloads from outside run, those by which nothing is chosen? First those that no engineer of the optimiser has seen,
//! the sealed set, then the report set, and whether the first are much worse. Next to the same C as native code: the scalar baseline
//! of the other tables, and plain `clang -O2` with vectors, unrolled loops and the C library; and as WebAssembly in wasmtime, another
//! sandbox on the same Cranelift (Cargo feature `wasmtime`). `-- --selection` takes the workloads that tuning may use instead of both,
//! and writes nothing.

use std::process::ExitCode;

use twinbpf::PassSet;
use twinbpf_benches::bench::{Case, Machine, has_flag, is_selected, run};
use twinbpf_benches::left_out::{complete, leave_out};
use twinbpf_benches::outside::Outside;
use twinbpf_benches::peers::twinbpf::Mode;
use twinbpf_benches::peers::{Make, native, wasmtime};
use twinbpf_benches::performance;
use twinbpf_benches::promise::Promises;
use twinbpf_benches::sets::{dropped, reported, sealed, selection};
use twinbpf_benches::table::Table;

const NATIVE: &str = "native";
const UNBOUND: &str = "clang -O2";
const TRUSTED: &str = "trusted";
const SANDBOX: &str = "jit";
const FUEL: &str = "jit+fuel";
const WASM: &str = "wasmtime";
const WASM_FUEL: &str = "wasmtime+fuel";

/// Ours, in the order of the columns.
const OURS: &[(&str, Mode)] =
    &[(TRUSTED, Mode::Trusted), (SANDBOX, Mode::Sandbox), (FUEL, Mode::Fuel), ("none", Mode::Plain)];
/// WebAssembly, each with or without a budget.
const WASMS: &[(&str, bool)] = &[(WASM, false), (WASM_FUEL, true)];

/// How long one column may take compared with another: the geometric mean of the workloads, and the worst of them.
const PROMISED: &[(&str, &str, f64, Option<f64>)] = &[
    (TRUSTED, NATIVE, 1.05, Some(1.35)),
    (SANDBOX, NATIVE, 1.12, Some(1.5)),
    (SANDBOX, TRUSTED, 1.05, None),
    (SANDBOX, WASM, 1.05, None),
    (FUEL, NATIVE, 1.22, Some(1.7)),
    (FUEL, WASM_FUEL, 1.0, None),
];
/// Share of the workloads on which the sandbox must be faster than wasmtime's.
const FASTER: f64 = 0.5;

/// How much longer than the report set the sealed set may take over native code, in percent.
const WORSE: f64 = 5.0;

/// What the columns mean, for the documentation.
const LEGEND: &str = "\
- native: the same C by `clang-19 -O2 -fno-vectorize -fno-slp-vectorize -fno-unroll-loops -fno-builtin -ffreestanding`
- clang -O2: the same by `clang-19 -O2` alone
- trusted, jit, jit+fuel, none: twinbpf without checks, in the sandbox, in the sandbox with an instruction budget, without checks
  and without the optimiser (`--opt-level none`)
- wasmtime, wasmtime+fuel: the same C for wasm32 with the options of native, `-mbulk-memory` in place of a C library's `memcpy`,
  and a stack of 1 MiB; by wasmtime on the Cranelift that twinbpf has, in its default sandbox, and with `consume_fuel`";

fn main() -> ExitCode {
    complete(bench)
}

fn bench() {
    let with_native = native::available();
    if !with_native {
        leave_out("the columns of native code", &format!("no {}", native::clang()));
    }
    let wasm = wasmtime::available();
    if let Err(why) = &wasm {
        leave_out("the columns of wasmtime", why);
    }
    let ours = OURS.iter().map(|(name, _)| *name);
    let natives = if with_native { &[NATIVE, UNBOUND][..] } else { &[] };
    let wasms = if wasm.is_ok() { WASMS } else { &[] };
    let names = wasms.iter().map(|(name, _)| *name);
    let columns: Vec<_> = natives.iter().copied().chain(ours.clone()).chain(names).collect();
    let (mut plain, mut real) = (Vec::new(), Vec::new());
    let tuning = has_flag("--selection");
    let cases = |set: Vec<Outside>| set.into_iter().map(|subject| case(subject, with_native, wasms)).collect();
    let unseen = if tuning { None } else { run("sealed", &columns, cases(sealed())) };
    let set = if tuning { selection() } else { reported() };
    for subject in set.into_iter().filter(|subject| is_selected(subject.name)) {
        match subject.object() {
            Err(why) => leave_out(subject.name, &why),
            Ok(_) if subject.is_plain_c() => plain.push(case(subject, with_native, wasms)),
            Ok(_) => real.push(case(subject, false, &[])),
        }
    }
    dropped().iter().for_each(|(name, reason)| println!("{name} dropped: {reason}"));
    let tables = [run("outside", &columns, plain), run("with packets", &ours.collect::<Vec<_>>(), real)];
    let [Some(plain), Some(real)] = tables else { return };
    let mut promises = promises(&plain);
    let reported_means = means(&plain);
    println!("\n{reported_means}");
    let Some(unseen) = unseen else { return promises.print() };
    unseen_promises(&mut promises, &unseen, &plain);
    promises.print();
    let sealed_means = means(&unseen);
    println!("\nsealed:\n{sealed_means}");
    let base = columns[0];
    let body = format!(
        "{}\nWorkloads that were written without regard to any compiler (the sealed set of `benches/sets.toml`). Times of {base} in \
         nanoseconds, all others as multiples of it.\n\n{}\n\n{sealed_means}\n\nWorkloads by which nothing was chosen (the report \
         set):\n\n{}\n\n{LEGEND}\n\n{reported_means}\n\nReal programs with packets:\n\n{}",
        promises.markdown(),
        unseen.markdown().trim_end(),
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

fn promises(table: &Table) -> Promises {
    let mut promises = Promises::default();
    let columns = |own, base| Some((table.column(own)?, table.column(base)?));
    for (own, base, mean, worst) in PROMISED {
        let both = columns(own, base);
        let figure = both.and_then(|(own, base)| table.mean_ratio(own, base));
        promises.at_most(&format!("{own} / {base}, geometric mean"), figure, *mean, "");
        if let Some(most) = worst {
            let figure = both.and_then(|(own, base)| table.worst_ratio(own, base));
            promises.worst_at_most(&format!("{own} / {base}, worst workload"), figure, *most);
        }
    }
    let share = columns(SANDBOX, WASM).and_then(|(own, base)| {
        let ratios = table.ratios(own, base);
        let faster = ratios.iter().filter(|(_, ratio)| *ratio < 1.0).count();
        (!ratios.is_empty()).then(|| faster as f64 / ratios.len() as f64)
    });
    promises.at_least(&format!("share of workloads on which {SANDBOX} is faster than {WASM}"), share, FASTER, "");
    promises
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

/// Whether our columns are much worse on the sealed set, as geometric means over native code.
fn unseen_promises(promises: &mut Promises, sealed: &Table, reported: &Table) {
    let mean = |table: &Table, name: &str| table.mean_ratio(table.column(name)?, table.column(NATIVE)?);
    for (name, _) in OURS {
        let worse =
            mean(sealed, name).zip(mean(reported, name)).map(|(sealed, reported)| (sealed / reported - 1.0) * 100.0);
        promises.at_most(&format!("{name}, sealed against report, longer by"), worse, WORSE, " %");
    }
}
