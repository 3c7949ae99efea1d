//! What the files under `benches/` have in common: cases, the machines that answer them, and how they are asked.
//!
//! Criterion gives each machine its distribution; the table at the end comes from samples that alternate between the
//! machines. `-- --test` goes to that table at once, `-- NAME` takes only the cases with this in their name.

use std::time::Duration;

use criterion::{BenchmarkId, Criterion, SamplingMode, Throughput};

use crate::peers::{Make, Runner, Subject};
use crate::rounds::measure;
use crate::table::{Row, Table};

/// Rounds of the alternating measurement.
const ROUNDS: usize = 21;

/// One program, and the machines that can run it.
pub struct Case {
    /// First cell of its row.
    pub name: String,
    /// What one run does so many times; figures are for one.
    pub operations: u32,
    /// What every run must return.
    pub expected: u64,
    /// Column and machine. The first is ours.
    pub machines: Vec<(&'static str, Make)>,
}

impl Case {
    /// The machines that return what they must; the others by name and reason.
    pub fn ready(&self) -> (Vec<Subject>, Vec<String>) {
        let (mut subjects, mut left_out) = (Vec::new(), Vec::new());
        for (name, make) in &self.machines {
            match self.checked(make) {
                Ok(run) => subjects.push(Subject { name, run }),
                Err(why) => left_out.push(format!("{name} left out of {}: {why}", self.name)),
            }
        }
        (subjects, left_out)
    }

    fn checked(&self, make: &Make) -> Result<Runner, String> {
        let mut run = make()?;
        // Twice, because the second run finds memory as the first one left it.
        for result in [run()?, run()?] {
            if result != self.expected {
                return Err(format!("returned {result:#x} instead of {:#x}", self.expected));
            }
        }
        Ok(run)
    }
}

/// Asks every case and prints the table; none when this is not `cargo bench`.
pub fn ask(subject: &'static str, columns: &[&'static str], mut cases: Vec<Case>) -> Option<Table> {
    let filter = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    cases.retain(|case| filter.as_ref().is_none_or(|part| case.name.contains(part.as_str())));
    distributions(subject, &cases);
    if !std::env::args().any(|argument| argument == "--bench") {
        return None;
    }
    let table =
        Table { subject, columns: columns.to_vec(), rows: cases.iter().map(|case| row(case, columns)).collect() };
    table.print();
    Some(table)
}

fn distributions(subject: &str, cases: &[Case]) {
    let mut criterion = Criterion::default()
        .without_plots()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(1000))
        .configure_from_args();
    for case in cases {
        let mut group = criterion.benchmark_group(format!("{subject} {}", case.name));
        group.sampling_mode(SamplingMode::Flat);
        group.throughput(Throughput::Elements(case.operations.into()));
        for mut machine in case.ready().0 {
            group.bench_function(BenchmarkId::from_parameter(machine.name), |bencher| bencher.iter(&mut machine.run));
        }
        group.finish();
    }
    criterion.final_summary();
}

fn row(case: &Case, columns: &[&'static str]) -> Row {
    let (mut subjects, left_out) = case.ready();
    left_out.iter().for_each(|line| println!("{line}"));
    let measured = measure(&mut subjects, ROUNDS);
    let ours = subjects.first().is_some_and(|subject| subject.name == columns[0]);
    let figure = |column: &&str| {
        let at = subjects.iter().position(|subject| subject.name == *column)?;
        Some(measured[at].per(case.operations, ours))
    };
    Row { name: case.name.clone(), figures: columns.iter().map(figure).collect() }
}
