//! Address-mode folding: constants of an index move into the offset of the access.
//!
//! **Why here.** Cranelift folds a constant that is added last. In `base + ((x + c) << k)` it is not, and in the sandbox an
//! extension to 64 bits stands between. Nothing waits for the addition then, and accesses with different constants
//! share an address.
//!
//! **Before and after.**
//!
//! ```text
//! v2 = iadd_imm v1, 1                     v3 = ishl_imm v1, 3
//! v3 = ishl_imm v2, 3               →     v4 = iadd v0, v3
//! v4 = iadd v0, v3                        v5 = load.i64 v4+8
//! v5 = load.i64 v4
//! ```
//!
//! **Cost.** Linear: of the addresses of a block the last [`REMEMBERED`] are searched.
//!
//! **Safety.** Without an extension the sum is the same modulo 2^64. With one, the sum may pass an end of the arena where before it
//! wrapped around: nothing is mapped within [the margin](reaches), the width of the access included, and the fault is
//! recovered as that of an access out of the arena.

use cranelift_codegen::cursor::{Cursor as _, FuncCursor};
use cranelift_codegen::ir::types::{I32, I64};
use cranelift_codegen::ir::{Function, Inst, InstBuilder as _, InstructionData, Opcode, Value};

use super::super::analysis::Analyses;
use super::super::ir::{binary, constant, def_inst};
use super::super::pass::{Input, Pass, Phase};
use super::super::uses::Uses;
use crate::context::{field, reaches};

/// Addresses of a block that are searched for one that can be used again.
const REMEMBERED: usize = 8;

/// An arena address that a block has computed: base, index and shift of its 32-bit sum, and the 64-bit address.
type Known = ((Value, Value, i64), Value);

/// See the module documentation.
#[derive(Default)]
pub(in super::super) struct AddressFolding(Uses);

impl Pass for AddressFolding {
    const NAME: &'static str = "address-folding";
    const SUMMARY: &'static str = "moves constants of an index into the offset of the access";
    const PHASE: Phase = Phase::Post;
    const NEEDS: Analyses = Analyses::empty();
    const KEEPS: Analyses = Analyses::FLOW.union(Analyses::RESOLVED);

    fn run(&mut self, input: &mut Input<'_>) -> usize {
        run(&mut input.context.func, &mut self.0)
    }
}

/// Returns how many accesses have another address. Users of values are counted only where they matter.
fn run(func: &mut Function, uses: &mut Uses) -> usize {
    let mut places: Vec<Known> = Vec::new();
    let mut changes = 0;
    uses.clear();
    let mut block = func.layout.entry_block();
    while let Some(current) = block {
        places.clear();
        let mut next = func.layout.first_inst(current);
        while let Some(inst) = next {
            next = func.layout.next_inst(inst);
            let (InstructionData::Load { arg: addr, offset, .. }
            | InstructionData::Store { args: [_, addr], offset, .. }) = func.dfg.insts[inst]
            else {
                continue;
            };
            changes += usize::from(address(func, inst, addr, offset.into()).is_some());
            changes += usize::from(in_arena(func, inst, (addr, offset.into()), uses, &mut places).is_some());
        }
        block = func.layout.next_block(current);
    }
    changes
}

/// `base + ((x + c) << k)` as an address: the constant moves into the offset, and nothing waits for the sum.
fn address(func: &mut Function, inst: Inst, addr: Value, off: i32) -> Option<()> {
    let [a, b] = binary(func, addr, Opcode::Iadd)?;
    let found = [(a, b), (b, a)].into_iter().find_map(|(base, index)| {
        let [sum, shift] = binary(func, index, Opcode::Ishl)?;
        let shift = constant(func, shift).filter(|shift| (0..=3).contains(shift))?;
        let [x, c] = binary(func, sum, Opcode::Iadd)?;
        let moved = constant(func, c)?.checked_mul(1 << shift)?.checked_add(off.into())?;
        Some((base, x, shift, i32::try_from(moved).ok()?))
    });
    let (base, x, shift, off) = found?;
    let mut cursor = FuncCursor::new(func).at_inst(inst);
    cursor.use_srcloc(inst);
    let index = cursor.ins().ishl_imm_u(x, shift);
    let addr = cursor.ins().iadd(base, index);
    redirect(func, inst, addr, off);
    Some(())
}

/// The same in the arena, where `base`, `x` and their sum have 32 bits, and nothing else needs `x + c`. Past an end of the
/// arena the address is another one with the constant in the offset, but nothing is mapped [there](reaches).
fn in_arena(
    func: &mut Function,
    inst: Inst,
    (addr, off): (Value, i32),
    uses: &mut Uses,
    places: &mut Vec<Known>,
) -> Option<()> {
    let [arena, wide] = binary(func, addr, Opcode::Iadd)?;
    let (arena, wide) = if is_arena(func, arena) { (arena, wide) } else { (wide, arena) };
    let Some(InstructionData::Unary { opcode: Opcode::Uextend, arg: low }) =
        def_inst(func, wide).map(|made| func.dfg.insts[made])
    else {
        return None;
    };
    // The optimiser makes sums of 16 bits, too, which wrap around elsewhere.
    let whole = func.dfg.value_type(low) == I32 && is_arena(func, arena);
    let [a, b] = binary(func, low, Opcode::Iadd).filter(|_| whole)?;
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
    let (place, off) = found.filter(|(_, off)| reaches(*off, bytes))?;
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
    Some(())
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
    match def_inst(func, value).map(|inst| func.dfg.insts[inst]) {
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
