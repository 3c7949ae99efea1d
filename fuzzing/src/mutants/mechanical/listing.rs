//! The instructions of a function, and where its jump tables lead.

use std::collections::BTreeMap;

use iced_x86::{ConstantOffsets, Decoder, DecoderOptions, FlowControl, Formatter as _, Instruction};
use iced_x86::{IntelFormatter, Mnemonic, OpKind, Register};

/// Bytes of an entry of a jump table.
const ENTRY: usize = 4;
/// No instruction.
const NONE: u32 = u32::MAX;

/// A function, decoded from its first byte to its last.
pub(super) struct Listing<'a> {
    pub(super) start: u64,
    pub(super) code: &'a [u8],
    /// Decoded instructions, sorted by offset.
    instructions: Vec<(usize, Instruction, ConstantOffsets)>,
    /// Index of the instruction at each offset.
    index: Vec<u32>,
    /// Whether a branch leads to an offset.
    leaders: Vec<bool>,
    /// Of each jump through a table where that is and where it leads.
    tables: BTreeMap<usize, (usize, Vec<usize>)>,
}

impl<'a> Listing<'a> {
    pub(super) fn new(start: u64, code: &'a [u8]) -> Listing<'a> {
        let (index, leaders) = (vec![NONE; code.len()], vec![false; code.len()]);
        let mut listing = Listing { start, code, instructions: Vec::new(), index, leaders, tables: BTreeMap::new() };
        let (mut off, mut table) = (0, None);
        while off < code.len() {
            let mut decoder = Decoder::with_ip(64, &code[off..], start + off as u64, DecoderOptions::NONE);
            let instruction = decoder.decode();
            if instruction.is_invalid() {
                off += 1;
                continue;
            }
            let next = off + instruction.len();
            match instruction.flow_control() {
                FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch => {
                    if let Some(target) = listing.offset(instruction.near_branch_target()) {
                        listing.leaders[target] = true;
                    }
                }
                _ if instruction.mnemonic() == Mnemonic::Lea && instruction.memory_base() == Register::RIP => {
                    table = listing.offset(instruction.memory_displacement64());
                }
                _ => {}
            }
            listing.index[off] = listing.instructions.len() as u32;
            listing.instructions.push((off, instruction, decoder.get_constant_offsets(&instruction)));
            let switch = instruction.flow_control() == FlowControl::IndirectBranch && table == Some(next);
            off = if switch { listing.entries(off, next) } else { next };
        }
        listing
    }

    /// Reads the jump table after a jump, up to the first of its targets. Returns its end.
    fn entries(&mut self, jump: usize, table: usize) -> usize {
        let (mut targets, mut at, mut end) = (Vec::new(), table, self.code.len());
        while at + ENTRY <= end {
            let entry = i32::from_le_bytes([self.code[at], self.code[at + 1], self.code[at + 2], self.code[at + 3]]);
            let target = (table as i64 + i64::from(entry)) as usize;
            if target >= self.code.len() {
                break;
            }
            targets.push(target);
            end = if target > table { end.min(target) } else { end };
            at += ENTRY;
        }
        targets.iter().for_each(|target| self.leaders[*target] = true);
        self.tables.insert(jump, (table, targets));
        at
    }

    pub(super) fn at(&self, off: usize) -> Option<&Instruction> {
        self.get(off).map(|(_, instruction, _)| instruction)
    }

    /// The instruction at an offset, with where its constants are.
    pub(super) fn get(&self, off: usize) -> Option<&(usize, Instruction, ConstantOffsets)> {
        self.instructions.get(*self.index.get(off)? as usize)
    }

    /// The instruction at an offset of other code that lies in the same place.
    pub(super) fn decode(&self, code: &[u8], off: usize) -> Option<Instruction> {
        let mut decoder = Decoder::with_ip(64, &code[off..], self.start + off as u64, DecoderOptions::NONE);
        Some(decoder.decode()).filter(|instruction| !instruction.is_invalid())
    }

    /// An instruction in Intel's syntax.
    pub(super) fn text(&self, off: usize) -> String {
        let mut text = String::new();
        if let Some(instruction) = self.at(off) {
            IntelFormatter::new().format(instruction, &mut text);
        }
        text
    }

    pub(super) fn all(&self) -> &[(usize, Instruction, ConstantOffsets)] {
        &self.instructions
    }

    /// Instructions before an offset, the nearest first.
    pub(super) fn before(&self, off: usize) -> impl Iterator<Item = &(usize, Instruction, ConstantOffsets)> {
        let to = self.instructions.partition_point(|(at, ..)| *at < off);
        self.instructions[..to].iter().rev()
    }

    /// Instructions after the one at an offset, the nearest first.
    pub(super) fn after(&self, off: usize) -> impl Iterator<Item = &(usize, Instruction, ConstantOffsets)> {
        let from = self.instructions.partition_point(|(at, ..)| *at <= off);
        self.instructions[from..].iter()
    }

    pub(super) fn leads(&self, off: usize) -> bool {
        self.leaders[off]
    }

    /// Where a jump through a table leads.
    pub(super) fn table(&self, jump: usize) -> &[usize] {
        self.tables.get(&jump).map_or(&[], |(_, targets)| targets)
    }

    /// Jumps through tables, each with its table and targets.
    pub(super) fn tables(&self) -> impl Iterator<Item = (usize, usize, &[usize])> {
        self.tables.iter().map(|(jump, (table, targets))| (*jump, *table, &targets[..]))
    }

    /// Whether any of the words from the first to the last of these addresses is an entry of the table that the next jump
    /// through one uses.
    pub(super) fn entries_at(&self, at: usize, (lo, hi): (u64, u64)) -> bool {
        let Some((_, table, targets)) = self.tables().find(|(jump, ..)| *jump > at) else { return false };
        let (first, end) = (self.start + table as u64, self.start + (table + ENTRY * targets.len()) as u64);
        lo >= first && (lo - first).is_multiple_of(ENTRY as u64) && hi.saturating_add(ENTRY as u64) <= end
    }

    pub(super) fn offset(&self, address: u64) -> Option<usize> {
        let off = address.wrapping_sub(self.start);
        (off < self.code.len() as u64).then_some(off as usize)
    }

    /// A constant of the function itself.
    pub(super) fn constant(&self, address: u64, bytes: usize) -> Option<u64> {
        let off = self.offset(address).filter(|_| bytes <= 8)?;
        let bytes = self.code.get(off..off + bytes)?;
        Some(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    /// The code with a byte inserted into the instruction at an offset, and all that is relative mended. Nothing if
    /// a short branch does not reach any more.
    pub(super) fn inserted(&self, at: usize, byte: u8) -> Option<Vec<u8>> {
        let to = |off: u64| if off > at as u64 && off < self.code.len() as u64 { off + 1 } else { off };
        let mut code = self.code.to_vec();
        for &(off, ref instruction, ref constants) in self.all() {
            let (field, size, target) = match instruction.op0_kind() {
                OpKind::NearBranch64 => {
                    (constants.immediate_offset(), constants.immediate_size(), instruction.near_branch_target())
                }
                _ if instruction.memory_base() == Register::RIP => {
                    let (field, size) = (constants.displacement_offset(), constants.displacement_size());
                    (field, size, instruction.memory_displacement64())
                }
                _ => continue,
            };
            let next = off + instruction.len() + usize::from(off >= at);
            let relative = to(target.wrapping_sub(self.start)).wrapping_sub(next as u64) as i64;
            if size == 1 {
                code[off + field] = i8::try_from(relative).ok()? as u8;
            } else {
                code[off + field..][..4].copy_from_slice(&i32::try_from(relative).ok()?.to_le_bytes());
            }
        }
        for (_, table, targets) in self.tables() {
            for (index, target) in targets.iter().enumerate() {
                let entry = to(*target as u64).wrapping_sub(to(table as u64)) as u32;
                code[table + ENTRY * index..][..ENTRY].copy_from_slice(&entry.to_le_bytes());
            }
        }
        code.insert(at, byte);
        Some(code)
    }
}

pub(super) fn is_high(reg: Register) -> bool {
    matches!(reg, Register::AH | Register::BH | Register::CH | Register::DH)
}

/// Bytes of a register from its lowest to the last of this part.
pub(super) fn reach(part: Register) -> usize {
    if is_high(part) { 2 } else { part.size() }
}

pub(super) fn is_memory(instruction: &Instruction, operand: u32) -> bool {
    instruction.op_kind(operand) == OpKind::Memory
}

/// Bytes of an operand.
pub(super) fn size(instruction: &Instruction, operand: u32) -> usize {
    match instruction.op_kind(operand) {
        OpKind::Register => instruction.op_register(operand).size(),
        OpKind::Memory => instruction.memory_size().size(),
        _ => 8,
    }
}
