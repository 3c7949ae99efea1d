//! Alternating measurement: in each iteration every subject takes one sample, in an order that alternates.

use std::time::Duration;

use anyhow::Result;

/// A sample should take at least this long, so that reading the clock does not count.
const SAMPLE: Duration = Duration::from_millis(2);
/// Iterations at least, whatever they take.
const MIN_ITERATIONS: u32 = 5;
/// Iterations at most.
const MAX_ITERATIONS: u32 = 1000;

/// Something that takes time.
pub(super) trait Subject {
    /// Time of so many runs, with each of several inputs their mean.
    fn sample(&mut self, runs: u64) -> Result<Duration>;
}

/// What a subject took, in nanoseconds per run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Figures {
    /// Median of the iterations.
    pub(super) ns: f64,
    /// The shortest sample.
    pub(super) min: f64,
    /// The longest.
    pub(super) max: f64,
    /// How many times as long as the first subject in the same iteration, median of the iterations.
    pub(super) ratio: f64,
}

/// Measures the subjects for about this long.
///
/// # Errors
/// A subject that fails, although it ran before.
pub(super) fn alternate(subjects: &mut [&mut dyn Subject], time: Duration) -> Result<Vec<Figures>> {
    let sample = SAMPLE.min(time / (MIN_ITERATIONS * subjects.len().max(1) as u32));
    let mut runs = Vec::with_capacity(subjects.len());
    let mut first = Duration::ZERO;
    for subject in subjects.iter_mut() {
        let (count, took) = calibrate(&mut **subject, sample)?;
        runs.push(count);
        first += took;
    }
    let iterations = (time.as_nanos() / first.as_nanos().max(1)).clamp(MIN_ITERATIONS.into(), MAX_ITERATIONS.into());
    let mut samples = vec![Vec::with_capacity(iterations as usize); subjects.len()];
    for first in 0..iterations {
        for turn in 0..subjects.len() {
            let index = if first % 2 == 0 { turn } else { subjects.len() - 1 - turn };
            let took = subjects[index].sample(runs[index])?;
            samples[index].push(took.as_nanos() as f64 / runs[index] as f64);
        }
    }
    Ok(samples.iter().map(|own| figures(own, &samples[0])).collect())
}

/// As many runs as fill a sample, and how long they took. Also warms up.
fn calibrate(subject: &mut dyn Subject, sample: Duration) -> Result<(u64, Duration)> {
    let mut runs = 1;
    loop {
        let took = subject.sample(runs)?;
        if took >= sample || runs > 1 << 30 {
            return Ok((runs, took));
        }
        // Close to the goal in one step, once there is something to go by.
        let missing = sample.as_nanos() as f64 / took.as_nanos().max(1) as f64;
        runs = (runs as f64 * (missing * 1.1).clamp(1.5, 10.0)).ceil() as u64;
    }
}

fn figures(own: &[f64], first: &[f64]) -> Figures {
    let ratios = own.iter().zip(first).map(|(own, first)| own / first);
    Figures {
        ns: median(own.to_vec()),
        min: own.iter().copied().fold(f64::INFINITY, f64::min),
        max: own.iter().copied().fold(0.0, f64::max),
        ratio: median(ratios.collect()),
    }
}

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes as many nanoseconds for a run as it says.
    struct Clock {
        ns: u64,
        samples: u32,
    }

    impl Subject for Clock {
        fn sample(&mut self, runs: u64) -> Result<Duration> {
            self.samples += 1;
            Ok(Duration::from_nanos(self.ns * runs))
        }
    }

    #[test]
    fn figures_are_per_run_and_relative_to_the_first() {
        let (mut slow, mut fast) = (Clock { ns: 1000, samples: 0 }, Clock { ns: 10, samples: 0 });
        let figures = alternate(&mut [&mut slow, &mut fast], Duration::from_millis(40)).unwrap();
        assert_eq!(figures[0], Figures { ns: 1000.0, min: 1000.0, max: 1000.0, ratio: 1.0 });
        assert_eq!((figures[1].ns, figures[1].ratio), (10.0, 0.01));
        assert!((5..40).contains(&slow.samples), "{}", slow.samples);
    }

    #[test]
    fn a_run_that_takes_long_is_a_sample() {
        let mut slow = Clock { ns: 3_000_000_000, samples: 0 };
        let figures = alternate(&mut [&mut slow], Duration::from_millis(100)).unwrap();
        assert_eq!((figures[0].ns, slow.samples), (3e9, 1 + MIN_ITERATIONS));
    }

    #[test]
    fn one_outlier_shows_in_the_spread_only() {
        let found = figures(&[1.0, 50.0, 2.0], &[2.0, 2.0, 2.0]);
        assert_eq!(found, Figures { ns: 2.0, min: 1.0, max: 50.0, ratio: 1.0 });
    }
}
