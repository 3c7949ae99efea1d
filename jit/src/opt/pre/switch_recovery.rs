//! Switch recovery: a tree of compares of one value with constants becomes a jump table.
//!
//! **Why here.** clang's BPF target has no indirect jump, so each `switch` is such a tree. A processor predicts a branch at every
//! level of a tree, one in a table. Cranelift forms tables only where its input has them.
//!
//! **Before and after.**
//!
//! ```text
//! v2 = icmp_imm ult v1, 4                 br_table v1, block9, [block3, block4, block5, ...]
//! brif v2, block1, block2           →     block9 (cold): the tree, for values that are not in the table
//! ```
//!
//! The tree goes away if all other values lead where the last entry does.
//!
//! **Cost.** Linear: a tree has [`MIN_NODES`] to [`MAX_NODES`] compares, a table at most [`MAX_DENSITY`] entries for each.
//!
//! **Safety.** Inner blocks of a tree do nothing but compare, and only the tree leads to them. Each entry is found by walking
//! the tree with that value.

use std::collections::{HashMap, HashSet};

use cranelift_codegen::cursor::{Cursor as _, FuncCursor};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I32, I64};
use cranelift_codegen::ir::{
    Block, BlockArg, BlockCall, Function, Inst, InstBuilder as _, InstructionData, JumpTableData, Opcode, Type, Value,
};

use super::super::analysis::Analyses;
use super::super::ir::{cheap, constant, def_inst};
use super::super::pass::{Input, Pass, Phase};

/// Compares that a tree has at least.
const MIN_NODES: usize = 6;
/// Compares that it has at most; what is below them are leaves.
const MAX_NODES: usize = 256;
/// Entries that a table has at most, for each compare of the tree.
const MAX_DENSITY: i64 = 8;

/// A block that compares a value with a constant and branches.
#[derive(Clone, Copy)]
struct Node {
    branch: Inst,
    /// The compared value, before it is truncated to the width of the compare.
    subject: Value,
    ty: Type,
    cc: IntCC,
    /// The constant it is compared with, sign-extended.
    with: i64,
    /// If the condition holds, and if not.
    to: [BlockCall; 2],
}

struct Tree {
    root: Node,
    /// Nodes below the root, each after its parent.
    nodes: Vec<(Block, Node)>,
    /// Smallest and largest value of the table.
    range: (i64, i64),
}

/// See the module documentation.
#[derive(Default)]
pub(in super::super) struct SwitchRecovery;

impl Pass for SwitchRecovery {
    const NAME: &'static str = "switch-recovery";
    const SUMMARY: &'static str = "turns trees of compares into jump tables";
    const PHASE: Phase = Phase::Pre;
    const NEEDS: Analyses = Analyses::RESOLVED.union(Analyses::EDGES);
    const KEEPS: Analyses = Analyses::RESOLVED.union(Analyses::EDGES);

    fn run(&mut self, input: &mut Input<'_>) -> usize {
        run(&mut input.context.func, &mut input.analysis.edges)
    }
}

/// Returns how many trees became tables.
fn run(func: &mut Function, preds: &mut Vec<u32>) -> usize {
    let mut tables = 0;
    let mut done = HashSet::new();
    let mut next = func.layout.entry_block();
    while let Some(block) = next {
        next = func.layout.next_block(block);
        if done.contains(&block) {
            continue;
        }
        if let Some(tree) = find(func, block, preds) {
            done.extend(tree.nodes.iter().map(|(inner, _)| *inner));
            done.insert(replace(func, block, &tree, preds));
            tables += 1;
        }
    }
    tables
}

/// The compare at the end of a block. An inner block of a tree does nothing else.
fn node(func: &Function, block: Block, inner: bool) -> Option<Node> {
    let branch = func.layout.last_inst(block)?;
    let InstructionData::Brif { arg, blocks, .. } = func.dfg.insts[branch] else { return None };
    let InstructionData::IntCompare { args, cond, .. } = func.dfg.insts[def_inst(func, arg)?] else { return None };
    let with = constant(func, args[1])?;
    let ty = func.dfg.value_type(args[0]);
    let with = match ty {
        I32 => i64::from(with as i32),
        I64 => with,
        _ => return None,
    };
    if inner {
        let cheap = |inst| inst == branch || cheap(func.dfg.insts[inst].opcode()).is_some();
        if !func.dfg.block_params(block).is_empty() || !func.layout.block_insts(block).all(cheap) {
            return None;
        }
    }
    let subject = subject(func, args[0]);
    Some(Node { branch, subject, ty, cc: cond, with, to: blocks })
}

