//! Load folding: loads become memory operands of the arithmetic that uses them.
//!
//! **Why here.** Cranelift folds a load into its only user, unless the user's result is used more than once, since that might be
//! computed more than once. A block parameter is never computed again: so the block ends after such a result, and the next
//! begins with it as its parameter. The split itself costs no instruction.
//!
//! **Before and after.** With several users of `v3`:
//!
//! ```text
//! v2 = load.i64 v0                        v2 = load.i64 v0
//! ...                               →     v3 = iadd v1, v2
//! v3 = iadd v1, v2                        jump block9(v3)
//! ```
//!
//! **Cost.** Linear; at most [`MOST`] blocks are split, as the register allocator's work grows with the square of such a chain.
//!
//! **Safety.** A load moves down past instructions without side effects and other loads, which keep their order, and stays within
//! [`NEAR`] instructions of the program, so that its trap site is found.

use cranelift_codegen::Context;
use cranelift_codegen::cursor::{Cursor as _, FuncCursor};
use cranelift_codegen::ir::condcodes::CondCode as _;
use cranelift_codegen::ir::types::{I32, I64};
use cranelift_codegen::ir::{Block, BlockArg, Function, Inst, InstBuilder as _, InstructionData, Opcode, Value};

use super::super::analysis::Analyses;
use super::super::analysis::uses::Uses;
use super::super::ir::{acts, constant};
use super::super::pass::{Input, Pass, Phase};
use super::super::target_model::TargetModel;
use super::sequence_points::NEAR;

/// Blocks of a function that are split, at most: the allocator's work grows with the square of such a chain.
const MOST: usize = 128;

/// See the module documentation.
#[derive(Default)]
pub(in super::super) struct LoadFolding {
    /// Instructions that are moved or rewritten.
    changes: usize,
    /// Instructions after which blocks are split.
    ends: Vec<Inst>,
    /// Instructions of the current block, and which of them are loads that can move.
    insts: Vec<Inst>,
    loads: Vec<usize>,
}

impl Pass for LoadFolding {
    const NAME: &'static str = "load-folding";
    const SUMMARY: &'static str = "makes loads memory operands";
    const PHASE: Phase = Phase::Post;
    const NEEDS: Analyses = Analyses::LOOPS.union(Analyses::USES).union(Analyses::RESOLVED);
    const KEEPS: Analyses = Analyses::LOOPS.union(Analyses::RESOLVED);
    const LOOPS_ONLY: bool = true;

    fn pays(target: &TargetModel) -> bool {
        target.memory_operands
    }

    fn run(&mut self, input: &mut Input<'_>) -> usize {
        run(input.context, &input.analysis.uses, self)
    }
}

/// Returns how many loads are moved or made narrow, compares have their operands exchanged and blocks are split.
fn run(context: &mut Context, uses: &Uses, scratch: &mut LoadFolding) -> usize {
    let Context { func, loop_analysis, .. } = context;
    scratch.ends.clear();
    let mut next = func.layout.entry_block();
    while let Some(block) = next {
        next = func.layout.next_block(block);
        if loop_analysis.innermost_loop(block).is_none() {
            continue;
        }
        scratch.sink(func, uses, block);
        let (mut effect, mut at) = (None, func.layout.first_inst(block));
        while let Some(inst) = at {
            at = func.layout.next_inst(inst);
            if let Some(load) = effect.filter(|load| folding_user(func, uses, *load) == Some(inst)) {
                scratch.changes += usize::from(commute_compare(func, inst, load));
                scratch.ends.extend(end(func, uses, inst));
            }
            if acts(func.dfg.insts[inst].opcode()) {
                effect = Some(inst);
            }
        }
    }
    scratch.ends.sort_unstable();
    scratch.ends.dedup();
    scratch.ends.truncate(MOST);
    scratch.ends.iter().for_each(|inst| split(func, *inst));
    std::mem::take(&mut scratch.changes) + scratch.ends.len()
}

/// Narrows a load that is extended to 64 bits only to be truncated to 32.
fn narrow(func: &mut Function, uses: &Uses, load: Inst) -> bool {
    let InstructionData::Load { opcode: Opcode::Uload32 | Opcode::Sload32, arg, flags, offset } = func.dfg.insts[load]
    else {
        return false;
    };
    let Some(truncation) = uses.only(func.dfg.first_result(load)) else { return false };
    let value = func.dfg.inst_results(truncation).first().copied();
    let Some(value) = value.filter(|value| func.dfg.value_type(*value) == I32) else { return false };
    let reduces = func.dfg.insts[truncation].opcode() == Opcode::Ireduce;
    if reduces {
        func.dfg.detach_inst_results(truncation);
        func.layout.remove_inst(truncation);
        func.dfg.detach_inst_results(load);
        func.dfg.insts[load] = InstructionData::Load { opcode: Opcode::Load, arg, flags, offset };
        func.dfg.make_inst_results_reusing(load, I32, [Some(value)].into_iter());
    }
    reduces
}

