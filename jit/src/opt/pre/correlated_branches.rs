//! Correlated branch elimination: removes branches that the value range of an induction variable decides.
//!
//! **Why here.** A search that may end early is tested afterwards: `for (i = 0; i < 6; i++) if (found(i)) break; if (i == 6)`.
//! At the `break`, `i` is less than 6. clang does not thread that jump where it would duplicate the code between, and
//! Cranelift has no value ranges.
//!
//! **Before and after.** In a block that only the `break` leads to, where `v1` is the induction variable with the range 0..6:
//!
//! ```text
//! v9 = icmp_imm eq v1, 6                  jump block8
//! brif v9, block7, block8           →
//! ```
//!
//! **Cost.** Linear in the instructions: a search for a test goes back through at most [`BACK`] blocks.
//!
//! **Safety.** The range holds on every edge to the header: constants, or the variable plus one constant after a test that
//! bounds it. Blocks that become unreachable are removed.

use std::collections::HashMap;

use cranelift_codegen::entity::{EntitySet, SecondaryMap};
use cranelift_codegen::ir::condcodes::{CondCode as _, IntCC};
use cranelift_codegen::ir::{Block, Function, InstructionData, Opcode, Value};
use smallvec::SmallVec;

use super::super::analysis::Analyses;
use super::super::ir::{constant, destinations, maker, modular_increment_of, resolve};
use super::super::pass::{Input, Pass, Phase};

/// Length of the chain of single predecessors that is searched for a test of the induction variable.
const BACK: usize = 8;
/// How often a value is cut and extended again on its way to where it is looked at: chains can be long.
const HALVES: usize = 4;
/// Counters stay below, also with a term added: then their halves are all of them, signed or not.
const LIMIT: i64 = 1 << 31;
/// Terms are smaller.
const LARGE: i64 = 1 << 16;

/// The edges to each block: from where, and which of the edges there.
type Edges = SecondaryMap<Block, SmallVec<[(Block, usize); 2]>>;

/// Smallest and largest value.
type Range = (i64, i64);

/// See the module documentation.
#[derive(Default)]
pub(in super::super) struct CorrelatedBranches;

impl Pass for CorrelatedBranches {
    const NAME: &'static str = "correlated-branches";
    const SUMMARY: &'static str = "removes branches that the value range of an induction variable decides";
    const PHASE: Phase = Phase::Pre;
    const NEEDS: Analyses = Analyses::RESOLVED;
    const KEEPS: Analyses = Analyses::RESOLVED;

    fn run(&mut self, input: &mut Input<'_>) -> usize {
        run(&mut input.context.func)
    }
}

/// Removes decided branches, and the blocks that become unreachable. Returns how many branches.
fn run(func: &mut Function) -> usize {
    let steps = steps(func);
    if steps.is_empty() {
        return 0;
    }
    let edges = edges(func);
    let ranges = steps.iter().filter_map(|(head, at)| {
        let param = func.dfg.block_params(*head)[*at];
        Some((param, range(func, &edges, *head, *at)?))
    });
    let ranges: HashMap<Value, Range> = ranges.collect();
    if ranges.is_empty() {
        return 0;
    }
    let ways = func.layout.blocks().filter_map(|block| Some((block, decided(func, block, &ranges)?)));
    let ways: Vec<(Block, usize)> = ways.collect();
    for (block, way) in &ways {
        let branch = func.layout.last_inst(*block).expect("blocks end");
        let destination = destinations(func, *block)[*way];
        func.dfg.insts[branch] = InstructionData::Jump { opcode: Opcode::Jump, destination };
    }
    if !ways.is_empty() {
        clear(func);
    }
    ways.len()
}

/// Removes the blocks that control cannot come to.
fn clear(func: &mut Function) {
    let mut reached = EntitySet::with_capacity(func.dfg.num_blocks());
    let mut work: Vec<Block> = func.layout.entry_block().into_iter().collect();
    while let Some(block) = work.pop() {
        if reached.insert(block) {
            work.extend(destinations(func, block).iter().map(|call| call.block(&func.dfg.value_lists)));
        }
    }
    for block in func.layout.blocks().filter(|block| !reached.contains(*block)).collect::<Vec<_>>() {
        while let Some(inst) = func.layout.first_inst(block) {
            func.layout.remove_inst(inst);
        }
        func.layout.remove_block(block);
    }
}

