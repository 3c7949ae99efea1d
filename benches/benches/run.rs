//! How long does a workload run: native, in our engines, in those of the peers, in the kernel?
//!
//! The same C everywhere; for the peers and us as the same bytecode, except solana-sbpf, which knows no 32-bit jumps.
//! A machine is compared with those that check as much: interpreters that check every access; native code that checks
//! accesses and counts instructions; that checks accesses; that checks nothing. The kernel proves what it can before.
//! The end of the output says whether our engines keep their promises.

use std::process::ExitCode;

use twinbpf_benches::bench::{Case, Machine, run};
use twinbpf_benches::left_out::{complete, leave_out};
use twinbpf_benches::peers::{Make, Runner, linux, native, rbpf, sbpf, twinbpf};
use twinbpf_benches::performance;
use twinbpf_benches::promise::Promises;
use twinbpf_benches::table::Table;
use twinbpf_benches::workload::{WORKLOADS, Workload};

const NATIVE: &str = "native";
const INTERPRETER: &str = "interp";
const FUEL: &str = "jit+fuel";
const SANDBOX: &str = "jit";
const TRUSTED: &str = "trusted";
const PLAIN: &str = "none";
const RBPF_JIT: &str = "rbpf jit";
const RBPF_CRANELIFT: &str = "rbpf cranelift";
const SBPF_INTERPRETER: &str = "sbpf interp";
const LINUX: &str = "kernel";

/// Columns after `native`.
const MACHINES: &[&str] = &[
    TRUSTED,
    SANDBOX,
    FUEL,
    PLAIN,
    INTERPRETER,
    RBPF_JIT,
    "sbpf raw",
    RBPF_CRANELIFT,
    "sbpf unmetered",
    "sbpf jit",
    "rbpf interp",
    SBPF_INTERPRETER,
    LINUX,
];

/// Ours, and the peers that check as much: with them it must keep up on each workload.
const CLASSES: &[(&str, &[&str])] = &[
    (TRUSTED, &[RBPF_JIT, "sbpf raw"]),
    (SANDBOX, &[RBPF_CRANELIFT, "sbpf unmetered"]),
    (FUEL, &["sbpf jit"]),
    (INTERPRETER, &["rbpf interp", SBPF_INTERPRETER]),
];

/// Workloads, and the columns that are known not to run them: rbpf's compilers return another result or stop in an assertion, and the
/// kernel's verifier refuses the program in each of its forms.
const GAPS: &[(&str, &[&str])] = &[
    ("sieve", &[LINUX]),
    ("heapsort", &[RBPF_CRANELIFT, LINUX]),
    ("hashtable", &[LINUX]),
    ("json", &[RBPF_CRANELIFT, LINUX]),
    ("balancer", &[RBPF_JIT]),
    ("lz4", &[LINUX]),
    ("stackvm", &[LINUX]),
    ("btree", &[LINUX]),
    ("utf8", &[RBPF_CRANELIFT, LINUX]),
];

/// A peer that is ahead by less than this is level with us: that much one run differs from the next.
const LEVEL: f64 = 0.02;

fn main() -> ExitCode {
    complete(bench)
}

fn bench() {
    let with_native = native::available();
    if !with_native {
        leave_out("the column of native code", &format!("no {}", native::clang()));
    }
    let columns: Vec<_> = with_native.then_some(NATIVE).into_iter().chain(MACHINES.iter().copied()).collect();
    let Some(table) = run("workload", &columns, WORKLOADS.iter().map(|workload| case(workload, with_native)).collect())
    else {
        return;
    };
    let promises = promises(&table);
    promises.print();
    let forms = forms(&table);
    println!("\n{forms}");
    let base = columns[0];
    let body = format!(
        "{}\nTimes of {base} in nanoseconds, all others as multiples of it.\n\n{}\n\n{LEGEND}\n\n{forms}\n",
        promises.markdown(),
        table.markdown()
    );
    performance::write("run", "Running", &body);
}

/// What the columns mean, for the documentation.
const LEGEND: &str = "\
- native: the same C by `clang-19 -O2 -fno-vectorize -fno-slp-vectorize -fno-unroll-loops -fno-builtin -ffreestanding`
- trusted, jit, jit+fuel, none, interp: twinbpf without checks, in the sandbox, in the sandbox with an instruction budget,
  without checks and without the optimiser (`--opt-level none`), and its interpreter
- rbpf: its own JIT checks nothing, the one on Cranelift and the interpreter check all accesses
- sbpf: solana-sbpf; `jit` and `interp` in their default configuration (accesses checked, instructions counted),
  `unmetered` without counting, hidden constants and no-ops, `raw` without address translation too
