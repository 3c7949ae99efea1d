//! What a bench leaves out: each with its reason, as it happens and once more at the end. A bench that has left something out
//! fails, unless the command line says `--partial`, so that no one takes a part of the comparison for the whole. So does one
//! with a filter that is part of no case's name.

use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

use crate::arguments::{has_flag, unmatched};

/// What this process has left out.
static LEFT_OUT: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Prints and keeps that something is not measured, and why; only once of the same.
pub fn leave_out(what: &str, why: &str) {
    let line = format!("{what} left out: {}", why.trim());
    let mut all = LEFT_OUT.lock().unwrap_or_else(PoisonError::into_inner);
    if !all.contains(&line) {
        println!("{line}");
        all.push(line);
    }
}

/// Does the work of a bench; its exit status says whether it has measured all that was selected.
pub fn complete(work: impl FnOnce()) -> ExitCode {
    work();
    // A test runner has filters of its own.
    let unmatched = unmatched();
    if has_flag("--bench") && !unmatched.is_empty() {
        eprintln!("\nno case has this in its name: {}", unmatched.join(", "));
        return ExitCode::FAILURE;
    }
    let all = LEFT_OUT.lock().unwrap_or_else(PoisonError::into_inner);
    match failure(&all, has_flag("--partial")) {
        Some(words) => {
            eprintln!("\n{words}");
            ExitCode::FAILURE
        }
        None => ExitCode::SUCCESS,
    }
}

/// In words what makes the bench fail.
fn failure(left_out: &[String], partial: bool) -> Option<String> {
    let fails = !left_out.is_empty() && !partial;
    fails.then(|| format!("not all was measured (`-- --partial` accepts that):\n{}", left_out.join("\n")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bench_fails_that_leaves_something_out_and_says_what() {
        assert_eq!(failure(&[], false), None);
        let lines = ["kernel left out of a: no".to_owned(), "b left out: no file".to_owned()];
        assert_eq!(failure(&lines, true), None);
        let words = failure(&lines, false).expect("a failure");
        assert!(lines.iter().all(|line| words.contains(line)) && words.contains("--partial"), "{words}");
    }

    #[test]
    fn the_same_is_left_out_once() {
        leave_out("a program of this test", "no file\n");
        leave_out("a program of this test", "no file");
        let all = LEFT_OUT.lock().unwrap();
        let same = all.iter().filter(|line| *line == "a program of this test left out: no file");
        assert_eq!(same.count(), 1, "{all:?}");
    }
}
