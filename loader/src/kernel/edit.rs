//! Changing a linked program: variants of one program, each with its own instructions at the start.

use std::collections::BTreeMap;
use std::sync::Arc;

use twinbpf_isa::{LowerFrameError, Moved, Raw, SpliceError, difference, lower_frame, splice};

use super::{Attaching, KernelProgram};
use crate::section::Attach;

/// Bytes of a BPF frame.
const FRAME: u32 = 512;

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
            attaching: Attaching::BySection,
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
    /// As of [`lower_frame`]. The program may be half changed then.
    pub fn lower_frame(&mut self, bytes: usize) -> Result<(), LowerFrameError> {
        let end = self.functions.get(1).map_or(self.insns.len(), |(first, _)| *first);
        for (at, raw) in lower_frame(&mut self.insns[..end], FRAME, bytes)? {
            self.splice(at, 0, &[raw])?;
        }
        Ok(())
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
