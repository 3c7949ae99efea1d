//! Whether a proof holds for a function that differs in one instruction.
//!
//! Tests of the verifier change each instruction of a corpus in several respects. To prove each of those functions from
//! its first instruction takes hours, and nearly all of that work is the same again. A proof says what holds wherever
//! control comes together; a change concerns one block, and what that passes on.

use std::cmp::Reverse;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction};

use crate::access::has_odd_prefix;
use crate::reject::Reason;
use crate::state::State;
use crate::table::Module;
use crate::trial::Trial;
use crate::walk::{Effort, NONE, Walk};

/// How often blocks are interpreted again for one change, at most.
const VISITS: usize = 4096;

/// What is known of a function with a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    /// The function is proved.
    Holds,
    /// A thorough attempt at a proof fails. A quick one, which knows other things, may still succeed.
    Fails,
    /// The whole function has to be verified.
    Unknown,
}

/// A proof of a function.
pub struct Proof<'m, 'a> {
    walk: Walk<'m, 'a>,
    /// What blocks were first interpreted with, by index of the entry: nothing that a block itself passes on is in there.
    first: Vec<Option<State>>,
    /// Offsets of blocks, in order.
    blocks: Vec<usize>,
    /// How many conditions there are.
    conditions: usize,
    scratch: [State; 2],
}

impl<'m, 'a> Proof<'m, 'a> {
    /// Proves a function of a module, by index, thoroughly. `None` if that fails, or if its blocks are not known from its
    /// bytes alone.
    pub fn new(module: &'m Module<'a>, index: usize) -> Option<Proof<'m, 'a>> {
        let mut walk = Walk::new(module, index, Effort::Thorough);
        let leaders = walk.code.leaders();
        walk.trial = Trial::First(Vec::new());
        walk.all().ok()?;
        let Trial::First(first) = std::mem::take(&mut walk.trial) else { return None };
        // The first block is led to by nothing.
        if walk.code.leaders() > leaders + 1 {
            return None;
        }
        let blocks = (0..walk.places.len()).filter(|off| walk.places[*off] != NONE).collect();
        let conditions = walk.conditions.len();
        Some(Proof { walk, first, blocks, conditions, scratch: [State::entry(), State::entry()] })
    }

    /// Verifies the function with other bytes for the instruction at an offset. `code` is all of it.
    pub fn with(&mut self, code: &[u8], at: usize) -> Again {
        let Some(old) = self.walk.code.reached(at).copied() else { return Again::Unknown };
        let start = self.walk.function.start;
        let mut decoder = Decoder::with_ip(64, &code[at..], start + at as u64, DecoderOptions::NONE);
        let new = decoder.decode();
        let plain = |instruction: &Instruction| {
            instruction.flow_control() == FlowControl::Next && !instruction.is_ip_rel_memory_operand()
        };
        if new.is_invalid() || new.len() != old.len() || !plain(&old) || !plain(&new) {
            return Again::Unknown;
        }
        if has_odd_prefix(&new) || new.is_string_instruction() {
            return Again::Fails;
        }
        let block = self.blocks[self.blocks.partition_point(|block| *block <= at) - 1];
        self.walk.code.clear_data();
        if !self.each_entry(block, |proof, index| proof.block(index, block)) || self.walk.code.clear_data() {
            return Again::Unknown;
        }
        self.walk.code.replace(at, new);
        let found = self.changed(block);
        self.walk.code.replace(at, old);
        self.walk.conditions.truncate(self.conditions);
        found
    }

    /// Whether something holds for all entries of a block.
    fn each_entry(&mut self, block: usize, mut holds: impl FnMut(&mut Self, usize) -> bool) -> bool {
        let mut index = self.walk.places[block];
        while index != NONE {
            if !holds(self, index as usize) {
                return false;
            }
            index = self.walk.entries[index as usize].next;
        }
        true
    }

    /// Whether a block can be proved with what it was first interpreted with.
    fn block(&mut self, index: usize, block: usize) -> bool {
        let [state, taken] = &mut self.scratch;
        let Some(Some(first)) = self.first.get(index) else { return false };
        state.copy_from(first);
        self.walk.trial = Trial::Block;
        self.walk.run(block, state, taken).is_ok()
    }

    /// Proves what is changed in a block.
    fn changed(&mut self, block: usize) -> Again {
        // Before a block is interpreted for the first time, all is as without the change.
        if !self.each_entry(block, |proof, index| proof.block(index, block)) {
            return Again::Fails;
        }
        self.walk.trial = Trial::On { before: Vec::new(), visits: 0 };
        self.each_entry(block, |proof, index| {
            proof.walk.entries[index].queued = true;
            let order = proof.walk.flow.order(block);
            proof.walk.queue.push(Reverse((order, index as u32)));
            true
        });
        let [state, taken] = &mut self.scratch;
        let proved = self.walk.drain(state, taken).is_ok();
        self.walk.queue.clear();
        self.walk.entries.iter_mut().for_each(|entry| entry.queued = false);
        if let Trial::On { before, .. } = std::mem::take(&mut self.walk.trial) {
            for (index, state) in before {
                self.walk.entries[index as usize].state = state;
            }
        }
        if proved { Again::Holds } else { Again::Unknown }
    }
}

impl Walk<'_, '_> {
    /// Control comes from one place to another in a function that was proved. What the proof says there must hold, or it
    /// says less from now on.
    pub(crate) fn come_again(&mut self, from: usize, off: usize, state: &State, stack: i64) -> Result<(), Reason> {
        let Trial::On { before, visits } = &mut self.trial else { return Ok(()) };
        let mut index = self.places[off];
        while index != NONE && self.entries[index as usize].stack != stack {
            index = self.entries[index as usize].next;
        }
        *visits += 1;
        if index == NONE || *visits == VISITS {
            return Err(Reason::TooComplex);
        }
        let entry = &mut self.entries[index as usize];
        let widen = (off <= from).then_some(self.module.layout.margin as i64);
        let was = entry.state.clone();
        if entry.state.join(state, widen) {
            if before.iter().all(|(known, _)| *known != index) {
                before.push((index, was));
            }
            if !std::mem::replace(&mut entry.queued, true) {
                self.queue.push(Reverse((self.flow.order(off), index)));
            }
        }
        Ok(())
    }
}
