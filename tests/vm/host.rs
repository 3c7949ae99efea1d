//! Checks against kernels other than this machine's: each kernel boots once in a machine that QEMU emulates, and runs
//! all checks there. What a check found is a test here, named after the kernel and the check.
//!
//! Kernels are packages of Debian, unpacked under `vm` in the target folder (`.ci/kernels` does that) and never
//! installed. This program is both sides: the guest's `/init` runs it again with `--guest`.

mod guest;
#[path = "../support/guests.rs"]
mod guests;
mod machine;
#[path = "../support/mod.rs"]
mod support;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};

use libtest_mimic::Failed;
use machine::Machine;
use support::harness::Tests;

/// A kernel and what the checks found in it, once it has booted.
struct Guest {
    machine: Machine,
    results: OnceLock<Result<guest::Results, String>>,
}

impl Guest {
    fn result(&self, check: &str) -> Result<(), Failed> {
        let results = self.results.get_or_init(|| self.machine.run()).as_ref().map_err(String::clone)?;
        match results.get(check) {
            Some(found) => found.clone().map_err(Failed::from),
            None => Err(format!("nothing was heard of it; of {} others it was", results.len()).into()),
        }
    }
}

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some("--guest") => return guest::run(),
        Some("--workload") => return guest::workload::run(),
        _ => {}
    }
    let mut tests = Tests::default();
    let kernels = guests::kernels(support::installed).unwrap_or_else(|reason| {
        for (check, _) in guest::CHECKS {
            let reason = reason.clone();
            tests.add(*check, move || {
                support::skip(&reason);
                Ok(())
            });
        }
        Vec::new()
    });
    let guests: Vec<(String, Arc<Guest>)> = kernels.into_iter().map(named).collect();
    // Neighbours are of different kernels, so that several boot at once.
    let both = guest::CHECKS.iter().flat_map(|check| guests.iter().map(move |guest| (check, guest)));
    for ((check, _), (release, guest)) in both {
        let guest = Arc::clone(guest);
        tests.add(format!("{release}::{check}"), move || guest.result(check));
    }
    tests.run()
}

fn named(kernel: PathBuf) -> (String, Arc<Guest>) {
    let release = kernel.file_name().expect("a folder").to_string_lossy().into_owned();
    (release, Arc::new(Guest { machine: Machine { kernel }, results: OnceLock::new() }))
}
