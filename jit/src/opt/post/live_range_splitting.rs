//! Live-range splitting: a value that lives through a loop nest and is used in it has another name there.
//!
//! **Why here.** Cranelift's register allocator splits the live ranges of a value at most twice. A value that it has split that often,
//! as the pointer to a block of memory in a long function, is loaded from the stack again at each of its uses, in loops too, and
//! where registers are free. Another name is another value to the allocator.
//!
//! **Before and after.** With `v1` live after the loop:
//!
//! ```text
//!   jump block2(v2)                         jump block2(v2, v1)
//! block2(v3: i64):                  →     block2(v3: i64, v9: i64):
//!   v4 = iadd v3, v1                        v4 = iadd v3, v9
//!   brif v5, block2(v4), block3             brif v5, block2(v4, v9), block3
//! ```
//!
//! It costs a move where the loop is entered, so it is done for outermost loops only, and only where the allocator has to spill: more
//! values are live at once in the loop than there are registers, but those from outside that it uses would have room.
//!
//! **Cost.** Linear, but for [`Liveness`], whose sets are as large as blocks times values. It is not for functions with a budget: the
//! blocks that hand over to the interpreter use the same values, all through the loop.
//!
//! **Safety.** The new parameter has the value's own value: every edge into the loop passes it, every edge back passes on the
//! parameter. Only blocks that the loop's header dominates use the parameter.

use cranelift_codegen::Context;
use cranelift_codegen::dominator_tree::DominatorTree;
use cranelift_codegen::entity::SecondaryMap;
use cranelift_codegen::flowgraph::ControlFlowGraph;
use cranelift_codegen::ir::{Block, BlockArg, Function, Opcode, Type, Value};
use cranelift_codegen::loop_analysis::{Loop, LoopAnalysis};
use cranelift_codegen::packed_option::PackedOption;
use smallvec::SmallVec;

use super::super::analysis::Analyses;
use super::super::ir::{constant, def_block, def_inst, destinations, each_use};
use super::super::liveness::Liveness;
use super::super::pass::{Input, Pass, Phase};

/// Values beyond the target's registers that may be live at once before some are split. Chosen on the selection set.
const BEYOND: u32 = 2;
/// Dominators of a cold block that may be cold, too.
const COLD: usize = 4;

/// The mutant that swaps what the edges into a loop pass for two values.
pub(crate) const MUTANT: &str = "split_ranges_are_swapped";

type Values = SmallVec<[Value; 16]>;

/// See the module documentation.
#[derive(Default)]
pub(in super::super) struct LiveRangeSplitting {
    liveness: Liveness,
    /// The outermost loop around each loop.
    outermost: SecondaryMap<Loop, PackedOption<Loop>>,
    /// The header of a nest and a block of it, nest by nest. Cold blocks that lead out of it are among them.
    blocks: Vec<(Block, Block)>,
    /// The header of the nest of each block.
    nests: SecondaryMap<Block, PackedOption<Block>>,
    /// What values are called in the current nest.
    renamed: SecondaryMap<Value, PackedOption<Value>>,
}

impl Pass for LiveRangeSplitting {
    const NAME: &'static str = "live-range-splitting";
    const SUMMARY: &'static str =
        "gives values that live through a loop nest another name in it; only without a budget";
    const PHASE: Phase = Phase::Post;
    const NEEDS: Analyses = Analyses::CFG.union(Analyses::DOMINATORS).union(Analyses::RESOLVED);
    const KEEPS: Analyses = Analyses::FLOW.union(Analyses::RESOLVED);
    const LOOPS_ONLY: bool = true;

    fn run(&mut self, input: &mut Input<'_>) -> usize {
        let registers = input.target.registers;
        let enough = registers + BEYOND;
        let spilled = |this: &Self, func: &Function, block| this.liveness.count(func, block) > enough;
        let func = &input.context.func;
        if input.counted
            || !self.liveness.compute(func, enough)
            || !func.layout.blocks().any(|block| spilled(self, func, block))
        {
            return 0;
        }
        // Blocks that passes have added are in no loop of the analysis yet.
        input.context.compute_loop_analysis();
        let Context { func, cfg, domtree, loop_analysis, .. } = &mut *input.context;
        self.group(func, domtree, loop_analysis);
        let blocks = std::mem::take(&mut self.blocks);
        let mut changes = 0;
        for nest in blocks.chunk_by(|one, other| one.0 == other.0) {
            if nest.iter().any(|(_, block)| spilled(self, func, *block)) {
                let values = self.candidates(func, nest, registers);
                let mut passed = values.clone();
                if input.mutant == MUTANT {
                    passed.reverse();
                }
                self.split(func, cfg, nest, (&values, &passed));
                changes += values.len();
            }
        }
        self.blocks = blocks;
        changes
    }
}

