//! If-conversion: a branch around cheap instructions becomes a select. Merges blocks with their only predecessor, too.
//!
//! **Why here.** clang chose conditional moves on purpose, but BPF has none, so it wrote a branch over a move. A branch that
//! data decides is mispredicted every other time, at the price of a dozen instructions. Cranelift does not convert branches.
//!
//! **Before and after.**
//!
//! ```text
//! v2 = icmp ult v0, v1                    v2 = icmp ult v0, v1
//! brif v2, block1, block2(v0)             v3 = iadd_imm v0, 8
//! block1: v3 = iadd_imm v0, 8       →     v4 = select v2, v3, v0
//!         jump block2(v3)
//! ```
//!
//! Where a load decides which address is loaded next ([`chases_pointer`]) the branch stays: a prediction lets that load begin early.
//! With an instruction budget, two selects of charges by one condition become one. Of equal conditions that merging brings into
//! one block one is left.
//!
//! **Cost.** Linear: short blocks are merged in the walk from the last block to the first, so that sides of outer branches
//! are single blocks; long ones are merged at the end, each chain from its head, so that an instruction moves once.
//!
//! **Safety.** Only instructions without side effects are executed speculatively, at most [`WORK`] for a branch.

use std::collections::HashMap;

use cranelift_codegen::cursor::{Cursor as _, FuncCursor};
use cranelift_codegen::ir::condcodes::{CondCode as _, IntCC};
use cranelift_codegen::ir::types::{I8, I64};
use cranelift_codegen::ir::{Block, BlockArg, Function, Inst, InstBuilder as _, InstructionData, Opcode, Type, Value};

use super::super::analysis::Analyses;
use super::super::ir::{PAYMENT, cheap, constant, def_inst, is_load, is_point, is_sum, passed, resolve};
use super::super::pass::{Input, Pass, Phase};

/// Instructions executed speculatively for a branch, at most.
const WORK: u32 = 2;
/// Selects in place of one branch, at most.
const SELECTS: usize = 2;
/// Instructions of a short block. What a side of a branch may have is less.
const SHORT: usize = 32;
/// Instructions after a branch that are searched for a load.
const NEAR: usize = 16;

/// See the module documentation.
#[derive(Default)]
pub(in super::super) struct IfConversion;

impl Pass for IfConversion {
    const NAME: &'static str = "if-conversion";
    const SUMMARY: &'static str =
        "turns branches around cheap instructions into selects, and merges blocks with their only predecessor";
    const PHASE: Phase = Phase::Pre;
    const NEEDS: Analyses = Analyses::RESOLVED.union(Analyses::EDGES);
    const KEEPS: Analyses = Analyses::EDGES;

    fn run(&mut self, input: &mut Input<'_>) -> usize {
        run(&mut input.context.func, &mut input.analysis.edges, input.counted)
    }
}

/// Returns how many branches became selects, blocks were merged and selects were joined.
fn run(func: &mut Function, preds: &mut [u32], counted: bool) -> usize {
    let mut changes = 0;
    // A count of instructions is one more sum and one more select.
    let extra = u32::from(counted);
    let limits = Limits { work: WORK + extra, selects: SELECTS + extra as usize };
    let mut next = func.layout.last_block();
    // From the last block to the first: inner branches before outer ones.
    while let Some(block) = next {
        while convert(func, block, preds, limits) || merge(func, block, preds, SHORT) {
            changes += 1;
        }
        next = func.layout.prev_block(block);
    }
    next = func.layout.entry_block();
    while let Some(block) = next {
        while merge(func, block, preds, usize::MAX) {
            changes += 1;
        }
        next = func.layout.next_block(block);
    }
    changes += share(func);
    if counted {
        changes += each_sum(func, join);
    }
    changes + each_sum(func, scale)
}

#[derive(Clone, Copy)]
struct Limits {
    work: u32,
    selects: usize,
}

/// A block that computes little and jumps.
struct Side {
    block: Block,
    /// What its parameters stand for.
    args: Vec<Value>,
    /// Where it goes, with what.
    join: Block,
    passes: Vec<Value>,
    work: u32,
}

/// Both sides of a branch and the block where they join.
struct Diamond {
    join: Block,
    sides: Vec<Side>,
    /// What the join gets if the condition holds, and if not.
    values: [Vec<Value>; 2],
}

