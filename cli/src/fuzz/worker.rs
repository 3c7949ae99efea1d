//! A child process of `twinbpf fuzz`: generates, runs, compares, and tells its parent in lines of JSON.
//!
//! It says which batch it begins, so that the parent knows which one it was if it dies.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::json;
use twinbpf::fuzzing::generate::{Case, Choices, Config, Dialect, case};
use twinbpf::fuzzing::{Campaign, Finding};

use super::engines;
use crate::args::{FuzzArgs, Peer};

/// Programs that share an image.
pub(super) const BATCH: u64 = 64;
/// How often figures are told.
const REPORT: Duration = Duration::from_millis(500);
/// Findings of the same engines that are made small. There are bugs in every tenth program.
const MOST: u32 = 24;

/// The cases of a batch.
pub(super) fn batch(args: &FuzzArgs, seed: u64, batch: u64) -> Vec<Case> {
    let for_kernel = args.engines.against.contains(&Peer::Kernel);
    let dialect = if for_kernel || batch.is_multiple_of(2) { Dialect::Kernel } else { Dialect::Machine };
    let config = Config { insns: args.insns as usize, inputs: args.inputs as usize, dialect };
    let first = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(batch * BATCH);
    (0..BATCH).map(|index| case(&mut Choices::from_seed(first.wrapping_add(index)), &config)).collect()
}

/// Runs batches until the parent wants no more.
pub(super) fn work(args: &FuzzArgs, seed: u64, first: u64) -> Result<ExitCode> {
    let mut campaign = engines::campaign(&args.engines)?;
    let mut seen = Seen::default();
    let mut told = Instant::now();
    for number in (first..).step_by(args.jobs as usize) {
        tell(&json!({ "begin": number }))?;
        let findings = campaign.run(&batch(args, seed, number));
        for finding in findings {
            seen.handle(&mut campaign, &finding)?;
        }
        if told.elapsed() >= REPORT || number == first {
            tell(&figures(&campaign))?;
            told = Instant::now();
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// One line to the parent; an error when it is gone.
fn tell(value: &serde_json::Value) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{value}")?;
    out.flush()
}

fn figures(campaign: &Campaign) -> serde_json::Value {
    let tally = &campaign.tally;
    let refused: Vec<_> = tally.refused.iter().map(|((engine, why), count)| json!([engine, why, count])).collect();
    json!({
        "programs": tally.programs,
        "runs": tally.runs,
        "executed": tally.executed,
        "refused": refused,
        "points": tally.coverage.len(),
        "operations": tally.coverage.operations(),
    })
}

/// What was found already.
#[derive(Default)]
struct Seen {
    suspects: BTreeMap<Vec<String>, u32>,
    buckets: BTreeSet<String>,
}

impl Seen {
    /// Makes a finding small and tells it, unless there were many like it.
    fn handle(&mut self, campaign: &mut Campaign, finding: &Finding) -> io::Result<()> {
        let count = self.suspects.entry(finding.suspects.clone()).or_default();
        *count += 1;
        if *count > MOST {
            return tell(&json!({ "again": finding.suspects.join("+") }));
        }
        // Should it be the last thing that this process does, then at least it is told.
        tell(&json!({ "raw": finding.to_string() }))?;
        let small = campaign.reduce(finding);
        let (bucket, known) = (small.bucket(), small.known.is_some());
        if !self.buckets.insert(bucket.clone()) {
            return tell(&json!({ "again": bucket }));
        }
        tell(&json!({ "finding": small.to_string(), "bucket": bucket, "known": known }))
    }
}