impl LiveRangeSplitting {
    /// Finds the nest of each block.
    fn group(&mut self, func: &Function, domtree: &DominatorTree, loops: &LoopAnalysis) {
        self.outermost.clear();
        self.nests.clear();
        self.blocks.clear();
        for inner in loops.loops() {
            let mut outer = inner;
            while let Some(parent) = loops.loop_parent(outer) {
                outer = self.outermost[parent].expand().unwrap_or(parent);
            }
            self.outermost[inner] = outer.into();
        }
        for block in func.layout.blocks() {
            let leads = |block: &Block| loops.innermost_loop(*block).is_some() || !func.layout.is_cold(*block);
            let near = std::iter::successors(Some(block), |block| domtree.idom(*block)).take(COLD).find(leads);
            let inside = near.and_then(|block| loops.innermost_loop(block));
            if let Some(nest) = inside.and_then(|inner| self.outermost[inner].expand()) {
                let nest = loops.loop_header(nest);
                self.nests[block] = nest.into();
                self.blocks.push((nest, block));
            }
        }
        self.blocks.sort_by_key(|(nest, _)| *nest);
    }

    /// Values from outside that a nest uses and that live on after it. None if it uses more than have room.
    fn candidates(&self, func: &Function, nest: &[(Block, Block)], registers: u32) -> Values {
        let header = nest[0].0;
        let room = (registers as usize).saturating_sub(1 + func.dfg.num_block_params(header));
        let (mut used, mut exits) = (Values::new(), SmallVec::<[Block; 8]>::new());
        let inside = |block: Block| self.nests[block] == header.into();
        for (_, block) in nest.iter().filter(|(_, block)| !func.layout.is_cold(*block)) {
            for inst in func.layout.block_insts(*block) {
                each_use(func, inst, |_, value| {
                    let outside = def_block(func, value).is_some_and(|block| !inside(block));
                    if outside && used.len() <= room && constant(func, value).is_none() && !used.contains(&value) {
                        used.push(value);
                    }
                });
            }
            if used.len() > room {
                return Values::new();
            }
            let targets = destinations(func, *block).iter().map(|call| call.block(&func.dfg.value_lists));
            exits.extend(targets.filter(|target| !inside(*target)));
        }
        used.retain(|value| !folded(func, *value) && exits.iter().any(|exit| self.liveness.is_live(*exit, *value)));
        used
    }

    /// Makes values parameters of a nest's header, and has its blocks use these. Edges from outside pass them.
    fn split(
        &mut self,
        func: &mut Function,
        cfg: &ControlFlowGraph,
        nest: &[(Block, Block)],
        (values, passed): (&[Value], &[Value]),
    ) {
        let header = nest[0].0;
        let types: SmallVec<[Type; 16]> = values.iter().map(|value| func.dfg.value_type(*value)).collect();
        let params: Values = types.iter().map(|ty| func.dfg.append_block_param(header, *ty)).collect();
        for (value, param) in values.iter().zip(&params) {
            self.renamed[*value] = (*param).into();
        }
        for (_, block) in nest {
            let mut next = func.layout.first_inst(*block);
            while let Some(inst) = next {
                next = func.layout.next_inst(inst);
                func.dfg.map_inst_values(inst, |value| self.renamed[value].expand().unwrap_or(value));
            }
        }
        for pred in cfg.pred_iter(header) {
            let args = if self.nests[pred.block] == header.into() { &params[..] } else { passed };
            let dfg = &mut func.dfg;
            let calls = dfg.insts[pred.inst].branch_destination_mut(&mut dfg.jump_tables, &mut dfg.exception_tables);
            for call in calls {
                if call.block(&dfg.value_lists) == header {
                    args.iter().for_each(|arg| call.append_argument(BlockArg::Value(*arg), &mut dfg.value_lists));
                }
            }
        }
        for value in values {
            self.renamed[*value] = None.into();
        }
    }
}

/// Whether Cranelift makes a value part of the instructions that use it, or makes it anew for them.
fn folded(func: &Function, value: Value) -> bool {
    def_inst(func, value).is_some_and(|inst| {
        matches!(
            func.dfg.insts[inst].opcode(),
            Opcode::Iadd
                | Opcode::Ishl
                | Opcode::Uextend
                | Opcode::Ireduce
                | Opcode::Icmp
                | Opcode::FuncAddr
                | Opcode::SymbolValue
                | Opcode::StackAddr
        )
    })
}
