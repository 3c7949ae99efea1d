//! Coalescing of loop-carried copies: splits the latch so that the register allocator need not swap.
//!
//! **Why here.** `last = at; at = *at` passes `at` on and computes the next one while it is still live. The allocator computes that
//! where `last` was, and swaps both in each iteration: three moves, and a jump around them for the exit.
//!
//! **Before and after.** If the block ends after the last use of `last`, that is one move:
//!
//! ```text
//! block1(v1, v2):                         block1(v1, v2): use v1; jump block9(v2)
//!   use v1                          →     block9(v8):
//!   v3 = load.i64 v2                        v3 = load.i64 v8
//!   jump block1(v2, v3)                     jump block1(v8, v3)
//! ```
//!
//! **Cost.** At most [`LOOKS`] instructions are looked at for each of the function.
//!
//! **Safety.** The new parameter has the same value; only uses that the latch dominates are renamed.

use std::cell::Cell;

use cranelift_codegen::Context;
use cranelift_codegen::cursor::{Cursor as _, FuncCursor};
use cranelift_codegen::dominator_tree::DominatorTree;
use cranelift_codegen::flowgraph::ControlFlowGraph;
use cranelift_codegen::ir::{Block, BlockArg, BlockCall, Function, Inst, InstBuilder as _, Value, ValueDef};
use smallvec::SmallVec;

use super::super::analysis::Analyses;
use super::super::ir::{acts, destinations, each_use, home, passed};
use super::super::pass::{Input, Pass, Phase};

/// Blocks behind the end of a round that are looked at, at most.
const MOST: usize = 32;
/// Edges to a block that are looked at, at most.
const EDGES: usize = 8;
/// Instructions that are looked at for each of a function, at most.
const LOOKS: usize = 4;

type Values = SmallVec<[Value; 4]>;

/// How a latch is to be split: it ends before an instruction, and the rest has a value under another name.
struct Turn {
    block: Block,
    at: Inst,
    value: Value,
    /// Where the value is a parameter.
    home: Block,
    /// The blocks that can only be reached through this one, as far as they use the value.
    behind: Vec<Block>,
}

/// See the module documentation.
#[derive(Default)]
pub(in super::super) struct CopyCoalescing;

impl Pass for CopyCoalescing {
    const NAME: &'static str = "copy-coalescing";
    const SUMMARY: &'static str = "splits latches so that loop-carried copies need no swap";
    const PHASE: Phase = Phase::Post;
    const NEEDS: Analyses = Analyses::CFG.union(Analyses::DOMINATORS).union(Analyses::RESOLVED);
    const KEEPS: Analyses = Analyses::LOOPS.union(Analyses::RESOLVED);
    const LOOPS_ONLY: bool = true;

    fn run(&mut self, input: &mut Input<'_>) -> usize {
        run(input.context)
    }
}

/// Returns how many latches are split.
fn run(context: &mut Context) -> usize {
    let Context { func, cfg, domtree, .. } = context;
    let left = &Cell::new(LOOKS * func.dfg.num_insts());
    let back = |block: &Block| {
        let to = |call: &BlockCall| call.block(&func.dfg.value_lists);
        let mut heads = destinations(func, *block).iter().filter(|call| domtree.block_dominates(to(call), *block));
        // What several edges pass is not what one does.
        let head = heads.next().filter(|_| heads.next().is_none())?;
        Round { func, cfg, domtree, block: *block, head: to(head), left }.turn(&passed(func, *head))
    };
    let turns: Vec<Turn> = func.layout.blocks().filter_map(|block| back(&block)).collect();
    turns.iter().for_each(|turn| split(func, turn));
    turns.len()
}

/// A loop's last block, which leads back to its first.
struct Round<'a> {
    func: &'a Function,
    cfg: &'a ControlFlowGraph,
    domtree: &'a DominatorTree,
    block: Block,
    head: Block,
    /// Instructions that may be looked at yet.
    left: &'a Cell<usize>,
}

