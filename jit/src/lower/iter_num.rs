//! `bpf_iter_num_new`, `_next` and `_destroy` of an iterator in the frame: what `bpf_for` and `bpf_repeat` of libbpf count with.
//!
//! The iterator is two words of 4 bytes: the last number it gave, and the end. Both are 0 where it has no more numbers.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::I64;
use cranelift_codegen::ir::{InstBuilder as _, Value};
use twinbpf_isa::{Operand, Reg, Size, Width};
use twinbpf_vm::host::Intrinsic;
use twinbpf_vm::map::Errno;

use super::Translator;
use super::control::MAX_LOOPS;
use super::intrinsics::{ANY_RANGE, LONG_ITERATORS};

/// Bytes of an iterator.
const ITERATOR: i32 = 8;

impl Translator<'_> {
    /// A call with an iterator that is known to be in the frame.
    pub(super) fn iter_num(&mut self, host: u32) -> Option<bool> {
        let meaning = self.meaning(host)?;
        if !matches!(meaning, Intrinsic::IterNumNew | Intrinsic::IterNumNext | Intrinsic::IterNumDestroy) {
            return None;
        }
        let at = self.frame_offset(Reg::R1, ITERATOR)?;
        let result = match meaning {
            Intrinsic::IterNumNew => self.iter_num_new(at),
            Intrinsic::IterNumNext => self.iter_num_next(at),
            _ => {
                let zero = self.imm(Width::W32, 0);
                self.put_iterator(at, (zero, zero));
                self.imm(Width::W64, 0)
            }
        };
        self.set(Reg::R0, result);
        Some(self.after_call())
    }

    /// From r2 to r3, which is not among them: an empty iterator and an error where that is no range or too long a one.
    fn iter_num_new(&mut self, at: i16) -> Value {
        let (start, end) = (self.get32(Reg::R2), self.get32(Reg::R3));
        let [first, past] = [start, end].map(|number| self.b.ins().sextend(I64, number));
        let numbers = self.b.ins().isub(past, first);
        let limit = if self.input.mutant == ANY_RANGE { i64::from(u32::MAX) } else { i64::from(MAX_LOOPS) };
        let fits = self.b.ins().icmp_imm_u(IntCC::UnsignedLessThanOrEqual, numbers, limit);
        let last = self.b.ins().iadd_imm_s(start, -1);
        self.put_iterator_if(fits, at, (last, end));
        let backwards = self.b.ins().icmp_imm_s(IntCC::SignedLessThan, numbers, 0);
        let [invalid, too_many] = [Errno::EINVAL, Errno::E2BIG].map(|error| error.to_r0() as i64);
        let (invalid, too_many) = (self.b.ins().iconst(I64, invalid), self.b.ins().iconst(I64, too_many));
        let error = self.b.ins().select(backwards, invalid, too_many);
        let success = self.imm(Width::W64, 0);
        self.b.ins().select(fits, success, error)
    }

    /// The address of the next number, which is the iterator's own, or null.
    fn iter_num_next(&mut self, at: i16) -> Value {
        let [last, end] = [at, at + 4].map(|at| {
            self.load(Size::W, false, Reg::R0, (Reg::FP, at));
            self.get32(Reg::R0)
        });
        let number = self.b.ins().iadd_imm_s(last, 1);
        let less =
            if self.input.mutant == LONG_ITERATORS { IntCC::SignedLessThanOrEqual } else { IntCC::SignedLessThan };
        let more = self.b.ins().icmp(less, number, end);
        self.put_iterator_if(more, at, (number, end));
        let (iterator, null) = (self.get(Reg::R1), self.imm(Width::W64, 0));
        self.b.ins().select(more, iterator, null)
    }

    /// Stores an iterator, or an empty one.
    fn put_iterator_if(&mut self, condition: Value, at: i16, (last, end): (Value, Value)) {
        let zero = self.imm(Width::W32, 0);
        let [last, end] = [last, end].map(|word| self.b.ins().select(condition, word, zero));
        self.put_iterator(at, (last, end));
    }

    fn put_iterator(&mut self, at: i16, (last, end): (Value, Value)) {
        for (word, at) in [(last, at), (end, at + 4)] {
            self.set32(Reg::R0, word);
            self.store(Size::W, (Reg::FP, at), Operand::Reg(Reg::R0));
        }
    }
}
