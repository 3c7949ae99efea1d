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
//! **Cost.** The search visits at most [`VISITS`] instructions for each of the function.
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
use super::super::ir::{acts, def_block, destinations, each_use, passed};
use super::super::pass::{Input, Pass, Phase};

/// Blocks after the latch that the search visits, at most.
const MOST: usize = 32;
/// Edges to a block that the search visits, at most.
const EDGES: usize = 8;
/// Visits for each instruction of a function, at most.
const VISITS: usize = 4;

type Values = SmallVec<[Value; 4]>;

/// Where a latch is split: it ends before an instruction, and the rest has a value under another name.
struct Split {
    block: Block,
    at: Inst,
    value: Value,
    /// The block whose parameter the value is.
    of: Block,
    /// Blocks that the latch dominates and that use the value.
    dominated: Vec<Block>,
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
    let left = &Cell::new(VISITS * func.dfg.num_insts());
    let find = |block: &Block| {
        let to = |call: &BlockCall| call.block(&func.dfg.value_lists);
        let mut headers = destinations(func, *block).iter().filter(|call| domtree.block_dominates(to(call), *block));
        // Several back edges pass different values.
        let header = headers.next().filter(|_| headers.next().is_none())?;
        Latch { func, cfg, domtree, block: *block, header: to(header), left }.split(&passed(func, *header))
    };
    let splits: Vec<Split> = func.layout.blocks().filter_map(|block| find(&block)).collect();
    splits.iter().for_each(|split| apply(func, split));
    splits.len()
}

/// A loop's latch and its header.
struct Latch<'a> {
    func: &'a Function,
    cfg: &'a ControlFlowGraph,
    domtree: &'a DominatorTree,
    block: Block,
    header: Block,
    /// Visits that are left.
    left: &'a Cell<usize>,
}

impl Latch<'_> {
    /// The first of the values passed to the header that the allocator would swap with another.
    fn split(&self, args: &[Value]) -> Option<Split> {
        let params = self.func.dfg.block_params(self.header);
        let changing = params.iter().zip(args).filter(|(param, value)| param != value);
        let mut splits = changing.filter_map(|(param, value)| {
            let ValueDef::Param(from, nth) = self.func.dfg.value_def(*value) else { return None };
            // Parameters that are likely to share a register with the value.
            let shares = |other: Value| other == *value || self.is_passed((from, nth), other);
            let next = params.iter().zip(args).filter(|(_, next)| def_block(self.func, **next) == Some(self.block));
            let next = next.filter(|(other, _)| *other != param && shares(**other));
            let next: Values = next.map(|(_, next)| *next).collect();
            if next.is_empty() {
                return None;
            }
            let (at, derived) = self.place((*param, from), *value, &next)?;
            let dominated = self.dominated(&derived, *value)?;
            Some(Split { block: self.block, at, value: *value, of: from, dominated })
        });
        splits.next()
    }

    /// Whether an edge passes a value to the parameter of this number.
    fn is_passed(&self, (block, nth): (Block, usize), value: Value) -> bool {
        let edges = self.cfg.pred_iter(block).take(EDGES).flat_map(|pred| destinations(self.func, pred.block));
        let mut edges = edges.filter(|call| call.block(&self.func.dfg.value_lists) == block).take(EDGES);
        edges.any(|call| call.args(&self.func.dfg.value_lists).nth(nth) == Some(BlockArg::Value(value)))
    }

    /// The first instruction after all uses of `param` that uses the value or defines one of the next ones, if the block
    /// defines one from there on; and `param` with the pure values derived from it, which Cranelift may compute at their use.
    fn place(&self, (param, of): (Value, Block), value: Value, next: &[Value]) -> Option<(Inst, Values)> {
        let (mut place, mut defines, mut used) = (None, false, of == self.header);
        let mut derived = Values::from_slice(&[param]);
        for inst in self.func.layout.block_insts(self.block) {
            self.visit()?;
            let results = self.func.dfg.inst_results(inst);
            if self.uses(inst, &derived) {
                (place, defines, used) = (None, false, true);
                if !acts(self.func.dfg.insts[inst].opcode()) {
                    derived.extend_from_slice(results);
                }
                continue;
            }
            let defines_next = results.iter().any(|result| next.contains(result));
            if place.is_none() && (defines_next || self.uses(inst, &[value])) {
                place = Some(inst);
            }
            defines |= defines_next;
        }
        place.filter(|_| used && defines).map(|place| (place, derived))
    }

    /// The blocks after the latch, in the same iteration or after the loop, that use the value. `None` if the latch does not
    /// dominate one of them, if one leads back to the latch, or if one uses a value derived from the parameter.
    fn dominated(&self, derived: &[Value], value: Value) -> Option<Vec<Block>> {
        let next = |block| destinations(self.func, block).iter().map(|call| call.block(&self.func.dfg.value_lists));
        let mut seen: SmallVec<[Block; MOST]> = next(self.block).filter(|block| *block != self.header).collect();
        let (mut at, mut dominated) = (0, Vec::new());
        while let Some(block) = seen.get(at).copied() {
            if at == MOST || block == self.block {
                return None;
            }
            at += 1;
            let mut used = false;
            for inst in self.func.layout.block_insts(block) {
                self.visit()?;
                if self.uses(inst, derived) {
                    return None;
                }
                used |= self.uses(inst, &[value]);
            }
            if used {
                if !self.domtree.block_dominates(self.block, block) {
                    return None;
                }
                dominated.push(block);
            }
            for block in next(block).filter(|block| *block != self.header) {
                if !seen.contains(&block) {
                    seen.push(block);
                }
            }
        }
        Some(dominated)
    }

    /// Counts a visit; `None` if none is left.
    fn visit(&self) -> Option<()> {
        self.left.set(self.left.get().checked_sub(1)?);
        Some(())
    }

    fn uses(&self, inst: Inst, values: &[Value]) -> bool {
        let mut found = false;
        each_use(self.func, inst, |_, used| found |= values.contains(&used));
        found
    }
}

/// Splits the latch before the instruction.
fn apply(func: &mut Function, split: &Split) {
    let rest = func.dfg.make_block();
    let ty = func.dfg.value_type(split.value);
    let renamed = func.dfg.append_block_param(rest, ty);
    // The allocator merges live ranges in layout order: the new name with the parameter that it is passed to, not with the old one.
    func.layout.insert_block(rest, split.of);
    let mut next = Some(split.at);
    while let Some(inst) = next {
        next = func.layout.next_inst(inst);
        func.layout.remove_inst(inst);
        func.layout.append_inst(inst, rest);
    }
    let mut cursor = FuncCursor::new(func).at_bottom(split.block);
    cursor.use_srcloc(split.at);
    cursor.ins().jump(rest, &[BlockArg::Value(split.value)]);
    for block in split.dominated.iter().copied().chain([rest]) {
        let mut next = func.layout.first_inst(block);
        while let Some(inst) = next {
            next = func.layout.next_inst(inst);
            func.dfg.map_inst_values(inst, |value| if value == split.value { renamed } else { value });
        }
    }
}
