//! The fast driver: every handler ends in a call of the next one, which optimised builds make a jump ([handlers](super::handlers)).
//!
//! The budget is counted in `fuel`: instructions left, plus the weight of all code before the current slot.
//! Straight-line code leaves it alone, a taken jump adds a constant. Only [`spin`] compares it: code that goes
//! forward is finite, so it must only leave while there is enough for the longest forward path; what is left then
//! is the step driver's.

use std::sync::Arc;

use super::code::Code;
use super::event::Next;
use super::handlers::{EVENT, LOST, Slot, TRAP, WHY, YIELD};
use super::machine::{Context, Machine, Stop};
use super::state::State;
use super::superinstructions::SuperinstructionSet;

/// Runs from slot `at` until something else than code must act.
#[inline(never)]
fn spin(code: &[Slot], mut at: u64, s: &mut State, floor: i64) -> u64 {
    while let Some(slot) = code.get(at as usize) {
        if s.fuel < floor || s.interrupted() {
            return YIELD | at;
        }
        at = (slot.f)(code, at as usize, slot, s, s.fuel);
    }
    at
}

impl Machine {
    /// Chooses the superinstructions of later runs on the threaded driver.
    pub fn set_superinstructions(&mut self, set: SuperinstructionSet) {
        let (image, all) = (&self.image, set == SuperinstructionSet::ALL);
        let own = || Arc::new(image.translation(Code::new).threaded_with(image, set));
        self.threaded_code = (!all).then(own);
    }

    /// Runs from `pc` until the frame above `base` returns.
    pub(super) fn threaded(&mut self, cx: Context<'_>, mut pc: usize, base: usize) -> Result<(), Stop> {
        let own = self.threaded_code.clone();
        let code = own.as_deref().unwrap_or_else(|| cx.code.threaded(cx.image));
        loop {
            let at = code.entry[pc];
            self.s.fuel = self.remaining + code.weight[at as usize];
            if self.s.fuel < code.floor {
                return self.step(cx, pc, base);
            }
            // Not more than there is: a loop header must be reached before a sample is taken.
            let sample = (self.next_sample() + code.weight[at as usize]).min(self.s.fuel);
            let stop = spin(&code.slots, u64::from(at), &mut self.s, code.floor.max(sample));
            let at = (stop & !WHY) as usize;
            pc = code.origin[at] as usize;
            self.remaining = self.s.fuel - code.weight[at];
            match stop & WHY {
                YIELD if self.s.interrupted() => return Err(Stop { pc, trap: self.s.interruption() }),
                YIELD if self.s.fuel < code.floor => {}
                YIELD => match self.sample(cx, pc, base).map_err(Stop::at(pc))? {
                    Some(Next::Goto(next)) => pc = next,
                    Some(Next::Done) => return Ok(()),
                    None => {}
                },
                EVENT => {
                    self.remaining -= 1;
                    match self.event(cx, pc, base).map_err(Stop::at(pc))? {
                        Next::Goto(next) => pc = next,
                        Next::Done => return Ok(()),
                    }
                }
                LOST => unreachable!("validated code does not run off its end"),
                TRAP => {
                    self.remaining -= 1;
                    return Err(Stop { pc, trap: self.s.trap.take().expect("a trap for the slot that trapped") });
                }
                why => unreachable!("a handler stopped for {why:#x}"),
            }
        }
    }
}
