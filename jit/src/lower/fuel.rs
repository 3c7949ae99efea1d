//! Lowering of the instruction budget (fuel), exact to the instruction.
//!
//! The counter is an SSA variable; it is in [`Context::remaining`](twinbpf_vm::host::native::Context::remaining)
//! whenever other code runs. Headers (the function's start, those of loops, labels, returns of calls) first look
//! whether the counter is enough for any path to the next header. If not, the interpreter continues from there and
//! finds the instruction at which the budget ends. Code from header to header is finite, so the counter never goes
//! below zero.
//!
//! What is paid where is decided by [`payments`](super::flow): calls and returns find the exact count.

use cranelift_codegen::cursor::{Cursor as _, FuncCursor};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::I64;
use cranelift_codegen::ir::{Block, InstBuilder as _, StackSlot, StackSlotData, StackSlotKind, Value};

use super::effects::ALL;
use super::flow::Flow;
use super::subregisters::Subregisters;
use super::{Translator, field, trusted};
use crate::options::OptLevel;

/// The mutant that gives the interpreter words one word too low.
pub(crate) const MUTANT: &str = "words_are_given_too_low";

/// What the blocks that give up share.
#[derive(Debug)]
pub(super) struct Cold {
    /// Whether there is only one.
    alone: bool,
    /// Where the interpreter takes over, and the word of the native frame that has the pc.
    resume: Option<(Block, StackSlot)>,
    /// With the optimiser: words of the native frame that have the context and r10.
    saved: Option<StackSlot>,
}

impl Cold {
    pub(super) fn of(flow: &Flow) -> Self {
        Cold { alone: flow.headers() == 1, resume: None, saved: None }
    }
}

