//! The instruction corpus: every case of `corpus/insn` on every engine, and every form of every instruction in it.

#[path = "../../../tests/support/blocked.rs"]
mod blocked;

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod abroad;
mod build;
mod case;
mod forms;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod large;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod modes;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod native;
mod random;
mod run;
#[path = "../../../tests/support/mod.rs"]
mod support;

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use support::harness;
use twinbpf_isa::program::Program;
use twinbpf_isa::validate::Valid;
use twinbpf_isa::{Groups, Mode, Policy};
use twinbpf_vm::mem::Arena;

use build::Prologue;
use case::{Case, Expect, Run};

fn directory() -> PathBuf {
    support::corpus().join("insn")
}

fn corpus() -> Vec<Case> {
    case::load(&directory())
}

/// The validated program of a run, or the text of the error that rejects it.
fn validated(case: &Case, run: &Run, from: Prologue) -> Result<(Valid<Program>, Range<usize>), String> {
    let built = build::build(case, run, from).map_err(|error| error.to_string())?;
    let mode = if run.input.kernel { Mode::Kernel } else { Mode::Rfc };
    let policy = Policy { groups: Groups::ALL, mode };
    let valid = built.program.validate(&policy, &|_| true).map_err(|error| format!("{error:#}"))?;
    Ok((valid, built.body))
}

/// What a case does when it is decoded, validated and executed; on failure, what differs.
fn check(arena: &Arc<Arena>, case: &Case, run: &Run) -> Result<(), String> {
    match (validated(case, run, Prologue::Constants), &run.expect) {
        (Ok((program, body)), Expect::State(_) | Expect::Trap { .. }) => run::check(arena, &program, &body, run),
        (Err(error), Expect::Reject(text)) if error.contains(text) => Ok(()),
        (Err(error), Expect::Reject(text)) => Err(format!("rejected with `{error}`, not with `{text}`")),
        (Ok(_), Expect::Reject(text)) => Err(format!("accepted, not rejected with `{text}`")),
        (Err(error), Expect::State(_) | Expect::Trap { .. }) => Err(error),
    }
}

fn every_case_on_every_engine() {
    let arena = Arena::new(1 << 24).expect("address space");
    let cases = corpus();
    let runs = cases.iter().flat_map(|case| case.runs.iter().map(move |run| (case, run)));
    let failures: Vec<String> = runs
        .filter_map(|(case, run)| {
            let failure = check(&arena, case, run).err()?;
            Some(format!("{}: {failure}", case.name(run)))
        })
        .collect();
    let shown = failures.iter().take(20).cloned().collect::<Vec<_>>().join("\n");
    assert!(failures.is_empty(), "{} cases fail, the first of them:\n{shown}", failures.len());
}

fn every_form_has_a_case() {
    forms::check(&corpus());
}

fn every_known_class_of_bugs_has_a_case() {
    let text = std::fs::read_to_string(directory().join("classes.txt")).expect("classes.txt");
    forms::check_classes(&corpus(), &text);
}

/// About a second of it; `RANDOM_PROGRAMS=100000` for more.
fn random_programs_run_or_trap_alike() {
    let count = std::env::var("RANDOM_PROGRAMS").ok().and_then(|count| count.parse().ok());
    random::check(count.unwrap_or(500));
}

/// The same in native code of every mode; fewer of them, for each is compiled a dozen times.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn random_programs_do_alike_in_native_code() {
    let count = std::env::var("RANDOM_PROGRAMS").ok().and_then(|count| count.parse().ok());
    random::check_native(count.unwrap_or(100));
}

#[cfg(target_os = "linux")]
fn with_every_signal_blocked() {
    blocked::run_again("with_every_signal_blocked").unwrap_or_else(|error| panic!("{error}"));
}

harness::tests! {
    every_case_on_every_engine,
    every_form_has_a_case,
    every_known_class_of_bugs_has_a_case,
    random_programs_run_or_trap_alike,
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    random_programs_do_alike_in_native_code,
    #[cfg(target_os = "linux")]
    with_every_signal_blocked,
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    abroad::every_case_on_other_machines,
    case::a_case_is_read,
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    large::a_long_function,
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    large::many_functions,
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    native::every_case_in_the_sandbox,
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    native::every_case_in_strict_code,
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    native::every_case_in_trusted_code,
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    native::every_case_with_constants,
}
