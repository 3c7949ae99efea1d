//! Instructions go back to the order of the program.
//!
//! Cranelift's optimiser computes what has no effect where it is needed first, and in a long block that begins with the
//! first operand of what comes last. What the others are made of waits in registers meanwhile, or in memory where those do
//! not last. clang wrote the program for ten registers: in its own order, no more values are needed at a time.

use cranelift_codegen::entity::SecondaryMap;
use cranelift_codegen::ir::{Block, Function, Inst, Value};

use super::{acts, constant, each_use, is_point, resolve};

/// Instructions of a block that is looked at, at least. With fewer, registers last.
const LEAST: usize = 24;

/// Values that find room in registers, of which there are fourteen: some are for what is computed in between.
const REGISTERS: u64 = 12;

/// The key of what belongs where it is used first.
const LATE: u32 = u32::MAX;

/// An instruction, and its key: it belongs behind everything with a lower one.
type Keyed = (u32, Inst);

#[derive(Default)]
pub(super) struct Scratch {
    /// Keys of what makes the values of the current block, which are never 0.
    keys: SecondaryMap<Value, u32>,
    insts: Vec<Keyed>,
    sorted: Vec<Keyed>,
    /// The last count that found a value alive.
    alive: SecondaryMap<Value, u32>,
    counts: u32,
}

pub(super) fn run(func: &mut Function, scratch: &mut Scratch) {
    let mut next = func.layout.entry_block();
    while let Some(block) = next {
        next = func.layout.next_block(block);
        // A listing has points, and must show the same code.
        if func.layout.block_insts(block).filter(|inst| !is_point(func, *inst)).nth(LEAST).is_some() {
            scratch.block(func, block);
        }
    }
}

impl Scratch {
    fn block(&mut self, func: &mut Function, block: Block) {
        self.early(func, block);
        self.late(func);
        if !self.insts.is_sorted_by_key(|(key, _)| *key) {
            let (insts, mut sorted) = (std::mem::take(&mut self.insts), std::mem::take(&mut self.sorted));
            sorted.clone_from(&insts);
            sorted.sort_by_key(|(key, _)| *key);
            // Where the program itself has more words in its frame than there are registers, it may be worse.
            if self.waiting(func, &sorted) <= self.waiting(func, &insts) {
                for (_, inst) in &sorted {
                    func.layout.remove_inst(*inst);
                    func.layout.append_inst(*inst, block);
                }
            }
            (self.insts, self.sorted) = (insts, sorted);
        }
        for (_, inst) in self.insts.drain(..) {
            func.dfg.inst_results(inst).iter().for_each(|value| self.keys[*value] = 0);
        }
    }

    /// How many values have no register, added up over the instructions, as far as one can guess.
    fn waiting(&mut self, func: &Function, insts: &[Keyed]) -> u64 {
        self.counts = self.counts.wrapping_add(1);
        let (mut sum, mut live) = (0, 0_u64);
        for (_, inst) in insts.iter().rev() {
            for value in func.dfg.inst_results(*inst) {
                live -= u64::from(std::mem::take(&mut self.alive[*value]) == self.counts);
            }
            each_use(func, *inst, |_, value| {
                let value = resolve(func, value);
                if self.alive[value] != self.counts && constant(func, value).is_none() {
                    self.alive[value] = self.counts;
                    live += 1;
                }
            });
            sum += live.saturating_sub(REGISTERS);
        }
        sum
    }

    /// Each instruction belongs where it was, behind its operands, and what has effects behind all that had some before.
    /// The optimiser's own belong behind their operands, or where they are used if those are from elsewhere. Nothing moves
    /// in front of a call, which leaves no register as it was.
    fn early(&mut self, func: &Function, block: Block) {
        let (mut effect, mut call) = (1, 0);
        for inst in func.layout.block_insts(block) {
            if is_point(func, inst) {
                self.insts.push((u32::from(self.insts.is_empty()), inst));
                continue;
            }
            let loc = func.srcloc(inst);
            let own = if loc.is_default() { 0 } else { loc.bits().saturating_add(1) };
            let mut key = own;
            each_use(func, inst, |_, value| {
                let operand = self.keys[resolve(func, value)];
                if operand != LATE {
                    key = key.max(operand);
                }
            });
            let opcode = func.dfg.insts[inst].opcode();
            if acts(opcode) {
                key = key.max(effect);
                effect = key;
            }
            if opcode.is_call() {
                call = key;
            }
            key = if key == 0 { LATE } else { key.max(call) };
            // Points stand in front of what they are for, but not of what has had an effect.
            for (point, _) in self.insts.iter_mut().rev().take_while(|(key, _)| *key == 0) {
                effect = if key == LATE { effect } else { effect.max(key) };
                *point = effect;
            }
            func.dfg.inst_results(inst).iter().for_each(|value| self.keys[*value] = key);
            self.insts.push((key, inst));
        }
        // Nothing comes behind the branch.
        self.insts.last_mut().expect("blocks end").0 = LATE;
    }

    /// Finds where the rest is used.
    fn late(&mut self, func: &Function) {
        for (key, inst) in self.insts.iter_mut().rev() {
            if let Some(value) = func.dfg.inst_results(*inst).first().filter(|_| *key == LATE) {
                *key = self.keys[*value];
            }
            each_use(func, *inst, |_, value| {
                let operand = &mut self.keys[resolve(func, value)];
                *operand = (*key).min(*operand);
            });
        }
    }
}