impl Translator<'_> {
    pub(super) fn save_fuel(&mut self) {
        if !self.input.baseline() {
            let fuel = self.use_fuel();
            self.store_cx(fuel, field!(remaining));
        }
    }

    pub(super) fn reload_fuel(&mut self) {
        if !self.input.baseline() {
            let fuel = self.load_cx(I64, trusted(), field!(remaining));
            self.def_fuel(fuel);
        }
    }

    /// At the start of a header: looks whether the budget is enough, and pays for the likely path to the next one.
    pub(super) fn charge(&mut self, block: u32) {
        if !self.flow.header(block) {
            return;
        }
        if self.flow.stores_early(block) && !self.input.baseline() {
            self.store_registers(self.flow.live(block));
            self.store_words(block, self.fp);
        }
        let fuel = self.use_fuel();
        let low = self.b.ins().icmp_imm_s(IntCC::SignedLessThan, fuel, i64::from(self.flow.most(block)));
        self.give_up(low, block);
        self.pay(self.flow.ahead(block).into());
    }

    fn pay(&mut self, insns: i64) {
        if insns == 0 {
            return;
        }
        let fuel = self.use_fuel();
        let fuel = if self.input.options.opt == OptLevel::Speed {
            // As `opt::post::payments` needs it.
            let term = self.b.ins().iconst(I64, -insns);
            self.b.ins().uadd_overflow(fuel, term).0
        } else {
            self.b.ins().iadd_imm_s(fuel, -insns)
        };
        self.def_fuel(fuel);
    }

    /// At the end of a block, before it leaves: pays what is due.
    pub(super) fn pay_due(&mut self) {
        if self.input.options.fuel {
            self.pay(self.flow.due(self.block));
        }
    }

    /// Where the function returns in the middle of a block: pays what is owed after the current instruction.
    pub(super) fn pay_owed_here(&mut self) {
        if self.input.options.fuel {
            self.pay(self.flow.owed_after(self.input.image, self.block, self.pc + 1));
        }
    }

    /// Where a branch of the current block to another goes: to a block that pays, if the other cannot. Another leads out of a loop
    /// that is unrolled: there the optimiser computes what only that exit needs.
    pub(super) fn edge(&mut self, to: u32) -> Block {
        if self.has_block(to) { self.b.create_block() } else { self.target(to) }
    }

    /// Fills a block that [`Translator::edge`] made, after the branch.
    pub(super) fn pay_edge(&mut self, edge: Block, to: u32) {
        if self.has_block(to) {
            self.continue_in(edge);
            self.pay(self.toll(to));
            let target = self.target(to);
            self.b.ins().jump(target, &[]);
        }
        self.linked(to);
    }

    /// Whether the edge from the current block has a block of its own.
    fn has_block(&self, to: u32) -> bool {
        self.toll(to) != 0 || self.flow.exits_unrolled(self.block, to)
    }

    fn toll(&self, to: u32) -> i64 {
        if self.input.options.fuel { self.flow.toll(self.block, to) } else { 0 }
    }

    /// If `low` is set, the interpreter continues at the start of this block.
    pub(super) fn give_up(&mut self, low: Value, block: u32) {
        let (cold, enough) = (self.b.create_block(), self.b.create_block());
        self.b.set_cold_block(cold);
        self.b.ins().brif(low, cold, &[], enough, &[]);
        self.continue_in(cold);
        if self.input.baseline() {
            // All that the interpreter needs is in memory.
            return self.resume_here(enough);
        }
        let registers = (self.cx, self.fp);
        let optimised = self.input.options.opt == OptLevel::Speed;
        if optimised && block != self.flow.entry() {
            self.take_saved();
        }
        if !self.flow.stores_early(block) {
            self.store_registers(self.flow.live(block));
            let fp = if self.input.mutant == MUTANT { self.b.ins().iadd_imm_s(self.fp, -8) } else { self.fp };
            self.store_words(block, fp);
        }
        let alone = optimised && self.cold.alone;
        if self.flow.loops || alone {
            self.save_loops();
        }
        if self.input.options.fuel {
            self.save_fuel();
        }
        if alone {
            let pc = self.b.ins().iconst(I64, i64::from(self.pc));
            self.resume_at(pc);
            self.continue_in(enough);
        } else {
            self.resume_here(enough);
        }
        (self.cx, self.fp) = registers;
    }

    /// Takes the context and r10 from the native frame. Blocks that give up use them once for each register and word: the
    /// register allocator would give them registers for that, which loops need.
    fn take_saved(&mut self) {
        let slot = *self.cold.saved.get_or_insert_with(|| self.b.create_sized_stack_slot(words(2)));
        self.cx = self.b.ins().stack_load(I64, I64, slot, 0);
        self.fp = self.b.ins().stack_load(I64, I64, slot, 8);
    }

    /// Puts them there, where the function begins.
    fn save(&mut self, slot: StackSlot, [cx, fp]: [Value; 2], first: Block) {
        let mut cursor = FuncCursor::new(self.b.func).at_first_insertion_point(first);
        cursor.ins().stack_store(I64, fp, slot, 8);
        cursor.ins().stack_store(I64, cx, slot, 0);
    }

    /// Ends a block of those who give up; `enough` is the next one. The pc goes by the frame: as a parameter it would be one
    /// live range with a use in each of these blocks, which the register allocator walks through again and again.
    fn resume_here(&mut self, enough: Block) {
        let pc = self.b.ins().iconst(I64, i64::from(self.pc));
        let (resume, slot) = *self.cold.resume.get_or_insert_with(|| {
            let block = self.b.create_block();
            self.b.set_cold_block(block);
            (block, self.b.create_sized_stack_slot(words(1)))
        });
        self.b.ins().stack_store(I64, pc, slot, 0);
        self.b.ins().jump(resume, &[]);
        self.continue_in(enough);
    }

    /// Makes what the blocks that give up share, when there are no more of them.
    pub(super) fn fill_cold(&mut self, first: Block) {
        let registers = [self.cx, self.fp];
        if let Some((block, slot)) = self.cold.resume {
            self.continue_in(block);
            let pc = self.b.ins().stack_load(I64, I64, slot, 0);
            self.begin(true);
            if self.input.options.opt == OptLevel::Speed {
                self.take_saved();
            }
            if self.input.baseline() {
                self.subregs = Subregisters::default();
                self.store_registers(ALL);
                let loops = self.use_loops();
                self.store_cx(loops, field!(loops));
            } else if !self.flow.loops {
                self.save_loops();
            }
            self.resume_at(pc);
        }
        // All that read the slot are there.
        if let Some(slot) = self.cold.saved {
            self.save(slot, registers, first);
        }
    }
}

/// Words of the native frame.
fn words(number: u32) -> StackSlotData {
    StackSlotData::new(StackSlotKind::ExplicitSlot, 8 * number, 3)
}
