//! A child process of `twinbpf fuzz`: generates, runs, compares, and reports to its parent in lines of JSON.
//!
//! It says which batch it begins, so that the parent knows which one it was if it dies.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::json;
use twinbpf_fuzzing::generate::{Case, Choices, Config, Dialect};
use twinbpf_fuzzing::{Campaign, Finding};

use super::engines;
use crate::args::{FuzzArgs, Peer};

/// Programs that share an image.
pub(super) const BATCH: u64 = 64;
/// How often figures are reported.
const REPORT: Duration = Duration::from_millis(500);
/// Findings of the same engines that are made small. There are bugs in every tenth program.
const MOST: u32 = 24;

/// The turn that engines take in a batch. Neighbours have the same, since one of them is for kernels.
pub(super) fn turn(batch: u64) -> u64 {
    batch / 2
}

/// Makes the cases of a batch, in the place of those of another one.
pub(super) fn batch(args: &FuzzArgs, seed: u64, batch: u64, cases: &mut Vec<Case>) {
    let for_kernel = args.agreement || args.engines.against.iter().any(|peer| !matches!(peer, Peer::Plugin(_)));
    let dialect = if for_kernel || batch.is_multiple_of(2) { Dialect::Kernel } else { Dialect::Machine };
    let config = Config { insns: args.insns as usize, inputs: args.inputs as usize, dialect, cpu: args.cpu.into() };
    let first = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(batch * BATCH);
    cases.resize_with(BATCH as usize, Case::default);
    for (index, case) in cases.iter_mut().enumerate() {
        case.remake(&mut Choices::from_seed(first.wrapping_add(index as u64)), &config);
    }
}

/// Runs batches, those before `end`, or until the parent wants no more.
pub(super) fn work(args: &FuzzArgs, seed: u64, first: u64, end: u64) -> Result<ExitCode> {
    if args.agreement {
        return agree(args, seed, first, end);
    }
    keep_memory();
    let mut campaign = engines::campaign(&args.engines)?;
    let (mut seen, mut cases) = (Seen::default(), Vec::new());
    let mut reported = Instant::now();
    let ready = cpu_time();
    for number in (first..end).step_by(args.jobs as usize) {
        report(&json!({ "begin": number }))?;
        batch(args, seed, number, &mut cases);
        campaign.set_turn(turn(number));
        let findings = campaign.run(&cases);
        for finding in findings {
            seen.handle(&mut campaign, &finding)?;
        }
        if reported.elapsed() >= REPORT || number == first {
            report(&figures(&campaign, ready))?;
            reported = Instant::now();
        }
    }
    report(&figures(&campaign, ready))?;
    report(&json!({ "done": true }))?;
    Ok(ExitCode::SUCCESS)
}

/// Has the C library's allocator keep what batches give back to it, and not return it to the kernel each time: glibc
/// does so up to twice the size of the largest block that was ever mapped for itself and freed.
fn keep_memory() {
    drop(std::hint::black_box(Vec::<u8>::with_capacity(8 << 20)));
}

/// Compares a verifier and validation, likewise.
fn agree(args: &FuzzArgs, seed: u64, first: u64, end: u64) -> Result<ExitCode> {
    let mut agreement = engines::agreement()?;
    let (ready, mut programs, mut buckets, mut cases) = (cpu_time(), 0, BTreeSet::new(), Vec::new());
    for number in (first..end).step_by(args.jobs as usize) {
        report(&json!({ "begin": number }))?;
        batch(args, seed, number, &mut cases);
        for found in agreement.run(&cases, &mut Choices::from_seed(seed ^ !number)) {
            if !buckets.insert(found.what.clone()) {
                report(&json!({ "again": found.what }))?;
                continue;
            }
            let detail: String = found.detail.lines().map(|line| format!("# {line}\n")).collect();
            let case = found.case.map_or_else(String::new, |case| case.to_string());
            report(&json!({ "finding": format!("{detail}{case}"), "bucket": found.what, "known": false }))?;
        }
        programs += cases.len();
        let cpu_ms = (cpu_time() - ready).as_millis() as u64;
        let slots = agreement.slots;
        report(&json!({ "programs": programs, "counts": agreement.counts, "slots": slots, "cpu_ms": cpu_ms }))?;
    }
    report(&json!({ "done": true }))?;
    Ok(ExitCode::SUCCESS)
}

/// Time of processors that this process has used, in user and kernel mode, by `/proc/self/stat` (proc(5)); its unit is
/// a hundredth of a second on every machine that Linux knows.
fn cpu_time() -> Duration {
    let text = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // What follows the name, which may contain anything: fields 14 and 15 of all.
    let fields = text.rsplit_once(')').map_or("", |(_, fields)| fields);
    let ticks: u64 = fields.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}

/// One line to the parent; an error when it is gone.
fn report(value: &serde_json::Value) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{value}")?;
    out.flush()
}

fn figures(campaign: &Campaign, ready: Duration) -> serde_json::Value {
    let tally = &campaign.tally;
    let refused: Vec<_> = tally.refused.iter().map(|((engine, why), count)| json!([engine, why, count])).collect();
    json!({
        "programs": tally.programs,
        "runs": tally.runs,
        "executed": tally.executed,
        "refused": refused,
        "left_out": tally.left_out,
        "slots": tally.slots,
        "cpu_ms": (cpu_time() - ready).as_millis() as u64,
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
    /// Reduces a finding and reports it, unless there were many like it.
    fn handle(&mut self, campaign: &mut Campaign, finding: &Finding) -> io::Result<()> {
        let count = self.suspects.entry(finding.suspects.clone()).or_default();
        *count += 1;
        if *count > MOST {
            return report(&json!({ "again": finding.suspects.join("+") }));
        }
        // Reported before it is reduced, in case reducing ends this process.
        report(&json!({ "raw": finding.to_string() }))?;
        let small = campaign.reduce(finding);
        let (bucket, known) = (small.bucket(), small.known.is_some());
        if !self.buckets.insert(bucket.clone()) {
            return report(&json!({ "again": bucket }));
        }
        report(&json!({ "finding": small.to_string(), "bucket": bucket, "known": known }))
    }
}
