//! Demanded-bits narrowing: block parameters of which only the low half is used become 32 bits wide.
//!
//! **Why here.** BPF has 32-bit operations on 64-bit registers, so translation extends each result. Where such a register lives
//! across blocks, Cranelift, whose rules do not see through block parameters, keeps both widths in two machine registers.
//! Low halves that blocks take from one register become one, and dead code goes: sums for addresses that accesses have in
//! their offsets, and extensions. The optimiser would do both at ten times the price.
//!
//! **Before and after.**
//!
//! ```text
//! block1(v1: i64):                        block1(v9: i32):
//!   v2 = ireduce.i32 v1             →       v3 = iadd_imm v9, 1
//!   v3 = iadd_imm v2, 1                     brif v5, block1(v3), block2
//!   v4 = uextend.i64 v3
//!   brif v5, block1(v4), block2
//! ```
//!
//! **Cost.** Linear; demands and choices reach a fixed point within [`MAX_ITERATIONS`] iterations, or nothing changes.
//!
//! **Safety.** A bit of a result is computed from bits at or below it by the instructions that demands flow through. Cold blocks,
//! which pass registers to the interpreter, extend the parameter, and only where its upper half is known to be zero.

use cranelift_codegen::cursor::{Cursor as _, FuncCursor};
use cranelift_codegen::entity::SecondaryMap;
use cranelift_codegen::ir::types::{I32, I64};
use cranelift_codegen::ir::{BlockArg, Function, Inst, InstBuilder as _, InstructionData, Opcode, Value, ValueDef};
use cranelift_codegen::packed_option::PackedOption;
use smallvec::SmallVec;

use super::super::analysis::Analyses;
use super::super::ir::{constant, def_inst, destinations, pass, resolve, unary};
use super::super::pass::{Input, Pass, Phase};
use super::super::uses::{Counts, sweep};

/// Iterations over the data flow, at most; without a fixed point by then nothing changes.
const MAX_ITERATIONS: u32 = 32;

/// The bits of a value that are demanded.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Demand {
    /// All of its bits.
    whole: bool,
    /// All of its bits, but only in cold blocks.
    rarely: bool,
    /// How often something uses it.
    uses: u32,
}

/// See the module documentation.
#[derive(Default)]
pub(in super::super) struct DemandedBits {
    demands: SecondaryMap<Value, Demand>,
    /// Values, and results whose low bits depend on no higher bits of them: the same is demanded of both.
    flows: Vec<(Value, Value)>,
    /// Parameters that become narrow.
    params: SecondaryMap<Value, bool>,
    /// Instructions that take a low half, the last one first.
    halving: Vec<Inst>,
    /// The low half of a value, if it was taken.
    lows: SecondaryMap<Value, PackedOption<Value>>,
    /// Instructions that may be dead: nothing may use their results.
    idle: Vec<Inst>,
}

impl Pass for DemandedBits {
    const NAME: &'static str = "demanded-bits";
    const SUMMARY: &'static str = "makes block parameters narrow of which only the low half is used";
    const PHASE: Phase = Phase::Pre;
    const NEEDS: Analyses = Analyses::empty();
    const KEEPS: Analyses = Analyses::EDGES;

    fn run(&mut self, input: &mut Input<'_>) -> usize {
        run(&mut input.context.func, self)
    }
}

/// Returns how many parameters became narrow and instructions were removed.
fn run(func: &mut Function, scratch: &mut DemandedBits) -> usize {
    scratch.demands.clear();
    scratch.flows.clear();
    scratch.params.clear();
    scratch.lows.clear();
    // Mostly users before definitions, so that demands on them are known.
    let mut block = func.layout.last_block();
    while let Some(current) = block {
        let cold = func.layout.is_cold(current);
        for inst in func.layout.block_insts(current).rev() {
            scratch.uses(func, inst, cold);
        }
        block = func.layout.prev_block(current);
    }
    let chosen = scratch.propagate() && scratch.choose(func);
    let mut changes = if chosen { scratch.narrow(func) } else { 0 };
    changes += scratch.merge_low_halves(func);
    if chosen {
        scratch.pass(func);
    }
    changes + sweep(func, scratch)
}

