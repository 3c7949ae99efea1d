//! Induction-variable increment sinking: the increment goes after the last use of the old value.
//!
//! **Why here.** The optimiser computes a branch's condition first, and tests the old value where it can. Then old and new
//! value are live at once, both need a register, and the loop ends in a move.
//!
//! **Before and after.**
//!
//! ```text
//! v2 = iadd_imm v1, 1                     v3 = load.i64 v1
//! v3 = load.i64 v1                  →     v2 = iadd_imm v1, 1
//! v4 = icmp_imm eq v1, 99                 v4 = icmp_imm eq v2, 100
//! brif v4, ...                            brif v4, ...
//! ```
//!
//! After the loop, sums with the old value are expressed by the new one.
//!
//! **Cost.** Linear in the instructions for each increment of a latch.
//!
//! **Safety.** An instruction moves down only within its block and past none of its users. Compares for equality commute with
//! the addition of a constant modulo the width.

use std::collections::HashMap;

use cranelift_codegen::Context;
use cranelift_codegen::dominator_tree::DominatorTree;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I32, I64};
use cranelift_codegen::ir::{Block, BlockCall, Function, Inst, InstructionData, Opcode, Value, ValueDef};

use super::super::analysis::Analyses;
use super::super::ir::{constant, def_inst, destinations, modular_increment_of, resolve};
use super::super::pass::{Input, Pass, Phase};

/// See the module documentation.
#[derive(Default)]
pub(in super::super) struct IncrementSinking;

impl Pass for IncrementSinking {
    const NAME: &'static str = "increment-sinking";
    const SUMMARY: &'static str = "moves increments of induction variables after the last use of the old value";
    const PHASE: Phase = Phase::Post;
    const NEEDS: Analyses = Analyses::DOMINATORS.union(Analyses::LOOPS);
    const KEEPS: Analyses = Analyses::FLOW.union(Analyses::RESOLVED);
    const LOOPS_ONLY: bool = true;

    fn run(&mut self, input: &mut Input<'_>) -> usize {
        run(input.context)
    }
}

/// Returns how many instructions are moved or rewritten.
fn run(context: &mut Context) -> usize {
    let mut changes = 0;
    let Context { func, domtree, loop_analysis, .. } = context;
    let mut next = func.layout.entry_block();
    let (mut increments, mut last) = (Vec::new(), HashMap::new());
    while let Some(block) = next {
        if loop_analysis.innermost_loop(block).is_some() {
            changes += end_of(func, block, &mut increments, &mut last);
        }
        next = func.layout.next_block(block);
    }
    if !last.is_empty() {
        changes += release(func, domtree, &last);
    }
    changes
}

/// Moves down to the branch: the operands of its condition, then increments, then the condition.
fn end_of(func: &mut Function, block: Block, increments: &mut Vec<Value>, last: &mut HashMap<Value, Value>) -> usize {
    let Some(branch) = func.layout.last_inst(block) else { return 0 };
    let mut changes = 0;
    increments.clear();
    induction_variables(func, block, increments);
    let mut before = branch;
    let mut tested = [None; 2];
    if let InstructionData::Brif { arg, .. } = func.dfg.insts[branch] {
        changes += usize::from(sink(func, block, arg, &mut before));
        if let Some(compare) = def_inst(func, arg) {
            changes += usize::from(test_new(func, block, compare, increments).is_some());
            let mut args = func.dfg.inst_args(compare).iter();
            tested = [args.next().copied(), args.next().copied()];
        }
    }
    for increment in increments.iter() {
        if sink(func, block, *increment, &mut before) {
            changes += 1;
            shorten(func, *increment);
            if let Some((old, _)) = def_inst(func, *increment).and_then(|inst| increment_of(func, inst)) {
                last.insert(old, *increment);
            }
        }
    }
    for value in tested.into_iter().flatten() {
        if !increments.contains(&value) {
            changes += usize::from(sink(func, block, value, &mut before));
        }
    }
    changes
}

/// A compare for equality with an induction variable's old value, to which the optimiser turns a test of the new one,
/// tests the new value again.
fn test_new(func: &mut Function, block: Block, compare: Inst, increments: &[Value]) -> Option<()> {
    let InstructionData::IntCompare { opcode, cond, args: [old, with] } = func.dfg.insts[compare] else { return None };
    let alone = matches!(cond, IntCC::Equal | IntCC::NotEqual) && func.layout.inst_block(compare) == Some(block);
    let bits = constant(func, with).filter(|_| alone)?;
    for increment in increments {
        let Some(inst) = def_inst(func, *increment) else { continue };
        let Some((_, term)) = modular_increment_of(func, inst).filter(|(from, _)| *from == old) else { continue };
        if func.layout.inst_block(inst) != Some(block) || !precedes(func, inst, compare) {
            continue;
        }
        let imm = def_inst(func, with).expect("a constant");
        let imm = func.dfg.clone_inst(imm);
        func.layout.insert_inst(imm, compare);
        let bits = bits.wrapping_add(term);
        let bits = if func.dfg.value_type(old) == I32 { i64::from(bits as u32) } else { bits };
        func.dfg.insts[imm] = InstructionData::UnaryImm { opcode: Opcode::Iconst, imm: bits.into() };
        let with = func.dfg.first_result(imm);
        func.dfg.insts[compare] = InstructionData::IntCompare { opcode, cond, args: [*increment, with] };
        return Some(());
    }
    None
}

