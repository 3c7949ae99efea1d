//! `twinbpf fuzz --c`: programs in C, whose encodings must agree; and one of them again.

use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use twinbpf_fuzzing::CCampaign;
use twinbpf_trace::outln;

use super::{clock, stopper};
use crate::args::FuzzArgs;

/// A line of progress this often.
const SELDOM: Duration = Duration::from_secs(30);
/// Inputs of a finding that is examined again; a campaign has no more by default.
const INPUTS: usize = 16;

fn campaign(folder: &Path) -> Result<CCampaign> {
    let cc = std::env::var_os("CC").filter(|value| !value.is_empty()).unwrap_or_else(|| "cc".into());
    let clang = crate::source::clang()?;
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    Ok(CCampaign::new(clang, cc, folder.to_owned())?)
}

pub(super) fn fuzz(args: &FuzzArgs) -> Result<ExitCode> {
    let mut campaign = campaign(&args.corpus)?;
    let seed = args.seed.unwrap_or_else(clock);
    outln!("seed {seed}");
    let (stop, begin) = (stopper()?, Instant::now());
    let (mut said, mut found) = (begin, 0);
    let more = |done: u64| {
        let time = args.time.is_none_or(|time| begin.elapsed() < time);
        !stop.load(Ordering::Relaxed) && time && args.programs.is_none_or(|enough| done < enough)
    };
    for seed in (0..).take_while(|done| more(*done)).map(|done| seed.wrapping_add(done)) {
        if let Some(finding) = campaign.run(seed, args.inputs as usize)? {
            let path = args.corpus.join(format!("{seed}.c"));
            let text = format!("// twinbpf diff {}\n{finding}", path.display());
            std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
            outln!("found: {}", path.display());
            found += 1;
        }
        if said.elapsed() > SELDOM {
            said = Instant::now();
            report(&campaign, begin.elapsed(), found);
        }
    }
    report(&campaign, begin.elapsed(), found);
    Ok(if found > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn report(campaign: &CCampaign, time: Duration, found: u64) {
    let CCampaign { programs, refused, runs, .. } = campaign;
    outln!("{}s {programs} programs in C, {runs} runs, {refused} encodings refused, {found} findings", time.as_secs());
}

/// A program of a finding again. Whether its encodings differ.
pub(crate) fn diff(path: &Path) -> Result<bool> {
    let source = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    // Private: what is compiled there is run.
    let folder =
        tempfile::Builder::new().prefix("twinbpf-diff-").tempdir().context("cannot make a temporary folder")?;
    let seed = source.lines().find_map(|line| line.strip_prefix("// seed ")?.parse().ok()).unwrap_or(0);
    let votes = campaign(folder.path())?.judge(&source, seed, INPUTS)?;
    outln!("{}", path.display());
    match &votes {
        None => outln!("  all the same"),
        Some(votes) => votes.iter().for_each(|vote| outln!("  {}: {}", vote.voters.join(", "), vote.difference)),
    }
    Ok(votes.is_some())
}
