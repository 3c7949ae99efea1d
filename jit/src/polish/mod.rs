//! What Cranelift's optimiser leaves undone, done on its IR: before it runs ([`Polish::before`]) and after
//! ([`Polish::after`]), when instructions have their final order.
//!
//! clang's bytecode has lost what clang knew: conditional moves became branches over moves, `switch` became a tree of
//! compares. Before the optimiser, [`counters`] takes out branches that a loop's counter decides, [`table`] and [`select`]
//! bring back what was, and [`narrow`] finds registers that hold 32 bits. Afterwards, [`points`] removes what was for the
//! optimiser only, [`sequence`] brings back the order of the program, [`strength`] chooses cheaper instructions of the same
//! meaning, [`hoist`] takes out of loops what the optimiser put back into each round, [`order`] places the step of a loop's
//! counter behind the last use of its old value, [`tails`] copies the end of an interpreter's round, [`exits`] keeps what
//! leaves a loop out of its way, [`pair`] copies two words at a time, [`widen`] extends offsets where that costs nothing,
//! [`sums`] adds last what is there last, [`commute`] chooses the operand whose place a result takes, [`fold`] leaves
//! operands in memory, and [`turns`] hands values on to the next round in time.
//!
//! Only instructions without effects are added or computed in vain. Loads, stores, calls and traps keep their order and
//! their sites, so no pass here has to know what a site means.

mod commute;
mod counters;
mod exits;
mod fold;
mod hoist;
mod narrow;
mod order;
mod pair;
mod points;
mod select;
mod sequence;
mod strength;
mod sums;
mod table;
mod tails;
#[cfg(test)]
mod tests;
mod turns;
mod uses;
mod widen;

use cranelift_codegen::entity::SecondaryMap;
use cranelift_codegen::ir::{Block, BlockArg, BlockCall, Function, Inst, InstructionData, Opcode, Value, ValueDef};
use cranelift_codegen::isa::TargetIsa;
use cranelift_codegen::{CodegenResult, Context};
use smallvec::SmallVec;

use crate::stage::Stages;
use uses::Uses;

/// Memory that is used again for the next function.
#[derive(Default)]
pub(crate) struct Polish {
    commute: commute::Scratch,
    /// Edges that lead to each block.
    preds: Vec<u32>,
    fold: fold::Scratch,
    hoist: hoist::Scratch,
    narrow: narrow::Scratch,
    sequence: sequence::Scratch,
    sums: sums::Scratch,
    uses: Uses,
    widen: widen::Scratch,
}

impl Polish {
    /// Rewrites what translation made. With `counted`, blocks also subtract from a counter of instructions.
    ///
    /// # Errors
    /// As [`Stages::pass`], and so for [`Polish::after`].
    pub(crate) fn before(
        &mut self,
        context: &mut Context,
        isa: &dyn TargetIsa,
        counted: bool,
        stages: Stages<'_>,
    ) -> CodegenResult<()> {
        // Others look at values again and again, and chains of aliases can be as long as the function.
        context.func.dfg.resolve_all_aliases();
        stages.pass("counters", (context, isa), |context| counters::run(&mut context.func))?;
        self.count_preds(&context.func);
        stages.pass("table", (context, isa), |context| table::run(&mut context.func, &mut self.preds))?;
        stages.pass("select", (context, isa), |context| select::run(&mut context.func, &mut self.preds, counted))?;
        stages.pass("narrow", (context, isa), |context| narrow::run(&mut context.func, &mut self.narrow))
    }

