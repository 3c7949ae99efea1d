//! `twinbpf diff`: a case of a corpus on all engines.

use std::fs;
use std::process::ExitCode;

use anyhow::{Context, Result};
use twinbpf_fuzzing::generate::Case;
use twinbpf_fuzzing::{Campaign, Outcome, Ran};
use twinbpf_trace::outln;

use crate::args::DiffArgs;
use crate::fuzz::{campaign, cases, diff_c};
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
        let cases = cases(&text).with_context(|| path.display().to_string())?;
        campaign.set_turn(args.turn);
        differs |= match &cases[..] {
            [case] => diff_case(&mut campaign, &path.display().to_string(), case),
            _ => diff_batch(&mut campaign, &path.display().to_string(), &cases),
        };
    }
    Ok(if differs { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Runs cases as one batch, as a campaign does. Whether engines differ.
fn diff_batch(campaign: &mut Campaign, path: &str, cases: &[Case]) -> bool {
    let findings = campaign.run(cases);
    outln!("{path}, {} programs: {} findings", cases.len(), findings.len());
    findings.iter().for_each(|finding| outln!("{finding}"));
    !findings.is_empty()
}

fn diff_case(campaign: &mut Campaign, path: &str, case: &Case) -> bool {
    // It takes the turn, the outcomes are of the same.
    let wrong = campaign.judge(case);
    let all = campaign.outcomes(case);
    let mut differs = false;
    for input in 0..case.inputs.len() {
        let at = if case.inputs.len() > 1 { format!(", input {input}") } else { String::new() };
        outln!("{path}{at}");
        differs |= diff_input(&all, input);
    }
    if let Some(finding) = wrong {
        outln!("  wrong, by the majority: {}", finding.suspects.join(", "));
    }
    differs
}

/// What engines make of an input of a case. Whether they differ.
fn diff_input(all: &[(String, Ran)], input: usize) -> bool {
    let mut differs = false;
    let mut first: Option<&Outcome> = None;
    for (name, ran) in all {
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
    differs
}
