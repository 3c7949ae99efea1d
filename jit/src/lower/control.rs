//! Jumps and returns: RFC 9669 section 4.3, and the kernel's `gotol`, `gotox`, `may_goto`.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I32, I64};
use cranelift_codegen::ir::{BlockCall, InstBuilder as _, JumpTableData, Value};
use twinbpf_isa::{Cond, Operand, Reg, Width};
use twinbpf_vm::host::native::SiteKind;

use super::effects::ALL;
use super::{Translator, constant, field, reg_field};

/// How often a frame's `may_goto` falls through: `BPF_MAX_LOOPS` of the kernel.
pub(super) const MAX_LOOPS: u32 = 8 << 20;

impl Translator<'_> {
    /// Where the edge of this number leads that leaves the current block.
    fn next(&self, nth: usize) -> Option<u32> {
        self.flow.nth_next(self.block, nth)
    }

    /// Continues in the only successor of the current block.
    pub(super) fn goto(&mut self) -> bool {
        self.pay_due();
        self.jump_on()
    }

    /// The same where what is owed has been paid.
    pub(super) fn jump_on(&mut self) -> bool {
        let to = self.next(0).expect("control goes on");
        let block = self.target(to);
        self.b.ins().jump(block, &[]);
        self.linked(to);
        true
    }

    pub(super) fn branch(&mut self, (width, cond): (Width, Cond), dst: Reg, src: Operand) -> bool {
        let Some((on, to)) = self.next(0).zip(self.next(1)) else {
            // The path to this block decides it.
            return self.goto();
        };
        self.pay_due();
        let (a, b) = (self.read(width, dst), self.operand(width, src));
        let taken = self.compare(cond, a, b);
        let (then, otherwise) = (self.edge(to), self.edge(on));
        self.b.ins().brif(taken, then, &[], otherwise, &[]);
        self.pay_edge(then, to);
        self.pay_edge(otherwise, on);
        true
    }

    fn compare(&mut self, cond: Cond, a: Value, b: Value) -> Value {
        let cc = match cond {
            Cond::Set => return self.b.ins().band(a, b),
            Cond::Eq => IntCC::Equal,
            Cond::Ne => IntCC::NotEqual,
            Cond::Gt => IntCC::UnsignedGreaterThan,
            Cond::Ge => IntCC::UnsignedGreaterThanOrEqual,
            Cond::Lt => IntCC::UnsignedLessThan,
            Cond::Le => IntCC::UnsignedLessThanOrEqual,
            Cond::Sgt => IntCC::SignedGreaterThan,
            Cond::Sge => IntCC::SignedGreaterThanOrEqual,
            Cond::Slt => IntCC::SignedLessThan,
            Cond::Sle => IntCC::SignedLessThanOrEqual,
        };
        self.b.ins().icmp(cc, a, b)
    }

    /// Falls through as long as the frame's budget lasts.
    pub(super) fn may_goto(&mut self) -> bool {
        let (on, to) = self.next(0).zip(self.next(1)).expect("a branch has two edges");
        self.pay_due();
        let (taken, left, next) = (self.edge(to), self.b.create_block(), self.edge(on));
        let budget = self.use_loops();
        self.b.ins().brif(budget, left, &[], taken, &[]);
        self.pay_edge(taken, to);
        self.continue_in(left);
        let less = self.b.ins().iadd_imm_s(budget, -1);
        self.def_loops(less);
        self.b.ins().jump(next, &[]);
        self.pay_edge(next, on);
        true
    }

    /// Index of the slot at an address: far out of range if the address is no slot's.
    pub(super) fn slot(&mut self, addr: Value) -> Value {
        let slots = self.load_cx(I64, constant(), field!(slots));
        let off = self.b.ins().isub(addr, slots);
        let stride = self.input.image.arena().functions().stride();
        assert!(stride.is_power_of_two(), "slots lie {stride} bytes apart");
        self.b.ins().rotr_imm_u(off, i64::from(stride.trailing_zeros()))
    }

    /// Jumps to an instruction of this function by its address: a label, or the function's own start.
    pub(super) fn gotox(&mut self, dst: Reg) -> bool {
        self.pay_due();
        let addr = self.get(dst);
        let slot = self.slot(addr);
        let (flow, count) = (self.flow, self.flow.labels().len() as u64);
        let other = self.b.create_block();
        if count > 0 {
            let table = self.b.create_block();
            let index = self.b.ins().iadd_imm_s(slot, -i64::from(flow.first_label));
            let inside = self.b.ins().icmp_imm_u(IntCC::UnsignedLessThan, index, count as i64);
            self.b.ins().brif(inside, table, &[], other, &[]);
            self.continue_in(table);
            let index = self.b.ins().ireduce(I32, index);
            self.jump_table(index);
            flow.labels().iter().for_each(|label| self.linked(*label));
        } else {
            self.b.ins().jump(other, &[]);
        }
        self.continue_in(other);
        let own = self.input.image.function_at(self.pc as usize);
        let bad = self.b.ins().icmp_imm_u(IntCC::NotEqual, slot, own as i64);
        self.refuse_if(bad, |_| addr, SiteKind::BadJump);
        let start = self.target(0);
        self.b.ins().jump(start, &[]);
        self.linked(0);
        true
    }

    /// Jumps to one of the labels; the index is inside.
    fn jump_table(&mut self, index: Value) {
        let flow = self.flow;
        let mut calls: Vec<BlockCall> = Vec::with_capacity(flow.labels().len());
        for label in flow.labels() {
            let block = self.target(*label);
            calls.push(self.b.func.dfg.block_call(block, &[]));
        }
        let default = *calls.last().expect("at least one label");
        let table = self.b.create_jump_table(JumpTableData::new(default, &calls[..calls.len() - 1]));
        self.b.ins().br_table(index, table);
    }

    pub(super) fn exit(&mut self) -> bool {
        self.pay_due();
        match self.inside {
            Some(inside) => self.leave_callee(inside),
            None => self.return_(),
        }
    }

    /// Returns r0; what is owed has been paid.
    pub(super) fn return_(&mut self) -> bool {
        if self.input.options.fuel {
            self.save_fuel();
        }
        if self.input.options.keep_registers {
            self.store_registers(ALL);
            let fp = self.fp;
            self.store_cx(fp, reg_field(10));
        }
        let value = self.get(Reg::R0);
        self.b.ins().return_(&[value]);
        true
    }

    /// Traps if a value is not zero, and says what it was that is refused.
    pub(super) fn refuse_if(&mut self, value: Value, refused: impl FnOnce(&mut Self) -> Value, kind: SiteKind) {
        let (bad, good) = (self.b.create_block(), self.b.create_block());
        self.b.set_cold_block(bad);
        self.b.ins().brif(value, bad, &[], good, &[]);
        self.continue_in(bad);
        let refused = refused(self);
        self.store_cx(refused, field!(refused));
        let code = self.site(kind);
        self.b.ins().trap(code);
        self.continue_in(good);
    }

    /// Traps if a value is not zero.
    pub(super) fn trap_if(&mut self, value: Value, kind: SiteKind) {
        let code = self.site(kind);
        self.b.ins().trapnz(value, code);
    }
}
