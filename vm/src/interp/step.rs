//! The plain driver: one instruction at a time, with the exact budget. It traces, it is what debug builds use, and
//! it finishes what the threaded driver leaves when the budget runs low.

use super::event::Next;
use super::machine::{Context, Machine, Stop};
use super::operands::Flow;
use super::state::Refilled;
use super::trace::TraceStep;
use crate::trap::{Trap, TrapCode};

impl Machine {
    /// Runs from `pc` until the frame above `base` returns.
    pub(super) fn step(&mut self, cx: Context<'_>, mut pc: usize, base: usize) -> Result<(), Stop> {
        loop {
            self.trace(cx, pc);
            if self.remaining == 0 {
                return Err(Stop { pc, trap: self.out_of_insns() });
            }
            self.remaining -= 1;
            let step = &cx.code.steps[pc];
            let flow = match (step.how.run)(&step.o, &mut self.s) {
                Flow::Miss => {
                    let mem = step.how.mem.expect("only memory operations miss");
                    match self.s.refill(mem, &step.o, step.how.run).map_err(Stop::at(pc))? {
                        Refilled::Again => (step.how.run)(&step.o, &mut self.s),
                        Refilled::Done => Flow::Next,
                    }
                }
                flow => flow,
            };
            match flow {
                Flow::Next => pc += usize::from(step.how.len),
                Flow::Taken => {
                    let target = step.o.x as usize;
                    if target <= pc && self.s.interrupted() {
                        return Err(Stop { pc, trap: self.s.interruption() });
                    }
                    let back = target <= pc;
                    pc = target;
                    if back && self.remaining < self.next_sample() {
                        match self.sample(cx, pc, base).map_err(Stop::at(pc))? {
                            Some(Next::Goto(next)) => pc = next,
                            Some(Next::Done) => return Ok(()),
                            None => {}
                        }
                    }
                }
                Flow::Event => match self.event(cx, pc, base).map_err(Stop::at(pc))? {
                    Next::Goto(next) => pc = next,
                    Next::Done => return Ok(()),
                },
                Flow::Miss => unreachable!("after a refill the same access hits"),
            }
        }
    }

    fn trace(&mut self, cx: Context<'_>, pc: usize) {
        let Some(mut tracer) = self.tracer.take() else { return };
        let (program, local) = cx.image.locate(pc);
        let registers = self.registers();
        tracer(&TraceStep { program, pc: local, depth: self.depth as usize - 1, registers });
        self.tracer = Some(tracer);
    }

    pub(super) fn out_of_insns(&self) -> Trap {
        let limit = self.limits.max_insns.unwrap_or(u64::MAX);
        Trap::new(TrapCode::OutOfInsns, format!("the limit is {limit} instructions"))
    }
}
