//! Immediate operands of a function that is optimised: each is made once, in the first block, as long as it is remembered.
//!
//! Cranelift's optimiser puts constants where they are used, so it does not matter where they are made. But each costs it
//! as much as any other instruction, and a quarter of a function's would be these. The rest of the compiler leaves them
//! where they are: without the optimiser they belong to their users.

use cranelift_codegen::cursor::{Cursor as _, FuncCursor};
use cranelift_codegen::ir::types::{I32, I64};
use cranelift_codegen::ir::{Function, Inst, InstBuilder as _, Value};
use cranelift_codegen::packed_option::PackedOption;
use twinbpf_vm::isa::Width;

/// Constants that are remembered.
const PLACES: usize = 128;

/// See the module documentation.
pub(super) struct Constants {
    /// The end of the first block.
    end: PackedOption<Inst>,
    /// By [`place`].
    known: [(Width, i32, PackedOption<Value>); PLACES],
}

impl Default for Constants {
    fn default() -> Constants {
        Constants { end: None.into(), known: [(Width::W64, 0, PackedOption::default()); PLACES] }
    }
}

/// Where a constant is remembered. Many are small, or addresses in a frame.
fn place(width: Width, imm: i32) -> usize {
    let high = (imm as u32).wrapping_mul(0x9e37_79b1) >> 26;
    high as usize * 2 + usize::from(width == Width::W32)
}

impl Constants {
    /// Begins with a function whose first block ends with this instruction.
    pub(super) fn start(&mut self, end: Inst) {
        *self = Constants { end: end.into(), ..Constants::default() };
    }

    /// An immediate operand of an instruction of this width.
    pub(super) fn get(&mut self, func: &mut Function, width: Width, imm: i32) -> Value {
        let known = &mut self.known[place(width, imm)];
        if let Some(value) = known.2.expand().filter(|_| (known.0, known.1) == (width, imm)) {
            return value;
        }
        let mut cursor = FuncCursor::new(func).at_inst(self.end.expect("the first block comes first"));
        let value = match width {
            Width::W32 => cursor.ins().iconst(I32, i64::from(imm as u32)),
            Width::W64 => cursor.ins().iconst(I64, i64::from(imm)),
        };
        *known = (width, imm, value.into());
        value
    }
}
