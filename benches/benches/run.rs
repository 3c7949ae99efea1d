//! How long does a compute kernel run in the interpreter, and in those of the peers?
//!
//! Criterion gives each machine its distribution; the table at the end comes from samples that alternate between the
//! machines and says whether the interpreter keeps its promises. `-- --test` goes to that table at once, `-- NAME`
//! takes only the kernels with this in their name.

use std::time::Duration;

use criterion::{BenchmarkId, Criterion};
use twinbpf_benches::kernel::{KERNELS, Kernel};
use twinbpf_benches::peers::{INTERPRETERS, ready};
use twinbpf_benches::rounds::measure;
use twinbpf_benches::table::{Row, Table};

/// Rounds of the alternating measurement.
const ROUNDS: usize = 21;
/// How many times as long the peers must take, by geometric mean.
const TARGETS: &[(&str, f64)] = &[("rbpf", 4.0), ("solana-sbpf", 3.0)];

fn main() {
    let mut criterion = Criterion::default()
        .without_plots()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(1000))
        .configure_from_args();
    distributions(&mut criterion);
    criterion.final_summary();

    // Without it this is `cargo test`, which only wants to know whether everything runs.
    if std::env::args().any(|argument| argument == "--bench") {
        let table = alternating();
        table.print();
        promises(&table);
    }
}

fn kernels() -> impl Iterator<Item = &'static Kernel> {
    let filter = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    KERNELS.iter().filter(move |kernel| filter.as_ref().is_none_or(|part| kernel.name.contains(part.as_str())))
}

fn distributions(criterion: &mut Criterion) {
    for kernel in kernels() {
        let mut group = criterion.benchmark_group(kernel.name);
        let (subjects, _) = ready(kernel, INTERPRETERS);
        for mut subject in subjects {
            group.bench_function(BenchmarkId::from_parameter(subject.name), |bencher| bencher.iter(&mut subject.run));
        }
        group.finish();
    }
}

fn alternating() -> Table {
    let columns: Vec<_> = INTERPRETERS.iter().map(|(name, _)| *name).collect();
    let rows = kernels().map(|kernel| {
        let (mut subjects, left_out) = ready(kernel, INTERPRETERS);
        left_out.iter().for_each(|line| println!("{line}"));
        let measured = measure(&mut subjects, ROUNDS);
        let ns = |column: &&str| subjects.iter().position(|subject| subject.name == *column).map(|at| measured[at]);
        Row { name: kernel.name.to_owned(), ns: columns.iter().map(ns).collect() }
    });
    let rows = rows.collect();
    Table { subject: "kernel", columns, rows }
}

fn promises(table: &Table) {
    for &(peer, target) in TARGETS {
        let Some(column) = table.columns.iter().position(|name| *name == peer) else { continue };
        let mean = table.mean_ratio(column);
        let verdict = if mean >= target { "holds" } else { "FAILS" };
        println!("at least {target} times as fast as {peer}: {mean:.2}, {verdict}");
        for (kernel, ratio) in table.ratios(column).into_iter().filter(|(_, ratio)| *ratio < 1.0) {
            println!("FAILS: slower than {peer} on {kernel} ({ratio:.2})");
        }
    }
}
