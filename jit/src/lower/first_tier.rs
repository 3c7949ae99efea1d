//! Loops in code of the first tier count their turns. After many the function hands over: the interpreter takes its frame, and
//! enters the optimiser's code at the next turn, as on-stack replacement does.
//!
//! Only loops that lie in no other one count, by the order of their instructions, so that the code stays short.

use cranelift_codegen::ir::InstBuilder as _;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::I32;

use super::{Translator, field, trusted};

impl Translator<'_> {
    /// At the start of a loop header, before it pays from the budget.
    pub(super) fn count_turn(&mut self, block: u32) {
        let turns = self.load_cx(I32, trusted(), field!(turns));
        let left = self.b.ins().iadd_imm_s(turns, -1);
        self.store_cx(left, field!(turns));
        let over = self.b.ins().icmp_imm_s(IntCC::SignedLessThan, left, 0);
        self.give_up(over, block);
    }
}
