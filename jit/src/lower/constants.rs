//! Immediate operands: each is made once, as long as it is remembered.
//!
//! With the optimiser that is once for the function, in its first block: Cranelift puts constants where they are used, so it does
//! not matter where they are made. Without it that is once for each block, where the first user is: a constant stays in its
//! register as long as it has users. Each costs the compiler as much as any other instruction, and a quarter of a function's
//! would be these.

use cranelift_codegen::cursor::{Cursor as _, FuncCursor};
use cranelift_codegen::ir::types::{I32, I64};
use cranelift_codegen::ir::{Inst, InstBuilder, Value};
use cranelift_codegen::packed_option::PackedOption;
use twinbpf_isa::Width;

use super::Translator;

/// Constants that are remembered.
const PLACES: usize = 128;

/// See the module documentation.
pub(super) struct Constants {
    /// The end of the first block, if constants go there.
    end: PackedOption<Inst>,
    /// Direct-mapped table, indexed by [`slot`].
    known: [Known; PLACES],
    /// What the current constants belong to: a function or a block of one.
    scope: u64,
}

#[derive(Clone, Copy)]
struct Known {
    width: Width,
    imm: i32,
    /// Where it can be used.
    scope: u64,
    value: PackedOption<Value>,
}

impl Default for Constants {
    fn default() -> Constants {
        let none = Known { width: Width::W64, imm: 0, scope: 0, value: None.into() };
        Constants { end: None.into(), known: [none; PLACES], scope: 0 }
    }
}

/// Where a constant is remembered. Many are small, or addresses in a frame.
fn slot(width: Width, imm: i32) -> usize {
    let high = (imm as u32).wrapping_mul(0x9e37_79b1) >> 26;
    high as usize * 2 + usize::from(width == Width::W32)
}

impl Constants {
    /// Begins with a function. Constants go before the end of its first block, if that is given.
    pub(super) fn start(&mut self, end: Option<Inst>) {
        self.end = end.into();
        self.scope += 1;
    }

    /// Begins with a block.
    pub(super) fn start_block(&mut self) {
        if self.end.is_none() {
            self.scope += 1;
        }
    }
}

impl Translator<'_> {
    /// An immediate operand of an instruction of this width. The current block must dominate the rest of the BPF block: later
    /// instructions of that may use the same value.
    pub(super) fn imm(&mut self, width: Width, imm: i32) -> Value {
        let known = self.constants.known[slot(width, imm)];
        if let Some(value) = known.value.expand()
            && (known.width, known.imm, known.scope) == (width, imm, self.constants.scope)
        {
            return value;
        }
        let value = match self.constants.end.expand() {
            Some(end) => iconst(FuncCursor::new(self.b.func).at_inst(end).ins(), width, imm),
            None => iconst(self.b.ins(), width, imm),
        };
        self.constants.known[slot(width, imm)] = Known { width, imm, scope: self.constants.scope, value: value.into() };
        value
    }
}

fn iconst<'f>(ins: impl InstBuilder<'f>, width: Width, imm: i32) -> Value {
    match width {
        Width::W32 => ins.iconst(I32, i64::from(imm as u32)),
        Width::W64 => ins.iconst(I64, i64::from(imm)),
    }
}
