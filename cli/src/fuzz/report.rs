//! Output of a campaign: a line of progress, and the figures at the end.

use std::collections::BTreeMap;
use std::io::{IsTerminal as _, stderr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;
use twinbpf_trace::{errln, outln};

/// See the module documentation.
pub(super) struct Report {
    /// The batch with which it began.
    pub(super) first: u64,
    begin: Instant,
    said: Instant,
    /// Figures of each child, and those of children that have gone.
    figures: BTreeMap<u64, Value>,
    gone: Figures,
    findings: BTreeMap<String, Found>,
}

struct Found {
    path: Option<PathBuf>,
    times: u64,
    known: bool,
}

/// Sums.
#[derive(Clone, Default)]
struct Figures {
    programs: u64,
    runs: u64,
    executed: BTreeMap<String, u64>,
    refused: BTreeMap<(String, String), u64>,
    left_out: BTreeMap<String, u64>,
    /// Counts that `--agreement` prints.
    counts: BTreeMap<String, u64>,
    points: u64,
    operations: u64,
    slots: u64,
    cpu_ms: u64,
}

impl Figures {
    fn add(&mut self, value: &Value) {
        let number = |name: &str| value[name].as_u64().unwrap_or(0);
        self.programs += number("programs");
        self.runs += number("runs");
        // Children reach the same points.
        self.points = self.points.max(number("points"));
        self.operations = self.operations.max(number("operations"));
        self.slots += number("slots");
        self.cpu_ms += number("cpu_ms");
        let maps = [("executed", &mut self.executed), ("left_out", &mut self.left_out), ("counts", &mut self.counts)];
        for (name, counts) in maps {
            for (engine, count) in value[name].as_object().into_iter().flatten() {
                *counts.entry(engine.clone()).or_default() += count.as_u64().unwrap_or(0);
            }
        }
        for entry in value["refused"].as_array().into_iter().flatten() {
            if let (Some(engine), Some(why), Some(count)) = (entry[0].as_str(), entry[1].as_str(), entry[2].as_u64()) {
                *self.refused.entry((engine.to_owned(), why.to_owned())).or_default() += count;
            }
        }
    }
}

/// A line of progress this often, if standard error is no terminal.
const SELDOM: Duration = Duration::from_secs(30);
const OFTEN: Duration = Duration::from_secs(1);

impl Report {
    pub(super) fn new(first: u64) -> Report {
        let (begin, gone) = (Instant::now(), Figures::default());
        Report { first, begin, said: begin, figures: BTreeMap::new(), gone, findings: BTreeMap::new() }
    }

    /// What a child has done so far. One that took another's place begins at 0.
    pub(super) fn figures(&mut self, index: u64, value: &Value) {
        let before = self.figures.insert(index, value.clone());
        let count = |value: &Value| value["programs"].as_u64().unwrap_or(0);
        if let Some(before) = before.filter(|before| count(before) > count(value)) {
            self.gone.add(&before);
        }
    }

    fn sum(&self) -> Figures {
        let mut sum = self.gone.clone();
        self.figures.values().for_each(|value| sum.add(value));
        sum
    }

    pub(super) fn found(&mut self, bucket: &str, path: &Path, known: bool) {
        let found = self.findings.entry(bucket.to_owned()).or_insert(Found { path: None, times: 0, known });
        found.times += 1;
        if found.path.is_none() {
            errln!("found{}: {bucket}\n  twinbpf diff {}", if known { ", known" } else { "" }, path.display());
            found.path = Some(path.to_owned());
        }
    }

    /// One more of a bucket, of which there is a file already.
    pub(super) fn again(&mut self, bucket: &str) {
        let found = Found { path: None, times: 0, known: true };
        self.findings.entry(bucket.to_owned()).or_insert(found).times += 1;
    }

    /// Whether something was found that is not known.
    pub(super) fn news(&self) -> bool {
        self.findings.values().any(|found| !found.known)
    }

    fn rate(&self, count: u64) -> String {
        grouped((count as f64 / self.begin.elapsed().as_secs_f64().max(1e-9)) as u64)
    }

    pub(super) fn progress(&mut self) {
        let often = if stderr().is_terminal() { OFTEN } else { SELDOM };
        if self.said.elapsed() < often {
            return;
        }
        self.said = Instant::now();
        let sum = self.sum();
        errln!(
            "{:>5}s {} programs, {} programs/s, {} runs/s, {} points of coverage, {} refused, {} findings",
            self.begin.elapsed().as_secs(),
            grouped(sum.programs),
            self.rate(sum.programs),
            self.rate(sum.runs),
            grouped(sum.points),
            grouped(sum.refused.values().sum()),
            self.findings.len()
        );
    }

    pub(super) fn summary(&self) {
        let sum = self.sum();
        outln!(
            "{} programs in {:.1} s: {} programs/s, {} runs/s over all engines",
            grouped(sum.programs),
            self.begin.elapsed().as_secs_f64(),
            self.rate(sum.programs),
            self.rate(sum.runs)
        );
        let per_cpu = |count: u64| grouped((count * 1000).checked_div(sum.cpu_ms).unwrap_or(0));
        outln!(
            "of a processor: {} programs/s, {} runs/s ({:.2} s used, {} slots a program)",
            per_cpu(sum.programs),
            per_cpu(sum.runs),
            sum.cpu_ms as f64 / 1000.0,
            sum.slots.checked_div(sum.programs).unwrap_or(0)
        );
        if sum.counts.is_empty() {
            outln!("coverage: {} points (operation x operands x edge), {} operations", sum.points, sum.operations);
            self.engines(&sum);
        }
        for (what, count) in &sum.counts {
            outln!("{:>12} {what}", grouped(*count));
        }
        self.found_at_all();
    }

    /// What became of the programs, by engine, and why.
    fn engines(&self, sum: &Figures) {
        let mut refused: BTreeMap<&str, u64> = BTreeMap::new();
        sum.refused.iter().for_each(|((engine, _), count)| *refused.entry(engine).or_default() += count);
        let mut names: Vec<&str> = sum.executed.keys().chain(sum.left_out.keys()).map(String::as_str).collect();
        names.extend(refused.keys());
        names.sort_unstable();
        names.dedup();
        outln!("{:>12} {:>12} {:>8} {:>12}", "executed", "refused", "%", "left out");
        for name in names {
            let of = |counts: &BTreeMap<String, u64>| counts.get(name).copied().unwrap_or(0);
            let (executed, refused, left_out) =
                (of(&sum.executed), refused.get(name).copied().unwrap_or(0), of(&sum.left_out));
            let share = refused as f64 * 100.0 / (executed + refused).max(1) as f64;
            let [executed, refused, left_out] = [executed, refused, left_out].map(grouped);
            outln!("{executed:>12} {refused:>12} {share:>8.4} {left_out:>12} by {name}");
        }
        let mut reasons: Vec<_> = sum.refused.iter().collect();
        reasons.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        for ((engine, why), count) in reasons {
            outln!("{:>12} refused by {engine}: {why}", grouped(*count));
        }
    }

    fn found_at_all(&self) {
        for (bucket, found) in &self.findings {
            let known = if found.known { ", known" } else { "" };
            outln!("  {:>12} times{known}: {bucket}", grouped(found.times));
            if let Some(path) = &found.path {
                outln!("               twinbpf diff {}", path.display());
            }
        }
        let news = self.findings.values().filter(|found| !found.known).count();
        outln!("{news} findings that are not known");
    }
}

/// 1234567 as 1,234,567.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
