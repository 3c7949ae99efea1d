//! Native stack: functions with a large frame check on entry that enough of it is left.

use cranelift_codegen::ir::InstBuilder as _;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::I64;

use super::control::MAX_LOOPS;
use super::{Translator, constant, field};

impl Translator<'_> {
    /// Where the frame begins below the limit, the interpreter runs the function from here on.
    pub(super) fn check_stack(&mut self) {
        let frame = self.b.ins().get_frame_pointer(I64);
        let limit = self.load_cx(I64, constant(), field!(native_limit));
        let low = self.b.ins().icmp(IntCC::UnsignedLessThan, frame, limit);
        let (cold, enough) = (self.b.create_block(), self.b.create_block());
        self.b.set_cold_block(cold);
        self.b.ins().brif(low, cold, &[], enough, &[]);
        self.continue_in(cold);
        self.store_registers(self.flow.live(self.flow.entry()));
        self.save_loops();
        if self.input.options.fuel {
            self.save_fuel();
        }
        let pc = self.b.ins().iconst(I64, i64::from(self.pc));
        self.resume_at(pc);
        self.continue_in(enough);
    }

    /// Leaves the budget of `may_goto` for the interpreter.
    pub(super) fn save_loops(&mut self) {
        let loops = match self.flow.loops {
            true => self.use_loops(),
            false => self.b.ins().iconst(I64, i64::from(MAX_LOOPS)),
        };
        self.store_cx(loops, field!(loops));
    }
}
