//! BPF registers and their 32-bit subregisters while a block is lowered: 64-bit registers are variables, subregisters are
//! values remembered beside them.
//!
//! A 32-bit operation zero-extends its result, and mostly another 32-bit operation is its only user. So the extension is
//! deferred until a 64-bit use or the end of the block, and a known subregister is not truncated from its register again.
//! Likewise the addition of a constant is deferred: loads and stores have it in their offset, and are mostly its only
//! users. Cranelift's mid-end finds the same, but at a multiple of the price.

use cranelift_codegen::ir::types::{I32, I64};
use cranelift_codegen::ir::{InstBuilder as _, InstructionData, Opcode, Value};
use twinbpf_isa::Reg;

use super::effects::{ALL, Regs, bit};
use super::{Translator, reg_field};
use crate::options::OptLevel;

/// What is known of registers in the current block. At its start that is nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Subregisters {
    /// Low halves of r0 to r9, as 32-bit values.
    low: [Option<Value>; 10],
    /// Registers whose variable is out of date: they are their low half, extended.
    owed: Regs,
    /// Values, and what is to be added to each.
    sums: [Option<(Value, i32)>; 10],
    /// Registers whose variable is out of date: they are their sum.
    owed_sums: Regs,
}

impl Translator<'_> {
    pub(super) fn get(&mut self, reg: Reg) -> Value {
        if reg == Reg::FP { self.fp } else { self.whole(reg.index()) }
    }

    pub(super) fn get32(&mut self, reg: Reg) -> Value {
        if let Some(Some(low)) = self.subregs.low.get(reg.index()) {
            return *low;
        }
        let value = self.get(reg);
        let low = self.low_of(value).unwrap_or_else(|| self.b.ins().ireduce(I32, value));
        if let Some(known) = self.subregs.low.get_mut(reg.index()) {
            *known = Some(low);
        }
        low
    }

    /// A register is about to get a new value.
    fn forget(&mut self, reg: Reg) {
        debug_assert!(bit(reg) != 0, "validated: r10 is never written");
        self.subregs.owed &= !bit(reg);
        self.subregs.owed_sums &= !bit(reg);
        self.subregs.low[reg.index()] = None;
    }

    pub(super) fn set(&mut self, reg: Reg, value: Value) {
        self.forget(reg);
        self.def_reg(reg.index(), value);
    }

    /// Sets a register to a low half and zeros.
    pub(super) fn set32(&mut self, reg: Reg, low: Value) {
        self.forget(reg);
        self.subregs.owed |= bit(reg);
        self.subregs.low[reg.index()] = Some(low);
    }

    /// What a register is the sum of.
    pub(super) fn terms(&mut self, reg: Reg) -> (Value, i32) {
        match self.subregs.sums.get(reg.index()) {
            Some(Some(terms)) if self.subregs.owed_sums & bit(reg) != 0 => *terms,
            _ => {
                let value = self.get(reg);
                self.sum_of(value).unwrap_or((value, 0))
            }
        }
    }

    /// The 32-bit value that a value is the extension of.
    fn low_of(&self, value: Value) -> Option<Value> {
        match self.definition(value)? {
            InstructionData::Unary { opcode: Opcode::Uextend, arg } => {
                (self.b.func.dfg.value_type(arg) == I32).then_some(arg)
            }
            _ => None,
        }
    }

    /// The terms of a value that another block has made a sum with a constant, as each copy of an unrolled loop does with the sum of the one
    /// before. Only with the optimiser, which would put the constants together at a multiple of the price.
    fn sum_of(&self, value: Value) -> Option<(Value, i32)> {
        let InstructionData::Binary { opcode: Opcode::Iadd, args } = self.definition(value)? else { return None };
        let imm = i32::try_from(self.constant(args[1])?).ok()?;
        (self.input.options.opt == OptLevel::Speed).then_some((args[0], imm))
    }

    /// Sets a register to another one, or itself, and a constant. False if the constants are too much together.
    pub(super) fn set_sum(&mut self, dst: Reg, src: Reg, imm: i32) -> bool {
        let (value, term) = self.terms(src);
        let Some(sum) = term.checked_add(imm) else { return false };
        self.forget(dst);
        self.subregs.sums[dst.index()] = Some((value, sum));
        self.subregs.owed_sums |= bit(dst);
        true
    }

    fn whole(&mut self, reg: usize) -> Value {
        self.materialize(1 << reg);
        self.use_reg(reg)
    }

    /// Materializes the pending 64-bit values of these registers, before control leaves the block.
    pub(super) fn materialize(&mut self, regs: Regs) {
        let owed = self.subregs.owed & regs;
        self.subregs.owed &= !owed;
        for reg in members(owed) {
            let low = self.subregs.low[reg].expect("only a known half is owed for");
            let value = self.b.ins().uextend(I64, low);
            self.def_reg(reg, value);
        }
        let owed = self.subregs.owed_sums & regs;
        self.subregs.owed_sums &= !owed;
        for reg in members(owed) {
            let (value, imm) = self.subregs.sums[reg].expect("only a noted sum is owed");
            let value = if imm == 0 { value } else { self.plus(value, imm) };
            self.def_reg(reg, value);
        }
    }

    /// The same for what is live after the current block.
    pub(super) fn materialize_live(&mut self) {
        if self.subregs.owed | self.subregs.owed_sums != 0 {
            let mut live = 0;
            self.flow.for_next(self.block, |next| live |= self.flow.live(next));
            self.materialize(live);
        }
    }

    /// Stores registers to the VM context, where the interpreter and other functions find them.
    pub(super) fn store_registers(&mut self, regs: Regs) {
        for reg in members(regs) {
            let value = self.whole(reg);
            self.store_cx(value, reg_field(reg));
        }
    }
}

/// The registers of a set, but r10.
pub(super) fn members(regs: Regs) -> impl Iterator<Item = usize> {
    let mut rest = regs & ALL;
    std::iter::from_fn(move || {
        let reg = rest.trailing_zeros() as usize;
        rest &= rest.checked_sub(1)?;
        Some(reg)
    })
}
