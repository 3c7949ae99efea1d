//! Scheduling: restores the source order within long blocks.
//!
//! **Why here.** Cranelift's optimiser places an instruction without side effects where it is needed first; in a long block that
//! begins with the first operand of what comes last. What the others are made of waits in registers, or is spilled. clang
//! wrote the program for ten registers: in its own order, no more values are live at a time.
//!
//! **Before and after.** In a block of more than [`LEAST`] instructions, by the source location of each:
//!
//! ```text
//! v9 = iadd v1, v2   ; pc 40              v3 = imul v1, v1   ; pc 12
//! v3 = imul v1, v1   ; pc 12        →     v9 = iadd v1, v2   ; pc 40
//! ```
//!
//! **Cost.** A stable sort of each such block.
//!
//! **Safety.** Instructions stay after their operands; loads, stores, calls and traps keep their order, and nothing moves
//! before a call. A block keeps its order if the other one has more values live beyond the registers of the target.

use cranelift_codegen::entity::SecondaryMap;
use cranelift_codegen::ir::{Block, Function, Inst, Value};

use super::super::analysis::Analyses;
use super::super::ir::{acts, constant, each_use, is_point, resolve};
use super::super::pass::{Input, Pass, Phase};

/// Instructions of a block to reorder, at least. With fewer, registers suffice.
const LEAST: usize = 24;

/// Registers that are left for temporaries.
const TEMPORARIES: u32 = 2;

/// Key of an instruction that belongs directly before its first user.
const LATE: u32 = u32::MAX;

/// An instruction and its key: it belongs after all instructions with a lower key.
type Keyed = (u32, Inst);

/// See the module documentation.
#[derive(Default)]
pub(in super::super) struct Scheduling {
    /// Number of values that registers can hold.
    registers: u64,
    /// Keys of the instructions that define the values of the current block; never 0.
    keys: SecondaryMap<Value, u32>,
    insts: Vec<Keyed>,
    sorted: Vec<Keyed>,
    /// The last count that found a value alive.
    alive: SecondaryMap<Value, u32>,
    counts: u32,
}

impl Pass for Scheduling {
    const NAME: &'static str = "scheduling";
    const SUMMARY: &'static str = "restores the source order within long blocks";
    const PHASE: Phase = Phase::Post;
    const NEEDS: Analyses = Analyses::empty();
    const KEEPS: Analyses = Analyses::FLOW.union(Analyses::RESOLVED);

    fn run(&mut self, input: &mut Input<'_>) -> usize {
        self.registers = (input.target.registers - TEMPORARIES).into();
        run(&mut input.context.func, self)
    }
}

/// Returns how many blocks have another order.
fn run(func: &mut Function, scratch: &mut Scheduling) -> usize {
    let mut changes = 0;
    let mut next = func.layout.entry_block();
    while let Some(block) = next {
        next = func.layout.next_block(block);
        // A listing has points, and must show the same code.
        if func.layout.block_insts(block).filter(|inst| !is_point(func, *inst)).nth(LEAST).is_some() {
            changes += usize::from(scratch.block(func, block));
        }
    }
    changes
}

impl Scheduling {
    fn block(&mut self, func: &mut Function, block: Block) -> bool {
        let mut changed = false;
        self.early(func, block);
        self.late(func);
        if !self.insts.is_sorted_by_key(|(key, _)| *key) {
            let (insts, mut sorted) = (std::mem::take(&mut self.insts), std::mem::take(&mut self.sorted));
            sorted.clone_from(&insts);
            sorted.sort_by_key(|(key, _)| *key);
            // A program that keeps more words in its frame than there are registers may have a worse order itself.
            if self.excess_pressure(func, &sorted) <= self.excess_pressure(func, &insts) {
                for (_, inst) in &sorted {
                    func.layout.remove_inst(*inst);
                    func.layout.append_inst(*inst, block);
                }
                changed = true;
            }
            (self.insts, self.sorted) = (insts, sorted);
        }
        for (_, inst) in self.insts.drain(..) {
            func.dfg.inst_results(inst).iter().for_each(|value| self.keys[*value] = 0);
        }
        changed
    }

    /// Estimated register pressure above the limit, added up over the instructions.
    fn excess_pressure(&mut self, func: &Function, insts: &[Keyed]) -> u64 {
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
            sum += live.saturating_sub(self.registers);
        }
        sum
    }

    /// Each instruction keeps its source position, after its operands; one with effects also comes after all earlier
    /// ones with effects. The optimiser's own come after their operands, or where they are used if those are from other
    /// blocks. Nothing moves before a call, which clobbers all registers.
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
            // A sequence point comes before what it is for, but not before an earlier effect.
            for (point, _) in self.insts.iter_mut().rev().take_while(|(key, _)| *key == 0) {
                effect = if key == LATE { effect } else { effect.max(key) };
                *point = effect;
            }
            func.dfg.inst_results(inst).iter().for_each(|value| self.keys[*value] = key);
            self.insts.push((key, inst));
        }
        // The branch stays last.
        self.insts.last_mut().expect("blocks end").0 = LATE;
    }

    /// Gives the remaining instructions the key of their first user.
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
