//! Reassociation: orders chains of additions to shorten the loop-carried critical path.
//!
//! **Why here.** In a loop that passes its results on, as hashes do, an iteration takes as long as the longest path from the values
//! of the last iteration to those of the next. clang wrote sums in an order that suits few registers; Cranelift keeps it.
//!
//! **Before and after.** If `v1` is ready last:
//!
//! ```text
//! v5 = iadd v1, v2                        v5 = iadd v2, v3
//! v6 = iadd v5, v3                  →     v6 = iadd v5, v4
//! v7 = iadd v6, v4                        v7 = iadd v6, v1
//! ```
//!
//! **Cost.** Linear; sums of more than [`MOST`] operands stay.
//!
//! **Safety.** Addition is associative and commutative modulo the width. Inner sums have no other user.

use cranelift_codegen::Context;
use cranelift_codegen::cursor::{Cursor as _, FuncCursor};
use cranelift_codegen::entity::SecondaryMap;
use cranelift_codegen::ir::{Block, Function, Inst, InstBuilder as _, InstructionData, Opcode, Value, ValueDef};

use super::super::analysis::Analyses;
use super::super::analysis::uses::Uses;
use super::super::ir::{acts, constant, def_inst, is_load, modular_increment_of};
use super::super::pass::{Input, Pass, Phase};

/// Operands of a sum, at most; longer ones stay.
const MOST: usize = 8;

#[derive(Clone, Copy, Default)]
struct Time {
    /// Cycles from the start of an iteration until the value is ready.
    ready: u32,
    /// Whether it depends on more than induction variables and loop-invariant values.
    varies: bool,
}

/// See the module documentation.
#[derive(Default)]
pub(in super::super) struct Reassociation {
    /// Cycles of a load, and of a multiplication.
    load: u32,
    multiply: u32,
    times: SecondaryMap<Value, Time>,
    operands: Vec<Value>,
    /// Inner sums of the current one.
    parts: Vec<Inst>,
}

impl Pass for Reassociation {
    const NAME: &'static str = "reassociation";
    const SUMMARY: &'static str = "orders chains of additions by the time at which operands are ready";
    const PHASE: Phase = Phase::Post;
    const NEEDS: Analyses = Analyses::LOOPS.union(Analyses::USES).union(Analyses::RESOLVED);
    const KEEPS: Analyses = Analyses::FLOW.union(Analyses::USES).union(Analyses::RESOLVED);
    const LOOPS_ONLY: bool = true;

    fn run(&mut self, input: &mut Input<'_>) -> usize {
        (self.load, self.multiply) = (input.target.load_latency, input.target.multiply_latency);
        run(input.context, &mut input.analysis.uses, self)
    }
}

/// Returns how many sums have another order.
fn run(context: &mut Context, uses: &mut Uses, scratch: &mut Reassociation) -> usize {
    let mut changes = 0;
    let Context { func, loop_analysis, .. } = context;
    scratch.times.clear();
    let mut next = func.layout.entry_block();
    while let Some(block) = next {
        next = func.layout.next_block(block);
        if loop_analysis.innermost_loop(block).is_some() {
            changes += scratch.block(func, uses, block);
        }
    }
    changes
}

impl Reassociation {
    fn block(&mut self, func: &mut Function, uses: &mut Uses, block: Block) -> usize {
        let mut changes = 0;
        for param in func.dfg.block_params(block) {
            self.times[*param] = Time { ready: 0, varies: true };
        }
        for inst in func.layout.block_insts(block) {
            let Some((from, _)) = modular_increment_of(func, inst) else { continue };
            let truncated = def_inst(func, from).map(|inst| func.dfg.insts[inst]);
            let variable = match truncated {
                Some(InstructionData::Unary { opcode: Opcode::Ireduce, arg }) => arg,
                _ => from,
            };
            self.times[variable].varies = false;
        }
        let mut next = func.layout.first_inst(block);
        while let Some(inst) = next {
            next = func.layout.next_inst(inst);
            let Some(value) = func.dfg.inst_results(inst).first().copied() else { continue };
            if is_sum(func, inst) && !self.is_part(func, uses, block, value) {
                changes += usize::from(self.arrange(func, uses, (block, inst)));
            }
            self.times[value] = self.time(func, inst);
        }
        changes
    }