- kernel: the kernel's JIT by `BPF_PROG_TEST_RUN`, with the kernel's own clock";

/// Makes a machine ready for a workload.
type MakeFor = Box<dyn Fn(&Workload) -> Result<Runner, String>>;

fn case(workload: &'static Workload, with_native: bool) -> Case {
    let make = |make: MakeFor| Box::new(move || make(workload)) as Make;
    let own = |name, mode| Machine::ours(name, make(Box::new(move |workload| twinbpf::workload(workload, mode))));
    let rbpf = |name, engine| Machine::peer(name, make(Box::new(move |workload| rbpf::workload(workload, engine))));
    let sbpf = |name, engine| Machine::peer(name, make(Box::new(move |workload| sbpf::workload(workload, engine))));
    let native = with_native.then(|| Machine::known(NATIVE, make(Box::new(native::workload))));
    let machines = [
        own(TRUSTED, twinbpf::Mode::Trusted),
        own(SANDBOX, twinbpf::Mode::Sandbox),
        own(FUEL, twinbpf::Mode::Fuel),
        own(PLAIN, twinbpf::Mode::Plain),
        own(INTERPRETER, twinbpf::Mode::Interpreter),
        rbpf(RBPF_JIT, rbpf::Engine::Jit),
        sbpf("sbpf raw", sbpf::Engine::Raw),
        rbpf(RBPF_CRANELIFT, rbpf::Engine::Cranelift),
        sbpf("sbpf unmetered", sbpf::Engine::Unmetered),
        sbpf("sbpf jit", sbpf::Engine::Jit),
        rbpf("rbpf interp", rbpf::Engine::Interpreter),
        sbpf(SBPF_INTERPRETER, sbpf::Engine::Interpreter),
        Machine::known(LINUX, make(Box::new(linux::workload))),
    ];
    let gaps = GAPS.iter().find(|(name, _)| *name == workload.name).map_or(&[][..], |(_, columns)| columns);
    let case = Case {
        name: workload.name.to_owned(),
        operations: 1,
        expected: workload.expected(),
        machines: native.into_iter().chain(machines).collect(),
    };
    case.with_gaps(gaps)
}

fn promises(table: &Table) -> Promises {
    let mut promises = Promises::default();
    let mean = |name: &str, base: &str| table.mean_ratio(table.column(name)?, table.column(base)?);
    promises.at_most("trusted / native, geometric mean", mean(TRUSTED, NATIVE), 1.05, "");
    promises.at_most("sandboxed / native, geometric mean", mean(SANDBOX, NATIVE), 1.12, "");
    promises.at_most("sandboxed with fuel / native, geometric mean", mean(FUEL, NATIVE), 1.25, "");
    let column = |name: &str| table.column(name);
    let worst = column(TRUSTED).zip(column(NATIVE)).and_then(|(own, native)| table.worst_ratio(own, native));
    promises.worst_at_most("worst workload, trusted / native", worst, 1.25);
    promises.at_least("solana-sbpf's interpreter / ours, geometric mean", mean(SBPF_INTERPRETER, INTERPRETER), 3.5, "");
    let mut slower = Vec::new();
    for (own, peers) in CLASSES {
        for peer in *peers {
            let (Some(at), Some(base)) = (column(peer), column(own)) else { continue };
            let faster = table.ratios(at, base).into_iter().filter(|(_, ratio)| *ratio < 1.0 - LEVEL);
            slower.extend(faster.map(|(workload, ratio)| format!("{peer} on {workload} ({ratio:.2} of {own})")));
        }
    }
    promises.nowhere("workloads on which a peer of the same class is faster by more than 2 %", &slower);
    promises
}

/// How each workload got past the verifier, and where the kernel's code is faster than ours.
fn forms(table: &Table) -> String {
    let mut lines: Vec<String> = linux::Form::ALL
        .into_iter()
        .map(|form| {
            let taken = table.rows.iter().filter(|row| linux::known_form(&row.name) == Some(form));
            let names: Vec<_> = taken.map(|row| row.name.as_str()).collect();
            format!(
                "In the kernel {}: {}.",
                form.name(),
                if names.is_empty() { "none".into() } else { names.join(", ") }
            )
        })
        .collect();
    for own in [TRUSTED, SANDBOX] {
        let (Some(at), Some(base)) = (table.column(LINUX), table.column(own)) else { continue };
        let faster = table.ratios(at, base).into_iter().filter(|(_, ratio)| *ratio < 1.0);
        let names: Vec<_> = faster.map(|(workload, ratio)| format!("{workload} ({ratio:.2})")).collect();
        if !names.is_empty() {
            lines.push(format!("The kernel's code is faster than `{own}` on {}.", names.join(", ")));
        }
    }
    lines.join("\n")
}
