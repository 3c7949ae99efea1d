//! Interleaved measurement of several subjects.
//!
//! In each round every subject takes one sample, in an order that reverses every time, so that other load
//! of the machine affects all alike. A sample is the time of so many runs as fill it; figures are medians of all
//! rounds, and of ratios inside a round.

use crate::peers::Subject;

/// Time of one sample.
const SAMPLE_NS: u64 = 2_000_000;

/// What a subject took: nanoseconds of one operation, round by round.
#[derive(Clone, Debug)]
pub struct Figure {
    rounds: Vec<f64>,
}

impl Figure {
    /// Of something measured elsewhere, round by round; at least one.
    pub fn new(rounds: Vec<f64>) -> Figure {
        Figure { rounds }
    }

    /// Adds the rounds of another measurement of the same.
    pub fn extend(&mut self, more: Figure) {
        self.rounds.extend(more.rounds);
    }

    /// Median of the rounds.
    pub fn ns(&self) -> f64 {
        median(self.rounds.clone())
    }

    /// How many times as long as the other in the same round, median of the rounds.
    pub fn ratio_to(&self, other: &Figure) -> f64 {
        median(self.rounds.iter().zip(&other.rounds).map(|(own, other)| own / other).collect())
    }
}

/// Measures each subject over `rounds`; a run does so many `operations`.
///
/// # Panics
///
/// When a subject fails: it ran before.
pub fn measure(subjects: &mut [Subject], operations: u32, rounds: usize) -> Vec<Figure> {
    let runs: Vec<u64> =
        subjects.iter_mut().map(|subject| (SAMPLE_NS / (sample(subject, 2) / 2).max(1)).max(1)).collect();
    let mut figures = vec![Figure { rounds: Vec::with_capacity(rounds) }; subjects.len()];
    for round in 0..rounds {
        for turn in 0..subjects.len() {
            let index = if round % 2 == 0 { turn } else { subjects.len() - 1 - turn };
            let ns = sample(&mut subjects[index], runs[index]);
            figures[index].rounds.push(ns as f64 / runs[index] as f64 / f64::from(operations));
        }
    }
    figures
}

fn sample(subject: &mut Subject, runs: u64) -> u64 {
    subject.machine.time(runs).unwrap_or_else(|error| panic!("{}: {error}", subject.name))
}

/// The one in the middle; there is at least one.
pub fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}
