//! Instructions go back to the order of the program.
//!
//! Cranelift's optimiser computes what has no effect where it is needed first, and in a long block that begins with the
//! first operand of what comes last. What the others are made of waits in registers meanwhile, or in memory where those do
//! not last. clang wrote the program for ten registers: in its own order, no more values are needed at a time.

use cranelift_codegen::entity::SecondaryMap;
use cranelift_codegen::ir::{Block, Function, Inst, Value};

use super::{acts, each_use, resolve};

/// Instructions of a block that is looked at, at least. With fewer, registers last.
const LEAST: usize = 24;

/// The key of what belongs where it is used first.
const LATE: u32 = u32::MAX;

#[derive(Default)]
pub(super) struct Scratch {
    /// Where values of the current block belong: behind everything with a lower key, which is never 0.
    keys: SecondaryMap<Value, u32>,
    insts: Vec<(u32, Inst)>,
}

pub(super) fn run(func: &mut Function, scratch: &mut Scratch) {
    let mut next = func.layout.entry_block();
    while let Some(block) = next {
        next = func.layout.next_block(block);
        if func.layout.block_insts(block).nth(LEAST).is_some() {
            scratch.block(func, block);
        }
    }
}

impl Scratch {
    fn block(&mut self, func: &mut Function, block: Block) {
        self.early(func, block);
        self.late(func);
        if !self.insts.is_sorted_by_key(|(key, _)| *key) {
            self.insts.sort_by_key(|(key, _)| *key);
            for (_, inst) in &self.insts {
                func.layout.remove_inst(*inst);
                func.layout.append_inst(*inst, block);
            }
        }
        for (_, inst) in self.insts.drain(..) {
            func.dfg.inst_results(inst).iter().for_each(|value| self.keys[*value] = 0);
        }
    }

    /// Each instruction belongs where it was, behind its operands, and what has effects behind all that had some before.
    /// The optimiser's own belong behind their operands, or where they are used if those are from elsewhere. Nothing moves
    /// in front of a call, which leaves no register as it was.
    fn early(&mut self, func: &Function, block: Block) {
        let (mut effect, mut call) = (1, 0);
        for inst in func.layout.block_insts(block) {
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