impl Round<'_> {
    /// The first value that would be swapped with another, of those that are passed to the head.
    fn turn(&self, args: &[Value]) -> Option<Turn> {
        let params = self.func.dfg.block_params(self.head);
        let handed = params.iter().zip(args).filter(|(param, value)| param != value);
        let mut turns = handed.filter_map(|(param, value)| {
            let ValueDef::Param(from, nth) = self.func.dfg.value_def(*value) else { return None };
            // Parameters that share a register with the value, as far as one can guess.
            let shares = |other: Value| other == *value || self.is_passed((from, nth), other);
            let next = params.iter().zip(args).filter(|(_, next)| home(self.func, **next) == Some(self.block));
            let next = next.filter(|(other, _)| *other != param && shares(**other));
            let next: Values = next.map(|(_, next)| *next).collect();
            if next.is_empty() {
                return None;
            }
            let (at, made) = self.place((*param, from), *value, &next)?;
            let behind = self.behind(&made, *value)?;
            Some(Turn { block: self.block, at, value: *value, home: from, behind })
        });
        turns.next()
    }

    /// Whether an edge passes a value to the parameter of this number.
    fn is_passed(&self, (block, nth): (Block, usize), value: Value) -> bool {
        let edges = self.cfg.pred_iter(block).take(EDGES).flat_map(|pred| destinations(self.func, pred.block));
        let mut edges = edges.filter(|call| call.block(&self.func.dfg.value_lists) == block).take(EDGES);
        edges.any(|call| call.args(&self.func.dfg.value_lists).nth(nth) == Some(BlockArg::Value(value)))
    }

    /// The first instruction behind all uses of `param` that uses the value or makes one of the next ones, if the block
    /// makes one from there on; and `param` with what is made of it without effects, which Cranelift may do where it is used.
    fn place(&self, (param, home): (Value, Block), value: Value, next: &[Value]) -> Option<(Inst, Values)> {
        let (mut place, mut makes, mut used) = (None, false, home == self.head);
        let mut made = Values::from_slice(&[param]);
        for inst in self.func.layout.block_insts(self.block) {
            self.look()?;
            let results = self.func.dfg.inst_results(inst);
            if self.uses(inst, &made) {
                (place, makes, used) = (None, false, true);
                if !acts(self.func.dfg.insts[inst].opcode()) {
                    made.extend_from_slice(results);
                }
                continue;
            }
            let makes_next = results.iter().any(|result| next.contains(result));
            if place.is_none() && (makes_next || self.uses(inst, &[value])) {
                place = Some(inst);
            }
            makes |= makes_next;
        }
        place.filter(|_| used && makes).map(|place| (place, made))
    }

    /// The blocks behind this one, in the same round or behind the loop, that use the value. None if some of them can be
    /// reached in other ways, if one leads back to this one, or if one uses what was made of the parameter.
    fn behind(&self, made: &[Value], value: Value) -> Option<Vec<Block>> {
        let next = |block| destinations(self.func, block).iter().map(|call| call.block(&self.func.dfg.value_lists));
        let mut seen: SmallVec<[Block; MOST]> = next(self.block).filter(|block| *block != self.head).collect();
        let (mut at, mut behind) = (0, Vec::new());
        while let Some(block) = seen.get(at).copied() {
            if at == MOST || block == self.block {
                return None;
            }
            at += 1;
            let mut used = false;
            for inst in self.func.layout.block_insts(block) {
                self.look()?;
                if self.uses(inst, made) {
                    return None;
                }
                used |= self.uses(inst, &[value]);
            }
            if used {
                if !self.domtree.block_dominates(self.block, block) {
                    return None;
                }
                behind.push(block);
            }
            for block in next(block).filter(|block| *block != self.head) {
                if !seen.contains(&block) {
                    seen.push(block);
                }
            }
        }
        Some(behind)
    }

    /// Looks at one more instruction, if that is not too much.
    fn look(&self) -> Option<()> {
        self.left.set(self.left.get().checked_sub(1)?);
        Some(())
    }

    fn uses(&self, inst: Inst, values: &[Value]) -> bool {
        let mut found = false;
        each_use(self.func, inst, |_, used| found |= values.contains(&used));
        found
    }
}

/// Splits the block before the instruction.
fn split(func: &mut Function, turn: &Turn) {
    let rest = func.dfg.make_block();
    let ty = func.dfg.value_type(turn.value);
    let renamed = func.dfg.append_block_param(rest, ty);
    // The allocator joins first what comes first: the new name with the place that it is for, not with the old one.
    func.layout.insert_block(rest, turn.home);
    let mut next = Some(turn.at);
    while let Some(inst) = next {
        next = func.layout.next_inst(inst);
        func.layout.remove_inst(inst);
        func.layout.append_inst(inst, rest);
    }
    let mut cursor = FuncCursor::new(func).at_bottom(turn.block);
    cursor.use_srcloc(turn.at);
    cursor.ins().jump(rest, &[BlockArg::Value(turn.value)]);
    for block in turn.behind.iter().copied().chain([rest]) {
        let mut next = func.layout.first_inst(block);
        while let Some(inst) = next {
            next = func.layout.next_inst(inst);
            func.dfg.map_inst_values(inst, |value| if value == turn.value { renamed } else { value });
        }
    }
}
