//! Address-mode folding: constants of an index move into the offset of the access, and small indexes into its address.
//!
//! **Why here.** Cranelift folds a constant that is added last. In `base + ((x + c) << k)` it is not, and in the sandbox an
//! extension to 64 bits stands between. Nothing waits for the addition then, and accesses with different constants
//! share an address. Where the base is a constant or the frame, and what else is added is small by its definition, as a
//! byte is, the sum needs no extension at all.
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
//! recovered as that of an access out of the arena. An index is small if no value of its operands makes it greater than
//! the margin.

use cranelift_codegen::cursor::{Cursor as _, FuncCursor};
use cranelift_codegen::ir::types::{I32, I64};
use cranelift_codegen::ir::{Function, Inst, InstBuilder as _, InstructionData, Opcode, Value};
use smallvec::SmallVec;
use twinbpf_vm::mem::MARGIN;

use super::super::analysis::Analyses;
use super::super::bounds::greatest;
use super::super::ir::{binary, constant, def_inst, unary};
use super::super::pass::{Input, Pass, Phase};
use super::super::uses::Uses;
use crate::context::{field, reaches};

/// Addresses of a block that are searched for one that can be used again.
const REMEMBERED: usize = 8;
/// Terms of a sum, at most.
const TERMS: usize = 4;

/// The mutant that takes every index for small.
pub(crate) const MUTANT: &str = "every_index_is_small";

/// An arena address that a block has computed: base, index and shift of its 32-bit sum, and the 64-bit address.
type Known = ((Value, Value, i64), Value);

/// See the module documentation.
#[derive(Default)]
pub(in super::super) struct AddressFolding(Uses);

impl Pass for AddressFolding {
    const NAME: &'static str = "address-folding";
    const SUMMARY: &'static str =
        "moves constants of an index into the offset of the access, and leaves out the masks of small indexes";
    const PHASE: Phase = Phase::Post;
    const NEEDS: Analyses = Analyses::empty();
    const KEEPS: Analyses = Analyses::FLOW.union(Analyses::RESOLVED);

    fn run(&mut self, input: &mut Input<'_>) -> usize {
        run(&mut input.context.func, &mut self.0, input.mutant == MUTANT)
    }
}

/// Returns how many accesses have another address. Users of values are counted only where they matter.
fn run(func: &mut Function, uses: &mut Uses, mutant: bool) -> usize {
    let mut places: Vec<Known> = Vec::new();
    let mut changes = 0;
    uses.clear();
    let mut block = func.layout.entry_block();
    while let Some(current) = block {
        places.clear();
        let mut next = func.layout.first_inst(current);
        while let Some(inst) = next {
            next = func.layout.next_inst(inst);
            changes += usize::from(address(func, inst).is_some());
            changes += usize::from(in_arena(func, inst, uses, &mut places).is_some());
            changes += usize::from(unmasked(func, inst, mutant).is_some());
        }
        block = func.layout.next_block(current);
    }
    changes
}

/// Address and offset of a load or a store.
fn place(func: &Function, inst: Inst) -> Option<(Value, i32)> {
    match func.dfg.insts[inst] {
        InstructionData::Load { arg: addr, offset, .. } | InstructionData::Store { args: [_, addr], offset, .. } => {
            Some((addr, offset.into()))
        }
        _ => None,
    }
}

