//! Lowering of a callee in place of a call, as [`inlining`](super::inlining) has chosen.
//!
//! The callee works on the caller's variables. Its first block continues the current one; where it has more, its exits jump to a block
//! in which the caller goes on.

use cranelift_codegen::ir::{Block, InstBuilder as _, Value};
use cranelift_codegen::packed_option::PackedOption;
use twinbpf_isa::Reg;

use super::Translator;
use super::effects::{KEPT, Regs, bit};
use super::flow::InlinedCall;
use super::inlining::CALLEE_REGISTERS;
use super::subregisters::members;

/// Where the translator is while it lowers a callee.
#[derive(Clone, Copy, Debug)]
pub(super) struct Inside {
    /// Flat pc of the call.
    pub(super) call: u32,
    /// Where exits lead, if there are blocks.
    done: Option<Block>,
}

impl Translator<'_> {
    /// Lowers the callee in place of a call.
    pub(super) fn inline(&mut self, call: InlinedCall) -> bool {
        self.mark_here();
        let (frame, subregs) = (self.checked_frame(), self.subregs);
        let callee = &self.inlining.callees[call.callee];
        let blocks = (0..callee.flow.len()).filter(|block| callee.flow.preds(*block) > 0).count();
        let branches = (blocks > 1).then(|| (self.pointers.clone(), self.guards.clone(), self.b.create_block()));
        let kept: Regs = if self.input.mutant == CALLEE_REGISTERS { 0 } else { callee.defs & KEPT };
        let kept: Vec<(usize, Value)> = members(kept).map(|reg| (reg, self.use_reg(reg))).collect();
        self.lower_callee(call, branches.as_ref().map(|(.., done)| *done));
        if let Some((pointers, guards, done)) = branches {
            self.continue_in(done);
            (self.pointers, self.guards) = (pointers, guards);
        }
        let value = self.use_reg(0);
        // What is known of registers refers to the variables as they were.
        self.subregs = subregs;
        kept.into_iter().for_each(|(reg, value)| self.def_reg(reg, value));
        self.callee_frame = Some(frame);
        self.set(Reg::R0, value);
        self.after_call()
    }

    /// Lowers the blocks of a callee.
    fn lower_callee(&mut self, call: InlinedCall, done: Option<Block>) {
        let flow = &self.inlining.callees[call.callee].flow;
        let outer =
            (std::mem::replace(&mut self.flow, flow), self.block, self.inside.replace(Inside { call: call.pc, done }));
        let entry = flow.entry();
        let mut pending: Vec<u32> = (0..flow.len()).map(|block| flow.preds(block)).collect();
        let block = |block: u32| (block != entry && flow.preds(block) > 0).then(|| self.b.create_block());
        let mut blocks: Vec<PackedOption<Block>> = (0..flow.len()).map(block).map(PackedOption::from).collect();
        std::mem::swap(self.pending, &mut pending);
        std::mem::swap(self.blocks, &mut blocks);
        self.block = entry;
        self.instructions();
        (0..flow.len()).for_each(|block| self.block(block));
        std::mem::swap(self.pending, &mut pending);
        std::mem::swap(self.blocks, &mut blocks);
        (self.flow, self.block, self.inside) = outer;
        self.at(call.pc);
    }

    /// An exit of the callee: the caller goes on.
    pub(super) fn leave_callee(&mut self, inside: Inside) -> bool {
        self.materialize(bit(Reg::R0));
        if let Some(done) = inside.done {
            self.b.ins().jump(done, &[]);
        }
        true
    }
}
