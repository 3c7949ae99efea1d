//! The instructions of a function, and which of its bytes are something else.

use std::ops::Range;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind};

/// No instruction.
const NONE: u32 = u32::MAX;

/// The first byte that is neither part of a `nop` nor an `int3`.
pub(crate) fn first_not_padding(bytes: &[u8]) -> Option<usize> {
    let mut decoder = Decoder::new(64, bytes, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    while decoder.can_decode() {
        let at = decoder.position();
        decoder.decode_out(&mut instruction);
        if !matches!(instruction.mnemonic(), Mnemonic::Nop | Mnemonic::Int3) {
            return Some(at);
        }
    }
    None
}

/// See the module documentation.
pub(crate) struct Code<'a> {
    pub(crate) start: u64,
    pub(crate) bytes: &'a [u8],
    instructions: Vec<Instruction>,
    /// Index of the instruction at each offset. Those that are decoded from the first byte on come first, in order.
    at: Vec<u32>,
    /// Of each offset whether more than what comes before may lead there.
    leaders: Vec<bool>,
    /// Of each offset whether the instruction there is reached.
    reached: Vec<bool>,
    /// Offsets of tables and constants.
    data: Vec<Range<usize>>,
    /// Of each jump through a table that was found without its values: offset of its end, and of its targets.
    switches: Vec<(usize, Vec<usize>)>,
}