/// `base + ((x + c) << k)` as an address: the constant moves into the offset, and nothing waits for the sum.
fn address(func: &mut Function, inst: Inst) -> Option<()> {
    let (addr, off) = place(func, inst)?;
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
fn in_arena(func: &mut Function, inst: Inst, uses: &mut Uses, places: &mut Vec<Known>) -> Option<()> {
    let (addr, off) = place(func, inst)?;
    let (arena, [a, b]) = masked_sum(func, addr)?;
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

/// An address in the arena that is made of a sum: the arena's, and the terms.
fn masked_sum(func: &Function, addr: Value) -> Option<(Value, [Value; 2])> {
    let [arena, wide] = binary(func, addr, Opcode::Iadd)?;
    let (arena, wide) = if is_arena(func, arena) { (arena, wide) } else { (wide, arena) };
    let low = unary(func, wide, Opcode::Uextend)?;
    // The optimiser makes sums of 16 bits, too, which wrap around elsewhere.
    let whole = func.dfg.value_type(low) == I32 && is_arena(func, arena);
    Some((arena, binary(func, low, Opcode::Iadd).filter(|_| whole)?))
}

/// Small indexes that are added to a constant or to the frame: the sum needs no extension. A constant moves into the offset.
fn unmasked(func: &mut Function, inst: Inst, mutant: bool) -> Option<()> {
    let (addr, off) = place(func, inst)?;
    let (arena, terms) = masked_sum(func, addr)?;
    let greatest = |func: &Function, value| if mutant { 0 } else { greatest(func, value) };
    let sum = Sum::of(func, terms, &greatest)?;
    let span: u64 = sum.indexes.iter().map(|index| greatest(func, *index)).sum();
    let near = |off: i64| [off, off + span as i64].iter().all(|off| reaches(*off, accessed(func, inst)));
    let (mut addr, off) = match sum.frame {
        Some(frame) => Some((frame, i64::from(sum.constant) + i64::from(off))).filter(|(_, off)| near(*off))?,
        None => near(off.into()).then_some((arena, i64::from(sum.constant as u32) + i64::from(off)))?,
    };
    let off = i32::try_from(off).ok()?;
    for index in sum.indexes {
        let index = widened(func, inst, index);
        let mut cursor = FuncCursor::new(func).at_inst(inst);
        cursor.use_srcloc(inst);
        addr = cursor.ins().iadd(addr, index);
    }
    redirect(func, inst, addr, off);
    Some(())
}

/// A sum of small indexes, a constant, and perhaps the frame pointer.
#[derive(Default)]
struct Sum {
    indexes: SmallVec<[Value; TERMS]>,
    constant: i32,
    frame: Option<Value>,
}

impl Sum {
    /// The sum of two values, if it is one of that kind and not constant.
    fn of(func: &Function, terms: [Value; 2], greatest: &impl Fn(&Function, Value) -> u64) -> Option<Sum> {
        let mut sum = Sum::default();
        let mut work = SmallVec::<[Value; TERMS]>::from_slice(&terms);
        while let Some(value) = work.pop() {
            if let Some(bits) = constant(func, value) {
                sum.constant = sum.constant.wrapping_add(bits as i32);
            } else if let Some(frame) = frame(func, value).filter(|_| sum.frame.is_none()) {
                sum.frame = Some(frame);
            } else if greatest(func, value) <= MARGIN {
                sum.indexes.push(value);
            } else {
                work.extend(binary(func, value, Opcode::Iadd)?);
            }
            if work.len() + sum.indexes.len() > TERMS {
                return None;
            }
        }
        (!sum.indexes.is_empty()).then_some(sum)
    }
}

/// The frame pointer, if a value is its low half.
fn frame(func: &Function, low: Value) -> Option<Value> {
    let fp = *func.dfg.block_params(func.layout.entry_block()?).get(1)?;
    unary(func, low, Opcode::Ireduce).filter(|wide| *wide == fp)
}

/// A small number of 32 bits as one of 64, made before an instruction.
fn widened(func: &mut Function, inst: Inst, value: Value) -> Value {
    let short = |wide: &Value| greatest(func, *wide) <= u64::from(u32::MAX);
    if let Some(wide) = unary(func, value, Opcode::Ireduce).filter(short) {
        return wide;
    }
    let scaled = binary(func, value, Opcode::Ishl).and_then(|[x, by]| Some((x, constant(func, by)?)));
    // No bit that 32 bits lose appears in 64.
    if let Some((x, by)) = scaled.filter(|(x, by)| (0..=3).contains(by) && greatest(func, *x) <= MARGIN) {
        let x = widened(func, inst, x);
        return FuncCursor::new(func).at_inst(inst).ins().ishl_imm_u(x, by);
    }
    FuncCursor::new(func).at_inst(inst).ins().uextend(I64, value)
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
