//! Payments: additions to the instruction budget become plain sums.
//!
//! **Why here.** Cranelift's optimiser makes `x - 12` of `(x - 8) - 4`. For the budget that is a loss: `x` and `x - 8` are live at once
//! where one register would do, each side exit of a loop moves one of them to the other's place, and so is a block with a jump of its
//! own. So lowering emits an addition that the optimiser does not know (`uadd_overflow`, whose second result nothing uses).
//!
//! **Before and after.**
//!
//! ```text
//! v2, v3 = uadd_overflow v1, v4     →     v2 = iadd v1, v4
//! ```
//!
//! Constants that follow each other in a block become one.
//!
//! **Cost.** Linear, only in functions with an instruction budget.
//!
//! **Safety.** The second result has no user.

use cranelift_codegen::cursor::{Cursor as _, FuncCursor};
use cranelift_codegen::entity::SecondaryMap;
use cranelift_codegen::ir::types::I64;
use cranelift_codegen::ir::{Function, Inst, InstBuilder as _, InstructionData, Opcode, Value};

use super::super::analysis::Analyses;
use super::super::ir::{PAYMENT, constant, def_inst, each_use};
use super::super::pass::{Input, Pass, Phase};

/// The mutant that loses what was paid before a condition adds its part: counts that are wrong on some paths.
pub(crate) const MUTANT: &str = "payments_before_conditions_are_lost";

/// See the module documentation.
#[derive(Default)]
pub(in super::super) struct Payments {
    /// How often payments are used, one added.
    uses: SecondaryMap<Value, u32>,
    payments: Vec<Inst>,
    /// Whether the mistake [`MUTANT`] is switched on.
    mutant: bool,
}

impl Pass for Payments {
    const NAME: &'static str = "payments";
    const SUMMARY: &'static str = "makes plain sums of additions to the instruction budget";
    const PHASE: Phase = Phase::Post;
    const NEEDS: Analyses = Analyses::RESOLVED;
    const KEEPS: Analyses = Analyses::FLOW.union(Analyses::RESOLVED);

    fn run(&mut self, input: &mut Input<'_>) -> usize {
        self.mutant = input.mutant == MUTANT;
        if input.counted { self.lower(&mut input.context.func) } else { 0 }
    }
}

impl Payments {
    /// Returns how many payments there were.
    fn lower(&mut self, func: &mut Function) -> usize {
        self.uses.clear();
        self.payments.clear();
        for block in func.layout.blocks() {
            for inst in func.layout.block_insts(block) {
                each_use(func, inst, |_, value| self.uses[value] += 1);
                if func.dfg.insts[inst].opcode() == PAYMENT {
                    self.payments.push(inst);
                }
            }
        }
        let found = self.payments.len();
        self.remove_dead(func);
        for &inst in &self.payments {
            self.join(func, inst);
        }
        found
    }

    /// Removes payments that nothing uses, each after those that it is used by.
    fn remove_dead(&mut self, func: &mut Function) {
        let Payments { uses, payments, .. } = self;
        payments.reverse();
        payments.retain(|inst| {
            let used = uses[func.dfg.first_result(*inst)] > 0;
            if !used {
                each_use(func, *inst, |_, value| uses[value] -= 1);
                func.layout.remove_inst(*inst);
            }
            used
        });
        payments.reverse();
    }

    /// Makes a sum of a payment. If the one before is a constant that is used by it alone, that is added last.
    fn join(&self, func: &mut Function, inst: Inst) {
        let InstructionData::Binary { args: [mut base, term], .. } = func.dfg.insts[inst] else {
            unreachable!("payments have two operands")
        };
        let mut sum = constant(func, term).unwrap_or(0);
        let before = def_inst(func, base)
            .filter(|before| self.uses[base] == 1 && func.layout.inst_block(*before) == func.layout.inst_block(inst));
        if let Some(before) = before
            && let InstructionData::Binary { opcode: Opcode::Isub, args } = func.dfg.insts[before]
            && let Some(paid) = constant(func, args[1])
        {
            let lost = self.mutant && constant(func, term).is_none();
            (base, sum) = (args[0], sum.wrapping_sub(if lost { 0 } else { paid }));
            func.layout.remove_inst(before);
        }
        let mut cursor = FuncCursor::new(func).at_inst(inst);
        cursor.use_srcloc(inst);
        let varies = constant(cursor.func, term).is_none();
        let (opcode, args) = if varies && sum == 0 {
            (Opcode::Iadd, [base, term])
        } else {
            if varies {
                base = cursor.ins().iadd(base, term);
            }
            // A sum of sums would be computed by one instruction from the first term, which then stays alive.
            (Opcode::Isub, [base, cursor.ins().iconst(I64, sum.wrapping_neg())])
        };
        let value = func.dfg.first_result(inst);
        func.dfg.clear_results(inst);
        func.dfg.insts[inst] = InstructionData::Binary { opcode, args };
        func.dfg.make_inst_results_reusing(inst, I64, [Some(value)].into_iter());
    }
}
