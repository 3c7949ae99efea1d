//! Native stack: functions with a large frame check on entry that enough of it is left.

use cranelift_codegen::ir::InstBuilder as _;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::I64;

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
        if !self.input.baseline() {
            self.store_registers(self.flow.live(self.flow.entry()));
            self.save_counts();
        }
        self.resume_here();
        self.continue_in(enough);
    }
}
