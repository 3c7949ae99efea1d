//! What Cranelift's optimiser leaves undone, done on its IR: before it runs ([`Polish::before`]) and after
//! ([`Polish::after`]), when instructions have their final order.
//!
//! clang's bytecode has lost what clang knew: conditional moves became branches over moves, `switch` became a tree of
//! compares. Before the optimiser, [`table`] and [`select`] bring them back, and [`narrow`] finds registers that hold
//! 32 bits. Afterwards, [`strength`] chooses cheaper
//! instructions of the same meaning, [`hoist`] takes out of loops what the optimiser put back into each round,
//! [`order`] places the step of a loop's counter behind the last use of its old value, [`tails`] copies the end of an
//! interpreter's round, [`exits`] keeps what leaves a loop out of its way, and [`pair`] copies two words at a time.
//!
//! Only instructions without effects are moved, added or computed in vain. Loads, stores, calls, traps and sequence
//! points keep their order and their sites, so no pass here has to know what a site means.

mod exits;
mod hoist;
mod narrow;
mod order;
mod pair;
mod select;
mod strength;
mod table;
mod tails;
#[cfg(test)]
mod tests;

use cranelift_codegen::Context;
use cranelift_codegen::ir::{Block, BlockArg, BlockCall, Function, Inst, InstructionData, Opcode, Value, ValueDef};

/// Memory that is used again for the next function.
#[derive(Default)]
pub(crate) struct Polish {
    /// Edges that lead to each block.
    preds: Vec<u32>,
    hoist: hoist::Scratch,
    narrow: narrow::Scratch,
}

impl Polish {
    /// Rewrites what translation made. With `counted`, blocks also subtract from a counter of instructions.
    pub(crate) fn before(&mut self, func: &mut Function, counted: bool) {
        self.count_preds(func);
        table::run(func, &mut self.preds);
        select::run(func, &mut self.preds, counted);
        narrow::run(func, &mut self.narrow);
    }

    /// Rewrites what the optimiser made, which has left its analyses in the context. They hold afterwards, and there
    /// are no aliases. `wide` says that the machine has accesses of 16 bytes at any address.
    pub(crate) fn after(&mut self, context: &mut Context, wide: bool) {
        strength::run(&mut context.func);
        if hoist::run(context, &mut self.hoist) {
            context.func.dfg.resolve_all_aliases();
        }
        order::run(context);
        if tails::run(context) {
            context.flowgraph();
        }
        let split = exits::run(context);
        let paired = wide && pair::run(context);
        if split || paired {
            context.flowgraph();
        }
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

/// The instruction that makes a value.
fn maker(func: &Function, value: Value) -> Option<Inst> {
    match func.dfg.value_def(func.dfg.resolve_aliases(value)) {
        ValueDef::Result(inst, _) => Some(inst),
        ValueDef::Param(..) | ValueDef::Union(..) => None,
    }
}

/// The bits of a constant.
fn constant(func: &Function, value: Value) -> Option<i64> {
    match func.dfg.insts[maker(func, value)?] {
        InstructionData::UnaryImm { opcode: Opcode::Iconst, imm } => Some(imm.bits()),
        _ => None,
    }
}

/// Values passed along an edge. Generated code has no exception edges, so all of them are values.
fn passed(func: &Function, call: BlockCall) -> Vec<Value> {
    let values = call.args(&func.dfg.value_lists).map(|arg| match arg {
        BlockArg::Value(value) => func.dfg.resolve_aliases(value),
        BlockArg::TryCallRet(_) | BlockArg::TryCallExn(_) => unreachable!("no exception edges"),
    });
    values.collect()
}

/// Whether an instruction can run when nobody asked for it, at about the cost of one machine instruction or none.
fn cheap(opcode: Opcode) -> Option<u32> {
    match opcode {
        Opcode::Iconst | Opcode::Ireduce | Opcode::Uextend => Some(0),
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