fn side(func: &Function, block: Block, args: Vec<Value>, work: u32) -> Option<Side> {
    let mut sum = 0;
    for inst in func.layout.block_insts(block) {
        let data = &func.dfg.insts[inst];
        if let InstructionData::Jump { destination, .. } = *data {
            let join = destination.block(&func.dfg.value_lists);
            return Some(Side { block, args, join, passes: passed(func, destination), work: sum });
        }
        sum += cheap(data.opcode())?;
        if sum > work {
            return None;
        }
    }
    None
}

fn diamond(func: &Function, block: Block, branch: Inst, preds: &[u32], limits: Limits) -> Option<Diamond> {
    let InstructionData::Brif { blocks, .. } = func.dfg.insts[branch] else { return None };
    let to = blocks.map(|call| call.block(&func.dfg.value_lists));
    if to[0] == to[1] {
        return None;
    }
    let [then, other] = [0, 1].map(|side_at| {
        let alone = preds[to[side_at].as_u32() as usize] == 1 && to[side_at] != block;
        if alone { side(func, to[side_at], passed(func, blocks[side_at]), limits.work) } else { None }
    });
    let direct = |at: usize| passed(func, blocks[at]);
    let found = match (then, other) {
        (Some(then), _) if then.join == to[1] => {
            Diamond { join: to[1], values: [then.passes.clone(), direct(1)], sides: vec![then] }
        }
        (_, Some(other)) if other.join == to[0] => {
            Diamond { join: to[0], values: [direct(0), other.passes.clone()], sides: vec![other] }
        }
        (Some(then), Some(other)) if then.join == other.join && then.work + other.work <= limits.work => {
            Diamond { join: then.join, values: [then.passes.clone(), other.passes.clone()], sides: vec![then, other] }
        }
        _ => return None,
    };
    let stands = |value: Value| {
        let param = |side: &Side| {
            let at = func.dfg.block_params(side.block).iter().position(|param| *param == value)?;
            Some(side.args[at])
        };
        found.sides.iter().find_map(param).unwrap_or(value)
    };
    let pairs = found.values[0].iter().zip(&found.values[1]);
    let selects = pairs.filter(|(a, b)| stands(**a) != stands(**b)).count();
    // A block that jumps to itself stays a loop.
    (selects <= limits.selects && found.join != block).then_some(found)
}

/// Whether a loaded value decides which address the block after the branch loads from (pointer chasing).
fn chases_pointer(func: &Function, cond: Value, found: &Diamond) -> bool {
    let decides =
        def_inst(func, cond).is_some_and(|inst| func.dfg.inst_args(inst).iter().any(|value| is_load(func, *value)));
    if !decides {
        return false;
    }
    let params = func.dfg.block_params(found.join).iter().zip(found.values[0].iter().zip(&found.values[1]));
    let mut chosen: Vec<Value> = params.filter(|(_, (a, b))| a != b).map(|(param, _)| *param).collect();
    for inst in func.layout.block_insts(found.join).filter(|inst| !is_point(func, *inst)).take(NEAR) {
        if func.dfg.inst_args(inst).iter().any(|arg| chosen.contains(&func.dfg.resolve_aliases(*arg))) {
            if func.dfg.insts[inst].opcode().can_load() {
                return true;
            }
            chosen.extend(func.dfg.inst_results(inst));
        }
    }
    false
}

/// Replaces the branch at the end of a block. False if it has none that is worth it.
fn convert(func: &mut Function, block: Block, preds: &mut [u32], limits: Limits) -> bool {
    let Some(branch) = func.layout.last_inst(block) else { return false };
    let Some(found) = diamond(func, block, branch, preds, limits) else { return false };
    let InstructionData::Brif { arg: cond, .. } = func.dfg.insts[branch] else { unreachable!("a diamond has one") };
    if chases_pointer(func, cond, &found) {
        return false;
    }
    for side in &found.sides {
        absorb(func, block, side.block, &side.args);
        preds[side.block.as_u32() as usize] = 0;
    }
    preds[found.join.as_u32() as usize] -= 1;
    func.layout.remove_inst(branch);
    let mut cursor = FuncCursor::new(func).at_bottom(block);
    cursor.use_srcloc(branch);
    let [then, other] = found.values;
    let args: Vec<BlockArg> = then.iter().zip(&other).map(|(a, b)| choose(&mut cursor, cond, *a, *b).into()).collect();
    cursor.ins().jump(found.join, &args);
    true
}

