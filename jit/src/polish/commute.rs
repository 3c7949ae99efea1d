//! The operand that nobody needs any more comes first.
//!
//! On x86-64 most arithmetic leaves its result in the place of its first operand. If that is needed later it has to be
//! copied before, even where the second one could go.

use cranelift_codegen::Context;
use cranelift_codegen::entity::SecondaryMap;
use cranelift_codegen::ir::{Block, Function, InstructionData, Opcode, Value};
use cranelift_codegen::loop_analysis::LoopAnalysis;

use super::{Uses, constant, each_use, home, is_load};

/// Uses of each value that have been seen.
pub(super) type Scratch = SecondaryMap<Value, u32>;

/// Looks at loops. All uses have to be known.
pub(super) fn run(context: &mut Context, uses: &Uses, seen: &mut Scratch) {
    let Context { func, loop_analysis, .. } = context;
    seen.clear();
    let mut next = func.layout.entry_block();
    while let Some(block) = next {
        next = func.layout.next_block(block);
        if loop_analysis.innermost_loop(block).is_some() {
            commute(func, loop_analysis, block, uses, seen);
        }
    }
}

fn commute(func: &mut Function, loops: &LoopAnalysis, block: Block, uses: &Uses, seen: &mut Scratch) {
    let mut next = func.layout.first_inst(block);
    while let Some(inst) = next {
        next = func.layout.next_inst(inst);
        each_use(func, inst, |_, value| seen[value] += 1);
        let InstructionData::Binary { opcode, args: [first, second] } = func.dfg.insts[inst] else { continue };
        if !matches!(opcode, Opcode::Band | Opcode::Bor | Opcode::Bxor | Opcode::Imul) {
            continue;
        }
        // A value from outside is needed in the next round.
        let here =
            |value| home(func, value).is_some_and(|home| loops.innermost_loop(home) == loops.innermost_loop(block));
        let dies = |value| seen[value] == uses.total(value) && here(value);
        // Those may stay where they are.
        let stays = |value| constant(func, value).is_some() || uses.once(value) && is_load(func, value);
        if dies(second) && !dies(first) && !stays(first) && !stays(second) {
            func.dfg.insts[inst] = InstructionData::Binary { opcode, args: [second, first] };
        }
    }
}
