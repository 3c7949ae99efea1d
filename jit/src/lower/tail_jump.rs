//! Tail calls through a known map: a jump to the program in the slot. Where the index is known too, and the slot has a program when
//! the code is made, a comparison with that is all; otherwise the program in the slot says which function it begins with.
//!
//! The machine decides about everything else: another program or none, too many tail calls.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I32, I64};
use cranelift_codegen::ir::{Block, InstBuilder as _, Value};
use twinbpf_isa::Reg;
use twinbpf_vm::host::native::MAX_TAIL_CALLS;
use twinbpf_vm::map::SlotWords;

use super::effects::REST;
use super::intrinsics::{DOUBLE_TAIL_CALLS, NEXT_SLOT, OTHER_PROGRAM};
use super::{Translator, constant, field, poison, trusted};
use crate::context::reg_field;

/// What a tail call is known to lead to.
enum Target {
    /// A slot whose word is the program's index plus 1: with this one a function begins.
    Function { slot: u64, word: i64, function: u32 },
    /// The program in any slot of a map.
    Slot { words: SlotWords, mask: u32, index: Value },
}

impl Translator<'_> {
    /// Before a tail call by the machine: jumps where that is known to be right, and goes on otherwise.
    pub(super) fn tail_jump(&mut self) {
        let Some(target) = self.known_target() else { return };
        let machine = self.b.create_block();
        self.b.set_cold_block(machine);
        let calls = self.load_cx(I32, trusted(), field!(tail_calls));
        self.or_else(IntCC::UnsignedLessThan, calls, i64::from(MAX_TAIL_CALLS), machine);
        let (function, reads_rest, known) = match target {
            Target::Function { slot, word, function } => {
                let at = self.b.ins().iconst(I64, slot as i64);
                // Others may change it at any time.
                let found = self.b.ins().load(I64, trusted(), at, 0);
                self.or_else(IntCC::Equal, found, word, machine);
                let summary = self.input.summary.of(self.input.image, self.input.options);
                let reads_rest = summary.entry_reads_rest(function);
                (self.b.ins().iconst(I64, i64::from(function)), reads_rest, Some(function))
            }
            // To look into all programs takes time.
            Target::Slot { words, mask, index } => (self.function_in_slot((&words, mask), index, machine), true, None),
        };
        let one = if self.input.mutant == DOUBLE_TAIL_CALLS { 2 } else { 1 };
        let calls = self.b.ins().iadd_imm_u(calls, one);
        self.store_cx(calls, field!(tail_calls));
        if self.input.options.fuel {
            self.save_fuel();
        }
        if reads_rest {
            for reg in (0..10).filter(|reg| REST & 1 << reg != 0) {
                let value = self.b.ins().iconst(I64, poison(reg));
                self.store_cx(value, reg_field(reg));
            }
        }
        let ctx = self.get(Reg::R1);
        if !known.is_some_and(|function| self.jump_to_local(function, ctx)) {
            let code = self.code_of(function);
            self.jump_to(code, ctx);
        }
        self.continue_in(machine);
    }

    /// Goes on where a value compares so with a number, and otherwise in another block. The verifier of emitted code takes bounds
    /// from branches of their own only.
    fn or_else(&mut self, cond: IntCC, value: Value, number: i64, other: Block) {
        let holds = self.b.ins().icmp_imm_u(cond, value, number);
        self.only_if(holds, other);
    }

    /// The same of a condition.
    pub(super) fn only_if(&mut self, holds: Value, other: Block) {
        let next = self.b.create_block();
        self.b.ins().brif(holds, next, &[], other, &[]);
        self.continue_in(next);
    }

    /// The program in the slot, if the machine has nothing more to do than to count.
    fn known_target(&mut self) -> Option<Target> {
        let image = self.input.image;
        image.frame_sizes().same()?;
        // Code for other processes does not know where maps are.
        if self.input.values.is_some() {
            return None;
        }
        let (map, index) = (self.get(Reg::R2), self.get32(Reg::R3));
        let map = self.constant(map)? as u64;
        let words = image.program_words(map)?;
        // `w3 = 1` and `r3 = 1` are constants of their own width.
        let known = self.constant(index).or_else(|| {
            let index = self.get(Reg::R3);
            self.constant(index)
        });
        let slot = known.map(|index| index as u32);
        if slot.is_some_and(|slot| slot >= words.count()) {
            return None;
        }
        let program = slot.and_then(|slot| image.map(map)?.program(slot));
        let Some((slot, program)) = slot.zip(program) else {
            return words.mask().map(|mask| Target::Slot { words, mask, index });
        };
        let mut target = program as usize;
        if self.input.mutant == OTHER_PROGRAM {
            target = target.saturating_sub(1);
        }
        let known = target < image.programs().len();
        known.then(|| Target::Function {
            slot: words.address(slot),
            word: i64::from(program) + 1,
            function: image.entry_function(target) as u32,
        })
    }

    /// The first function of the program in a slot. Where there is none, the other block continues.
    fn function_in_slot(&mut self, (words, mask): (&SlotWords, u32), index: Value, other: Block) -> Value {
        let image = self.input.image;
        let mut slot = self.b.ins().uextend(I64, index);
        if self.input.mutant == NEXT_SLOT {
            slot = self.b.ins().iadd_imm_u(slot, 1);
        }
        self.or_else(IntCC::UnsignedLessThan, slot, i64::from(words.count()), other);
        let word = self.load_slot((words, mask), slot);
        self.or_else(IntCC::UnsignedLessThanOrEqual, word, image.programs().len() as i64, other);
        // That of no program is no function.
        let function = self.load_element(image.entry_words().start, word, 2);
        let count = self.load_cx(I64, constant(), field!(slot_count));
        let inside = self.b.ins().icmp(IntCC::UnsignedLessThan, function, count);
        self.only_if(inside, other);
        function
    }

    /// The word of a slot, after a comparison with the number of slots. The mask is a bound, too: where the index is a known number,
    /// the verifier of emitted code learns nothing from that comparison.
    pub(super) fn load_slot(&mut self, (words, mask): (&SlotWords, u32), slot: Value) -> Value {
        let slot = self.b.ins().band_imm_u(slot, i64::from(mask));
        self.load_element(words.address(0), slot, 3)
    }

    /// An element of so many bytes, as a power of two, of a table at a known address.
    fn load_element(&mut self, table: u64, index: Value, log: u8) -> Value {
        let table = self.b.ins().iconst(I64, table as i64);
        let off = self.b.ins().ishl_imm_u(index, i64::from(log));
        let at = self.b.ins().iadd(table, off);
        match log {
            2 => self.b.ins().uload32(trusted(), at, 0),
            _ => self.b.ins().load(I64, trusted(), at, 0),
        }
    }
}
