//! Runs for callers that have saved no vector registers.
//!
//! [`Machine::run_short`] is the path of [`Machine::run_program`] for a prepared run of code that calls nothing, up to a trap.
//! All of it is inlined into its caller, so that the machine code of that can be checked for what it leaves alone.

use super::machine::{Machine, NextRun};
use super::tier::FastPath;
use crate::host::native_runtime::enter_short;
use crate::recover;
use crate::trap::Trap;

/// How far [`Machine::run_short`] came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShortRun {
    /// To the end.
    Done,
    /// Nowhere: the run has to be prepared, by [`Machine::run_program`].
    NotPrepared,
    /// To a trap, which [`Machine::short_trap`] says.
    Trapped,
}

impl Machine {
    /// Runs the program with this index, whose native code is at `code`, if no run has to be prepared, be it of that program or
    /// of another. The code calls nothing and does not count instructions: so it needs no budget, and nothing is left to
    /// release.
    #[inline(always)]
    pub fn run_short(&mut self, program: usize, code: u64, args: [u64; 5]) -> ShortRun {
        let Some(idle) = recover::idle() else { return ShortRun::NotPrepared };
        let Some(Some(FastPath { entry_point, reads_rest: false })) = self.fast_paths.get(program) else {
            return ShortRun::NotPrepared;
        };
        let entry_point = *entry_point;
        let is_ready = matches!(self.next_run, NextRun::Prepared(_)) && !self.is_poisoned();
        if !is_ready || !entry_point.is_at(code) || !entry_point.knows(self) {
            return ShortRun::NotPrepared;
        }
        match enter_short(self, idle, entry_point, &args) {
            Ok(_) => ShortRun::Done,
            Err(ended) => {
                self.trapped = Some(ended);
                ShortRun::Trapped
            }
        }
    }

    /// The trap of a run of this program by [`Machine::run_short`].
    ///
    /// # Panics
    /// If there was none.
    pub fn short_trap(&mut self, program: usize) -> Trap {
        let ended = self.trapped.take().expect("a run that has trapped");
        self.native.running().current.site = self.image.entry(program);
        self.end_early(ended)
    }
}
