//! What a map printed at its intervals, for a chart.

use crate::picture::Chart;

/// Points that are kept: of more, each second one goes.
const MOST: usize = 1000;
/// Lines of a chart.
const LINES: usize = 8;

/// Values by label, interval by interval.
#[derive(Debug, Default)]
pub(super) struct History {
    /// Seconds since the first interval began, and what was printed then.
    points: Vec<(f64, Vec<(String, f64)>)>,
    /// Each `1 << thinned`-th interval is kept.
    thinned: u32,
    seen: usize,
}

impl History {
    /// Adds what is printed at a time.
    pub(super) fn add(&mut self, seconds: f64, values: impl FnOnce() -> Vec<(String, f64)>) {
        self.seen += 1;
        if !self.seen.is_multiple_of(1 << self.thinned) {
            return;
        }
        self.points.push((seconds, values()));
        if self.points.len() > MOST {
            let mut at = 0;
            self.points.retain(|_| {
                at += 1;
                at % 2 == 0
            });
            self.thinned += 1;
        }
    }

    /// The labels with the largest values over time; one that is not there at a time is 0. `None`: there is no line yet.
    pub(super) fn chart(&self, title: &str, unit: String) -> Option<Chart> {
        let mut sums: Vec<(&str, f64)> = Vec::new();
        for (label, value) in self.points.iter().flat_map(|(_, values)| values) {
            match sums.iter_mut().find(|(known, _)| known == label) {
                Some((_, sum)) => *sum += value.abs(),
                None => sums.push((label, value.abs())),
            }
        }
        sums.sort_by(|one, two| two.1.total_cmp(&one.1));
        let line = |label: &str| {
            let value =
                |values: &[(String, f64)]| values.iter().filter(|(of, _)| of == label).map(|(_, value)| value).sum();
            let points = self.points.iter().map(|(seconds, values)| (*seconds, value(values)));
            (label.to_owned(), points.collect())
        };
        let lines: Vec<_> = sums.iter().take(LINES).map(|(label, _)| line(label)).collect();
        let left_out = if sums.len() > LINES { format!(", {LINES} of {}", sums.len()) } else { String::new() };
        let thinned =
            if self.thinned > 0 { format!(", one of {} intervals", 1 << self.thinned) } else { String::new() };
        let title = format!("{title}{left_out}{thinned}");
        (!lines.is_empty()).then_some(Chart::Series { title, unit, lines })
    }
}

#[cfg(test)]
mod tests {
    use super::{Chart, History, MOST};

    #[test]
    fn the_largest_lines_are_drawn_and_long_histories_thinned() {
        let mut history = History::default();
        assert_eq!(history.chart("empty", String::new()), None);
        for at in 0..2 * MOST {
            history.add(at as f64, || (0..10).map(|label| (format!("l{label}"), f64::from(label))).collect());
        }
        history.add(5000.0, Vec::new);
        let Some(Chart::Series { title, unit, lines }) = history.chart("calls", "n".into()) else { panic!("no chart") };
        assert_eq!((title.as_str(), unit.as_str()), ("calls, 8 of 10, one of 2 intervals", "n"));
        let labels: Vec<&str> = lines.iter().map(|(label, _)| label.as_str()).collect();
        assert_eq!(labels, ["l9", "l8", "l7", "l6", "l5", "l4", "l3", "l2"]);
        let points = &lines[0].1;
        assert!((MOST / 2..=MOST).contains(&points.len()), "{}", points.len());
        assert!(points.windows(2).all(|pair| pair[1].0 - pair[0].0 == 2.0 && pair[0].1 == 9.0));
    }
}
