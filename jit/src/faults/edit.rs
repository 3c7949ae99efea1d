//! How mistakes change IR: accesses of the arena by the parts of their addresses, loads from the context.

use std::mem::offset_of;

use cranelift_codegen::cursor::{Cursor as _, FuncCursor};
use cranelift_codegen::ir::immediates::Offset32;
use cranelift_codegen::ir::types::{I32, I64};
use cranelift_codegen::ir::{Block, Function, Inst, InstBuilder as _, InstructionData, Opcode, Value, ValueDef};
use twinbpf_vm::host::native::Context;

/// An access of the arena.
pub(super) struct Access {
    pub(super) inst: Inst,
    /// Which operand the address is.
    operand: usize,
    pub(super) arena: Value,
    /// What is added to the arena's address.
    pub(super) index: Value,
    /// What is added besides.
    more: Option<Value>,
}

/// The instruction that defines a value; `None` for a block parameter.
pub(super) fn def_inst(func: &Function, value: Value) -> Option<Inst> {
    match func.dfg.value_def(func.dfg.resolve_aliases(value)) {
        ValueDef::Result(inst, _) => Some(inst),
        ValueDef::Param(..) | ValueDef::Union(..) => None,
    }
}

/// The opcode of the instruction that defines a value.
pub(super) fn opcode(func: &Function, value: Value) -> Option<Opcode> {
    def_inst(func, value).map(|inst| func.dfg.insts[inst].opcode())
}

/// The operands of the instruction that makes a value, if it is this one.
pub(super) fn operands(func: &Function, value: Value, wanted: Opcode) -> Option<Vec<Value>> {
    let inst = def_inst(func, value).filter(|inst| func.dfg.insts[*inst].opcode() == wanted)?;
    Some(func.dfg.inst_args(inst).iter().map(|arg| func.dfg.resolve_aliases(*arg)).collect())
}

pub(super) fn constant(func: &Function, value: Value) -> Option<i64> {
    match func.dfg.insts[def_inst(func, value)?] {
        InstructionData::UnaryImm { opcode: Opcode::Iconst, imm } => Some(imm.bits()),
        _ => None,
    }
}

/// A parameter of the function: 0 is the context, 1 is r10, 2 is r1.
pub(super) fn param(func: &Function, index: usize) -> Value {
    let entry = func.layout.entry_block().expect("a function has blocks");
    func.dfg.block_params(entry)[index]
}

/// All instructions.
pub(super) fn insts(func: &Function) -> Vec<Inst> {
    func.layout.blocks().flat_map(|block| func.layout.block_insts(block)).collect()
}

/// All instructions with this opcode.
pub(super) fn with_opcode(func: &Function, wanted: Opcode) -> Vec<Inst> {
    insts(func).into_iter().filter(|inst| func.dfg.insts[*inst].opcode() == wanted).collect()
}

/// The operand of an access that is its address.
pub(super) fn address(func: &Function, inst: Inst) -> Option<usize> {
    match func.dfg.insts[inst] {
        InstructionData::Load { .. } | InstructionData::AtomicRmw { .. } | InstructionData::AtomicCas { .. } => Some(0),
        InstructionData::Store { .. } => Some(1),
        _ => None,
    }
}

/// Whether a value is loaded from this offset of the context.
pub(super) fn is_field(func: &Function, value: Value, offset: usize) -> bool {
    def_inst(func, value).is_some_and(|inst| match func.dfg.insts[inst] {
        InstructionData::Load { arg, offset: at, .. } => {
            func.dfg.resolve_aliases(arg) == param(func, 0) && i32::from(at) == offset as i32
        }
        _ => false,
    })
}

/// Accesses with this base, and which operand it is.
pub(super) fn with_base(func: &Function, base: Value) -> Vec<(Inst, usize)> {
    let of = |inst| Some((inst, address(func, inst)?));
    let all = insts(func).into_iter().filter_map(of);
    all.filter(|(inst, operand)| func.dfg.resolve_aliases(func.dfg.inst_args(*inst)[*operand]) == base).collect()
}

/// The offset of a load or store.
pub(super) fn offset(func: &Function, inst: Inst) -> i32 {
    func.dfg.insts[inst].load_store_offset().unwrap_or(0)
}

pub(super) fn set_offset(func: &mut Function, inst: Inst, new: i32) {
    match &mut func.dfg.insts[inst] {
        InstructionData::Load { offset, .. } | InstructionData::Store { offset, .. } => *offset = Offset32::new(new),
        _ => {}
    }
}

