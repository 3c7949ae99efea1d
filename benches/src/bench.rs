//! Harness of the benchmarks: cases, the backends that run them, and the comparison as a table.
//!
//! Criterion measures the distribution of each backend of twinbpf; the table at the end comes from samples that alternate
//! between all backends. `-- NAME` takes only the cases with this in their name, `-- --write` puts the table into
//! `docs/performance.md`, and with `-- --partial` a bench succeeds that has left something out ([`left_out`](crate::left_out)).

use std::time::Duration;

use criterion::{BenchmarkId, Criterion, SamplingMode, Throughput};

pub use crate::arguments::{has_flag, is_selected};
use crate::left_out::leave_out;
use crate::peers::{Make, Subject};
use crate::probe::{check, probe};
use crate::rounds::measure;
use crate::table::{Row, Table};

/// Rounds of the alternating measurement.
const ROUNDS: usize = 21;

/// A backend that can run a case.
pub struct Machine {
    name: &'static str,
    make: Make,
    kind: Kind,
    /// It is known not to run the case.
    is_gap: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// twinbpf: has to run.
    Ours,
    /// Right, but not there on every machine.
    Known,
    Peer,
}

impl Machine {
    /// A backend of twinbpf. The bench fails if it cannot run or returns another result.
    pub fn ours(name: &'static str, make: Make) -> Self {
        Self { name, make, kind: Kind::Ours, is_gap: false }
    }

    /// Native code or the kernel: known to be right, but not everywhere.
    pub fn known(name: &'static str, make: Make) -> Self {
        Self { name, make, kind: Kind::Known, is_gap: false }
    }

    /// A peer, which first has to return the right result in a process of its own.
    pub fn peer(name: &'static str, make: Make) -> Self {
        Self { name, make, kind: Kind::Peer, is_gap: false }
    }
}

/// One program, and the backends that can run it.
pub struct Case {
    /// First cell of its row.
    pub name: String,
    /// Operations of one run; figures are for one operation.
    pub operations: u32,
    /// What every run must return.
    pub expected: u64,
    /// Backends by name of their column, in any order.
    pub machines: Vec<Machine>,
}

impl Case {
    /// Names backends that are known not to run this case, or not to return the right result: leaving them out is no failure of
    /// the bench.
    ///
    /// # Panics
    ///
    /// When the case has no such backend.
    #[must_use]
    pub fn with_gaps(mut self, names: &[&str]) -> Self {
        for name in names {
            let machine = self.machines.iter_mut().find(|machine| machine.name == *name);
            machine.unwrap_or_else(|| panic!("{} has no {name}", self.name)).is_gap = true;
        }
        self
    }

    /// The backends that return the expected result; others that do not, with the reason. Ours have to.
    fn ready(&self) -> (Vec<Subject>, Vec<String>) {
        let (mut subjects, mut notes) = (Vec::new(), Vec::new());
        for Machine { name, make, kind, is_gap } in &self.machines {
            let checked = if *kind == Kind::Peer { probe(make, self.expected) } else { check(make, self.expected) };
            match checked.and_then(|()| make()) {
                Ok(machine) => subjects.push(Subject { name, machine }),
                Err(why) if *kind == Kind::Ours => panic!("{name}, {}: {}", self.name, why.trim()),
                Err(why) => {
                    let note = format!("{name} left out of {}: {}", self.name, why.trim());
                    if *is_gap {
                        println!("{note}");
                    } else {
                        leave_out(&format!("{name} in {}", self.name), &why);
                    }
                    notes.push(note);
                }
            }
        }
        (subjects, notes)
    }
}

/// Runs every case and prints the table, whose ratios are to the first column; `None` if this is not `cargo bench`.
pub fn run(subject: &'static str, columns: &[&'static str], mut cases: Vec<Case>) -> Option<Table> {
    cases.retain(|case| is_selected(&case.name));
    // Criterion does not know `--write`, so it parses no arguments.
    let mut criterion = Criterion::default()
        .without_plots()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(50))
        .measurement_time(Duration::from_millis(300));
    let mut table = Table { subject, columns: columns.to_vec(), rows: Vec::new(), notes: Vec::new() };
    for case in &cases {
        let (mut subjects, notes) = case.ready();
        table.notes.extend(notes);
        // Without `cargo bench` there is only the check.
        if has_flag("--bench") {
            distributions(&mut criterion, subject, case, &mut subjects);
            table.rows.push(row(case, columns, &mut subjects));
        }
    }
    if !has_flag("--bench") {
        return None;
    }
    println!();
    table.print();
    Some(table)
}

fn distributions(criterion: &mut Criterion, subject: &str, case: &Case, subjects: &mut [Subject]) {
    let mut group = criterion.benchmark_group(format!("{subject} {}", case.name));
    group.sampling_mode(SamplingMode::Flat);
    group.throughput(Throughput::Elements(case.operations.into()));
    let ours = |name: &str| case.machines.iter().any(|machine| machine.name == name && machine.kind != Kind::Peer);
    for Subject { name, machine } in subjects.iter_mut().filter(|subject| ours(subject.name)) {
        group.bench_function(BenchmarkId::from_parameter(*name), |bencher| {
            bencher.iter_custom(|runs| {
                Duration::from_nanos(machine.time(runs).unwrap_or_else(|error| panic!("{name}: {error}")))
            });
        });
    }
    group.finish();
}

fn row(case: &Case, columns: &[&'static str], subjects: &mut [Subject]) -> Row {
    let mut measured: Vec<_> = measure(subjects, case.operations, ROUNDS).into_iter().map(Some).collect();
    let mut figure = |column: &&str| measured[subjects.iter().position(|subject| subject.name == *column)?].take();
    Row { name: case.name.clone(), figures: columns.iter().map(&mut figure).collect() }
}