/// The compared value, without the truncations to 32 bits and extensions that each block applies again.
fn subject(func: &Function, compared: Value) -> Value {
    let ty = func.dfg.value_type(compared);
    let mut value = func.dfg.resolve_aliases(compared);
    while let Some(InstructionData::Unary { opcode, arg }) = def_inst(func, value).map(|inst| func.dfg.insts[inst]) {
        let same =
            opcode == Opcode::Ireduce || opcode == Opcode::Uextend && ty == I32 && func.dfg.value_type(arg) == I32;
        if !same {
            break;
        }
        value = func.dfg.resolve_aliases(arg);
    }
    value
}

fn find(func: &Function, block: Block, preds: &[u32]) -> Option<Tree> {
    let root = node(func, block, false)?;
    let mut nodes: Vec<(Block, Node)> = Vec::new();
    let (mut low, mut high) = (root.with, root.with);
    let mut seen = 0;
    let mut level = root.to;
    loop {
        for call in level {
            let block = call.block(&func.dfg.value_lists);
            // Another predecessor may be on a path without compares.
            if preds.get(block.as_u32() as usize) != Some(&1) || nodes.len() == MAX_NODES {
                continue;
            }
            let same = |node: &Node| node.subject == root.subject && node.ty == root.ty;
            if let Some(node) = node(func, block, true).filter(same) {
                (low, high) = (low.min(node.with), high.max(node.with));
                nodes.push((block, node));
            }
        }
        let Some((_, node)) = nodes.get(seen) else { break };
        level = node.to;
        seen += 1;
    }
    let range = (if low == 0 { 0 } else { low.checked_sub(1)? }, high.checked_add(1)?);
    let entries = range.1.checked_sub(range.0)?.checked_add(1)?;
    let count = nodes.len() + 1;
    let worth = count >= MIN_NODES && entries <= MAX_DENSITY * count as i64;
    let fits = root.ty == I64 || i32::try_from(range.1).is_ok() && i32::try_from(range.0).is_ok();
    (worth && fits).then_some(Tree { root, nodes, range })
}

fn holds(node: &Node, value: i64) -> bool {
    let (a, b) = (value, node.with);
    // Sign extension keeps the order of unsigned numbers.
    let (ua, ub) = (a as u64, b as u64);
    match node.cc {
        IntCC::Equal => a == b,
        IntCC::NotEqual => a != b,
        IntCC::SignedLessThan => a < b,
        IntCC::SignedLessThanOrEqual => a <= b,
        IntCC::SignedGreaterThan => a > b,
        IntCC::SignedGreaterThanOrEqual => a >= b,
        IntCC::UnsignedLessThan => ua < ub,
        IntCC::UnsignedLessThanOrEqual => ua <= ub,
        IntCC::UnsignedGreaterThan => ua > ub,
        IntCC::UnsignedGreaterThanOrEqual => ua >= ub,
    }
}

impl Tree {
    /// Where each value of the table leads.
    fn leaves(&self, func: &mut Function) -> Vec<BlockCall> {
        let nodes: HashMap<Block, &Node> = self.nodes.iter().map(|(block, node)| (*block, node)).collect();
        let pool = &mut func.dfg.value_lists;
        let leaf = |value| {
            let mut node = &self.root;
            loop {
                let call = node.to[usize::from(!holds(node, value))];
                match nodes.get(&call.block(pool)) {
                    Some(next) => node = next,
                    None => return call.deep_clone(pool),
                }
            }
        };
        (self.range.0..=self.range.1).map(leaf).collect()
    }
}