    /// Rewrites what the optimiser made, which has left its analyses in the context. Afterwards flow graph and dominators
    /// are right, and there are no aliases. `shared` says that several sites have the same trap code. For x86-64 more is
    /// done: it has accesses of 16 bytes at any address, arithmetic with operands in memory, and zeros above results of 32
    /// bits.
    pub(crate) fn after(
        &mut self,
        context: &mut Context,
        isa: &dyn TargetIsa,
        shared: bool,
        stages: Stages<'_>,
    ) -> CodegenResult<()> {
        let listing = context.want_disasm;
        stages.pass("points", (context, isa), |context| points::run(&mut context.func, listing, shared))?;
        stages.pass("sequence", (context, isa), |context| sequence::run(&mut context.func, &mut self.sequence))?;
        stages.pass("strength", (context, isa), |context| strength::run(&mut context.func, &mut self.uses))?;
        if context.loop_analysis.loops().len() == 0 {
            return Ok(());
        }
        let keep = stages.fault == hoist::MUTANT;
        let aliased = stages.pass("hoist", (context, isa), |context| hoist::run(context, &mut self.hoist, keep))?;
        stages.pass("order", (context, isa), order::run)?;
        let mut changed = stages.pass("tails", (context, isa), tails::run)?;
        if changed {
            context.compute_cfg();
        }
        changed |= stages.pass("exits", (context, isa), exits::run)?;
        if isa.name() == "x64" {
            stages.pass("widen", (context, isa), |context| widen::run(context, &mut self.widen))?;
            stages.pass("uses", (context, isa), |context| self.uses.renew(&mut context.func))?;
            changed |= stages.pass("pair", (context, isa), |context| pair::run(context, &self.uses))?;
            stages.pass("sums", (context, isa), |context| sums::run(context, &mut self.uses, &mut self.sums))?;
            stages.pass("commute", (context, isa), |context| commute::run(context, &self.uses, &mut self.commute))?;
            changed |= stages.pass("fold", (context, isa), |context| fold::run(context, &self.uses, &mut self.fold))?;
        } else if aliased {
            context.func.dfg.resolve_all_aliases();
        }
        if changed {
            context.flowgraph();
        }
        if stages.pass("turns", (context, isa), turns::run)? {
            context.flowgraph();
        }
        Ok(())
    }

    fn count_preds(&mut self, func: &Function) {
        self.preds.clear();
        self.preds.resize(func.dfg.num_blocks(), 0);
        for block in func.layout.blocks() {
            for call in destinations(func, block) {
                self.preds[call.block(&func.dfg.value_lists).as_u32() as usize] += 1;
            }
        }
    }
}

/// Where control goes at the end of a block.
fn destinations(func: &Function, block: Block) -> &[BlockCall] {
    let Some(last) = func.layout.last_inst(block) else { return &[] };
    func.dfg.insts[last].branch_destination(&func.dfg.jump_tables, &func.dfg.exception_tables)
}

/// Calls `each` for the values that an instruction uses, with their numbers: operands come first, then what is passed
/// along edges. Generated code has no exception edges, so all of that are values.
fn each_use(func: &Function, inst: Inst, mut each: impl FnMut(usize, Value)) {
    let data = &func.dfg.insts[inst];
    let operands = data.arguments(&func.dfg.value_lists);
    operands.iter().enumerate().for_each(|(at, value)| each(at, *value));
    if data.opcode().is_branch() {
        let calls = data.branch_destination(&func.dfg.jump_tables, &func.dfg.exception_tables);
        let args = calls.iter().flat_map(|call| call.args(&func.dfg.value_lists));
        for (at, arg) in (operands.len()..).zip(args) {
            each(at, arg.as_value().expect("no exception edges"));
        }
    }
}

/// What a value stands for. Most are no aliases, which is known sooner.
fn resolve(func: &Function, value: Value) -> Value {
    if func.dfg.value_is_alias(value) { func.dfg.resolve_aliases(value) } else { value }
}

/// The instruction that makes a value.
fn maker(func: &Function, value: Value) -> Option<Inst> {
    match func.dfg.value_def(func.dfg.resolve_aliases(value)) {
        ValueDef::Result(inst, _) => Some(inst),
        ValueDef::Param(..) | ValueDef::Union(..) => None,
    }
}