/// Parameters that an edge back adds a constant to: block and position of each.
fn steps(func: &Function) -> Vec<(Block, usize)> {
    let mut found = Vec::new();
    for from in func.layout.blocks() {
        for call in destinations(func, from) {
            let head = call.block(&func.dfg.value_lists);
            // Blocks have the order of the instructions they are made of.
            if head > from {
                continue;
            }
            let params = func.dfg.block_params(head).iter();
            for (at, (param, arg)) in params.zip(call.args(&func.dfg.value_lists)).enumerate() {
                let counts = arg.as_value().is_some_and(|arg| step(func, arg).is_some_and(|(of, _)| of == *param));
                if counts {
                    found.push((head, at));
                }
            }
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// A value as another plus a small constant.
fn step(func: &Function, value: Value) -> Option<(Value, i64)> {
    let (of, term) = modular_increment_of(func, maker(func, half(func, value))?)?;
    (1..LARGE).contains(&term).then(|| (half(func, of), term))
}

/// What a value is the lower half of, with zeros above or without, as far as one looks.
fn half(func: &Function, value: Value) -> Value {
    let mut value = resolve(func, value);
    for _ in 0..HALVES {
        match maker(func, value).map(|inst| func.dfg.insts[inst]) {
            Some(InstructionData::Unary { opcode: Opcode::Ireduce | Opcode::Uextend, arg })
                if func.dfg.value_type(value).bits() >= 32 && func.dfg.value_type(arg).bits() >= 32 =>
            {
                value = resolve(func, arg);
            }
            _ => break,
        }
    }
    value
}

fn edges(func: &Function) -> Edges {
    let mut edges = Edges::new();
    for from in func.layout.blocks() {
        for (way, call) in destinations(func, from).iter().enumerate() {
            edges[call.block(&func.dfg.value_lists)].push((from, way));
        }
    }
    edges
}

/// What a counter can be: all edges to its block pass a constant, or it plus always the same, after a test.
fn range(func: &Function, edges: &Edges, head: Block, at: usize) -> Option<Range> {
    let param = func.dfg.block_params(head)[at];
    let (mut low, mut high, mut by, mut tests) = (LIMIT, 0, None, SmallVec::<[_; 2]>::new());
    for (from, way) in &edges[head] {
        let call = destinations(func, *from)[*way];
        let arg = call.args(&func.dfg.value_lists).nth(at)?.as_value()?;
        if let Some(start) = constant(func, half(func, arg)) {
            (low, high) = (low.min(start), high.max(start));
            continue;
        }
        let (_, term) = step(func, arg).filter(|(of, _)| *of == param)?;
        if by.is_some_and(|by| by != term) {
            return None;
        }
        by = Some(term);
        tests.push(test(func, edges, (*from, *way), param)?);
    }
    let by = by?;
    if low < 0 || low > high {
        return None;
    }
    let (start, alone) = (high, tests.len() == 1);
    for (cc, bound, more) in tests {
        // What the counter is at the edge, or is about to be.
        let last = match cc {
            IntCC::UnsignedLessThan | IntCC::SignedLessThan => bound - 1,
            IntCC::UnsignedLessThanOrEqual | IntCC::SignedLessThanOrEqual => bound,
            // Round by round it comes nearer to the bound, and does not miss it.
            IntCC::NotEqual if alone && low == start && start + more < bound && (bound - start - more) % by == 0 => {
                bound - by
            }
            _ => return None,
        };
        high = high.max(last - more + by);
    }
    (high < LIMIT - LARGE).then_some((low, high))
}

/// The comparison of an induction variable, plus a term, with a constant that holds on an edge: condition, constant,
/// term.
fn test(func: &Function, edges: &Edges, mut edge: (Block, usize), param: Value) -> Option<(IntCC, i64, i64)> {
    for _ in 0..BACK {
        let (block, way) = edge;
        let branch = func.layout.last_inst(block)?;
        if let InstructionData::Brif { arg, blocks, .. } = func.dfg.insts[branch]
            && blocks[0].block(&func.dfg.value_lists) != blocks[1].block(&func.dfg.value_lists)
            && let Some((cc, value, bound)) = compared(func, arg)
        {
            let more = match step(func, value) {
                Some((of, term)) if of == param => Some(term),
                _ if half(func, value) == param => Some(0),
                _ => None,
            };
            let cc = if way == 0 { cc } else { cc.complement() };
            let says = !matches!(cc, IntCC::Equal) && (1..LIMIT).contains(&bound);
            if let Some(more) = more.filter(|_| says) {
                return Some((cc, bound, more));
            }
        }
        // That was the counter's own block, and what is before it is about other rounds.
        if func.dfg.block_params(block).contains(&param) {
            return None;
        }
        let [before] = edges[block][..] else { return None };
        edge = before;
    }
    None
}

/// A condition as the comparison of a value with a constant.
fn compared(func: &Function, cond: Value) -> Option<(IntCC, Value, i64)> {
    match func.dfg.insts[maker(func, cond)?] {
        InstructionData::IntCompare { cond, args, .. } if func.dfg.value_type(args[0]).bits() >= 32 => {
            Some((cond, args[0], constant(func, args[1])?))
        }
        _ => None,
    }
}

/// Which way a block always goes.
fn decided(func: &Function, block: Block, ranges: &HashMap<Value, Range>) -> Option<usize> {
    let InstructionData::Brif { arg, .. } = func.dfg.insts[func.layout.last_inst(block)?] else { return None };
    let (cc, value, with) = compared(func, arg)?;
    let (low, high) = *ranges.get(&half(func, value))?;
    if !(0..LIMIT).contains(&with) {
        return None;
    }
    let (never, always) = match cc {
        IntCC::Equal => (with < low || with > high, low == high && with == low),
        IntCC::NotEqual => (low == high && with == low, with < low || with > high),
        IntCC::UnsignedLessThan | IntCC::SignedLessThan => (low >= with, high < with),
        IntCC::UnsignedLessThanOrEqual | IntCC::SignedLessThanOrEqual => (low > with, high <= with),
        IntCC::UnsignedGreaterThan | IntCC::SignedGreaterThan => (high <= with, low > with),
        IntCC::UnsignedGreaterThanOrEqual | IntCC::SignedGreaterThanOrEqual => (high < with, low >= with),
    };
    match (never, always) {
        (true, _) => Some(1),
        (_, true) => Some(0),
        _ => None,
    }
}
