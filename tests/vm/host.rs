//! Checks against kernels other than this machine's: each kernel boots once in a machine that QEMU emulates, and runs
//! all checks there. What a check found is a test here, named after the kernel and the check.
//!
//! Kernels are packages of Debian, unpacked under `vm` in the target folder (`.ci/kernels` does that) and never
//! installed. This program is both sides: the guest's `/init` runs it again with `--guest`.

mod guest;
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
    let kernels = kernels().unwrap_or_else(|reason| {
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

/// The unpacked kernels, or why none can run.
fn kernels() -> Result<Vec<PathBuf>, String> {
    if !cfg!(target_arch = "x86_64") {
        return Err("the guest runs what was compiled for this machine, and its kernels are for x86_64".to_owned());
    }
    if let Some(tool) = ["qemu-system-x86_64", "cpio", "strip"].into_iter().find(|tool| !support::installed(tool)) {
        return Err(format!("{tool} is not installed"));
    }
    if !PathBuf::from(machine::BUSYBOX).exists() {
        return Err("busybox-static is not installed".to_owned());
    }
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).with_file_name("vm");
    let entries = std::fs::read_dir(&folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut kernels: Vec<PathBuf> = entries.filter(|path| machine::image(path).is_some()).collect();
    kernels.sort();
    if kernels.is_empty() {
        return Err(format!("no kernel in {}, where .ci/kernels puts some", folder.display()));
    }
    Ok(kernels)
}