    fn time(&self, func: &Function, inst: Inst) -> Time {
        let opcode = func.dfg.insts[inst].opcode();
        let args = func.dfg.inst_args(inst).iter().map(|arg| self.times[*arg]);
        let (ready, varies) = args.fold((0, false), |sum, arg| (sum.0.max(arg.ready), sum.1 || arg.varies));
        match opcode {
            // The CPU starts loads of later iterations before this one has ended.
            _ if opcode.can_load() && !varies => Time { ready: 0, varies: true },
            _ if opcode.can_load() => Time { ready: ready + self.load, varies: true },
            // `Bnot` becomes part of an and-not.
            Opcode::Iconst | Opcode::Ireduce | Opcode::Uextend | Opcode::Bnot => Time { ready, varies },
            Opcode::Imul => Time { ready: ready + self.multiply, varies },
            _ if acts(opcode) => Time { ready, varies: true },
            _ => Time { ready: if varies { ready + 1 } else { 0 }, varies },
        }
    }

    /// Whether the only user of a sum is another sum in its block.
    fn is_part(&self, func: &Function, uses: &Uses, block: Block, value: Value) -> bool {
        uses.only(value).is_some_and(|user| is_sum(func, user) && func.layout.inst_block(user) == Some(block))
    }

    /// Reorders a sum so that it is ready soonest. False if it is already, or cannot be reordered.
    fn arrange(&mut self, func: &mut Function, uses: &mut Uses, (block, root): (Block, Inst)) -> bool {
        if !uses.as_value(func.dfg.first_result(root)) || !self.collect(func, uses, (block, root)) {
            return false;
        }
        let before = self.time(func, root).ready;
        let times = &self.times;
        // Loads after others of their time: as second operands they can be folded.
        let key = |value: &Value| (std::cmp::Reverse(times[*value].ready), std::cmp::Reverse(is_load(func, *value)));
        self.operands.sort_by_key(key);
        let mut times: Vec<u32> = self.operands.iter().map(|value| times[*value].ready).collect();
        let mut pairs = Vec::with_capacity(MOST);
        // Pairs what is ready soonest, from the end. The sum is inserted before those of the same time.
        while times.len() > 2 {
            let ready = times[times.len() - 2].max(times[times.len() - 1]) + 1;
            times.truncate(times.len() - 2);
            let at = times.partition_point(|time| *time > ready);
            times.insert(at, ready);
            pairs.push(at);
        }
        if times[0].max(times[1]) + 1 >= before {
            return false;
        }
        for at in pairs {
            let (b, a) = (self.operands.pop(), self.operands.pop());
            let (a, b) = a.zip(b).expect("two are left");
            let mut cursor = FuncCursor::new(func).at_inst(root);
            cursor.use_srcloc(root);
            let sum = cursor.ins().iadd(a, b);
            let inst = def_inst(func, sum).expect("an addition defines it");
            self.times[sum] = self.time(func, inst);
            self.operands.insert(at, sum);
            uses.moved(a, inst);
            uses.moved(b, inst);
        }
        func.dfg.inst_args_mut(root).copy_from_slice(&self.operands);
        self.operands.iter().for_each(|value| uses.moved(*value, root));
        self.parts.iter().for_each(|part| func.layout.remove_inst(*part));
        true
    }

    /// Collects the operands of a sum: three to [`MOST`], none of them a constant. False otherwise.
    fn collect(&mut self, func: &Function, uses: &Uses, (block, root): (Block, Inst)) -> bool {
        self.operands.clear();
        self.parts.clear();
        self.operands.extend(func.dfg.inst_args(root));
        let mut at = 0;
        while let Some(value) = self.operands.get(at).copied() {
            let part = match func.dfg.value_def(value) {
                ValueDef::Result(inst, _) => {
                    uses.once(value) && is_sum(func, inst) && func.layout.inst_block(inst) == Some(block)
                }
                ValueDef::Param(..) | ValueDef::Union(..) => false,
            };
            if part {
                let inst = def_inst(func, value).expect("an inner sum is an instruction");
                let args = func.dfg.inst_args(inst);
                self.operands[at] = args[0];
                self.operands.push(args[1]);
                self.parts.push(inst);
            } else {
                at += 1;
            }
            if self.operands.len() > MOST {
                return false;
            }
        }
        self.operands.len() > 2 && self.operands.iter().all(|value| constant(func, *value).is_none())
    }
}

fn is_sum(func: &Function, inst: Inst) -> bool {
    func.dfg.insts[inst].opcode() == Opcode::Iadd
}
