//! Exit-edge splitting and fall-through layout: where a branch leaves a loop, the loop continues at the next instruction.
//!
//! **Why here.** Cranelift lays out the second target of a branch next, and puts the moves of an edge before it. So the exit becomes
//! the first target, and its moves go to a block of their own after the loop. Where the other target is the header, which is
//! never next, that one is first: one jump, not two.
//!
//! **Before and after.**
//!
//! ```text
//! brif v1, block3, block9(v2, v3)   →     brif v4, block20, block3    ; v4 is not v1
//!                                         block20: jump block9(v2, v3)
//! ```
//!
//! **Cost.** Linear; edges that pass the same values share a block, which is searched among the last [`LAST`].
//!
//! **Safety.** No instruction moves; conditions are inverted exactly.

use cranelift_codegen::Context;
use cranelift_codegen::cursor::{Cursor as _, FuncCursor};
use cranelift_codegen::flowgraph::ControlFlowGraph;
use cranelift_codegen::ir::condcodes::{CondCode as _, IntCC};
use cranelift_codegen::ir::{Block, BlockArg, Function, Inst, InstBuilder as _, InstructionData, Value};
use cranelift_codegen::loop_analysis::LoopAnalysis;

use super::super::analysis::Analyses;
use super::super::ir::{constant, def_inst, destinations, passed};
use super::super::pass::{Input, Pass, Phase};

/// How many earlier edges are compared to find one that passes the same.
const LAST: usize = 8;

/// See the module documentation.
#[derive(Default)]
pub(in super::super) struct ExitSplitting;

impl Pass for ExitSplitting {
    const NAME: &'static str = "exit-splitting";
    const SUMMARY: &'static str = "gives exit edges blocks of their own, so that a loop falls through";
    const PHASE: Phase = Phase::Post;
    const NEEDS: Analyses = Analyses::CFG.union(Analyses::LOOPS);
    const KEEPS: Analyses = Analyses::LOOPS.union(Analyses::RESOLVED);
    const LOOPS_ONLY: bool = true;

    fn run(&mut self, input: &mut Input<'_>) -> usize {
        run(input.context)
    }
}

/// Returns how many branches have other targets, or targets in another order.
fn run(context: &mut Context) -> usize {
    let Context { func, cfg, loop_analysis, .. } = context;
    let mut changes = 0;
    let mut splits = Vec::new();
    let mut next = func.layout.entry_block();
    while let Some(block) = next {
        next = func.layout.next_block(block);
        let branch = func.layout.last_inst(block).expect("blocks end");
        if let Some((out, wanted)) = exit(func, loop_analysis, block, branch) {
            let split = split(func, cfg, (block, branch, out), &mut splits);
            changes += usize::from(split || out != wanted);
            if out != wanted {
                swap(func, branch);
            }
        }
    }
    changes
}

/// Which of a branch's two edges leaves the loop, if the other does not, and which should.
fn exit(func: &Function, loops: &LoopAnalysis, block: Block, branch: Inst) -> Option<(usize, usize)> {
    let inner = loops.innermost_loop(block)?;
    let InstructionData::Brif { blocks, .. } = func.dfg.insts[branch] else { return None };
    let to = blocks.map(|call| call.block(&func.dfg.value_lists));
    let out = match to.map(|block| loops.is_in_loop(block, inner)) {
        [false, true] => 0,
        [true, false] => 1,
        _ => return None,
    };
    Some((out, usize::from(to[1 - out] == loops.loop_header(inner))))
}

/// Exchanges a branch's targets.
fn swap(func: &mut Function, branch: Inst) {
    let InstructionData::Brif { opcode, arg, blocks: [then, other] } = func.dfg.insts[branch] else {
        unreachable!("an exit is one of two")
    };
    let arg = not(func, branch, arg);
    func.dfg.insts[branch] = InstructionData::Brif { opcode, arg, blocks: [other, then] };
}

/// The negation of a condition, computed before a branch.
fn not(func: &mut Function, branch: Inst, cond: Value) -> Value {
    let compare = def_inst(func, cond).map(|inst| func.dfg.insts[inst]);
    let mut cursor = FuncCursor::new(func).at_inst(branch);
    cursor.use_srcloc(branch);
    match compare {
        Some(InstructionData::IntCompare { cond, args, .. }) => cursor.ins().icmp(cond.complement(), args[0], args[1]),
        _ => cursor.ins().icmp_imm_u(IntCC::Equal, cond, 0),
    }
}

/// A split edge: its block, its target, and the values that it passes.
type SplitEdge = (Block, Block, Vec<Value>);

/// Splits the edge that leaves a loop, if its target has other predecessors and the edge passes values. Edges
/// that pass the same values share a block. It defines the constants that it passes, so that the loop does not.
fn split(
    func: &mut Function,
    cfg: &ControlFlowGraph,
    (block, branch, at): (Block, Inst, usize),
    splits: &mut Vec<SplitEdge>,
) -> bool {
    let out = destinations(func, block)[at];
    let target = out.block(&func.dfg.value_lists);
    let args = passed(func, out);
    if args.is_empty() || cfg.pred_iter(target).nth(1).is_none() {
        return false;
    }
    let mut last = splits.iter().rev().take(LAST);
    let known = last.find(|(_, to, others)| *to == target && alike(func, &args, others)).map(|(edge, ..)| *edge);
    let edge = known.unwrap_or_else(|| {
        let edge = func.dfg.make_block();
        func.layout.insert_block_after(edge, block);
        let mut cursor = FuncCursor::new(func).at_bottom(edge);
        cursor.use_srcloc(branch);
        let own = |value| {
            let ty = cursor.func.dfg.value_type(value);
            constant(cursor.func, value).map_or(value, |bits| cursor.ins().iconst(ty, bits))
        };
        let own: Vec<BlockArg> = args.iter().copied().map(own).map(BlockArg::Value).collect();
        cursor.ins().jump(target, &own);
        splits.push((edge, target, args));
        edge
    });
    let out = func.dfg.block_call(edge, &[]);
    let dfg = &mut func.dfg;
    dfg.insts[branch].branch_destination_mut(&mut dfg.jump_tables, &mut dfg.exception_tables)[at] = out;
    true
}

/// Whether values are the same, or constants of the same bits.
fn alike(func: &Function, some: &[Value], others: &[Value]) -> bool {
    let bits = |value: Value| constant(func, value).map(|bits| (func.dfg.value_type(value), bits));
    some.iter().zip(others).all(|(a, b)| a == b || bits(*a).is_some_and(|a| Some(a) == bits(*b)))
}
