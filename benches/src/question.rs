//! What the files under `benches/` have in common: cases, the machines that answer them, and how they are asked.
//!
//! Criterion gives each machine of ours its distribution; the table at the end comes from samples that alternate
//! between all machines. `-- NAME` takes only the cases with this in their name, `-- --write` puts the answer in
//! `docs/performance.md`.

use std::time::Duration;

use criterion::{BenchmarkId, Criterion, SamplingMode, Throughput};

use crate::peers::{Make, Subject};
use crate::probe::{check, probe};
use crate::rounds::measure;
use crate::table::{Row, Table};

/// Rounds of the alternating measurement.
const ROUNDS: usize = 21;

/// One that can run a case.
pub struct Machine {
    name: &'static str,
    make: Make,
    peer: bool,
}

impl Machine {
    /// One of ours, or another that we answer for.
    pub fn ours(name: &'static str, make: Make) -> Self {
        Self { name, make, peer: false }
    }

    /// One that must first show in a process of its own that it gets the case right.
    pub fn peer(name: &'static str, make: Make) -> Self {
        Self { name, make, peer: true }
    }
}

/// One program, and the machines that can run it.
pub struct Case {
    /// First cell of its row.
    pub name: String,
    /// What one run does so many times; figures are for one.
    pub operations: u32,
    /// What every run must return.
    pub expected: u64,
    /// By column, any order.
    pub machines: Vec<Machine>,
}

impl Case {
    /// The machines that return what they must; the others by name and reason.
    fn ready(&self) -> (Vec<Subject>, Vec<String>) {
        let (mut subjects, mut left_out) = (Vec::new(), Vec::new());
        for Machine { name, make, peer } in &self.machines {
            let checked = if *peer { probe(make, self.expected) } else { check(make, self.expected) };
            match checked.and_then(|()| make()) {
                Ok(machine) => subjects.push(Subject { name, machine }),
                Err(why) => left_out.push(format!("{name} left out of {}: {}", self.name, why.trim())),
            }
        }
        (subjects, left_out)
    }
}

/// Whether the command line has this word.
pub fn asked(word: &str) -> bool {
    std::env::args().skip(1).any(|argument| argument == word)
}

/// Whether the command line wants this case: it has no name to look for, or a part of this one.
pub fn wanted(name: &str) -> bool {
    std::env::args().skip(1).find(|argument| !argument.starts_with('-')).is_none_or(|part| name.contains(&part))
}

/// Asks every case and prints the table, whose ratios are to the first column; none when this is not `cargo bench`.
pub fn ask(subject: &'static str, columns: &[&'static str], mut cases: Vec<Case>) -> Option<Table> {
    cases.retain(|case| wanted(&case.name));
    // Criterion knows no `--write`.
    let mut criterion = Criterion::default()
        .without_plots()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(50))
        .measurement_time(Duration::from_millis(300));
    let mut table = Table { subject, columns: columns.to_vec(), rows: Vec::new(), notes: Vec::new() };
    for case in &cases {
        let (mut subjects, left_out) = case.ready();
        left_out.iter().for_each(|line| println!("{line}"));
        table.notes.extend(left_out);
        // Without `cargo bench`, the check was all.
        if asked("--bench") {
            distributions(&mut criterion, subject, case, &mut subjects);
            table.rows.push(row(case, columns, &mut subjects));
        }
    }
    if !asked("--bench") {
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
    let ours = |name: &str| case.machines.iter().any(|machine| machine.name == name && !machine.peer);
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
