//! Tail calls with a known map and index: a comparison of the slot with the program that is there now, and a jump.
//!
//! The machine decides about everything else: another program or none, too many tail calls.

use cranelift_codegen::ir::InstBuilder as _;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I32, I64};
use twinbpf_isa::Reg;
use twinbpf_vm::host::native::MAX_TAIL_CALLS;

use super::effects::REST;
use super::intrinsics::{DOUBLE_TAIL_CALLS, OTHER_PROGRAM};
use super::{Translator, constant, field, poison, trusted};
use crate::context::reg_field;

/// What a tail call is known to lead to.
struct Known {
    /// Where in this process the slot keeps its program.
    slot: u64,
    /// The word in the slot when the code is made: the program's index plus 1.
    word: i64,
    /// The program's first function.
    function: u32,
}

impl Translator<'_> {
    /// Before a tail call by the machine: jumps where that is known to be right, and goes on otherwise.
    pub(super) fn tail_jump(&mut self) {
        let Some(known) = self.known_target() else { return };
        let at = self.b.ins().iconst(I64, known.slot as i64);
        // Others may change it at any time.
        let word = self.b.ins().load(I64, trusted(), at, 0);
        let same = self.b.ins().icmp_imm_u(IntCC::Equal, word, known.word);
        let calls = self.load_cx(I32, trusted(), field!(tail_calls));
        let few = self.b.ins().icmp_imm_u(IntCC::UnsignedLessThan, calls, i64::from(MAX_TAIL_CALLS));
        let both = self.b.ins().band(same, few);
        let (jump, machine) = (self.b.create_block(), self.b.create_block());
        self.b.set_cold_block(machine);
        self.b.ins().brif(both, jump, &[], machine, &[]);
        self.continue_in(jump);
        let one = if self.input.mutant == DOUBLE_TAIL_CALLS { 2 } else { 1 };
        let calls = self.b.ins().iadd_imm_u(calls, one);
        self.store_cx(calls, field!(tail_calls));
        if self.input.options.fuel {
            self.save_fuel();
        }
        self.enter_program(known.function);
        self.continue_in(machine);
    }

    /// The program in the slot, if the machine has nothing more to do than to count.
    fn known_target(&mut self) -> Option<Known> {
        if self.input.values.is_some() {
            return None;
        }
        let image = self.input.image;
        image.frame_sizes().same()?;
        let (map, index) = (self.get(Reg::R2), self.get32(Reg::R3));
        // `w3 = 1` and `r3 = 1` are constants of their own width.
        let index = match self.constant(index) {
            Some(index) => index,
            None => {
                let index = self.get(Reg::R3);
                self.constant(index)?
            }
        };
        let map = self.constant(map)?;
        let (slot, program) = image.program_word(map as u64, index as u32)?;
        let mut target = program as usize;
        if self.input.mutant == OTHER_PROGRAM {
            target = target.saturating_sub(1);
        }
        let known = target < image.programs().len();
        known.then(|| Known { slot, word: i64::from(program) + 1, function: image.entry_function(target) as u32 })
    }

    /// Jumps to a function by its index, which finds no registers but its arguments.
    fn enter_program(&mut self, function: u32) {
        let known = self.input.summary.of(self.input.image, self.input.options);
        if known.entry_reads_rest(function) {
            for reg in (0..10).filter(|reg| REST & 1 << reg != 0) {
                let value = self.b.ins().iconst(I64, poison(reg));
                self.store_cx(value, reg_field(reg));
            }
        }
        let index = self.b.ins().iconst(I32, i64::from(function));
        self.store_cx(index, field!(target));
        let functions = self.load_cx(I64, constant(), field!(functions));
        // Others may publish code at any time.
        let code = self.b.ins().load(I64, trusted(), functions, 8 * function as i32);
        let ctx = self.get(Reg::R1);
        self.jump_to(code, ctx);
    }
}