/// The block that makes a value.
fn home(func: &Function, value: Value) -> Option<Block> {
    match func.dfg.value_def(func.dfg.resolve_aliases(value)) {
        ValueDef::Result(inst, _) => func.layout.inst_block(inst),
        ValueDef::Param(block, _) => Some(block),
        ValueDef::Union(..) => None,
    }
}

/// The operands of the instruction that makes a value, if it is this one of two.
fn binary(func: &Function, value: Value, wanted: Opcode) -> Option<[Value; 2]> {
    match func.dfg.insts[maker(func, value)?] {
        InstructionData::Binary { opcode, args } if opcode == wanted => Some(args),
        _ => None,
    }
}

/// Whether a value comes from memory.
fn is_load(func: &Function, value: Value) -> bool {
    maker(func, value).is_some_and(|inst| func.dfg.insts[inst].opcode().can_load())
}

/// The bits of a constant.
fn constant(func: &Function, value: Value) -> Option<i64> {
    match func.dfg.insts[maker(func, value)?] {
        InstructionData::UnaryImm { opcode: Opcode::Iconst, imm } => Some(imm.bits()),
        _ => None,
    }
}

/// Values passed along an edge.
fn passed(func: &Function, call: BlockCall) -> Vec<Value> {
    let values = call.args(&func.dfg.value_lists).map(|arg| match arg {
        BlockArg::Value(value) => func.dfg.resolve_aliases(value),
        BlockArg::TryCallRet(_) | BlockArg::TryCallExn(_) => unreachable!("no exception edges"),
    });
    values.collect()
}

/// Passes other values to these parameters at the end of a block: what `convert` makes of each, in front of the last
/// instruction.
fn pass(
    func: &mut Function,
    block: Block,
    params: &SecondaryMap<Value, bool>,
    mut convert: impl FnMut(&mut Function, Inst, Value) -> Value,
) {
    let last = func.layout.last_inst(block).expect("blocks end");
    for way in 0..destinations(func, block).len() {
        let call = destinations(func, block)[way];
        let to = func.dfg.block_params(call.block(&func.dfg.value_lists)).iter().enumerate();
        let wanted: SmallVec<[usize; 8]> = to.filter(|(_, param)| params[**param]).map(|(at, _)| at).collect();
        for at in wanted {
            let arg = call.args(&func.dfg.value_lists).nth(at).and_then(|arg| arg.as_value());
            let arg = convert(func, last, arg.expect("no exception edges"));
            let dfg = &mut func.dfg;
            let calls = dfg.insts[last].branch_destination_mut(&mut dfg.jump_tables, &mut dfg.exception_tables);
            let mut index = 0;
            calls[way].update_args(&mut dfg.value_lists, |old| {
                index += 1;
                if index == at + 1 { BlockArg::Value(arg) } else { old }
            });
        }
    }
}

/// Whether an instruction does more than make values from others.
fn acts(opcode: Opcode) -> bool {
    opcode.can_load()
        || opcode.can_store()
        || opcode.can_trap()
        || opcode.is_call()
        || opcode.is_branch()
        || opcode.is_terminator()
        || opcode.other_side_effects()
}

/// Whether it makes no code: a listing has more of them, and must show the same code.
fn is_point(func: &Function, inst: Inst) -> bool {
    func.dfg.insts[inst].opcode() == Opcode::SequencePoint
}

/// Whether an instruction can run when nobody asked for it, at about the cost of one machine instruction or none.
fn cheap(opcode: Opcode) -> Option<u32> {
    match opcode {
        // A point in front of an access stands beside what is not cheap. Others are of a listing only.
        Opcode::SequencePoint | Opcode::Iconst | Opcode::Ireduce | Opcode::Uextend => Some(0),
        Opcode::Iadd
        | Opcode::Isub
        | Opcode::Ineg
        | Opcode::Band
        | Opcode::Bor
        | Opcode::Bxor
        | Opcode::Bnot
        | Opcode::Ishl
        | Opcode::Ushr
        | Opcode::Sshr
        | Opcode::Sextend
        | Opcode::Icmp => Some(1),
        _ => None,
    }
}
