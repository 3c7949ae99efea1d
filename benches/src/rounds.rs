//! The alternating measurement behind the tables.
//!
//! In each round every subject takes one sample, in an order that turns round every time, so that whatever else the
//! machine does hits all of them alike. A sample is CPU time of this thread over so many runs as fill the sample;
//! figures are medians of all rounds, and of ratios inside a round.

use crate::clock::thread_cpu_ns;
use crate::peers::Subject;

/// CPU time of one sample.
const SAMPLE_NS: u64 = 2_000_000;

/// What a subject took.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    /// Nanoseconds per run, median of the rounds.
    pub ns: f64,
    /// How many times as long as the first subject in the same round, median of the rounds.
    pub ratio: Option<f64>,
}

impl Figure {
    /// For one of the `operations` of a run. The ratio means nothing where the first subject was not `ours`.
    pub(crate) fn per(self, operations: u32, ours: bool) -> Figure {
        Figure { ns: self.ns / f64::from(operations), ratio: self.ratio.filter(|_| ours) }
    }
}

/// Measures each subject over `rounds`.
///
/// # Panics
///
/// When a subject fails: it ran before.
pub fn measure(subjects: &mut [Subject], rounds: usize) -> Vec<Figure> {
    let runs: Vec<u64> = subjects.iter_mut().map(|subject| (SAMPLE_NS / sample(subject, 2).max(1)).max(1)).collect();
    let mut samples = vec![Vec::with_capacity(rounds); subjects.len()];
    for round in 0..rounds {
        for turn in 0..subjects.len() {
            let index = if round % 2 == 0 { turn } else { subjects.len() - 1 - turn };
            let ns = sample_total(&mut subjects[index], runs[index]);
            samples[index].push(ns as f64 / runs[index] as f64);
        }
    }
    let ratio = |own: &[f64]| median(own.iter().zip(&samples[0]).map(|(own, first)| own / first).collect());
    samples.iter().map(|own| Figure { ns: median(own.clone()), ratio: Some(ratio(own)) }).collect()
}

fn sample(subject: &mut Subject, runs: u64) -> u64 {
    sample_total(subject, runs) / runs
}

fn sample_total(subject: &mut Subject, runs: u64) -> u64 {
    let start = thread_cpu_ns();
    for _ in 0..runs {
        let result = (subject.run)();
        std::hint::black_box(result.unwrap_or_else(|error| panic!("{}: {error}", subject.name)));
    }
    thread_cpu_ns() - start
}

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}
