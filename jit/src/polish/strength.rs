//! Cheaper instructions of the same meaning, where Cranelift's choice waits longer than need be.

use cranelift_codegen::cursor::{Cursor as _, FuncCursor};
use cranelift_codegen::ir::condcodes::{CondCode as _, IntCC};
use cranelift_codegen::ir::types::{I32, I64};
use cranelift_codegen::ir::{Function, Inst, InstBuilder as _, InstructionData, Opcode, Value};

use super::{Uses, binary, constant, maker};
use crate::translate::{field, reaches};

/// Addresses of a block that are looked at to find one that is there.
const REMEMBERED: usize = 8;

/// A place in the arena: the sum of 32 bits of a base and an index shifted by some bits, and its address.
type Place = ((Value, Value, i64), Value);

pub(super) fn run(func: &mut Function, uses: &mut Uses) {
    let mut places: Vec<Place> = Vec::new();
    uses.clear();
    let mut block = func.layout.entry_block();
    while let Some(current) = block {
        places.clear();
        let mut next = func.layout.first_inst(current);
        while let Some(inst) = next {
            next = func.layout.next_inst(inst);
            match func.dfg.insts[inst] {
                InstructionData::Binary { opcode: Opcode::Imul, args } => multiply(func, inst, args),
                InstructionData::Binary { opcode: Opcode::Bor, args } => union(func, inst, args, uses),
                InstructionData::Ternary { opcode: Opcode::Select, args } => select(func, args[0]),
                InstructionData::Load { arg: addr, offset, .. }
                | InstructionData::Store { args: [_, addr], offset, .. } => {
                    address(func, inst, addr, offset.into());
                    in_arena(func, inst, (addr, offset.into()), uses, &mut places);
                }
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

/// `x << n | c` is a sum if the shift leaves room for `c`: x86-64 puts sums, and `x + x` for `x << 1`, where they belong,
/// and leaves what they are made of in its place.
fn union(func: &mut Function, inst: Inst, [shifted, bits]: [Value; 2], uses: &mut Uses) {
    let Some([x, by]) = binary(func, shifted, Opcode::Ishl) else { return };
    let by = constant(func, by).filter(|by| (1..i64::from(func.dfg.value_type(x).bits())).contains(by));
    let Some(by) = by.filter(|by| constant(func, bits).is_some_and(|bits| bits as u64 >> by == 0)) else { return };
    func.dfg.insts[inst] = InstructionData::Binary { opcode: Opcode::Iadd, args: [shifted, bits] };
    uses.know(func);
    if by == 1 && !uses.once(shifted) {
        let inst = maker(func, shifted).expect("a shift");
        func.dfg.insts[inst] = InstructionData::Binary { opcode: Opcode::Iadd, args: [x, x] };
    }
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
    redirect(func, inst, addr, off);
}

/// The same in the arena, where `base`, `x` and their sum have 32 bits, and nothing else needs `x + c`. Past an end of the
/// arena the address is another one with the constant in the offset, but nothing is mapped [there](reaches).
fn in_arena(func: &mut Function, inst: Inst, (addr, off): (Value, i32), uses: &mut Uses, places: &mut Vec<Place>) {
    let Some([arena, wide]) = binary(func, addr, Opcode::Iadd) else { return };
    let (arena, wide) = if is_arena(func, arena) { (arena, wide) } else { (wide, arena) };
    let Some(InstructionData::Unary { opcode: Opcode::Uextend, arg: low }) =
        maker(func, wide).map(|made| func.dfg.insts[made])
    else {
        return;
    };
    // The optimiser makes sums of 16 bits, too, which wrap around elsewhere.
    let whole = func.dfg.value_type(low) == I32 && is_arena(func, arena);
    let Some([a, b]) = binary(func, low, Opcode::Iadd).filter(|_| whole) else { return };
    let mut found = None;
    for (base, index) in [(a, b), (b, a)] {
        let shift = binary(func, index, Opcode::Ishl).and_then(|[sum, by]| Some((sum, constant(func, by)?)));
        let (sum, by) = shift.filter(|(_, by)| (0..=3).contains(by)).unwrap_or((index, 0));
        let parts = binary(func, sum, Opcode::Iadd).and_then(|[x, c]| Some((x, constant(func, c)? as i32)));
        let mut alone = || {
            uses.know(func);
            uses.once(index) && uses.once(sum)
        };
        match parts.filter(|_| alone()) {
            Some((x, c)) => found = Some(((base, x, by), i64::from(off) + (i64::from(c) << by))),
            None => places.push(((base, sum, by), addr)),
        }
    }
    let bytes = accessed(func, inst);
    let Some((place, off)) = found.filter(|(_, off)| reaches(*off, bytes)) else { return };
    let known = places.iter().rev().take(REMEMBERED).find(|known| known.0 == place).map(|known| known.1);
    let addr = known.unwrap_or_else(|| {
        let mut cursor = FuncCursor::new(func).at_inst(inst);
        cursor.use_srcloc(inst);
        let (base, x, by) = place;
        let index = if by > 0 { cursor.ins().ishl_imm_u(x, by) } else { x };
        let low = cursor.ins().iadd(base, index);
        let wide = cursor.ins().uextend(I64, low);
        let addr = cursor.ins().iadd(arena, wide);
        places.push((place, addr));
        addr
    });
    redirect(func, inst, addr, off as i32);
}

/// Bytes that a load or a store accesses.
fn accessed(func: &Function, inst: Inst) -> u64 {
    let dfg = &func.dfg;
    match dfg.insts[inst].opcode() {
        Opcode::Uload8 | Opcode::Sload8 | Opcode::Istore8 => 1,
        Opcode::Uload16 | Opcode::Sload16 | Opcode::Istore16 => 2,
        Opcode::Uload32 | Opcode::Sload32 | Opcode::Istore32 => 4,
        opcode if opcode.can_load() => dfg.value_type(dfg.first_result(inst)).bytes().into(),
        _ => dfg.value_type(dfg.inst_args(inst)[0]).bytes().into(),
    }
}

/// Whether this is the arena's address, which code takes from its context.
fn is_arena(func: &Function, value: Value) -> bool {
    let context = func.layout.entry_block().and_then(|entry| func.dfg.block_params(entry).first().copied());
    match maker(func, value).map(|inst| func.dfg.insts[inst]) {
        Some(InstructionData::Load { opcode: Opcode::Load, arg, offset, .. }) => {
            Some(arg) == context && i32::from(offset) == field!(arena_base)
        }
        _ => false,
    }
}

/// Has a load or a store access another address.
fn redirect(func: &mut Function, inst: Inst, addr: Value, off: i32) {
    match &mut func.dfg.insts[inst] {
        InstructionData::Load { arg, offset, .. } => (*arg, *offset) = (addr, off.into()),
        InstructionData::Store { args, offset, .. } => (args[1], *offset) = (addr, off.into()),
        _ => unreachable!("a load or a store"),
    }
}
