//! Cheaper instructions of the same meaning, where Cranelift's choice waits longer than need be.

use cranelift_codegen::cursor::{Cursor as _, FuncCursor};
use cranelift_codegen::ir::condcodes::{CondCode as _, IntCC};
use cranelift_codegen::ir::{Function, Inst, InstBuilder as _, InstructionData, Opcode, Value};

use super::{constant, maker};

pub(super) fn run(func: &mut Function) {
    let mut block = func.layout.entry_block();
    while let Some(current) = block {
        let mut next = func.layout.first_inst(current);
        while let Some(inst) = next {
            next = func.layout.next_inst(inst);
            match func.dfg.insts[inst] {
                InstructionData::Binary { opcode: Opcode::Imul, args } => multiply(func, inst, args),
                InstructionData::Ternary { opcode: Opcode::Select, args } => select(func, args[0]),
                InstructionData::Load { arg, offset, .. } => address(func, inst, arg, offset.into()),
                InstructionData::Store { args, offset, .. } => address(func, inst, args[1], offset.into()),
                _ => {}
            }
        }
        block = func.layout.next_block(current);
    }
}

/// A multiplication takes three cycles; by 2^n + 1 or 2^n - 1, shift and sum take two, and one by 3, 5, 9.
fn multiply(func: &mut Function, inst: Inst, [x, by]: [Value; 2]) {
    let (Some(by), bits) = (constant(func, by), func.dfg.value_type(x).bits()) else { return };
    let by = by as u64;
    // All ones, which is -1, are no power of two less one: that has no room in the type.
    let power = |power: Option<u64>| {
        power.filter(|power| power.is_power_of_two() && power.trailing_zeros() < bits).map(u64::trailing_zeros)
    };
    let (opcode, shift, shifted_first) = match (by, power(by.checked_sub(1)), power(by.checked_add(1))) {
        (3 | 5 | 9, Some(shift), _) => (Opcode::Iadd, shift, false),
        (10.., Some(shift), _) => (Opcode::Iadd, shift, true),
        (4.., _, Some(shift)) => (Opcode::Isub, shift, true),
        _ => return,
    };
    let mut cursor = FuncCursor::new(func).at_inst(inst);
    cursor.use_srcloc(inst);
    let shifted = cursor.ins().ishl_imm_u(x, i64::from(shift));
    let args = if shifted_first { [shifted, x] } else { [x, shifted] };
    func.dfg.insts[inst] = InstructionData::Binary { opcode, args };
}

/// `a <= b` looks at two flags, `b >= a` at one; a conditional move takes a cycle more for two.
fn select(func: &mut Function, cond: Value) {
    let Some(compare) = maker(func, cond) else { return };
    let InstructionData::IntCompare { opcode, args, cond } = func.dfg.insts[compare] else { return };
    if matches!(cond, IntCC::UnsignedGreaterThan | IntCC::UnsignedLessThanOrEqual) && constant(func, args[1]).is_none()
    {
        let args = [args[1], args[0]];
        func.dfg.insts[compare] = InstructionData::IntCompare { opcode, args, cond: cond.swap_args() };
    }
}

/// `base + ((x + c) << k)` as an address: the constant moves into the offset, and nothing waits for the sum.
fn address(func: &mut Function, inst: Inst, addr: Value, off: i32) {
    let Some([a, b]) = binary(func, addr, Opcode::Iadd) else { return };
    let found = [(a, b), (b, a)].into_iter().find_map(|(base, index)| {
        let [sum, shift] = binary(func, index, Opcode::Ishl)?;
        let shift = constant(func, shift).filter(|shift| (0..=3).contains(shift))?;
        let [x, c] = binary(func, sum, Opcode::Iadd)?;
        let moved = constant(func, c)?.checked_mul(1 << shift)?.checked_add(off.into())?;
        Some((base, x, shift, i32::try_from(moved).ok()?))
    });
    let Some((base, x, shift, off)) = found else { return };
    let mut cursor = FuncCursor::new(func).at_inst(inst);
    cursor.use_srcloc(inst);
    let index = cursor.ins().ishl_imm_u(x, shift);
    let addr = cursor.ins().iadd(base, index);
    match &mut func.dfg.insts[inst] {
        InstructionData::Load { arg, offset, .. } => (*arg, *offset) = (addr, off.into()),
        InstructionData::Store { args, offset, .. } => (args[1], *offset) = (addr, off.into()),
        _ => unreachable!("a load or a store"),
    }
}

fn binary(func: &Function, value: Value, wanted: Opcode) -> Option<[Value; 2]> {
    match func.dfg.insts[maker(func, value)?] {
        InstructionData::Binary { opcode, args } if opcode == wanted => Some(args),
        _ => None,
    }
}