/// Whether an instruction comes before another of the same block.
fn precedes(func: &Function, first: Inst, second: Inst) -> bool {
    std::iter::successors(Some(first), |inst| func.layout.next_inst(*inst)).any(|inst| inst == second)
}

/// Increments of induction variables: values passed to a parameter that they are computed from, or that add to a parameter
/// of this block that no edge passes on.
fn induction_variables(func: &Function, block: Block, increments: &mut Vec<Value>) {
    let calls = destinations(func, block);
    let passed = |calls: &[BlockCall], old| {
        let args = calls.iter().flat_map(|call| call.args(&func.dfg.value_lists));
        args.filter_map(|arg| arg.as_value()).any(|value| resolve(func, value) == old)
    };
    for call in calls {
        let params = func.dfg.block_params(call.block(&func.dfg.value_lists));
        for (param, arg) in params.iter().zip(call.args(&func.dfg.value_lists)) {
            let Some(value) = arg.as_value().filter(|value| !increments.contains(value)) else { continue };
            let Some(inst) = def_inst(func, value) else { continue };
            // Tables have many edges.
            let ends = |old| calls.len() <= 2 && func.dfg.block_params(block).contains(&old) && !passed(calls, old);
            if func.dfg.inst_args(inst).contains(param)
                || modular_increment_of(func, inst).is_some_and(|(old, _)| ends(resolve(func, old)))
            {
                increments.push(value);
            }
        }
    }
}

/// Moves the definition of a value to just before `before`, and sets `before` to it, unless it is used in between. True
/// if it is there now.
fn sink(func: &mut Function, block: Block, value: Value, before: &mut Inst) -> bool {
    let ValueDef::Result(inst, 0) = func.dfg.value_def(value) else { return false };
    if func.layout.inst_block(inst) != Some(block) || !movable(func.dfg.insts[inst].opcode()) {
        return false;
    }
    let mut next = func.layout.next_inst(inst);
    while let Some(user) = next.filter(|user| user != before) {
        if func.dfg.inst_values(user).any(|used| used == value) {
            return false;
        }
        next = func.layout.next_inst(user);
    }
    if next.is_none() {
        return false;
    }
    func.layout.remove_inst(inst);
    func.layout.insert_inst(inst, *before);
    *before = inst;
    true
}

fn movable(opcode: Opcode) -> bool {
    matches!(
        opcode,
        Opcode::Icmp | Opcode::Iadd | Opcode::Isub | Opcode::Band | Opcode::Ishl | Opcode::Ushr | Opcode::Ireduce
    )
}

/// `x + 1` as `x - -1`: where result and operand share a register that takes three bytes less.
fn shorten(func: &mut Function, value: Value) {
    let ValueDef::Result(inst, 0) = func.dfg.value_def(value) else { return };
    let InstructionData::Binary { opcode: Opcode::Iadd, args } = func.dfg.insts[inst] else { return };
    let Some(bits) = constant(func, args[1]) else { return };
    let narrow = func.dfg.value_type(value) == I32;
    let term = if narrow { i64::from(bits as i32) } else { bits };
    if !(-127..=127).contains(&term) || func.layout.inst_block(inst).is_none() {
        return;
    }
    let minus = if narrow { i64::from(-term as u32) } else { -term };
    let imm = def_inst(func, args[1]).expect("a constant");
    let imm = func.dfg.clone_inst(imm);
    func.layout.insert_inst(imm, inst);
    func.dfg.insts[imm] = InstructionData::UnaryImm { opcode: Opcode::Iconst, imm: minus.into() };
    let imm = func.dfg.first_result(imm);
    func.dfg.insts[inst] = InstructionData::Binary { opcode: Opcode::Isub, args: [args[0], imm] };
}

/// An increment of a 64-bit induction variable: the variable and the constant.
fn increment_of(func: &Function, inst: Inst) -> Option<(Value, i64)> {
    modular_increment_of(func, inst).filter(|(from, _)| func.dfg.value_type(*from) == I64)
}

/// After the loop, a sum with the induction variable's old value becomes one with the new: the optimiser combines two
/// sums into one, which keeps both values live.
fn release(func: &mut Function, domtree: &DominatorTree, last: &HashMap<Value, Value>) -> usize {
    let mut changes = 0;
    let mut next = func.layout.entry_block();
    while let Some(block) = next {
        next = func.layout.next_block(block);
        let mut inst = func.layout.first_inst(block);
        while let Some(current) = inst {
            inst = func.layout.next_inst(current);
            let Some((old, sum)) = increment_of(func, current) else { continue };
            let Some(new) = last.get(&old).copied() else { continue };
            let increment = def_inst(func, new).expect("an increment is an instruction");
            let Some((_, term)) = increment_of(func, increment) else { continue };
            let at = func.layout.inst_block(increment).expect("in place");
            if at == block || !domtree.block_dominates(at, block) {
                continue;
            }
            let imm = def_inst(func, func.dfg.inst_args(current)[1]).expect("a constant");
            let imm = func.dfg.clone_inst(imm);
            func.layout.insert_inst(imm, current);
            let rest = sum.wrapping_sub(term);
            func.dfg.insts[imm] = InstructionData::UnaryImm { opcode: Opcode::Iconst, imm: rest.into() };
            let imm = func.dfg.first_result(imm);
            func.dfg.insts[current] = InstructionData::Binary { opcode: Opcode::Iadd, args: [new, imm] };
            changes += 1;
        }
    }
    changes
}
