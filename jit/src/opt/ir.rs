//! Queries and edits of Cranelift's IR that passes share.

use cranelift_codegen::entity::SecondaryMap;
use cranelift_codegen::ir::{Block, BlockArg, BlockCall, Function, Inst, InstructionData, Opcode, Value, ValueDef};
use smallvec::SmallVec;

/// Outgoing edges of a block.
pub(super) fn destinations(func: &Function, block: Block) -> &[BlockCall] {
    let Some(last) = func.layout.last_inst(block) else { return &[] };
    func.dfg.insts[last].branch_destination(&func.dfg.jump_tables, &func.dfg.exception_tables)
}

/// Calls `each` for the values that an instruction uses, with their numbers: operands come first, then what is passed
/// along edges. Generated code has no exception edges, so all of that are values.
pub(super) fn each_use(func: &Function, inst: Inst, mut each: impl FnMut(usize, Value)) {
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

/// The value that an alias stands for. Most values are no aliases, which a check finds sooner.
pub(super) fn resolve(func: &Function, value: Value) -> Value {
    if func.dfg.value_is_alias(value) { func.dfg.resolve_aliases(value) } else { value }
}

/// The instruction that defines a value; `None` for a block parameter.
pub(super) fn def_inst(func: &Function, value: Value) -> Option<Inst> {
    match func.dfg.value_def(value) {
        ValueDef::Result(inst, _) => Some(inst),
        ValueDef::Param(..) | ValueDef::Union(..) => None,
    }
}

/// The block that defines a value, by an instruction or as its parameter.
pub(super) fn def_block(func: &Function, value: Value) -> Option<Block> {
    match func.dfg.value_def(value) {
        ValueDef::Result(inst, _) => func.layout.inst_block(inst),
        ValueDef::Param(block, _) => Some(block),
        ValueDef::Union(..) => None,
    }
}

/// The operand of the instruction that defines a value, if it is a unary one with this opcode.
pub(super) fn unary(func: &Function, value: Value, wanted: Opcode) -> Option<Value> {
    match func.dfg.insts[def_inst(func, value)?] {
        InstructionData::Unary { opcode, arg } => (opcode == wanted).then_some(arg),
        _ => None,
    }
}

/// The operands of the instruction that defines a value, if it is a binary one with this opcode.
pub(super) fn binary(func: &Function, value: Value, wanted: Opcode) -> Option<[Value; 2]> {
    match func.dfg.insts[def_inst(func, value)?] {
        InstructionData::Binary { opcode, args } if opcode == wanted => Some(args),
        _ => None,
    }
}

/// The opcode of additions to the instruction budget, see [`payments`](super::post).
pub(super) const PAYMENT: Opcode = Opcode::UaddOverflow;

/// Whether an opcode is that of a sum, of whatever kind.
pub(super) fn is_sum(opcode: Opcode) -> bool {
    opcode == Opcode::Iadd || opcode == PAYMENT
}

/// Whether a load defines a value.
pub(super) fn is_load(func: &Function, value: Value) -> bool {
    def_inst(func, value).is_some_and(|inst| func.dfg.insts[inst].opcode().can_load())
}

/// The bits of a constant.
pub(super) fn constant(func: &Function, value: Value) -> Option<i64> {
    match func.dfg.insts[def_inst(func, value)?] {
        InstructionData::UnaryImm { opcode: Opcode::Iconst, imm } => Some(imm.bits()),
        _ => None,
    }
}

/// Arguments that an edge passes to the parameters of its target.
pub(super) fn passed(func: &Function, call: BlockCall) -> Vec<Value> {
    let values = call.args(&func.dfg.value_lists).map(|arg| match arg {
        BlockArg::Value(value) => func.dfg.resolve_aliases(value),
        BlockArg::TryCallRet(_) | BlockArg::TryCallExn(_) => unreachable!("no exception edges"),
    });
    values.collect()
}

/// Replaces the arguments that the branch of a block passes to these parameters. `convert` computes the new argument
/// from the old one and inserts its instructions before the branch.
pub(super) fn pass(
    func: &mut Function,
    block: Block,
    params: &SecondaryMap<Value, bool>,
    mut convert: impl FnMut(&mut Function, Inst, Value) -> Value,
) {
    let last = func.layout.last_inst(block).expect("blocks end");
    for edge in 0..destinations(func, block).len() {
        let call = destinations(func, block)[edge];
        let to = func.dfg.block_params(call.block(&func.dfg.value_lists)).iter().enumerate();
        let wanted: SmallVec<[usize; 8]> = to.filter(|(_, param)| params[**param]).map(|(at, _)| at).collect();
        for at in wanted {
            let arg = call.args(&func.dfg.value_lists).nth(at).and_then(|arg| arg.as_value());
            let arg = convert(func, last, arg.expect("no exception edges"));
            let dfg = &mut func.dfg;
            let calls = dfg.insts[last].branch_destination_mut(&mut dfg.jump_tables, &mut dfg.exception_tables);
            let mut index = 0;
            calls[edge].update_args(&mut dfg.value_lists, |old| {
                index += 1;
                if index == at + 1 { BlockArg::Value(arg) } else { old }
            });
        }
    }
}

/// Whether an instruction has an effect besides its results: it accesses memory, traps, calls or branches.
pub(super) fn acts(opcode: Opcode) -> bool {
    opcode.can_load()
        || opcode.can_store()
        || opcode.can_trap()
        || opcode.is_call()
        || opcode.is_branch()
        || opcode.is_terminator()
        || opcode.other_side_effects()
}

/// Whether an instruction is a sequence point, which emits no code: a listing has more of them, and must show the same code.
pub(super) fn is_point(func: &Function, inst: Inst) -> bool {
    func.dfg.insts[inst].opcode() == Opcode::SequencePoint
}

/// The cost of executing an instruction speculatively: one machine instruction or none. `None` if it has side effects or costs more.
pub(super) fn cheap(opcode: Opcode) -> Option<u32> {
    match opcode {
        // A sequence point comes before an access, which is not cheap itself. Other points exist in listings only.
        Opcode::SequencePoint | Opcode::Iconst | Opcode::Ireduce | Opcode::Uextend => Some(0),
        Opcode::Iadd
        | PAYMENT
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

/// An addition of a constant to a value of 32 or 64 bits, modulo its width: the value and the constant.
pub(super) fn modular_increment_of(func: &Function, inst: Inst) -> Option<(Value, i64)> {
    let InstructionData::Binary { opcode, args } = func.dfg.insts[inst] else { return None };
    let wide = func.dfg.value_type(args[0]).bits() >= 32;
    match opcode {
        Opcode::Iadd if wide => Some((args[0], constant(func, args[1])?)),
        Opcode::Isub if wide => Some((args[0], constant(func, args[1])?.wrapping_neg())),
        _ => None,
    }
}
