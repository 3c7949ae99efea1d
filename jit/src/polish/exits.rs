//! Where a branch leaves a loop, the loop goes on right behind it.
//!
//! Cranelift lays out the second target of a branch next, and what an edge moves between registers in front of it. So a
//! loop's exit becomes the first target, and its moves go to a block of their own, which comes behind the loop.

use cranelift_codegen::Context;
use cranelift_codegen::cursor::{Cursor as _, FuncCursor};
use cranelift_codegen::flowgraph::ControlFlowGraph;
use cranelift_codegen::ir::condcodes::{CondCode as _, IntCC};
use cranelift_codegen::ir::{Block, Function, Inst, InstBuilder as _, InstructionData, Value};
use cranelift_codegen::loop_analysis::LoopAnalysis;

use super::maker;

/// True if blocks have another order now, or there are new ones.
pub(super) fn run(context: &mut Context) -> bool {
    let Context { func, cfg, loop_analysis, .. } = context;
    let mut changed = false;
    let mut next = func.layout.entry_block();
    while let Some(block) = next {
        next = func.layout.next_block(block);
        let branch = func.layout.last_inst(block).expect("blocks end");
        if let Some(way) = exit(func, loop_analysis, block, branch) {
            if way == 1 {
                swap(func, branch);
            }
            changed |= split(func, cfg, block, branch) || way == 1;
        }
    }
    changed
}

/// Which of a branch's two targets is out of the loop, if the other is not.
fn exit(func: &Function, loops: &LoopAnalysis, block: Block, branch: Inst) -> Option<usize> {
    let inner = loops.innermost_loop(block)?;
    let InstructionData::Brif { blocks, .. } = func.dfg.insts[branch] else { return None };
    let stays = blocks.map(|call| loops.is_in_loop(call.block(&func.dfg.value_lists), inner));
    match stays {
        [false, true] => Some(0),
        [true, false] => Some(1),
        _ => None,
    }
}

/// Exchanges a branch's targets.
fn swap(func: &mut Function, branch: Inst) {
    let InstructionData::Brif { opcode, arg, blocks: [then, other] } = func.dfg.insts[branch] else {
        unreachable!("an exit is one of two")
    };
    let arg = not(func, branch, arg);
    func.dfg.insts[branch] = InstructionData::Brif { opcode, arg, blocks: [other, then] };
}

/// What is true in front of a branch where a condition is not.
fn not(func: &mut Function, branch: Inst, cond: Value) -> Value {
    let compare = maker(func, cond).map(|inst| func.dfg.insts[inst]);
    let mut cursor = FuncCursor::new(func).at_inst(branch);
    cursor.use_srcloc(branch);
    match compare {
        Some(InstructionData::IntCompare { cond, args, .. }) => cursor.ins().icmp(cond.complement(), args[0], args[1]),
        _ => cursor.ins().icmp_imm_u(IntCC::Equal, cond, 0),
    }
}

/// Gives the edge to a branch's first target a block, if the target has other edges and this one moves something.
fn split(func: &mut Function, cfg: &ControlFlowGraph, block: Block, branch: Inst) -> bool {
    let InstructionData::Brif { opcode, arg, blocks: [mut out, stay] } = func.dfg.insts[branch] else {
        unreachable!("an exit is one of two")
    };
    let target = out.block(&func.dfg.value_lists);
    let moves = out.args(&func.dfg.value_lists).next().is_some();
    if !moves || cfg.pred_iter(target).nth(1).is_none() {
        return false;
    }
    let edge = func.dfg.make_block();
    func.layout.insert_block_after(edge, block);
    let args: Vec<_> = out.args(&func.dfg.value_lists).collect();
    let mut cursor = FuncCursor::new(func).at_bottom(edge);
    cursor.use_srcloc(branch);
    cursor.ins().jump(target, &args);
    out = func.dfg.block_call(edge, &[]);
    func.dfg.insts[branch] = InstructionData::Brif { opcode, arg, blocks: [out, stay] };
    true
}
