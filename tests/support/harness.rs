//! A test harness that counts a test that skips as ignored, with its reason. Rust's own can only call it passed.
//!
//! A binary with such tests says `harness = false` in its manifest, and lists them: `harness::tests! { name, module::name }`.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use libtest_mimic::{Arguments, Completion, Failed, Trial};

thread_local! {
    /// Reasons of the test that this thread runs; `None` while it runs none.
    static REASONS: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

/// Test and reason, of all that have skipped.
type Skipped = Arc<Mutex<Vec<(String, String)>>>;

/// Marks the running test as skipped. It fails instead if `TWINBPF_CI=1`, where everything must run.
pub(crate) fn skip(reason: &str) {
    let reason = reason.lines().map(str::trim).collect::<Vec<_>>().join(" ");
    assert!(
        std::env::var_os("TWINBPF_CI").is_none_or(|value| value != "1"),
        "TWINBPF_CI=1 allows no skipping: {reason}"
    );
    REASONS.with_borrow_mut(|reasons| {
        reasons.as_mut().expect("only a test of this harness can skip, on its own thread").push(reason);
    });
}

/// The tests of a binary, and those that have skipped.
#[derive(Default)]
pub(crate) struct Tests {
    trials: Vec<Trial>,
    skipped: Skipped,
}

impl Tests {
    /// Adds a test that returns an error or panics if it fails, and calls `skip` if it cannot run here.
    pub(crate) fn add(&mut self, name: impl Into<String>, test: impl FnOnce() -> Result<(), Failed> + Send + 'static) {
        let (name, skipped) = (name.into(), Arc::clone(&self.skipped));
        let of = name.clone();
        self.trials.push(Trial::ignorable_test(name, move || {
            REASONS.set(Some(Vec::new()));
            let result = test();
            let mut reasons = REASONS.take().unwrap_or_default();
            result?;
            reasons.dedup();
            if reasons.is_empty() {
                return Ok(Completion::Completed);
            }
            let reason = reasons.join(", ");
            skipped.lock().unwrap_or_else(PoisonError::into_inner).push((of, reason.clone()));
            Ok(Completion::ignored_with(reason))
        }));
    }

    /// Adds tests that cannot run beside each other.
    #[allow(dead_code, reason = "most tests can")]
    pub(crate) fn add_in_turn(&mut self, tests: &[(&'static str, fn())]) {
        let turn = Arc::new(Mutex::new(()));
        for (name, test) in tests.iter().copied() {
            let turn = Arc::clone(&turn);
            self.add(name, move || {
                let _turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
                test();
                Ok(())
            });
        }
    }

    /// Runs the tests that the command line chooses, and reports which have skipped and why.
    pub(crate) fn run(self) -> ExitCode {
        let arguments = Arguments::from_args();
        let conclusion = libtest_mimic::run(&arguments, self.trials);
        let skipped = self.skipped.lock().unwrap_or_else(PoisonError::into_inner);
        if !arguments.list {
            let mut by_reason: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
            for (test, reason) in skipped.iter() {
                by_reason.entry(reason).or_default().push(test);
            }
            let lines = by_reason.iter().map(|(reason, tests)| format!("{reason}: {}\n", tests.join(", ")));
            let lines: String = lines.collect();
            print!("{}", lines.lines().map(|line| format!("skipped: {line}\n")).collect::<String>());
            let is_whole = arguments.filter.is_none() && arguments.skip.is_empty();
            if is_whole && let Err(error) = keep(&lines) {
                eprintln!("{}: {error}", list().display());
            }
        }
        conclusion.exit_code()
    }
}

/// The file that lists what this binary has skipped, beside those of the other binaries.
fn list() -> PathBuf {
    let name = concat!(env!("CARGO_PKG_NAME"), "-", env!("CARGO_CRATE_NAME"));
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("skipped").join(name)
}

/// Replaces the list of an earlier run. No file stands for a binary that has skipped nothing.
fn keep(lines: &str) -> std::io::Result<()> {
    let list = list();
    if lines.is_empty() {
        return match fs::remove_file(list) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        };
    }
    fs::create_dir_all(list.parent().expect("a folder"))?;
    fs::write(list, lines)
}

/// Defines `main`, which runs these functions as tests.
#[allow(unused_macros, reason = "some binaries collect their tests by themselves")]
macro_rules! tests {
    ($($(#[$attribute:meta])* $test:path),+ $(,)?) => {
        fn main() -> std::process::ExitCode {
            #[allow(unused_mut, reason = "another target may have no test")]
            let mut tests = harness::Tests::default();
            $($(#[$attribute])* tests.add(stringify!($test), || { $test(); Ok(()) });)+
            tests.run()
        }
    };
}
#[allow(unused_imports, reason = "as above")]
pub(crate) use tests;
