//! `twinbpf diff`: a case of a corpus on all engines.

use std::fs;
use std::process::ExitCode;

use anyhow::{Context, Result};
use twinbpf::fuzzing::generate::Case;
use twinbpf::fuzzing::{Outcome, Ran};
use twinbpf_trace::outln;

use crate::args::DiffArgs;
use crate::fuzz::{campaign, diff_c};
use crate::source::is_source;

pub(crate) fn diff(args: &DiffArgs) -> Result<ExitCode> {
    let mut campaign = campaign(&args.engines)?;
    let mut differs = false;
    for path in &args.files {
        if is_source(path) {
            differs |= diff_c(path)?;
            continue;
        }
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let case: Case = text.parse().with_context(|| path.display().to_string())?;
        let all = campaign.outcomes(&case);
        for input in 0..case.inputs.len() {
            let at = if case.inputs.len() > 1 { format!(", input {input}") } else { String::new() };
            outln!("{}{at}", path.display());
            let mut first: Option<&Outcome> = None;
            for (name, ran) in &all {
                let outcome = match ran {
                    Ran::Ended(outcomes) => outcomes.get(input).and_then(Option::as_ref),
                    Ran::Refused(_) | Ran::Failed(_) | Ran::Skipped => None,
                };
                match (first, outcome, ran) {
                    (_, None, Ran::Refused(why)) => outln!("  {name}: refused: {why}"),
                    (_, None, Ran::Failed(why)) => {
                        differs = true;
                        outln!("  {name}: {why}");
                    }
                    (_, None, _) => outln!("  {name}: nothing for it"),
                    (None, Some(outcome), _) => {
                        outln!("  {name}: {:x?}", outcome.end);
                        first = Some(outcome);
                    }
                    (Some(wanted), Some(outcome), _) if wanted.agrees(outcome) => outln!("  {name}: the same"),
                    (Some(wanted), Some(outcome), _) => {
                        differs = true;
                        outln!("  {name}: differs");
                        wanted.difference(outcome).lines().for_each(|line| outln!("    {line}"));
                    }
                }
            }
        }
        let single = campaign.judge(&case);
        if let Some(finding) = single {
            outln!("  wrong, by the majority: {}", finding.suspects.join(", "));
        }
    }
    Ok(if differs { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
