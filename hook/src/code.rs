//! What the code of a file shows: where it branches.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::OnceLock;

use iced_x86::{Decoder, DecoderOptions, EncodingKind, FlowControl, Instruction, OpKind, Register};

/// What patching code needs of a file, beside its functions.
#[derive(Default)]
pub(crate) struct Marks {
    /// Calls of `__fentry__`, sleds of XRay's.
    pub(crate) mcount: HashSet<u64>,
    pub(crate) sleds: HashSet<u64>,
    pub(crate) is_go: bool,
    pub(crate) code: OnceLock<Code>,
}

/// What decoding all functions of a file shows.
#[derive(Default)]
pub(crate) struct Code {
    /// Where direct branches and calls lead, sorted.
    targets: Vec<u64>,
    /// Jumps that may go by a table, as of `switch`, sorted.
    table_jumps: Vec<u64>,
    pub(crate) has_evex: bool,
}

impl Code {
    /// Of functions, each with its address.
    pub(crate) fn new<'a>(functions: impl Iterator<Item = (u64, &'a [u8])>) -> Code {
        let mut all = Code::default();
        let mut instruction = Instruction::default();
        for (address, code) in functions {
            let mut decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
            while decoder.can_decode() {
                decoder.decode_out(&mut instruction);
                all.add(&instruction);
            }
        }
        for list in [&mut all.targets, &mut all.table_jumps] {
            list.sort_unstable();
            list.dedup();
        }
        all
    }

    fn add(&mut self, instruction: &Instruction) {
        if instruction.op_count() > 0 && instruction.op0_kind() == OpKind::NearBranch64 {
            self.targets.push(instruction.near_branch64());
        }
        // A jump through one word, as of the global offset table, leads out of the function.
        let is_one_word = instruction.op0_kind() == OpKind::Memory && instruction.memory_base() == Register::RIP;
        if instruction.flow_control() == FlowControl::IndirectBranch && !is_one_word {
            self.table_jumps.push(instruction.ip());
        }
        self.has_evex |= instruction.code().encoding() == EncodingKind::EVEX;
    }

    /// The lowest address in `range` that a direct branch or call leads to.
    pub(crate) fn branch_into(&self, range: Range<u64>) -> Option<u64> {
        first_in(&self.targets, range)
    }

    /// Whether a jump in `range` may go by a table.
    pub(crate) fn jumps_by_table(&self, range: Range<u64>) -> bool {
        first_in(&self.table_jumps, range).is_some()
    }
}

fn first_in(sorted: &[u64], range: Range<u64>) -> Option<u64> {
    let first = sorted.partition_point(|address| *address < range.start);
    sorted.get(first).copied().filter(|address| *address < range.end)
}
