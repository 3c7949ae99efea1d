//! Metamorphic oracle: programs changed without changing their result must have the same outcome.

use crate::backend::{End, Engine, Ran};
use crate::generate::{Case, Choices, Meta, equivalent};

/// An engine that gets changed programs, each batch with the next kind of change.
#[derive(Debug)]
pub struct Changed<E> {
    engine: E,
    turn: usize,
}

impl<E: Engine> Changed<E> {
    /// The engine, with changed programs.
    pub fn new(engine: E) -> Changed<E> {
        Changed { engine, turn: 0 }
    }

    fn meta(&self) -> Meta {
        Meta::ALL[self.turn % Meta::ALL.len()]
    }
}

impl<E: Engine> Engine for Changed<E> {
    fn name(&self) -> String {
        format!("{} with {}", self.engine.name(), self.meta().name())
    }

    fn take_turn(&mut self, turn: u64) {
        self.turn = turn as usize;
        self.engine.take_turn(turn);
    }

    fn run(&mut self, cases: &[Case]) -> Vec<Ran> {
        let meta = self.meta();
        let changed = cases.iter().map(|case| {
            // Where it is changed follows from the case, so that a run can be repeated.
            let first = case.inputs.first().map_or(0, |input| input.regs[0]);
            equivalent(case, meta, &mut Choices::from_seed(first ^ case.main.len() as u64))
        });
        let changed: Vec<Option<Case>> = changed.collect();
        let some: Vec<Case> = changed.iter().flatten().cloned().collect();
        let mut ran = self.engine.run(&some).into_iter();
        let mut all: Vec<Ran> =
            changed.iter().map(|it| it.as_ref().and_then(|_| ran.next()).unwrap_or(Ran::Skipped)).collect();
        for (ran, case) in all.iter_mut().zip(cases) {
            let Ran::Ended(outcomes) = ran else { continue };
            for (outcome, input) in outcomes.iter_mut().zip(&case.inputs) {
                // Limits count instructions, and the changed program has others.
                *outcome = outcome.take().filter(|_| input.limit.is_none());
                if let Some(outcome) = outcome {
                    outcome.executed = None;
                    if let End::Trapped(_, pc) = &mut outcome.end {
                        *pc = None;
                    }
                }
            }
        }
        all
    }
}
