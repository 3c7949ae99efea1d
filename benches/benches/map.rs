//! How long does a map operation of a program take, by kind of map? Beside the same program of the same object in the kernel.

use std::fmt::Write;
use std::process::ExitCode;

use twinbpf_benches::bench::{Case, Machine, is_selected, run};
use twinbpf_benches::left_out::complete;
use twinbpf_benches::million;
use twinbpf_benches::peers::twinbpf::Mode;
use twinbpf_benches::peers::{Make, maps};
use twinbpf_benches::performance;
use twinbpf_benches::promise::Promises;
use twinbpf_benches::table::Table;

/// The column that all others are compared with.
const KERNEL: &str = "kernel";
/// Ours, in the order of the columns.
const OURS: &[(&str, Mode)] = &[("jit", Mode::Sandbox), ("jit+fuel", Mode::Fuel), ("interp", Mode::Interpreter)];

/// Look-ups that are an address computed in place, and how long they may take.
const IN_PLACE: (&[&str], f64) = (&["array_lookup", "percpu_array_lookup"], 1.5);
/// Look-ups by key, and how much of the kernel's time they may take.
const BY_KEY: (&[&str], f64) = (&["hash_lookup", "percpu_hash_lookup", "lru_hash_lookup", "lpm_lookup"], 1.0);
/// Walks, and how much of the kernel's time they may take.
const WALKS: (&str, f64) = ("_walk", 1.0);
/// Endings and beginnings of the names of operations that change a map, and how much of the kernel's time they may take.
const CHANGES: (&[&str], f64) = (&["_update", "_renew", "ring_", "_push_pop"], 0.8);
/// Whatever is done with a million entries, as a part of the kernel's time.
const MILLION: f64 = 1.0;
/// What the interpreter may add to an operation, in nanoseconds.
const INTERPRETED: f64 = 25.0;

/// What the rows mean, for the documentation.
const LEGEND: &str = "\
- kernel: the same program of the same object in the kernel, loaded by twinbpf's loader, by `BPF_PROG_TEST_RUN` and the
  kernel's own clock
- jit, jit+fuel, interp: twinbpf in the sandbox, with an instruction budget too, and its interpreter
- renew: one operation is a delete, the next an update that puts the entry back; push_pop: a push, then a pop
- walk: `bpf_for_each_map_elem`, an element with the callback for it
- a million entries: the host walks and fills the kernel's maps by batches of `bpf(2)`; memory of an entry is what the process
  grows by, and in the kernel what `/proc/meminfo` says is used (the `memlock` of `/proc/self/fdinfo` counts neither the forks of
  a trie nor what the allocator rounds up to)
- ring: the consumer empties the buffer between runs, and its time does not count";

fn main() -> ExitCode {
    complete(bench)
}

fn bench() {
    let names = maps::operations().unwrap_or_else(|error| panic!("{error}"));
    let cases = names.into_iter().map(|name| {
        let program = name.clone();
        let kernel = Machine::known(KERNEL, Box::new(move || maps::in_kernel(&program)) as Make);
        let ours = OURS.iter().map(|&(column, mode)| {
            let program = name.clone();
            Machine::ours(column, Box::new(move || maps::in_twinbpf(&program, mode)) as Make)
        });
        let machines = [kernel].into_iter().chain(ours).collect();
        Case { name, operations: maps::ROUNDS, expected: 0, machines }
    });
    let columns: Vec<_> = [KERNEL].into_iter().chain(OURS.iter().map(|(name, _)| *name)).collect();
    let Some(table) = run("map operation", &columns, cases.collect()) else { return };
    let mut promises = promises(&table);
    let million = million(&mut promises);
    promises.print();
    println!("\n{million}");
    let body = format!("{}\n{}\n{million}\n{LEGEND}", promises.markdown(), table.markdown());
    performance::write("map", "Maps", &body);
}

fn promises(table: &Table) -> Promises {
    let mut promises = Promises::default();
    for name in IN_PLACE.0 {
        for column in ["jit", "jit+fuel"] {
            promises.at_most(&format!("{name}, {column}"), table.ns(name, column), IN_PLACE.1, " ns");
        }
    }
    let mut beside_kernel = |name: &str, most| {
        promises.at_most(&format!("{name}, jit / kernel"), table.ratio(name, "jit", KERNEL), most, "");
    };
    BY_KEY.0.iter().for_each(|name| beside_kernel(name, BY_KEY.1));
    for row in &table.rows {
        if CHANGES.0.iter().any(|part| row.name.contains(part)) {
            beside_kernel(&row.name, CHANGES.1);
        } else if row.name.ends_with(WALKS.0) {
            beside_kernel(&row.name, WALKS.1);
        }
    }
    let added = |name: &str| Some((table.ns(name, "interp")? - table.ns(name, "jit")?, name.to_owned()));
    // The interpreter runs a callback for each step of a walk.
    let single = table.rows.iter().filter(|row| !row.name.ends_with(WALKS.0));
    let worst = single.filter_map(|row| added(&row.name)).max_by(|one, two| one.0.total_cmp(&two.0));
    let name = worst.as_ref().map_or("-", |(_, name)| name);
    promises.at_most(
        &format!("most that the interpreter adds to jit ({name})"),
        worst.as_ref().map(|worst| worst.0),
        INTERPRETED,
        " ns",
    );
    promises
}

/// The table of maps with a million entries.
fn million(promises: &mut Promises) -> String {
    let mut table = "| a million entries | kernel | twinbpf | twinbpf / kernel |\n|---|---:|---:|---:|\n".to_owned();
    for kind in million::KINDS.iter().filter(|kind| is_selected(&format!("million {kind}"))) {
        let figures = million::measure(kind).unwrap_or_else(|error| panic!("{kind}: {error}"));
        for (question, (own, kernel)) in million::QUESTIONS.iter().zip(figures) {
            let ratio = kernel.as_ref().map(|kernel| own.ratio_to(kernel));
            let cell = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.2}"));
            let cells = [cell(kernel.map(|kernel| kernel.ns())), cell(Some(own.ns())), cell(ratio)];
            writeln!(table, "| {kind}: {question} | {} |", cells.join(" | ")).expect("strings take all");
            promises.at_most(&format!("a million in {kind}: {question}, jit / kernel"), ratio, MILLION, "");
        }
    }
    table
}