impl<'a> Code<'a> {
    /// Decodes from the first byte to where constants seem to begin, which are no jumps whatever they look like. A jump may
    /// still lead to bytes that this walk does not decode as the start of an instruction.
    pub(crate) fn new(start: u64, bytes: &'a [u8]) -> Code<'a> {
        let len = bytes.len();
        let mut code = Code {
            start,
            bytes,
            instructions: Vec::with_capacity(len / 4),
            at: vec![NONE; len],
            leaders: vec![false; len],
            reached: vec![false; len],
            data: Vec::new(),
            switches: Vec::new(),
        };
        let mut decoder = Decoder::with_ip(64, bytes, start, DecoderOptions::NONE);
        let (mut off, mut table, mut end) = (0, NONE as usize, len);
        while off < end {
            let Some(instruction) = code.decode_with(&mut decoder, off) else {
                off += 1;
                continue;
            };
            let next = off + instruction.len();
            off = next;
            match instruction.flow_control() {
                FlowControl::Next
                    if instruction.mnemonic() == Mnemonic::Lea && instruction.is_ip_rel_memory_operand() =>
                {
                    table = instruction.memory_displacement64().wrapping_sub(start) as usize;
                }
                FlowControl::Next if instruction.is_ip_rel_memory_operand() => {
                    let constant = code.offset(instruction.memory_displacement64()).filter(|at| *at >= next);
                    end = constant.map_or(end, |at| end.min(at));
                }
                FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch => {
                    if let Some(target) = code.offset(instruction.near_branch_target()) {
                        code.leaders[target] = true;
                    }
                }
                FlowControl::IndirectBranch if table == next => off = code.skip_table(next),
                _ => {}
            }
        }
        code
    }

    /// Guesses where a jump table ends: at the first of its targets after it. A wrong guess costs time only.
    fn skip_table(&mut self, table: usize) -> usize {
        let (mut end, mut at, mut targets) = (self.bytes.len(), table, Vec::new());
        while at + 4 <= end {
            let target = self.read(at, 4).map(|entry| (table as i64 + i64::from(entry as i32)) as usize);
            let Some(target) = target.filter(|target| *target < self.bytes.len()) else { break };
            self.leaders[target] = true;
            targets.push(target);
            if target > table {
                end = end.min(target);
            }
            at += 4;
        }
        self.switches.push((table, targets));
        at
    }

    /// Decodes the instruction at an offset.
    fn decode_with(&mut self, decoder: &mut Decoder<'a>, off: usize) -> Option<Instruction> {
        if decoder.position() != off {
            decoder.set_position(off).ok()?;
            decoder.set_ip(self.start + off as u64);
        }
        let instruction = decoder.decode();
        if instruction.is_invalid() {
            return None;
        }
        self.at[off] = self.instructions.len() as u32;
        self.instructions.push(instruction);
        Some(instruction)
    }

    /// The instruction at an offset, decoded once.
    fn decode(&mut self, off: usize) -> Option<usize> {
        if self.at[off] == NONE {
            let mut decoder = Decoder::with_ip(64, self.bytes, self.start, DecoderOptions::NONE);
            self.decode_with(&mut decoder, off)?;
        }
        Some(self.at[off] as usize)
    }

    /// The instruction at an offset that control comes to.
    ///
    /// Gives also whether that is for the first time.
    pub(crate) fn reach(&mut self, off: usize) -> Option<(Instruction, bool)> {
        let index = self.decode(off)?;
        let before = std::mem::replace(&mut self.reached[off], true);
        Some((self.instructions[index], !before))
    }

    /// Instructions by address, before control comes to any.
    pub(crate) fn instructions(&self) -> &[Instruction] {
        &self.instructions
    }

    /// Offsets that the jump before an offset may lead to through its table.
    pub(crate) fn switch(&self, off: usize) -> &[usize] {
        self.switches.binary_search_by_key(&off, |(off, _)| *off).map_or(&[], |index| &self.switches[index].1)
    }

    /// Whether more than what comes before may lead to an offset.
    pub(crate) fn leads(&self, off: usize) -> bool {
        self.leaders[off]
    }

    /// Another path leads to an offset.
    pub(crate) fn lead(&mut self, off: usize) {
        self.leaders[off] = true;
    }

    /// Offset of an address in the function.
    pub(crate) fn offset(&self, address: u64) -> Option<usize> {
        let off = address.wrapping_sub(self.start);
        (off < self.bytes.len() as u64).then_some(off as usize)
    }

    /// A little-endian number of the function's own bytes.
    pub(crate) fn read(&self, off: usize, size: usize) -> Option<u64> {
        let bytes = self.bytes.get(off..off.checked_add(size)?).filter(|_| size <= 8)?;
        Some(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    /// These bytes are loaded.
    pub(crate) fn data(&mut self, range: Range<usize>) {
        if self.data.last() != Some(&range) {
            self.data.push(range);
        }
    }

    /// Puts another instruction in the place of one. Gives that.
    pub(crate) fn replace(&mut self, off: usize, by: Instruction) -> Instruction {
        std::mem::replace(&mut self.instructions[self.at[off] as usize], by)
    }

    /// The instruction at an offset, if it is reached.
    pub(crate) fn reached(&self, off: usize) -> Option<&Instruction> {
        (*self.reached.get(off)?).then(|| &self.instructions[self.at[off] as usize])
    }

    /// How many offsets are led to.
    pub(crate) fn leaders(&self) -> usize {
        self.leaders.iter().filter(|leads| **leads).count()
    }

    /// Forgets which bytes are loaded. True if any were.
    pub(crate) fn clear_data(&mut self) -> bool {
        let any = !self.data.is_empty();
        self.data.clear();
        any
    }

    /// Instructions that are reached.
    pub(crate) fn count(&self) -> usize {
        self.reached.iter().filter(|reached| **reached).count()
    }

    /// The offset of an instruction that is reached and begins inside another.
    pub(crate) fn overlap(&self) -> Option<usize> {
        let mut end = 0;
        (0..self.bytes.len()).filter(|off| self.reached[*off]).find(|off| {
            let overlaps = *off < end;
            end = off + self.instructions[self.at[*off] as usize].len();
            overlaps
        })
    }

    /// The offset of a byte that is neither reached nor data nor padding.
    pub(crate) fn stray(&mut self) -> Option<usize> {
        self.data.sort_unstable_by_key(|range| range.start);
        let (mut off, mut next) = (0, 0);
        while off < self.bytes.len() {
            while self.data.get(next).is_some_and(|range| range.end <= off) {
                next += 1;
            }
            if self.reached[off] {
                off += self.instructions[self.at[off] as usize].len();
            } else if let Some(range) = self.data.get(next).filter(|range| range.contains(&off)) {
                off = range.end;
            } else {
                // Constants are aligned with zeros, and some are zero and never loaded.
                let zero = self.bytes[off] == 0;
                let index = self.decode(off).filter(|_| !zero);
                // The assembler redirects a jump to a block of one jump past it, and leaves the block after a table.
                let nop = index.map(|index| self.instructions[index]).filter(|found| {
                    matches!(found.mnemonic(), Mnemonic::Nop | Mnemonic::Int3)
                        || found.flow_control() == FlowControl::UnconditionalBranch
                });
                off += match nop {
                    Some(found) => found.len(),
                    None if zero => 1,
                    None => return Some(off),
                };
            }
        }
        None
    }
}

/// Whether an operand is in memory.
pub(crate) fn is_memory(instruction: &Instruction, operand: u32) -> bool {
    instruction.op_kind(operand) == OpKind::Memory
}
