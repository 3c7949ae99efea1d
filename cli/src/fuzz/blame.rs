//! Which programs end a child process: those of the batch that it was at, run again as it ran them, alone and together.

use std::fs;
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context, Result};
use twinbpf_fuzzing::generate::Case;

use super::corpus::{self, Corpus};
use super::ended;

/// Runs cases in a child process each time.
pub(super) struct Retry<'a> {
    pub(super) corpus: &'a Corpus,
    /// Engines, their modes and the turn that they took in the batch.
    pub(super) arguments: &'a [String],
}

/// Programs that end a child process together, and how that ends.
pub(super) struct CrashingCases {
    pub(super) how: String,
    pub(super) cases: Vec<Case>,
}

impl Retry<'_> {
    /// Each program of a batch that ends a process alone; where there is none, the fewest that do so together, in their
    /// order. Nothing if not even all of them do.
    pub(super) fn crashing(&self, batch: &[Case]) -> Result<Vec<CrashingCases>> {
        let mut alone = Vec::new();
        for case in batch {
            let cases = vec![case.clone()];
            alone.extend(self.ends(&cases)?.map(|how| CrashingCases { how, cases }));
        }
        if !alone.is_empty() {
            return Ok(alone);
        }
        let Some(how) = self.ends(batch)? else { return Ok(alone) };
        let cases = fewest(batch, |some| Ok(self.ends(some)?.is_some()))?;
        Ok(vec![CrashingCases { how, cases }])
    }

    /// How a process that runs these cases as one batch ends, if not by itself.
    fn ends(&self, cases: &[Case]) -> Result<Option<String>> {
        let path = self.corpus.write("suspect", &corpus::text(cases), self.arguments)?;
        let mut command = Command::new(std::env::current_exe().context("the path of this program")?);
        command.arg("diff").arg(&path).args(self.arguments).stdout(Stdio::null());
        let output = command.output().context("a child process")?;
        fs::remove_file(&path).with_context(|| path.display().to_string())?;
        Ok(died(output.status).then(|| match panicked(&String::from_utf8_lossy(&output.stderr)) {
            Some(place) => format!("{}: {place}", ended(output.status)),
            None => ended(output.status),
        }))
    }
}

/// Whether a status is none that `diff` ends with.
fn died(status: ExitStatus) -> bool {
    !matches!(status.code(), Some(0 | 1)) && status.code() != Some(i32::from(crate::STATUS_ERROR))
}

/// Where the panic was that ended a process.
fn panicked(stderr: &str) -> Option<&str> {
    let line = stderr.lines().find(|line| line.contains(" panicked at "))?;
    line.find("panicked at ").map(|at| line[at..].trim_end_matches(':'))
}

/// The fewest of some items for which this holds, as it does for all: Zeller's ddmin, of which each step leaves out a part.
fn fewest<T: Clone>(all: &[T], mut holds: impl FnMut(&[T]) -> Result<bool>) -> Result<Vec<T>> {
    let (mut items, mut parts) = (all.to_vec(), 2);
    'again: while items.len() > 1 {
        let size = items.len().div_ceil(parts);
        for start in (0..items.len()).step_by(size) {
            let end = (start + size).min(items.len());
            let rest = [&items[..start], &items[end..]].concat();
            if holds(&rest)? {
                (items, parts) = (rest, (parts - 1).max(2));
                continue 'again;
            }
        }
        if size == 1 {
            break;
        }
        parts = (parts * 2).min(items.len());
    }
    Ok(items)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fewest_items_keep_their_order() {
        let all: Vec<u32> = (0..64).collect();
        for wanted in [&[17][..], &[3, 4], &[0, 31, 63], &[60, 61, 62, 63]] {
            let mut tries = 0;
            let found = fewest(&all, |some| {
                tries += 1;
                Ok(wanted.iter().all(|item| some.contains(item)))
            });
            assert_eq!(found.unwrap(), wanted);
            assert!(tries < 100, "{tries} runs for {wanted:?}");
        }
        assert_eq!(fewest(&all, |some| Ok(some.len() == 64)).unwrap(), all);
    }

    #[test]
    fn a_panic_is_named_by_its_location() {
        let stderr = "noise\n\nthread 'main' (12) panicked at vm/src/map.rs:3:5:\nno room\n";
        assert_eq!(panicked(stderr), Some("panicked at vm/src/map.rs:3:5"));
        assert_eq!(panicked("killed"), None);
    }
}
