//! The interface of a pass: name, phase, analyses needed and kept, and `run`.

use cranelift_codegen::Context;

use twinbpf_vm::host::native::Site;

use super::analysis::{Analyses, Analysis};
use super::target_model::TargetModel;
use crate::trap_sites::CODES;

/// Where in the pipeline a pass runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Before Cranelift's optimiser.
    Pre,
    /// After it, when instructions have their final order.
    Post,
}

/// A transformation of a function's IR. Its value is memory that the next function uses again.
pub(crate) trait Pass: Default + Send + 'static {
    /// The name in options, statistics and errors.
    const NAME: &'static str;
    /// What it does, after "it".
    const SUMMARY: &'static str;
    /// When it runs.
    const PHASE: Phase;
    /// What is computed before it runs, if it is not up to date.
    const NEEDS: Analyses;
    /// What is still up to date after it has changed something.
    const KEEPS: Analyses;
    /// Whether it does nothing in a function without loops, and so is skipped there.
    const LOOPS_ONLY: bool = false;

    /// Whether it pays on a target.
    fn pays(_target: &TargetModel) -> bool {
        true
    }

    /// Transforms a function. Returns how many places it changed.
    fn run(&mut self, input: &mut Input<'_>) -> usize;
}

/// What a pass works on.
pub(crate) struct Input<'a> {
    /// The function, with Cranelift's analyses of it.
    pub(crate) context: &'a mut Context,
    /// Analyses of our own.
    pub(crate) analysis: &'a mut Analysis,
    /// The machine that code is made for.
    pub(crate) target: &'a TargetModel,
    /// Blocks subtract from an instruction budget.
    pub(crate) counted: bool,
    /// Where the function may trap; code in a trap's flags is an index into it modulo [`CODES`](crate::trap_sites::CODES), plus one.
    pub(crate) sites: &'a mut Vec<Site>,
    /// The mutant of the compiler that is on, by name, or nothing.
    pub(crate) mutant: &'a str,
}

impl Input<'_> {
    /// Whether several trap sites share a trap code.
    pub(crate) fn shared(&self) -> bool {
        self.sites.len() > CODES
    }
}