/// A sum of this kind.
fn add(cursor: &mut FuncCursor<'_>, kind: Opcode, a: Value, b: Value) -> Value {
    if kind == PAYMENT { cursor.ins().uadd_overflow(a, b).0 } else { cursor.ins().iadd(a, b) }
}

fn choose(cursor: &mut FuncCursor<'_>, cond: Value, then: Value, other: Value) -> Value {
    let [then, other] = [then, other].map(|value| cursor.func.dfg.resolve_aliases(value));
    if then == other {
        return then;
    }
    // A condition is 0 or 1 if a compare made it.
    let compared = def_inst(cursor.func, cond).is_some_and(|inst| cursor.func.dfg.insts[inst].opcode() == Opcode::Icmp);
    let ty = cursor.func.dfg.value_type(then);
    match (compared, known(cursor.func, then), known(cursor.func, other)) {
        (true, Some(1), Some(0)) => cursor.ins().uextend(ty, cond),
        (true, Some(0), Some(1)) => {
            let not = cursor.ins().bxor_imm_u(cond, 1);
            cursor.ins().uextend(ty, not)
        }
        _ => match common(cursor.func, then, other) {
            // A loop-carried sum waits for one addition, not for the condition.
            Some((kind, base, terms)) => {
                let [a, b] = terms.map(|term| cursor.ins().iconst(ty, term));
                let term = cursor.ins().select(cond, a, b);
                add(cursor, kind, base, term)
            }
            None => cursor.ins().select(cond, then, other),
        },
    }
}

/// A value plus one of two terms.
struct Choice {
    kind: Opcode,
    base: Value,
    cond: Value,
    /// If the condition holds, and if not.
    terms: [i64; 2],
}

/// What a value is if it is such a sum, and a constant was added to it: only [`join`] may follow a long chain of sums.
fn choice(func: &Function, value: Value, more: i64) -> Option<Choice> {
    let (kind, [base, term]) = addends(func, value)?;
    match func.dfg.insts[def_inst(func, term)?] {
        InstructionData::Ternary { opcode: Opcode::Select, args: [cond, then, other] } => {
            let terms = [constant(func, then)?.wrapping_add(more), constant(func, other)?.wrapping_add(more)];
            Some(Choice { kind, base, cond, terms })
        }
        _ => None,
    }
}

/// Calls a function with each sum. Returns how many it changed.
fn each_sum(func: &mut Function, change: impl Fn(&mut Function, Inst) -> Option<()>) -> usize {
    let mut changes = 0;
    let mut block = func.layout.entry_block();
    while let Some(current) = block {
        let mut next = func.layout.first_inst(current);
        while let Some(inst) = next {
            next = func.layout.next_inst(inst);
            let sum = is_sum(func.dfg.insts[inst].opcode());
            changes += usize::from(sum && change(func, inst).is_some());
        }
        block = func.layout.next_block(current);
    }
    changes
}

/// Adds a multiple of the condition in place of one of two terms, where an address can: Cranelift would make a mask of the
/// condition, in three instructions, or load a term.
fn scale(func: &mut Function, inst: Inst) -> Option<()> {
    let value = func.dfg.first_result(inst);
    let Choice { kind, base, cond, terms: [then, other] } = choice(func, value, 0)?;
    // Modulo 2^64, so that the sign says which term is the other one and more.
    let more = then.wrapping_sub(other);
    let least = if more > 0 { other } else { then };
    let compare = def_inst(func, cond).map(|inst| func.dfg.insts[inst]);
    let (Some(InstructionData::IntCompare { cond: cc, args, .. }), 1 | 2 | 4 | 8) = (compare, more.unsigned_abs())
    else {
        return None;
    };
    let ty = func.dfg.value_type(value);
    let mut cursor = FuncCursor::new(func).at_inst(inst);
    cursor.use_srcloc(inst);
    let cond = if more > 0 { cond } else { cursor.ins().icmp(cc.complement(), args[0], args[1]) };
    let bit = cursor.ins().uextend(ty, cond);
    let term = cursor.ins().ishl_imm_u(bit, i64::from(more.unsigned_abs().trailing_zeros()));
    let base = match least {
        0 => base,
        _ => {
            let least = cursor.ins().iconst(ty, least);
            add(&mut cursor, kind, base, least)
        }
    };
    func.dfg.insts[inst] = InstructionData::Binary { opcode: kind, args: [base, term] };
    Some(())
}