pub(super) fn set_operand(func: &mut Function, inst: Inst, operand: usize, value: Value) {
    func.dfg.inst_args_mut(inst)[operand] = value;
}

/// The arena's address and what is added to it.
fn sum(func: &Function, value: Value) -> Option<(Value, Value)> {
    let args = operands(func, value, Opcode::Iadd)?;
    let is_arena = |value| is_field(func, value, offset_of!(Context, arena_base));
    match (is_arena(args[0]), is_arena(args[1])) {
        (true, _) => Some((args[0], args[1])),
        (_, true) => Some((args[1], args[0])),
        _ => None,
    }
}

/// All accesses of the arena whose address has a form that mistakes know.
pub(super) fn accesses(func: &Function) -> Vec<Access> {
    let mut all = Vec::new();
    for inst in insts(func) {
        let Some(operand) = address(func, inst) else { continue };
        let at = func.dfg.inst_args(inst)[operand];
        if let Some((arena, index)) = sum(func, at) {
            all.push(Access { inst, operand, arena, index, more: None });
        } else if let Some(args) = operands(func, at, Opcode::Iadd) {
            let inner = |inner, more| sum(func, inner).map(|found| (found, more));
            if let Some(((arena, index), more)) = inner(args[0], args[1]).or_else(|| inner(args[1], args[0])) {
                all.push(Access { inst, operand, arena, index, more: Some(more) });
            }
        }
    }
    all
}

/// Replaces the address of each selected arena access with what `new` computes right before the access.
pub(super) fn each_address(
    func: &mut Function,
    wanted: impl Fn(&Function, &Access) -> bool,
    new: impl Fn(&mut FuncCursor<'_>, &Access) -> Option<Value>,
) -> bool {
    let mut changed = false;
    for access in accesses(func) {
        if !wanted(func, &access) {
            continue;
        }
        let mut cursor = FuncCursor::new(func).at_inst(access.inst);
        let Some(mut at) = new(&mut cursor, &access) else { continue };
        if let Some(more) = access.more {
            at = cursor.ins().iadd(at, more);
        }
        set_operand(func, access.inst, access.operand, at);
        changed = true;
    }
    changed
}

/// The same, with what `new` makes of what is added to the arena's address.
pub(super) fn each_index(
    func: &mut Function,
    wanted: impl Fn(&Function, &Access) -> bool,
    new: impl Fn(&mut FuncCursor<'_>, Value) -> Option<Value>,
) -> bool {
    each_address(func, wanted, |cursor, access| {
        let index = new(cursor, access.index)?;
        Some(cursor.ins().iadd(access.arena, index))
    })
}

/// Every access.
pub(super) fn any(_: &Function, _: &Access) -> bool {
    true
}

/// What is masked to 32 bits, without the mask, as far as it can be seen.
pub(super) fn unmasked(cursor: &mut FuncCursor<'_>, index: Value) -> Option<Value> {
    let low = operands(cursor.func, index, Opcode::Uextend)?[0];
    (cursor.func.dfg.value_type(low) == I32).then_some(())?;
    wide(cursor, low, 4).filter(|wide| opcode(cursor.func, *wide) != Some(Opcode::Uextend))
}

/// A value of 32 bits as the low half of what it was made of.
fn wide(cursor: &mut FuncCursor<'_>, low: Value, depth: u32) -> Option<Value> {
    let func = &*cursor.func;
    if let Some(number) = constant(func, low) {
        return Some(cursor.ins().iconst(I64, i64::from(number as i32)));
    }
    if let Some(args) = operands(func, low, Opcode::Ireduce) {
        return Some(args[0]).filter(|value| func.dfg.value_type(*value) == I64);
    }
    if depth > 0
        && let Some(args) = operands(func, low, Opcode::Iadd)
    {
        let (a, b) = (wide(cursor, args[0], depth - 1)?, wide(cursor, args[1], depth - 1)?);
        return Some(cursor.ins().iadd(a, b));
    }
    Some(cursor.ins().uextend(I64, low))
}

/// Whether control can come from a block to itself.
pub(super) fn in_loop(func: &Function, block: Block) -> bool {
    let mut seen = std::collections::HashSet::new();
    let mut work = vec![block];
    while let Some(from) = work.pop() {
        let Some(last) = func.layout.last_inst(from) else { continue };
        let calls = func.dfg.insts[last].branch_destination(&func.dfg.jump_tables, &func.dfg.exception_tables);
        for to in calls.iter().map(|call| call.block(&func.dfg.value_lists)) {
            if to == block {
                return true;
            }
            if seen.insert(to) {
                work.push(to);
            }
        }
    }
    false
}
