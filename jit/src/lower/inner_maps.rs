//! Look-ups in maps of maps. An array of maps has the handles of its inner maps side by side. Which map a handle means is not known
//! when the code is made, but where the values of each array are is in a table by handle
//! ([`ArrayTable`](twinbpf_vm::map::ArrayTable)).
//!
//! That table holds for all that a program takes for a map. What has no entry there, or fewer values, is looked up by the helper:
//! maps of other kinds, and what is no map.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::I64;
use cranelift_codegen::ir::{Block, BlockArg, InstBuilder as _, Value};
use twinbpf_isa::{Reg, Size};
use twinbpf_vm::host::Intrinsic;

use super::call::ARG_REGS;
use super::intrinsics::{HANDLE, INDEX, LONGER_INNER, NEXT_INNER, OTHER_ARRAY};
use super::{Translator, trusted};

impl Translator<'_> {
    /// A look-up in a map that is known to be an array of maps: the handle of the inner map, or null.
    pub(super) fn inner_map(&mut self, host: u32) -> Option<bool> {
        self.meaning(host).filter(|meaning| *meaning == Intrinsic::MapLookup)?;
        let map = self.known_handle()?;
        let words = self.input.image.inner_words(map)?;
        let mask = words.mask()?;
        let key = self.frame_offset(Reg::R2, INDEX)?;
        let mut index = self.index_at(key);
        if self.input.mutant == NEXT_INNER {
            index = self.b.ins().iadd_imm_u(index, 1);
        }
        let (inside, done) = (self.b.create_block(), self.b.create_block());
        let found = self.b.append_block_param(done, I64);
        let null = self.b.ins().iconst(I64, 0);
        let fits = self.b.ins().icmp_imm_u(IntCC::UnsignedLessThan, index, i64::from(words.count()));
        self.b.ins().brif(fits, inside, &[], done, &[BlockArg::Value(null)]);
        self.continue_in(inside);
        let handle = self.load_slot((&words, mask), index);
        Some(self.found(handle, done, found))
    }

    /// A look-up in what may be an inner map that is an array: the address of the value, or what the helper gives.
    pub(super) fn value_of_unknown(&mut self, host: u32) -> Option<bool> {
        self.meaning(host).filter(|meaning| *meaning == Intrinsic::MapLookup)?;
        if self.known_handle().is_some() {
            return None;
        }
        let table = self.input.image.array_table()?;
        let key = self.frame_offset(Reg::R2, INDEX)?;
        let index = self.index_at(key);
        let (helper, done) = (self.b.create_block(), self.b.create_block());
        self.b.set_cold_block(helper);
        let found = self.b.append_block_param(done, I64);
        let map = self.get(Reg::R1);
        let mut off = self.b.ins().iadd_imm_s(map, (table.first_handle() as i64).wrapping_neg());
        if self.input.mutant == OTHER_ARRAY {
            off = self.b.ins().iadd_imm_u(off, HANDLE as i64);
        }
        // A mask is a bound for what is loaded, so that no load waits for a branch.
        let entry = self.b.ins().band_imm_u(off, table.mask() as i64);
        let is_handle = self.b.ins().icmp(IntCC::Equal, entry, off);
        self.only_if(is_handle, helper);
        let start = self.b.ins().iconst(I64, table.range().start as i64);
        let entry = self.b.ins().iadd(start, entry);
        let mut count = self.b.ins().uload32(trusted(), entry, 12);
        if self.input.mutant == LONGER_INNER {
            count = self.b.ins().iadd_imm_u(count, 1);
        }
        let inside = self.b.ins().icmp(IntCC::UnsignedLessThan, index, count);
        self.only_if(inside, helper);
        let stride = self.b.ins().uload32(trusted(), entry, 8);
        let first = self.b.ins().load(I64, trusted(), entry, 0);
        let value = self.b.ins().imul(index, stride);
        let value = self.b.ins().iadd(first, value);
        self.b.ins().jump(done, &[BlockArg::Value(value)]);
        self.continue_in(helper);
        let (code, params) = self.host_code(host);
        let value = self.thunk_value(code, &ARG_REGS[..params]);
        Some(self.found(value, done, found))
    }

    /// The key of an array in the frame.
    fn index_at(&mut self, key: i16) -> Value {
        self.load(Size::W, false, Reg::R0, (Reg::FP, key));
        self.get(Reg::R0)
    }

    /// Ends a look-up with a value for r0, which `found` is where all ways meet.
    fn found(&mut self, value: Value, done: Block, found: Value) -> bool {
        self.b.ins().jump(done, &[BlockArg::Value(value)]);
        self.continue_in(done);
        self.set(Reg::R0, found);
        self.after_call()
    }
}
