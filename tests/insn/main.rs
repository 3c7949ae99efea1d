//! The instruction corpus: every case of `corpus/insn` on every engine, and every form of every instruction in it.

mod build;
mod case;
mod forms;

use std::path::Path;

use twinbpf_vm::isa::{Groups, Mode, Policy};
use twinbpf_vm::program::Program;
use twinbpf_vm::validate::Valid;

use case::{Case, Expect, Run};

fn corpus() -> Vec<Case> {
    case::load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/insn"))
}

/// The validated program of a run, or the text of the error that rejects it.
fn validated(case: &Case, run: &Run) -> Result<(Valid<Program>, std::ops::Range<usize>), String> {
    let built = build::build(case, run).map_err(|error| error.to_string())?;
    let mode = if run.input.kernel { Mode::Kernel } else { Mode::Rfc };
    let policy = Policy { groups: Groups::ALL, mode };
    let valid = built.program.validate(&policy, &|_| true).map_err(|error| format!("{error:#}"))?;
    Ok((valid, built.body))
}

#[test]
fn every_form_has_a_case() {
    forms::check(&corpus());
}

#[test]
fn validation_accepts_and_rejects() {
    for case in &corpus() {
        for run in &case.runs {
            let name = case.name(run);
            match (validated(case, run), &run.expect) {
                (Ok(_), Expect::State(_) | Expect::Trap { .. }) => {}
                (Err(error), Expect::Reject(text)) => assert!(error.contains(text), "{name}: {error}"),
                (Ok(_), Expect::Reject(text)) => panic!("{name}: accepted, not rejected with: {text}"),
                (Err(error), Expect::State(_) | Expect::Trap { .. }) => panic!("{name}: {error}"),
            }
        }
    }
}
