//! Changing a linked program: variants of one program, each with its own instructions at the start.

use std::collections::BTreeMap;
use std::sync::Arc;

use twinbpf_isa::{Moved, Raw, SpliceError, difference, splice};

use super::KernelProgram;
use crate::section::Attach;

/// Bytes of a BPF frame.
const FRAME: i64 = 512;
/// `rX = r10`, and `rX += imm`.
const MOV: u8 = 0xbf;
const ADD: u8 = 0x07;
/// First slot of a 64-bit immediate.
const LDDW: u8 = 0x18;

/// Why a program's frame cannot begin lower.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LowerFrameError {
    /// It has too many bytes.
    #[error("its frame leaves {left} bytes, of {needed} that are needed: keep less on the stack")]
    Room {
        /// Bytes that it leaves.
        left: i64,
        /// Bytes that are needed.
        needed: i64,
    },
    /// An instruction uses the frame pointer as a number.
    #[error("instruction {0} computes with the frame pointer, so that its frame cannot be moved")]
    Pointer(usize),
    /// A jump would be too long.
    #[error(transparent)]
    Splice(#[from] SpliceError),
}

impl KernelProgram {
    /// A program of these names for that section, without instructions.
    pub fn new(spec: usize, [name, section]: [&Arc<str>; 2], attach: Attach) -> KernelProgram {
        KernelProgram {
            spec,
            name: Arc::clone(name),
            section: Arc::clone(section),
            attach,
            target: None,
            member: None,
            per_event: false,
            insns: Vec::new(),
            fixups: BTreeMap::new(),
            functions: Vec::new(),
            func_info: Vec::new(),
            line_info: Vec::new(),
            lines: Vec::new(),
            core: Vec::new(),
            reserves: Vec::new(),
            formats: Vec::new(),
            poisons: Vec::new(),
        }
    }

    /// Lets the frame of the entry function begin so many bytes lower, so that what is inserted at its start may keep
    /// them for itself.
    ///
    /// # Errors
    /// The frame is too large, or the frame pointer is used otherwise than as the base of accesses and of pointers. The
    /// program may be half changed then.
    pub fn lower_frame(&mut self, bytes: usize) -> Result<(), LowerFrameError> {
        let end = self.functions.get(1).map_or(self.insns.len(), |(first, _)| *first);
        let needed = bytes as i64;
        let mut copies = Vec::new();
        let mut pc = 0;
        while pc < end {
            let (opcode, dst, src) = (self.insns[pc].opcode, self.insns[pc].dst(), self.insns[pc].src());
            let lowest = match (opcode & 7, dst, src) {
                _ if opcode == LDDW => {
                    pc += 2;
                    continue;
                }
                // Loads, by the base.
                (1, _, 10) | (2, 10, _) => Some(pc),
                (3, 10, src) if src != 10 => Some(pc),
                (7, _, 10) if opcode == MOV && self.insns[pc].off == 0 => {
                    copies.push(pc);
                    let next = self.insns.get(pc + 1).filter(|next| next.opcode == ADD && next.dst() == dst);
                    self.check_room(next.map_or(0, |next| i64::from(next.imm)), needed)?;
                    None
                }
                // In calls these bits say what is called.
                (5, ..) if matches!(opcode, 0x85 | 0x95 | 0x05) => None,
                (3..=7, _, 10) if opcode & 8 != 0 || opcode & 7 == 3 => return Err(LowerFrameError::Pointer(pc)),
                (3..=7, 10, _) => return Err(LowerFrameError::Pointer(pc)),
                _ => None,
            };
            if let Some(at) = lowest {
                self.check_room(i64::from(self.insns[at].off), needed)?;
                self.insns[at].off -= bytes as i16;
            }
            pc += 1;
        }
        for pc in copies.into_iter().rev() {
            let lower = Raw { opcode: ADD, regs: self.insns[pc].dst(), off: 0, imm: -(bytes as i32) };
            self.splice(pc + 1, 0, &[lower])?;
        }
        Ok(())
    }

    fn check_room(&self, offset: i64, needed: i64) -> Result<(), LowerFrameError> {
        let left = FRAME + offset;
        if left < needed { Err(LowerFrameError::Room { left, needed }) } else { Ok(()) }
    }

    /// Replaces `remove` instructions from `at` on, see [`splice`]. Descriptors, functions, types, lines and whatever
    /// else refers to instructions moves with them; what is inserted belongs to the function and C line of the place.
    ///
    /// # Errors
    /// Nothing is changed then.
    pub fn splice(&mut self, at: usize, remove: usize, insert: &[Raw]) -> Result<Moved, SpliceError> {
        let moved = splice(&mut self.insns, at, remove, insert)?;
        self.follow(moved);
        Ok(moved)
    }

    /// Replaces the instructions by a stream that the caller derived from them. What both have in common at beginning
    /// and end keeps its relocations and lines; the part between loses them.
    pub fn set_insns(&mut self, insns: Vec<Raw>) {
        let moved = difference(&self.insns, &insns);
        self.insns = insns;
        self.follow(moved);
    }

    fn follow(&mut self, moved: Moved) {
        let start = |pc: usize| moved.start(pc).unwrap_or(moved.at);
        let fixups = std::mem::take(&mut self.fixups).into_iter();
        self.fixups = fixups.filter_map(|(pc, fixup)| Some((moved.insn(pc)?, fixup))).collect();
        self.functions.iter_mut().for_each(|(first, _)| *first = start(*first));
        self.func_info.iter_mut().for_each(|info| info.insn_off = start(info.insn_off as usize) as u32);
        self.line_info.retain_mut(|info| match moved.start(info.insn_off as usize) {
            Some(pc) => {
                info.insn_off = pc as u32;
                true
            }
            None => false,
        });
        self.lines.retain_mut(|line| match moved.start(line.pc) {
            Some(pc) => {
                line.pc = pc;
                true
            }
            None => false,
        });
        self.core.retain_mut(|core| moved.insn(core.pc).map(|pc| core.pc = pc).is_some());
        self.reserves.retain_mut(|slot| moved.insn(*slot).map(|pc| *slot = pc).is_some());
        self.formats.retain_mut(|format| moved.insn(format.pc).map(|pc| format.pc = pc).is_some());
        self.poisons.retain_mut(|poison| moved.insn(poison.pc).map(|pc| poison.pc = pc).is_some());
    }
}
