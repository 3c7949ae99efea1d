//! Tail duplication: the short block that all cases of a dispatch loop share is copied into each.
//!
//! **Why here.** In an interpreter's loop, the block after all cases increments the program counter and jumps to the header. A copy in each case saves
//! a jump, and the processor's branch history, by which it predicts the table, reaches further back. clang merges tails.
//!
//! **Before and after.** In a loop with a `br_table`:
//!
//! ```text
//! block4: ...; jump block9(v3)            block4: ...; v8 = iadd_imm v3, 1; brif v7, block1(v8), block10
//! block9(v5): v6 = iadd_imm v5, 1   →
//!   brif v7, block1(v6), block10
//! ```
//!
//! **Cost.** Copies add at most [`MAX_GROWTH`] instructions to a function, each at most [`MAX_INSTS`].
//!
//! **Safety.** Only blocks without side effects are copied, of which other blocks use no values.

use std::collections::HashMap;

use cranelift_codegen::Context;
use cranelift_codegen::entity::{EntitySet, SecondaryMap};
use cranelift_codegen::ir::{Block, BlockArg, Function, InstructionData, Opcode, Value};
use cranelift_codegen::loop_analysis::{Loop, LoopAnalysis};
use cranelift_codegen::packed_option::PackedOption;

use super::super::analysis::Analyses;
use super::super::ir::{cheap, each_use, is_point, resolve};
use super::super::pass::{Input, Pass, Phase};

/// Instructions of such a block, at most.
const MAX_INSTS: usize = 8;
/// Instructions that copies add to a function, at most.
const MAX_GROWTH: usize = 256;

/// See the module documentation.
#[derive(Default)]
pub(in super::super) struct TailDuplication;

impl Pass for TailDuplication {
    const NAME: &'static str = "tail-duplication";
    const SUMMARY: &'static str = "copies the short latch of a dispatch loop into each case";
    const PHASE: Phase = Phase::Post;
    const NEEDS: Analyses = Analyses::FLOW;
    const KEEPS: Analyses = Analyses::LOOPS.union(Analyses::RESOLVED);
    const LOOPS_ONLY: bool = true;

    fn run(&mut self, input: &mut Input<'_>) -> usize {
        run(input.context)
    }
}

/// Returns how many copies are made.
fn run(context: &mut Context) -> usize {
    let Context { func, cfg, domtree, loop_analysis, .. } = context;
    let tables = dispatching(func, loop_analysis);
    if tables.is_empty() {
        return 0;
    }
    // In postorder: after the blocks that they jump to.
    let ends = domtree.cfg_postorder().iter().filter_map(|block| {
        let inner = loop_analysis.innermost_loop(*block).filter(|inner| tables.contains(inner));
        let inner = inner.filter(|inner| loop_analysis.loop_header(*inner) != *block)?;
        size(func, *block).map(|_| (*block, inner))
    });
    let mut ends: Vec<(Block, Loop)> = ends.collect();
    if !ends.is_empty() {
        keep_closed(func, &mut ends);
    }
    let mut room = MAX_GROWTH;
    let mut copied = 0;
    for (block, inner) in ends {
        // It may have become longer.
        let Some(size) = size(func, block) else { continue };
        let preds: Vec<Block> = cfg.pred_iter(block).map(|pred| pred.block).collect();
        let copies = preds.iter().filter(|pred| **pred != block && loop_analysis.is_in_loop(**pred, inner));
        for pred in copies.take(preds.len() - 1) {
            if size <= room && copy(func, *pred, block) {
                room -= size;
                copied += 1;
            }
        }
    }
    copied
}

/// Loops with a jump table.
fn dispatching(func: &Function, loops: &LoopAnalysis) -> Vec<Loop> {
    let by_table = |block: &Block| {
        let last = func.layout.last_inst(*block).expect("blocks end");
        func.dfg.insts[last].opcode() == Opcode::BrTable
    };
    func.layout.blocks().filter(by_table).filter_map(|block| loops.innermost_loop(block)).collect()
}

/// Keeps the blocks whose values no other block uses.
fn keep_closed(func: &Function, ends: &mut Vec<(Block, Loop)>) {
    let mut defs: SecondaryMap<Value, PackedOption<Block>> = SecondaryMap::with_capacity(func.dfg.num_values());
    for (block, _) in ends.iter() {
        let results = func.layout.block_insts(*block).flat_map(|inst| func.dfg.inst_results(inst));
        results.chain(func.dfg.block_params(*block)).for_each(|value| defs[*value] = Some(*block).into());
    }
    let mut open = EntitySet::with_capacity(func.dfg.num_blocks());
    for block in func.layout.blocks() {
        for inst in func.layout.block_insts(block) {
            each_use(func, inst, |_, value| {
                if let Some(at) = defs[resolve(func, value)].expand().filter(|at| *at != block) {
                    open.insert(at);
                }
            });
        }
    }
    ends.retain(|(block, _)| !open.contains(*block));
}

/// How many instructions a block has, if they can be copied and are few.
fn size(func: &Function, block: Block) -> Option<usize> {
    let last = func.layout.last_inst(block)?;
    let ends = matches!(func.dfg.insts[last].opcode(), Opcode::Jump | Opcode::Brif);
    let pure = |inst| inst == last || cheap(func.dfg.insts[inst].opcode()).is_some();
    let size = func.layout.block_insts(block).filter(|inst| !is_point(func, *inst)).count();
    (ends && size <= MAX_INSTS && func.layout.block_insts(block).all(pure)).then_some(size)
}

/// Puts a copy of a block in place of the jump to it. False if a block ends otherwise.
fn copy(func: &mut Function, pred: Block, block: Block) -> bool {
    let jump = func.layout.last_inst(pred).expect("blocks end");
    let InstructionData::Jump { destination, .. } = func.dfg.insts[jump] else { return false };
    let mut renamed: HashMap<Value, Value> = HashMap::new();
    for (param, arg) in func.dfg.block_params(block).iter().zip(destination.args(&func.dfg.value_lists)) {
        let BlockArg::Value(value) = arg else { return false };
        renamed.insert(*param, value);
    }
    func.layout.remove_inst(jump);
    let mut next = func.layout.first_inst(block);
    while let Some(inst) = next {
        next = func.layout.next_inst(inst);
        if is_point(func, inst) {
            continue;
        }
        let new = func.dfg.clone_inst(inst);
        func.dfg.map_inst_values(new, |value| renamed.get(&value).copied().unwrap_or(value));
        func.set_srcloc(new, func.srcloc(inst));
        func.layout.append_inst(new, pred);
        renamed.extend(func.dfg.inst_results(inst).iter().copied().zip(func.dfg.inst_results(new).iter().copied()));
    }
    true
}
