//! Loads become operands of the arithmetic that uses them.
//!
//! Cranelift folds a load into its only user, unless the user's result is needed more than once, since it might then be
//! computed more than once. A parameter of a block is never computed again: so where such a result is made the block
//! ends, and the next begins with the result as its parameter. No instruction comes of that.

use cranelift_codegen::Context;
use cranelift_codegen::cursor::{Cursor as _, FuncCursor};
use cranelift_codegen::ir::condcodes::CondCode as _;
use cranelift_codegen::ir::types::{I32, I64};
use cranelift_codegen::ir::{Block, BlockArg, Function, Inst, InstBuilder as _, InstructionData, Opcode, Value};

use super::points::NEAR;
use super::{Uses, acts, constant};

/// Blocks of a function that are ended, at most: the allocator's work grows with the square of such a chain.
const MOST: usize = 128;

#[derive(Default)]
pub(super) struct Scratch {
    /// Instructions that blocks are to end behind.
    ends: Vec<Inst>,
    /// Instructions of the current block, and which of them are loads that can move.
    insts: Vec<Inst>,
    loads: Vec<usize>,
}

/// True if there are new blocks.
pub(super) fn run(context: &mut Context, uses: &Uses, scratch: &mut Scratch) -> bool {
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
            if let Some(load) = effect.filter(|load| taker(func, uses, *load) == Some(inst)) {
                take_second(func, inst, load);
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
    !scratch.ends.is_empty()
}

/// A load that is extended to 64 bits only to be cut to 32 loads 32.
fn narrow(func: &mut Function, uses: &Uses, load: Inst) {
    let InstructionData::Load { opcode: Opcode::Uload32 | Opcode::Sload32, arg, flags, offset } = func.dfg.insts[load]
    else {
        return;
    };
    let Some(cut) = uses.only(func.dfg.first_result(load)) else { return };
    let value = func.dfg.inst_results(cut).first().copied();
    let Some(value) = value.filter(|value| func.dfg.value_type(*value) == I32) else { return };
    if func.dfg.insts[cut].opcode() == Opcode::Ireduce {
        func.dfg.detach_inst_results(cut);
        func.layout.remove_inst(cut);
        func.dfg.detach_inst_results(load);
        func.dfg.insts[load] = InstructionData::Load { opcode: Opcode::Load, arg, flags, offset };
        func.dfg.make_inst_results_reusing(load, I32, [Some(value)].into_iter());
    }
}

impl Scratch {
    /// Moves loads down to the arithmetic that uses them, as far as only loads and what has no effects lie between.
    fn sink(&mut self, func: &mut Function, uses: &Uses, block: Block) {
        self.insts.clear();
        let mut next = func.layout.first_inst(block);
        while let Some(inst) = next {
            narrow(func, uses, inst);
            self.insts.push(inst);
            next = func.layout.next_inst(inst);
        }
        self.loads.clear();
        // The first of the sequence points since the last effect. Loads stay in front of one that belongs to a store.
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

    /// Moves the noted loads, in front of the instruction of this number at most. They keep their order.
    fn sink_to(&mut self, func: &mut Function, uses: &Uses, mut end: usize) {
        while let Some(at) = self.loads.pop() {
            let load = self.insts[at];
            let near = &self.insts[at..end.min(at + NEAR as usize)];
            let user = taker(func, uses, load);
            let place = user.and_then(|user| near.iter().position(|inst| *inst == user));
            end = place.map_or(at, |place| at + place);
            if place.is_some() {
                func.layout.remove_inst(load);
                func.layout.insert_inst(load, self.insts[end]);
            }
        }
    }
}

/// The only user of a load, if it could do with the loaded value still in memory.
fn taker(func: &Function, uses: &Uses, load: Inst) -> Option<Inst> {
    if func.dfg.insts[load].opcode() != Opcode::Load {
        return None;
    }
    let loaded = func.dfg.first_result(load);
    // A fault is told from others with its code by where it is in the program.
    let far = |user: Inst| func.srcloc(load).bits().abs_diff(func.srcloc(user).bits()) >= NEAR;
    uses.only(loaded).filter(|user| !far(*user) && takes(func, *user, loaded))
}

/// A compare has only its second operand in memory.
fn take_second(func: &mut Function, inst: Inst, load: Inst) {
    let loaded = func.dfg.first_result(load);
    if let InstructionData::IntCompare { args, cond, .. } = &mut func.dfg.insts[inst]
        && args[0] == loaded
    {
        args.swap(0, 1);
        *cond = cond.swap_args();
    }
}

/// Behind which instruction a block should end for the only user of a load.
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

/// Whether this could be done with the loaded value still in memory.
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

/// Whether an instruction makes one value from others and nothing else.
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

/// Ends the block of an instruction behind it.
fn split(func: &mut Function, inst: Inst) {
    let block = func.layout.inst_block(inst).expect("it was found in one");
    let next = func.layout.next_inst(inst).expect("blocks end with a branch");
    let value = func.dfg.first_result(inst);
    let ty = func.dfg.value_type(value);
    func.dfg.detach_inst_results(inst);
    func.dfg.make_inst_results(inst, ty);
    let result = func.dfg.first_result(inst);
    let behind = func.dfg.make_block();
    func.layout.split_block(behind, next);
    func.dfg.attach_block_param(behind, value);
    let mut cursor = FuncCursor::new(func).at_bottom(block);
    cursor.use_srcloc(inst);
    cursor.ins().jump(behind, &[BlockArg::Value(result)]);
}
