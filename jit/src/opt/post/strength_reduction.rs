//! Strength reduction: cheaper instructions of the same meaning.
//!
//! **Why here.** Cranelift multiplies by a constant with `imul`, and leaves `or` where `lea` would do.
//!
//! **Before and after.**
//!
//! ```text
//! v2 = imul_imm v1, 9               →     v3 = ishl_imm v1, 3; v2 = iadd v1, v3
//! v3 = ishl_imm v1, 4; v2 = bor_imm v3, 7 →  v2 = iadd_imm v3, 7
//! v3 = icmp ule v1, v2; select v3   →     v3 = icmp uge v2, v1: one flag instead of two
//! ```
//!
//! **Cost.** Linear.
//!
//! **Safety.** Identities modulo the width of the type.

use cranelift_codegen::cursor::{Cursor as _, FuncCursor};
use cranelift_codegen::ir::condcodes::{CondCode as _, IntCC};
use cranelift_codegen::ir::{Function, Inst, InstBuilder as _, InstructionData, Opcode, Value};

use super::super::analysis::Analyses;
use super::super::analysis::uses::Uses;
use super::super::ir::{binary, constant, def_inst};
use super::super::pass::{Input, Pass, Phase};

/// See the module documentation.
#[derive(Default)]
pub(in super::super) struct StrengthReduction;

impl Pass for StrengthReduction {
    const NAME: &'static str = "strength-reduction";
    const SUMMARY: &'static str = "replaces multiplications and unions by shifts and sums";
    const PHASE: Phase = Phase::Post;
    const NEEDS: Analyses = Analyses::empty();
    const KEEPS: Analyses = Analyses::FLOW.union(Analyses::RESOLVED);

    fn run(&mut self, input: &mut Input<'_>) -> usize {
        run(&mut input.context.func, &mut input.analysis.uses)
    }
}

/// Returns how many instructions are replaced. Users of values are counted only where they matter.
fn run(func: &mut Function, uses: &mut Uses) -> usize {
    let mut changes = 0;
    uses.clear();
    let mut block = func.layout.entry_block();
    while let Some(current) = block {
        let mut next = func.layout.first_inst(current);
        while let Some(inst) = next {
            next = func.layout.next_inst(inst);
            let changed = match func.dfg.insts[inst] {
                InstructionData::Binary { opcode: Opcode::Imul, args } => multiply(func, inst, args),
                InstructionData::Binary { opcode: Opcode::Bor, args } => union(func, inst, args, uses),
                InstructionData::Ternary { opcode: Opcode::Select, args } => select(func, args[0]),
                _ => None,
            };
            changes += usize::from(changed.is_some());
        }
        block = func.layout.next_block(current);
    }
    changes
}

/// A multiplication takes three cycles; by 2^n + 1 or 2^n - 1, shift and sum take two, and one by 3, 5, 9.
fn multiply(func: &mut Function, inst: Inst, [x, by]: [Value; 2]) -> Option<()> {
    let (by, bits) = (constant(func, by)? as u64, func.dfg.value_type(x).bits());
    // All ones, which is -1, are no power of two less one: that has no room in the type.
    let power = |power: Option<u64>| {
        power.filter(|power| power.is_power_of_two() && power.trailing_zeros() < bits).map(u64::trailing_zeros)
    };
    let (opcode, shift, shifted_first) = match (by, power(by.checked_sub(1)), power(by.checked_add(1))) {
        (3 | 5 | 9, Some(shift), _) => (Opcode::Iadd, shift, false),
        (10.., Some(shift), _) => (Opcode::Iadd, shift, true),
        (4.., _, Some(shift)) => (Opcode::Isub, shift, true),
        _ => return None,
    };
    let mut cursor = FuncCursor::new(func).at_inst(inst);
    cursor.use_srcloc(inst);
    let shifted = cursor.ins().ishl_imm_u(x, i64::from(shift));
    let args = if shifted_first { [shifted, x] } else { [x, shifted] };
    func.dfg.insts[inst] = InstructionData::Binary { opcode, args };
    Some(())
}

/// `x << n | c` is a sum if the shift leaves room for `c`: x86-64 puts sums, and `x + x` for `x << 1`, where they belong,
/// and leaves what they are made of in its place.
fn union(func: &mut Function, inst: Inst, [shifted, bits]: [Value; 2], uses: &mut Uses) -> Option<()> {
    let [x, by] = binary(func, shifted, Opcode::Ishl)?;
    let by = constant(func, by).filter(|by| (1..i64::from(func.dfg.value_type(x).bits())).contains(by));
    let by = by.filter(|by| constant(func, bits).is_some_and(|bits| bits as u64 >> by == 0))?;
    func.dfg.insts[inst] = InstructionData::Binary { opcode: Opcode::Iadd, args: [shifted, bits] };
    uses.know(func);
    if by == 1 && !uses.once(shifted) {
        let inst = def_inst(func, shifted).expect("a shift");
        func.dfg.insts[inst] = InstructionData::Binary { opcode: Opcode::Iadd, args: [x, x] };
    }
    Some(())
}

/// `a <= b` tests two flags, `b >= a` one; a conditional move takes a cycle more for two.
fn select(func: &mut Function, cond: Value) -> Option<()> {
    let compare = def_inst(func, cond)?;
    let InstructionData::IntCompare { opcode, args, cond } = func.dfg.insts[compare] else { return None };
    let two = matches!(cond, IntCC::UnsignedGreaterThan | IntCC::UnsignedLessThanOrEqual);
    if !two || constant(func, args[1]).is_some() {
        return None;
    }
    let args = [args[1], args[0]];
    func.dfg.insts[compare] = InstructionData::IntCompare { opcode, args, cond: cond.swap_args() };
    Some(())
}