impl DemandedBits {
    /// Records what an instruction demands of its operands.
    fn uses(&mut self, func: &Function, inst: Inst, cold: bool) {
        let data = &func.dfg.insts[inst];
        let opcode = data.opcode();
        if let [result] = func.dfg.inst_results(inst) {
            if self.demands[*result].uses == 0 {
                self.idle.push(inst);
            }
            if opcode == Opcode::Ireduce && func.dfg.value_type(*result) == I32 {
                self.halving.push(inst);
            }
        }
        let flows =
            matches!(opcode, Opcode::Iadd | Opcode::Isub | Opcode::Imul | Opcode::Band | Opcode::Bor | Opcode::Bxor);
        for arg in data.arguments(&func.dfg.value_lists) {
            if flows {
                self.flow(func, *arg, func.dfg.first_result(inst));
                continue;
            }
            let low = opcode == Opcode::Ireduce && func.dfg.value_type(func.dfg.first_result(inst)).bits() <= 32;
            let arg = resolve(func, *arg);
            self.demand(arg, !cold && !low, cold && !low);
            self.demands[arg].uses += 1;
        }
        if !opcode.is_branch() {
            return;
        }
        for call in data.branch_destination(&func.dfg.jump_tables, &func.dfg.exception_tables) {
            let params = func.dfg.block_params(call.block(&func.dfg.value_lists));
            for (param, arg) in params.iter().zip(call.args(&func.dfg.value_lists)) {
                if let BlockArg::Value(arg) = arg {
                    self.flow(func, arg, *param);
                }
            }
        }
    }

    /// Propagates the demand on a result to an operand that it is computed from. Once all bits are demanded, nothing can be
    /// added later.
    fn flow(&mut self, func: &Function, from: Value, to: Value) {
        let from = resolve(func, from);
        self.demand(from, self.demands[to].whole, self.demands[to].rarely);
        self.demands[from].uses += 1;
        if !self.demands[from].whole {
            self.flows.push((from, to));
        }
    }

    /// Adds a demand to a value. True if it is new.
    fn demand(&mut self, value: Value, whole: bool, rarely: bool) -> bool {
        let demand = &mut self.demands[value];
        let new = whole && !demand.whole || rarely && !demand.rarely;
        demand.whole |= whole;
        demand.rarely |= rarely;
        new
    }

    /// Propagates demands from results to operands. False if there is no fixed point within the limit.
    fn propagate(&mut self) -> bool {
        for _ in 0..MAX_ITERATIONS {
            let mut again = false;
            for at in 0..self.flows.len() {
                let (from, to) = self.flows[at];
                again |= self.demand(from, self.demands[to].whole, self.demands[to].rarely);
            }
            if !again {
                return true;
            }
        }
        false
    }

    /// Chooses parameters. False if there are none.
    fn choose(&mut self, func: &Function) -> bool {
        let entry = func.layout.entry_block();
        let mut any = false;
        for block in func.layout.blocks().filter(|block| Some(*block) != entry) {
            for param in func.dfg.block_params(block) {
                if func.dfg.value_type(*param) == I64 && !self.demands[*param].whole {
                    self.params[*param] = true;
                    any = true;
                }
            }
        }
        for _ in 0..MAX_ITERATIONS {
            if !any {
                return false;
            }
            let mut again = false;
            for block in func.layout.blocks() {
                for call in destinations(func, block) {
                    let params = func.dfg.block_params(call.block(&func.dfg.value_lists));
                    for (param, arg) in params.iter().zip(call.args(&func.dfg.value_lists)) {
                        let Some(arg) = arg.as_value() else { continue };
                        if self.params[*param] && self.demands[*param].rarely && !self.extended(func, arg) {
                            self.params[*param] = false;
                            again = true;
                        }
                    }
                }
            }
            if !again {
                return true;
            }
        }
        false
    }

    /// Whether the upper half of a value is zero.
    fn extended(&self, func: &Function, value: Value) -> bool {
        let value = func.dfg.resolve_aliases(value);
        let Some(made) = def_inst(func, value) else { return self.params[value] };
        match &func.dfg.insts[made] {
            InstructionData::Unary { opcode: Opcode::Uextend, .. } => true,
            InstructionData::Load { opcode, .. } => {
                matches!(opcode, Opcode::Uload8 | Opcode::Uload16 | Opcode::Uload32)
            }
            _ => constant(func, value).is_some_and(|bits| u32::try_from(bits).is_ok()),
        }
    }