/// A compare, or the widening of a condition, by its operands.
#[derive(PartialEq, Eq, Hash)]
enum Condition {
    Compare(IntCC, [Value; 2]),
    Widened(Type, Value),
}

impl Condition {
    fn of(func: &Function, inst: Inst) -> Option<Condition> {
        match func.dfg.insts[inst] {
            InstructionData::IntCompare { cond, args, .. } => {
                Some(Condition::Compare(cond, args.map(|value| resolve(func, value))))
            }
            InstructionData::Unary { opcode: Opcode::Uextend, arg } if func.dfg.value_type(arg) == I8 => {
                Some(Condition::Widened(func.dfg.value_type(func.dfg.first_result(inst)), resolve(func, arg)))
            }
            _ => None,
        }
    }
}

/// Makes one of equal conditions that merging brought into a block, and of what they are widened to. Cranelift's optimiser
/// does that, too; without it the register allocator gets each of them.
fn share(func: &mut Function) -> usize {
    let (mut changes, mut known) = (0, HashMap::new());
    let mut block = func.layout.entry_block();
    while let Some(current) = block {
        let mut next = func.layout.first_inst(current);
        while let Some(inst) = next {
            next = func.layout.next_inst(inst);
            let Some(condition) = Condition::of(func, inst) else { continue };
            let value = func.dfg.first_result(inst);
            let first = *known.entry((current, condition)).or_insert(value);
            if first != value {
                func.dfg.clear_results(inst);
                func.dfg.change_to_alias(value, first);
                func.layout.remove_inst(inst);
                changes += 1;
            }
        }
        block = func.layout.next_block(current);
    }
    changes
}

/// Joins two selects of terms by one condition. The instruction budget has many of them: where clang computed a condition
/// once and used it for two registers, BPF has two branches.
fn join(func: &mut Function, inst: Inst) -> Option<()> {
    let value = func.dfg.first_result(inst);
    if func.dfg.value_type(value) != I64 {
        return None;
    }
    let second = choice(func, value, 0)?;
    let before = sum(func, second.base);
    let mut first = choice(func, before.base, before.term).filter(|first| first.kind == second.kind)?;
    if before.kind.is_some_and(|kind| kind != second.kind) {
        return None;
    }
    if opposite(func, first.cond, second.cond) {
        first.terms.swap(0, 1);
    } else if !same(func, first.cond, second.cond) {
        return None;
    }
    let mut cursor = FuncCursor::new(func).at_inst(inst);
    cursor.use_srcloc(inst);
    let terms = [0, 1].map(|at| first.terms[at].wrapping_add(second.terms[at]));
    let [then, other] = terms.map(|term| cursor.ins().iconst(I64, term));
    let term = cursor.ins().select(second.cond, then, other);
    func.dfg.insts[inst] = InstructionData::Binary { opcode: second.kind, args: [first.base, term] };
    Some(())
}

/// Whether two values are computed by equal instructions: before the optimiser has run, many conditions are.
fn same(func: &Function, a: Value, b: Value) -> bool {
    let [a, b] = [a, b].map(|value| func.dfg.resolve_aliases(value));
    if a == b || func.dfg.value_type(a) != func.dfg.value_type(b) {
        return a == b;
    }
    let (Some(a), Some(b)) = (def_inst(func, a), def_inst(func, b)) else { return false };
    match (func.dfg.insts[a], func.dfg.insts[b]) {
        (InstructionData::UnaryImm { imm: a, .. }, InstructionData::UnaryImm { imm: b, .. }) => a == b,
        (
            InstructionData::Unary { opcode: Opcode::Ireduce, arg: a },
            InstructionData::Unary { opcode: Opcode::Ireduce, arg: b },
        ) => same(func, a, b),
        (
            InstructionData::IntCompare { cond: x, args: a, .. },
            InstructionData::IntCompare { cond: y, args: b, .. },
        ) => x == y && same(func, a[0], b[0]) && same(func, a[1], b[1]),
        _ => false,
    }
}

