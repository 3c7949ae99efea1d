//! Baseline code, for functions that are too much work for the optimiser and the register allocator: no value lives
//! from one block of the program to the next.
//!
//! The time that Cranelift takes grows faster than the function where many values are live over many blocks, calls or
//! loops. Baseline code has no such values. BPF registers are words of the native frame: a read loads, unless the value
//! is known in the native block; a write stores. The budget is in the context. What all blocks need (context, r10, the
//! arena) is loaded by each. Long blocks are cut ([`BLOCK`]), so that the work per instruction has a bound.
//!
//! regalloc2 finds dominators by walking up the dominator tree from each edge into a join, which is as long as the
//! function where N branches lead to one exit. So the first block has an edge to every [`STRIDE`]-th block, which makes
//! the tree flat. They are never taken.

use cranelift_codegen::ir::types::{I32, I64};
use cranelift_codegen::ir::{
    BlockCall, InstBuilder as _, JumpTableData, StackSlot, StackSlotData, StackSlotKind, Value,
};

use super::{Translator, constant, field, trusted};
use crate::options::Memory;

/// Instructions of a block, at most.
pub(super) const BLOCK: u32 = 64;
/// Every how many blocks the first block has an edge.
const STRIDE: u32 = 16;

/// Words of the frame: r0 to r9, then these.
const CX: usize = 10;
const FP: usize = 11;
const LOOPS: usize = 12;
const WORDS: usize = 13;

/// Where values are between blocks.
pub(super) struct Frame {
    slot: StackSlot,
    /// What words hold, as far as the native block knows.
    known: [Option<Value>; WORDS],
}

impl Translator<'_> {
    /// Makes the frame, at the start of the first block.
    pub(super) fn make_frame(&mut self) {
        let data = StackSlotData::new(StackSlotKind::ExplicitSlot, (WORDS * 8) as u32, 3);
        let slot = self.b.create_sized_stack_slot(data);
        self.frame = Some(Frame { slot, known: [None; WORDS] });
        let (cx, fp) = (self.cx, self.fp);
        self.put(CX, cx);
        self.put(FP, fp);
    }

    /// Starts a native block. `joined` says that values of other blocks are not available.
    pub(super) fn begin(&mut self, joined: bool) {
        let Some(frame) = &mut self.frame else { return };
        frame.known = [None; WORDS];
        if joined {
            self.cx = self.take(CX);
            self.fp = self.take(FP);
            if self.input.options.memory != Memory::Trusted {
                self.load_arena();
            }
        }
    }

    /// Loads what accesses need.
    pub(super) fn load_arena(&mut self) {
        let arena = self.load_cx(I64, constant(), field!(arena_base));
        self.arena = Some(arena);
        if self.input.options.memory == Memory::Strict {
            self.arena_half = Some(self.b.ins().ushr_imm_u(arena, 32));
        }
    }

    fn put(&mut self, word: usize, value: Value) {
        let frame = self.frame.as_mut().expect("`make_frame` ran");
        frame.known[word] = Some(value);
        self.b.ins().stack_store(I64, value, frame.slot, word as i32 * 8);
    }

    fn take(&mut self, word: usize) -> Value {
        let frame = self.frame.as_ref().expect("`make_frame` ran");
        if let Some(value) = frame.known[word] {
            return value;
        }
        let value = self.b.ins().stack_load(I64, I64, frame.slot, word as i32 * 8);
        self.frame.as_mut().expect("`make_frame` ran").known[word] = Some(value);
        value
    }

    pub(super) fn use_reg(&mut self, reg: usize) -> Value {
        if self.frame.is_some() { self.take(reg) } else { self.b.use_var(self.regs[reg]) }
    }

    pub(super) fn def_reg(&mut self, reg: usize, value: Value) {
        if self.frame.is_some() { self.put(reg, value) } else { self.b.def_var(self.regs[reg], value) }
    }

    pub(super) fn use_fuel(&mut self) -> Value {
        match self.frame {
            Some(_) => self.load_cx(I64, trusted(), field!(remaining)),
            None => self.b.use_var(self.fuel),
        }
    }

    pub(super) fn def_fuel(&mut self, fuel: Value) {
        match self.frame {
            Some(_) => self.store_cx(fuel, field!(remaining)),
            None => self.b.def_var(self.fuel, fuel),
        }
    }

    pub(super) fn use_loops(&mut self) -> Value {
        if self.frame.is_some() { self.take(LOOPS) } else { self.b.use_var(self.loops) }
    }

    pub(super) fn def_loops(&mut self, loops: Value) {
        if self.frame.is_some() { self.put(LOOPS, loops) } else { self.b.def_var(self.loops, loops) }
    }

    /// Ends the first block with a jump to `entry` that could lead to other blocks as well.
    pub(super) fn dispatch(&mut self, entry: u32) {
        let targets = (0..self.flow.len()).step_by(STRIDE as usize).filter(|block| self.flow.preds(*block) > 0);
        let targets: Vec<u32> = targets.collect();
        let zero = self.b.ins().iconst(I32, 0);
        let calls: Vec<BlockCall> = [entry]
            .iter()
            .chain(&targets)
            .map(|block| {
                self.pending[*block as usize] += 1;
                let native = self.blocks[*block as usize].expand().expect("reachable");
                self.b.func.dfg.block_call(native, &[])
            })
            .collect();
        self.pending[entry as usize] -= 1;
        let table = self.b.create_jump_table(JumpTableData::new(calls[0], &calls));
        self.b.ins().br_table(zero, table);
        targets.iter().for_each(|block| self.linked(*block));
    }
}
