//! Runs for callers that have saved no vector registers: the usual run as a whole, and what is left of another.
//!
//! [`Machine::run_short`] is the path of [`Machine::run_program`] for a prepared run, without what comes after one that
//! ends early. All of it is inlined into its caller, so that the machine code of that can be checked for what it leaves
//! alone.

use super::machine::{Machine, NextRun, Rest};
use crate::host::native_runtime::enter_first;
use crate::ident::ProgramId;
use crate::recover;
use crate::trap::Trap;

/// How far [`Machine::run_short`] came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShortRun {
    /// To the end.
    Done,
    /// Nowhere: the run has to be prepared, by [`Machine::run_program`].
    NotPrepared,
    /// The program has ended, and [`Machine::finish`] does the rest.
    Unfinished,
}

impl Machine {
    /// Runs a program whose native code is at `code`, if that needs no preparation.
    #[inline(always)]
    pub fn run_short(&mut self, program: ProgramId, code: u64, args: [u64; 5]) -> ShortRun {
        let Some(idle) = recover::idle() else { return ShortRun::NotPrepared };
        let NextRun::Prepared(prepared) = self.next_run else { return ShortRun::NotPrepared };
        let entry_point = prepared.entry_point;
        let is_it = prepared.program == program && entry_point.is_at(code) && entry_point.knows(self);
        if !is_it || self.is_poisoned() {
            return ShortRun::NotPrepared;
        }
        match enter_first(self, idle, entry_point, self.budget, &args) {
            Ok(value) => {
                self.remaining = entry_point.remaining();
                if !self.s.runtime.holds() {
                    return ShortRun::Done;
                }
                self.rest = Some(Rest::Release(value));
            }
            Err(ended) => self.rest = Some(Rest::Trap(ended)),
        }
        ShortRun::Unfinished
    }

    /// The result of a run that [`Machine::run_short`] has left unfinished.
    ///
    /// # Errors
    /// The trap that ended it.
    ///
    /// # Panics
    /// If there is none.
    pub fn finish(&mut self) -> Result<u64, Trap> {
        match self.rest.take().expect("an unfinished run") {
            Rest::Trap(ended) => Err(self.end_early(ended)),
            Rest::Release(value) => Ok(self.release(value)),
        }
    }
}
