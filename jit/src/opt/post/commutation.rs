//! Operand commutation: the operand that dies comes first.
//!
//! **Why here.** On x86-64 most arithmetic overwrites its first operand. If that has later uses it is copied first, even where the
//! second one is free. Cranelift keeps the order of the program.
//!
//! **Before and after.** If `v2` has its last use here and `v1` has not:
//!
//! ```text
//! v3 = bxor v1, v2                  →     v3 = bxor v2, v1
//! ```
//!
//! **Cost.** Linear.
//!
//! **Safety.** Only commutative operations.

use cranelift_codegen::Context;
use cranelift_codegen::entity::SecondaryMap;
use cranelift_codegen::ir::{Block, Function, InstructionData, Opcode, Value};
use cranelift_codegen::loop_analysis::LoopAnalysis;

use super::super::analysis::Analyses;
use super::super::analysis::uses::Uses;
use super::super::ir::{constant, def_block, each_use, is_load};
use super::super::pass::{Input, Pass, Phase};
use super::super::target_model::TargetModel;

/// See the module documentation.
#[derive(Default)]
pub(in super::super) struct Commutation {
    /// Uses of each value that have been seen.
    seen: SecondaryMap<Value, u32>,
}

impl Pass for Commutation {
    const NAME: &'static str = "commutation";
    const SUMMARY: &'static str = "puts the operand first that dies";
    const PHASE: Phase = Phase::Post;
    const NEEDS: Analyses = Analyses::LOOPS.union(Analyses::USES).union(Analyses::RESOLVED);
    const KEEPS: Analyses = Analyses::FLOW.union(Analyses::USES).union(Analyses::RESOLVED);
    const LOOPS_ONLY: bool = true;

    fn pays(target: &TargetModel) -> bool {
        target.memory_operands
    }

    fn run(&mut self, input: &mut Input<'_>) -> usize {
        run(input.context, &input.analysis.uses, &mut self.seen)
    }
}

/// Returns how many instructions have their operands exchanged.
fn run(context: &mut Context, uses: &Uses, seen: &mut SecondaryMap<Value, u32>) -> usize {
    let mut changes = 0;
    let Context { func, loop_analysis, .. } = context;
    seen.clear();
    let mut next = func.layout.entry_block();
    while let Some(block) = next {
        next = func.layout.next_block(block);
        if loop_analysis.innermost_loop(block).is_some() {
            changes += commute(func, loop_analysis, block, uses, seen);
        }
    }
    changes
}

fn commute(
    func: &mut Function,
    loops: &LoopAnalysis,
    block: Block,
    uses: &Uses,
    seen: &mut SecondaryMap<Value, u32>,
) -> usize {
    let mut changes = 0;
    let mut next = func.layout.first_inst(block);
    while let Some(inst) = next {
        next = func.layout.next_inst(inst);
        each_use(func, inst, |_, value| seen[value] += 1);
        let InstructionData::Binary { opcode, args: [first, second] } = func.dfg.insts[inst] else { continue };
        if !matches!(opcode, Opcode::Band | Opcode::Bor | Opcode::Bxor | Opcode::Imul) {
            continue;
        }
        // The next iteration needs a value that is defined outside the loop.
        let here =
            |value| def_block(func, value).is_some_and(|at| loops.innermost_loop(at) == loops.innermost_loop(block));
        let dies = |value| seen[value] == uses.total(value) && here(value);
        // Immediates and folded loads are second operands.
        let stays = |value| constant(func, value).is_some() || uses.once(value) && is_load(func, value);
        if dies(second) && !dies(first) && !stays(first) && !stays(second) {
            func.dfg.insts[inst] = InstructionData::Binary { opcode, args: [second, first] };
            changes += 1;
        }
    }
    changes
}
