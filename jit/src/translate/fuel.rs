//! The instruction budget, exact to the instruction.
//!
//! The counter is an SSA variable; it is in [`Context::remaining`](twinbpf_vm::host::native::Context::remaining)
//! whenever other code runs. A block takes what it executes from it at its start. Headers (the function's start, jump
//! targets that lie behind, returns of calls) first look whether the counter is enough for any way to the
//! next header. If not, the interpreter goes on from there and finds the instruction at which the budget ends. Code from
//! header to header is finite, so the counter never goes below zero.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::I64;
use cranelift_codegen::ir::{InstBuilder as _, Value};
use twinbpf_vm::host::native::SiteKind;

use super::call::Service;
use super::control::MAX_LOOPS;
use super::{Translator, field, trusted};

impl Translator<'_> {
    pub(super) fn save_fuel(&mut self) {
        let fuel = self.b.use_var(self.fuel);
        self.store_cx(fuel, field!(remaining));
    }

    pub(super) fn reload_fuel(&mut self) {
        let fuel = self.load_cx(I64, trusted(), field!(remaining));
        self.b.def_var(self.fuel, fuel);
    }

    /// Pays for a block that begins here.
    pub(super) fn charge(&mut self, block: u32) {
        let mut fuel = self.b.use_var(self.fuel);
        if self.flow.header(block) {
            let low = self.b.ins().icmp_imm_s(IntCC::SignedLessThan, fuel, i64::from(self.flow.ahead(block)));
            self.give_up(low, block);
            fuel = self.b.use_var(self.fuel);
        }
        let weight = self.flow.weight(self.input.image, block);
        let fuel = self.b.ins().iadd_imm_s(fuel, -i64::from(weight));
        self.b.def_var(self.fuel, fuel);
    }

    /// Gives back what the rest of this block was paid with, where the function returns in the middle of it.
    pub(super) fn refund(&mut self) {
        if self.input.options.fuel {
            let (fuel, rest) = (self.b.use_var(self.fuel), self.flow.rest(self.input.image, self.pc));
            let fuel = self.b.ins().iadd_imm_s(fuel, i64::from(rest));
            self.b.def_var(self.fuel, fuel);
        }
    }

    /// If `low` is set, the interpreter goes on at the start of this block.
    fn give_up(&mut self, low: Value, block: u32) {
        let (cold, enough) = (self.b.create_block(), self.b.create_block());
        self.b.set_cold_block(cold);
        self.b.ins().brif(low, cold, &[], enough, &[]);
        self.go_on(cold);
        self.hand_over(self.flow.live(block));
        let loops = match self.flow.loops {
            true => self.b.use_var(self.loops),
            false => self.b.ins().iconst(I64, i64::from(MAX_LOOPS)),
        };
        self.store_cx(loops, field!(loops));
        let pc = self.b.ins().iconst(I64, i64::from(self.pc));
        let (value, status) = self.service(Service::Resume, &[pc]);
        self.trap_if(status, SiteKind::Failed);
        self.b.ins().return_(&[value]);
        self.go_on(enough);
    }
}