/// Whether one condition holds where the other does not.
fn opposite(func: &Function, a: Value, b: Value) -> bool {
    let compare = |value| match func.dfg.insts[def_inst(func, value)?] {
        InstructionData::IntCompare { cond, args, .. } => Some((cond, args)),
        _ => None,
    };
    let (Some((x, a)), Some((y, b))) = (compare(a), compare(b)) else { return false };
    x == y.complement() && same(func, a[0], b[0]) && same(func, a[1], b[1])
}

/// A value plus a constant, and by which kind of sums, if by any.
struct Sum {
    kind: Option<Opcode>,
    base: Value,
    term: i64,
}

/// Two values as sums of one base: the kind of sums, the base, and what is added to it. Of payments that is the nearest base,
/// as one that is far away would stay alive for this.
fn common(func: &Function, then: Value, other: Value) -> Option<(Opcode, Value, [i64; 2])> {
    for (a, b, swapped) in [(then, other, false), (other, then, true)] {
        if let Some((PAYMENT, [base, term])) = addends(func, a)
            && func.dfg.resolve_aliases(base) == b
            && let Some(term) = constant(func, term)
        {
            return Some((PAYMENT, b, if swapped { [0, term] } else { [term, 0] }));
        }
    }
    let (x, y) = (sum(func, then), sum(func, other));
    (x.base == y.base).then(|| (x.kind.or(y.kind).unwrap_or(Opcode::Iadd), x.base, [x.term, y.term]))
}

/// A value as such a sum.
fn sum(func: &Function, value: Value) -> Sum {
    let mut sum = Sum { kind: None, base: func.dfg.resolve_aliases(value), term: 0 };
    while let Some((kind, [base, more])) = addends(func, sum.base).filter(|_| func.dfg.value_type(value) == I64) {
        let Some(more) = constant(func, more).filter(|_| sum.kind.is_none_or(|known| known == kind)) else { break };
        sum = Sum { kind: Some(kind), base: func.dfg.resolve_aliases(base), term: sum.term.wrapping_add(more) };
    }
    sum
}

/// The operands of the sum that a value is, and its kind.
fn addends(func: &Function, value: Value) -> Option<(Opcode, [Value; 2])> {
    match func.dfg.insts[def_inst(func, value)?] {
        InstructionData::Binary { opcode, args } if is_sum(opcode) => Some((opcode, args)),
        _ => None,
    }
}

/// A constant, also one that was widened.
fn known(func: &Function, value: Value) -> Option<i64> {
    match func.dfg.insts[def_inst(func, value)?] {
        InstructionData::Unary { opcode: Opcode::Uextend, arg } => constant(func, arg),
        _ => constant(func, value),
    }
}

/// Merges a block that ends in a jump with the jump's target if that has no other predecessor and at most `longest`
/// instructions.
fn merge(func: &mut Function, block: Block, preds: &mut [u32], longest: usize) -> bool {
    let Some(jump) = func.layout.last_inst(block) else { return false };
    let InstructionData::Jump { destination, .. } = func.dfg.insts[jump] else { return false };
    let next = destination.block(&func.dfg.value_lists);
    let alone = next != block && preds[next.as_u32() as usize] == 1 && !func.layout.is_cold(next);
    if !alone || func.layout.block_insts(next).nth(longest).is_some() {
        return false;
    }
    let args = passed(func, destination);
    let last = func.layout.last_inst(next).expect("blocks end");
    absorb(func, block, next, &args);
    func.layout.remove_inst(jump);
    func.layout.append_inst(last, block);
    preds[next.as_u32() as usize] = 0;
    true
}

/// Moves all instructions of a block but the terminator to before the terminator of another, and removes the block.
fn absorb(func: &mut Function, into: Block, block: Block, args: &[Value]) {
    let last = func.layout.last_inst(into).expect("blocks end");
    let params = func.dfg.detach_block_params(block);
    let params = params.as_slice(&func.dfg.value_lists).to_vec();
    for (param, arg) in params.into_iter().zip(args) {
        func.dfg.change_to_alias(param, *arg);
    }
    while let Some(inst) = func.layout.first_inst(block) {
        let end = func.layout.next_inst(inst).is_none();
        func.layout.remove_inst(inst);
        if !end {
            func.layout.insert_inst(inst, last);
        }
    }
    func.layout.remove_block(block);
}