/// Replaces a tree by its table. Returns the block that ends with the remaining tree, if there is one.
fn replace(func: &mut Function, block: Block, tree: &Tree, preds: &mut Vec<u32>) -> Block {
    let branch = tree.root.branch;
    // What inner blocks compute, their leaves may use.
    for (inner, node) in &tree.nodes {
        while let Some(inst) = func.layout.first_inst(*inner).filter(|inst| *inst != node.branch) {
            func.layout.remove_inst(inst);
            func.layout.insert_inst(inst, branch);
        }
    }
    let leaves = tree.leaves(func);
    for leaf in &leaves {
        preds[leaf.block(&func.dfg.value_lists).as_u32() as usize] += 1;
    }
    if small(func, tree) {
        forget(func, tree, preds);
        let at = leaves.last().expect("a table is not empty").deep_clone(&mut func.dfg.value_lists);
        preds[at.block(&func.dfg.value_lists).as_u32() as usize] += 1;
        let mut cursor = FuncCursor::new(func).at_bottom(block);
        cursor.use_srcloc(branch);
        let subject = tree.root.subject;
        let narrow = cursor.func.dfg.value_type(subject) == I32;
        let index = if narrow { subject } else { cursor.ins().ireduce(I32, subject) };
        let table = cursor.func.dfg.jump_tables.push(JumpTableData::new(at, &leaves));
        cursor.ins().br_table(index, table);
        return block;
    }
    let rest = cold_block(func, preds);
    let mut cursor = FuncCursor::new(func).at_inst(branch);
    cursor.use_srcloc(branch);
    let subject = tree.root.subject;
    let narrow = cursor.func.dfg.value_type(subject) == I32;
    let mut index = if narrow || tree.root.ty == I64 { subject } else { cursor.ins().ireduce(I32, subject) };
    if tree.range.0 != 0 {
        index = cursor.ins().iadd_imm_s(index, tree.range.0.wrapping_neg());
    }
    let mut table_at = block;
    if tree.root.ty == I64 {
        let inside = cursor.ins().icmp_imm_u(IntCC::UnsignedLessThan, index, leaves.len() as i64);
        table_at = cursor.func.dfg.make_block();
        preds.push(1);
        cursor.func.layout.insert_block_after(table_at, block);
        let none: [BlockArg; 0] = [];
        cursor.ins().brif(inside, table_at, &none, rest, &none);
        preds[rest.as_u32() as usize] += 1;
        index = FuncCursor::new(func).at_bottom(table_at).ins().ireduce(I32, index);
    }
    let default = func.dfg.block_call(rest, &[]);
    preds[rest.as_u32() as usize] += 1;
    let table = func.dfg.jump_tables.push(JumpTableData::new(default, &leaves));
    func.layout.remove_inst(branch);
    let mut cursor = FuncCursor::new(func).at_bottom(table_at);
    cursor.use_srcloc(branch);
    cursor.ins().br_table(index, table);
    func.layout.append_inst(branch, rest);
    rest
}

/// Whether all values that the subject can have and the table has not are larger, so that they compare as its last one.
fn small(func: &Function, tree: &Tree) -> bool {
    let Some(made) = def_inst(func, tree.root.subject) else { return false };
    let few = match &func.dfg.insts[made] {
        InstructionData::Load { opcode: Opcode::Uload8 | Opcode::Uload16, .. } => true,
        InstructionData::Unary { opcode: Opcode::Uextend, arg } => func.dfg.value_type(*arg).bits() < 32,
        InstructionData::Binary { opcode: Opcode::Band, args } => {
            constant(func, args[1]).is_some_and(|mask| i32::try_from(mask).is_ok_and(|mask| mask >= 0))
        }
        _ => false,
    };
    few && tree.range.0 == 0
}

/// Removes the branches of a tree, and the blocks below its root.
fn forget(func: &mut Function, tree: &Tree, preds: &mut [u32]) {
    for (inner, node) in
        [(None, &tree.root)].into_iter().chain(tree.nodes.iter().map(|(inner, node)| (Some(*inner), node)))
    {
        for call in node.to {
            preds[call.block(&func.dfg.value_lists).as_u32() as usize] -= 1;
        }
        func.layout.remove_inst(node.branch);
        if let Some(inner) = inner {
            func.layout.remove_block(inner);
        }
    }
}

fn cold_block(func: &mut Function, preds: &mut Vec<u32>) -> Block {
    let block = func.dfg.make_block();
    preds.push(0);
    let last = func.layout.last_block().expect("there are blocks");
    func.layout.insert_block_after(block, last);
    func.layout.set_cold(block);
    block
}
