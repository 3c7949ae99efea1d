//! Induction-variable widening: 32-bit block parameters that addresses are made of become 64 bits wide in loops.
//!
//! **Why here.** 32-bit arithmetic leaves zeros in the upper half, so extending its result is free. What a register holds above a
//! 32-bit parameter is unknown, so each address made from it costs a move. Cranelift has no such pass.
//!
//! **Before and after.**
//!
//! ```text
//! block1(v1: i32):                        block1(v8: i64):
//!   v2 = uextend.i64 v1             →       v3 = iadd v0, v8
//!   v3 = iadd v0, v2                        v1 = ireduce.i32 v8
//!   jump block1(v4)                         v9 = uextend.i64 v4; jump block1(v9)
//! ```
//!
//! **Cost.** Linear, with at most [`MAX_ITERATIONS`] iterations over the edges.
//!
//! **Safety.** Every edge passes the extended value.

use cranelift_codegen::Context;
use cranelift_codegen::cursor::{Cursor as _, FuncCursor};
use cranelift_codegen::entity::SecondaryMap;
use cranelift_codegen::ir::types::{I32, I64};
use cranelift_codegen::ir::{Block, Function, Inst, InstBuilder as _, InstructionData, Opcode, Value, ValueDef};
use cranelift_codegen::loop_analysis::LoopAnalysis;

use super::super::analysis::Analyses;
use super::super::ir::{constant, destinations, pass, unary};
use super::super::pass::{Input, Pass, Phase};
use super::super::target_model::TargetModel;

/// Iterations over all edges, at most; parameters that would be found later stay narrow.
const MAX_ITERATIONS: u32 = 4;

/// See the module documentation.
#[derive(Default)]
pub(in super::super) struct IvWidening {
    chosen: SecondaryMap<Value, bool>,
    params: Vec<Value>,
    wide: SecondaryMap<Value, Option<Value>>,
}

impl Pass for IvWidening {
    const NAME: &'static str = "iv-widening";
    const SUMMARY: &'static str = "makes 32-bit block parameters wide that addresses are made of";
    const PHASE: Phase = Phase::Post;
    const NEEDS: Analyses = Analyses::LOOPS;
    const KEEPS: Analyses = Analyses::FLOW;
    const LOOPS_ONLY: bool = true;

    fn pays(target: &TargetModel) -> bool {
        target.zero_extends
    }

    fn run(&mut self, input: &mut Input<'_>) -> usize {
        run(input.context, self)
    }
}

/// Returns how many parameters become wide. Leaves aliases.
fn run(context: &mut Context, scratch: &mut IvWidening) -> usize {
    let Context { func, loop_analysis, .. } = context;
    scratch.choose(func, loop_analysis);
    if scratch.params.is_empty() {
        return 0;
    }
    let mut next = func.layout.entry_block();
    while let Some(block) = next {
        next = func.layout.next_block(block);
        // A table passes the same value many times.
        let mut known: Vec<(Value, Value)> = Vec::new();
        pass(func, block, &scratch.chosen, |func, last, from| {
            let to = known.iter().find(|known| known.0 == from).map(|known| known.1);
            to.unwrap_or_else(|| {
                let to = extend(func, last, from);
                known.push((from, to));
                to
            })
        });
    }
    scratch.rewrite(func);
    scratch.params.len()
}

/// The parameter that is extended to 64 bits by an instruction.
fn extended(func: &Function, inst: Inst) -> Option<(Value, Block)> {
    let InstructionData::Unary { opcode: Opcode::Uextend, arg } = func.dfg.insts[inst] else { return None };
    let ValueDef::Param(block, _) = func.dfg.value_def(arg) else { return None };
    (func.dfg.value_type(arg) == I32 && func.dfg.value_type(func.dfg.first_result(inst)) == I64).then_some((arg, block))
}

/// A value of 32 bits as 64.
fn extend(func: &mut Function, last: Inst, arg: Value) -> Value {
    let bits = constant(func, arg);
    let from = unary(func, arg, Opcode::Uextend).unwrap_or(arg);
    let mut cursor = FuncCursor::new(func).at_inst(last);
    match bits {
        Some(bits) => cursor.ins().iconst(I64, i64::from(bits as u32)),
        None => cursor.ins().uextend(I64, from),
    }
}

impl IvWidening {
    /// Chooses parameters of blocks in loops that are extended in loops, and those that are passed to them.
    fn choose(&mut self, func: &Function, loops: &LoopAnalysis) {
        self.chosen.clear();
        self.params.clear();
        self.wide.clear();
        let entry = func.layout.entry_block();
        let inside = |block: Block| Some(block) != entry && loops.innermost_loop(block).is_some();
        for block in func.layout.blocks().filter(|block| inside(*block)) {
            for (param, of) in func.layout.block_insts(block).filter_map(|inst| extended(func, inst)) {
                if inside(of) {
                    self.take(param);
                }
            }
        }
        for _ in 0..MAX_ITERATIONS {
            let before = self.params.len();
            for block in func.layout.blocks().filter(|block| before > 0 && inside(*block)) {
                for call in destinations(func, block) {
                    let params = func.dfg.block_params(call.block(&func.dfg.value_lists));
                    for (param, arg) in params.iter().zip(call.args(&func.dfg.value_lists)) {
                        let Some(arg) = arg.as_value().filter(|_| self.chosen[*param]) else { continue };
                        if matches!(func.dfg.value_def(arg), ValueDef::Param(of, _) if inside(of)) {
                            self.take(arg);
                        }
                    }
                }
            }
            if self.params.len() == before {
                return;
            }
        }
    }

    fn take(&mut self, param: Value) {
        if !std::mem::replace(&mut self.chosen[param], true) {
            self.params.push(param);
        }
    }

    /// Makes the chosen parameters wide, in all places.
    fn rewrite(&mut self, func: &mut Function) {
        for param in &self.params {
            self.wide[*param] = Some(func.dfg.replace_block_param(*param, I64));
        }
        let mut block = func.layout.entry_block();
        while let Some(current) = block {
            let mut next = func.layout.first_inst(current);
            while let Some(inst) = next {
                next = func.layout.next_inst(inst);
                let InstructionData::Unary { opcode: Opcode::Uextend, arg } = func.dfg.insts[inst] else { continue };
                let value = func.dfg.first_result(inst);
                let Some(wide) = self.wide[arg].filter(|_| func.dfg.value_type(value) == I64) else { continue };
                func.dfg.detach_inst_results(inst);
                func.dfg.change_to_alias(value, wide);
                func.layout.remove_inst(inst);
            }
            block = func.layout.next_block(current);
        }
        for param in &self.params {
            let wide = self.wide[*param].expect("made just now");
            let ValueDef::Param(block, _) = func.dfg.value_def(wide) else { unreachable!("a parameter") };
            let first = func.layout.first_inst(block).expect("blocks end");
            let low = FuncCursor::new(func).at_inst(first).ins().ireduce(I32, wide);
            func.dfg.change_to_alias(*param, low);
        }
    }
}