    /// Makes the chosen parameters 32 bits wide, and extends them at the start of their block.
    fn narrow(&mut self, func: &mut Function) -> usize {
        let mut count = 0;
        let mut next = func.layout.entry_block();
        while let Some(block) = next {
            next = func.layout.next_block(block);
            let params = func.dfg.block_params(block).iter().copied().filter(|param| self.params[*param]);
            for param in params.collect::<SmallVec<[Value; 8]>>() {
                let narrow = func.dfg.replace_block_param(param, I32);
                self.params[narrow] = true;
                let first = func.layout.first_inst(block).expect("blocks end");
                let wide = FuncCursor::new(func).at_inst(first).ins().uextend(I64, narrow);
                func.dfg.change_to_alias(param, wide);
                self.demands[wide] = self.demands[param];
                self.demands[narrow].uses = 1;
                self.idle.extend(def_inst(func, wide));
                count += 1;
            }
        }
        count
    }

    /// Replaces instructions that take the same low half by one.
    fn merge_low_halves(&mut self, func: &mut Function) -> usize {
        let mut count = 0;
        while let Some(inst) = self.halving.pop() {
            let InstructionData::Unary { arg, .. } = func.dfg.insts[inst] else { unreachable!("it takes one value") };
            let (value, low) = (func.dfg.resolve_aliases(arg), func.dfg.first_result(inst));
            let Some(known) = self.known_low(func, value, inst) else {
                self.lows[value] = low.into();
                continue;
            };
            self.demands[known].uses += self.demands[low].uses;
            self.less(func, value);
            func.dfg.detach_inst_results(inst);
            func.dfg.change_to_alias(low, known);
            func.layout.remove_inst(inst);
            count += 1;
        }
        count
    }

    /// The low half of a value, if there is one. Its instruction moves up so that it dominates this user, too.
    fn known_low(&self, func: &mut Function, value: Value, at: Inst) -> Option<Value> {
        if let Some(low) = low_half(func, value) {
            return Some(func.dfg.resolve_aliases(low));
        }
        let low = self.lows[value].expand()?;
        let made = def_inst(func, low).expect("an instruction takes it");
        if func.layout.inst_block(made) != func.layout.inst_block(at) {
            func.layout.remove_inst(made);
            let next = after_definition(func, value);
            func.layout.insert_inst(made, next);
        }
        Some(low)
    }

    /// Passes low halves to narrow parameters.
    fn pass(&mut self, func: &mut Function) {
        let mut next = func.layout.entry_block();
        let params = std::mem::take(&mut self.params);
        while let Some(block) = next {
            next = func.layout.next_block(block);
            pass(func, block, &params, |func, last, arg| {
                let value = func.dfg.resolve_aliases(arg);
                let low = self.known_low(func, value, last).unwrap_or_else(|| {
                    self.demands[value].uses += 1;
                    let next = after_definition(func, value);
                    FuncCursor::new(func).at_inst(next).ins().ireduce(I32, value)
                });
                self.lows[value] = low.into();
                self.demands[low].uses += 1;
                self.less(func, value);
                low
            });
        }
        self.params = params;
    }
}

impl Counts for DemandedBits {
    fn used(&self, value: Value) -> bool {
        self.demands[value].uses > 0
    }

    fn drop_use(&mut self, value: Value) -> bool {
        self.demands[value].uses -= 1;
        self.demands[value].uses == 0
    }

    fn idle(&mut self) -> &mut Vec<Inst> {
        &mut self.idle
    }
}

/// The instruction after the definition of a value.
fn after_definition(func: &Function, value: Value) -> Inst {
    match func.dfg.value_def(value) {
        ValueDef::Result(made, _) => func.layout.next_inst(made).expect("the last makes nothing"),
        ValueDef::Param(block, _) => func.layout.first_inst(block).expect("blocks end"),
        ValueDef::Union(..) => unreachable!("only in the optimiser"),
    }
}

/// The 32-bit value that a value extends, if it does.
fn low_half(func: &Function, value: Value) -> Option<Value> {
    unary(func, value, Opcode::Uextend).filter(|arg| func.dfg.value_type(*arg) == I32)
}