impl LoadFolding {
    /// Moves loads down to the arithmetic that uses them, past loads and instructions without effects only.
    fn sink(&mut self, func: &mut Function, uses: &Uses, block: Block) {
        self.insts.clear();
        let mut next = func.layout.first_inst(block);
        while let Some(inst) = next {
            self.changes += usize::from(narrow(func, uses, inst));
            self.insts.push(inst);
            next = func.layout.next_inst(inst);
        }
        self.loads.clear();
        // The first of the sequence points since the last effect. Loads stay before one that belongs to a store.
        let mut point = None;
        for at in 0..self.insts.len() {
            match func.dfg.insts[self.insts[at]] {
                InstructionData::Load { .. } => {
                    self.loads.push(at);
                    point = None;
                }
                data if data.opcode() == Opcode::SequencePoint => point = point.or(Some(at)),
                data if acts(data.opcode()) => {
                    self.sink_to(func, uses, point.take().unwrap_or(at));
                    self.loads.clear();
                }
                _ => {}
            }
        }
    }

    /// Moves the noted loads, at most to before the instruction of this number. They keep their order.
    fn sink_to(&mut self, func: &mut Function, uses: &Uses, mut end: usize) {
        while let Some(at) = self.loads.pop() {
            let load = self.insts[at];
            let near = &self.insts[at..end.min(at + NEAR as usize)];
            let user = folding_user(func, uses, load);
            let place = user.and_then(|user| near.iter().position(|inst| *inst == user));
            end = place.map_or(at, |place| at + place);
            if place.is_some() {
                func.layout.remove_inst(load);
                func.layout.insert_inst(load, self.insts[end]);
            }
        }
    }
}

/// The only user of a load, if the load can be its memory operand.
fn folding_user(func: &Function, uses: &Uses, load: Inst) -> Option<Inst> {
    if func.dfg.insts[load].opcode() != Opcode::Load {
        return None;
    }
    let loaded = func.dfg.first_result(load);
    // A fault is distinguished from others with its code by its position in the program.
    let far = |user: Inst| func.srcloc(load).bits().abs_diff(func.srcloc(user).bits()) >= NEAR;
    uses.only(loaded).filter(|user| !far(*user) && takes(func, *user, loaded))
}

/// Exchanges the operands of a compare if the first is the load: only the second can be a memory operand.
fn commute_compare(func: &mut Function, inst: Inst, load: Inst) -> bool {
    let loaded = func.dfg.first_result(load);
    match &mut func.dfg.insts[inst] {
        InstructionData::IntCompare { args, cond, .. } if args[0] == loaded => {
            args.swap(0, 1);
            *cond = cond.swap_args();
            true
        }
        _ => false,
    }
}

/// The instruction after which to split a block, so that the only user of a load takes it from memory.
fn end(func: &Function, uses: &Uses, user: Inst) -> Option<Inst> {
    let block = func.layout.inst_block(user);
    let mut inst = user;
    while func.layout.inst_block(inst) == block && plain(func.dfg.insts[inst].opcode()) {
        let value = func.dfg.first_result(inst);
        let Some(user) = uses.only(value) else { return uses.as_value(value).then_some(inst) };
        inst = user;
    }
    None
}

/// Whether an instruction can have the loaded value as its memory operand.
fn takes(func: &Function, inst: Inst, loaded: Value) -> bool {
    if !matches!(func.dfg.value_type(loaded), I32 | I64) {
        return false;
    }
    let args = func.dfg.inst_args(inst);
    match func.dfg.insts[inst].opcode() {
        Opcode::Iadd | Opcode::Imul | Opcode::Band | Opcode::Bor | Opcode::Bxor => {
            args.contains(&loaded) && args[0] != args[1]
        }
        Opcode::Isub => args[1] == loaded && args[0] != loaded,
        Opcode::Icmp => args[0] != args[1] && args.iter().all(|arg| constant(func, *arg).is_none()),
        _ => false,
    }
}

/// Whether an instruction computes one value and has no effect.
fn plain(opcode: Opcode) -> bool {
    matches!(
        opcode,
        Opcode::Iadd
            | Opcode::Isub
            | Opcode::Imul
            | Opcode::Band
            | Opcode::Bor
            | Opcode::Bxor
            | Opcode::Ishl
            | Opcode::Ushr
            | Opcode::Sshr
            | Opcode::Rotl
            | Opcode::Uextend
    )
}

/// Splits a block after an instruction, whose result becomes a parameter of the second part.
fn split(func: &mut Function, inst: Inst) {
    let block = func.layout.inst_block(inst).expect("it was found in one");
    let next = func.layout.next_inst(inst).expect("blocks end with a branch");
    let value = func.dfg.first_result(inst);
    let ty = func.dfg.value_type(value);
    func.dfg.detach_inst_results(inst);
    func.dfg.make_inst_results(inst, ty);
    let result = func.dfg.first_result(inst);
    let rest = func.dfg.make_block();
    func.layout.split_block(rest, next);
    func.dfg.attach_block_param(rest, value);
    let mut cursor = FuncCursor::new(func).at_bottom(block);
    cursor.use_srcloc(inst);
    cursor.ins().jump(rest, &[BlockArg::Value(result)]);
}
