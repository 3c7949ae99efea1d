//! Words of the frame that are known: what clang spilt because BPF has ten registers comes back as a value.
//!
//! For each offset that the function both stores to and loads from with r10 itself, a forward pass finds how many low
//! bytes of the last value stored there still stand in memory. A load of no more than these is that value. Stores
//! stay, so the frame is at all times what the interpreter's would be: code that begins in a loop, the interpreter that
//! takes over when the budget ends, and callees that look at what lies there find it.
//!
//! Only this function's own instructions write to its frame, unless it has passed the address on: then calls and stores
//! through other registers end what is known. Pointers into a frame that has returned belong to nobody.

use cranelift_frontend::Variable;
use twinbpf_vm::image::Image;
use twinbpf_vm::isa::{AluOp, Insn, Operand, Reg, Size};

use super::flow::Flow;

/// Instructions of a function, at most. Over longer distances the allocator has no registers for words and puts them back
/// where clang had them: in functions of 5,000 instructions that takes it more time than all the rest, and code was
/// slower by a tenth, too.
const MAX_INSNS: usize = 2048;
/// Words looked at, at most.
const MAX_SLOTS: usize = 64;
/// Words times blocks, at most.
const MAX_CELLS: usize = 1 << 20;
/// Passes over the blocks before nothing is known.
const MAX_PASSES: u32 = 12;
/// Every byte of a word.
const WHOLE: u8 = 8;

/// Reused from function to function.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    /// Offset of each word.
    offs: Vec<i16>,
    /// Whether others can have the frame's address.
    shared: bool,
    /// Known bytes of each word at the start of each block.
    known: Vec<u8>,
    now: Vec<u8>,
}

/// The same words during translation.
#[derive(Default)]
pub(crate) struct Words {
    pub(crate) values: Vec<Variable>,
    /// Known bytes of each at this point.
    pub(crate) known: Vec<u8>,
}

impl Slots {
    /// Nothing is known.
    pub(crate) fn clear(&mut self) {
        self.offs.clear();
        self.known.clear();
    }

    pub(crate) fn build(&mut self, image: &Image, flow: &Flow) {
        self.clear();
        let insns = &image.insns()[flow.start() as usize..flow.end() as usize];
        if insns.len() > MAX_INSNS {
            return;
        }
        self.find(insns);
        let (slots, blocks) = (self.offs.len(), flow.len() as usize);
        if slots == 0 || slots * blocks > MAX_CELLS {
            self.clear();
            return;
        }
        self.known.resize(slots * blocks, WHOLE);
        let entry = flow.entry() as usize * slots;
        self.known[entry..entry + slots].fill(0);
        for _ in 0..MAX_PASSES {
            if !self.pass(image, flow) {
                return;
            }
        }
        self.clear();
    }

    /// Finds the words, and whether the frame is shared.
    fn find(&mut self, insns: &[Insn]) {
        self.shared = insns.iter().any(|insn| passes_on(*insn));
        for insn in insns {
            if let Insn::Store { base: Reg::FP, off, .. } = *insn
                && !self.offs.contains(&off)
                && self.offs.len() < MAX_SLOTS
            {
                self.offs.push(off);
            }
        }
        if self.offs.is_empty() {
            return;
        }
        let mut loaded = 0_u64;
        for insn in insns {
            if let Insn::Load { base: Reg::FP, off, .. } = *insn
                && let Some(at) = self.offs.iter().position(|other| *other == off)
            {
                loaded |= 1 << at;
            }
        }
        let mut at = 0..;
        self.offs.retain(|_| loaded & 1 << at.next().expect("counts on") != 0);
    }

    /// Goes over all blocks once. True if something changed that may matter to a block before.
    fn pass(&mut self, image: &Image, flow: &Flow) -> bool {
        let slots = self.offs.len();
        let mut known = std::mem::take(&mut self.known);
        let mut now = std::mem::take(&mut self.now);
        let mut again = false;
        for block in (0..flow.len()).filter(|block| flow.preds(*block) > 0) {
            let at = block as usize * slots;
            now.clear();
            now.extend_from_slice(&known[at..at + slots]);
            for pc in flow.range(block) {
                self.step(image.insns()[pc as usize], &mut now);
            }
            flow.for_next(block, |next| {
                let at = next as usize * slots;
                for (old, new) in known[at..at + slots].iter_mut().zip(&now) {
                    again |= *new < *old && next <= block;
                    *old = (*old).min(*new);
                }
            });
        }
        (self.known, self.now) = (known, now);
        again
    }

    /// What is known at the start of a block.
    pub(crate) fn at_start(&self, block: u32) -> &[u8] {
        let at = block as usize * self.offs.len();
        &self.known[at..at + self.offs.len()]
    }

    pub(crate) fn len(&self) -> usize {
        self.offs.len()
    }

    /// The word at an offset.
    pub(crate) fn index(&self, off: i16) -> Option<usize> {
        self.offs.iter().position(|other| *other == off)
    }

    /// What is known after an instruction.
    pub(crate) fn step(&self, insn: Insn, known: &mut [u8]) {
        match insn {
            Insn::Store { size, base: Reg::FP, off, .. } => self.write(off, size, true, known),
            Insn::StoreRelease { size, base: Reg::FP, off, .. } => self.write(off, size, false, known),
            Insn::Atomic { base: Reg::FP, off, .. } => self.write(off, Size::Dw, false, known),
            Insn::Store { .. }
            | Insn::StoreRelease { .. }
            | Insn::Atomic { .. }
            | Insn::LoadPacket { .. }
            | Insn::Call { .. }
            | Insn::Callx { .. } => {
                if self.shared {
                    known.fill(0);
                }
            }
            Insn::Alu { .. }
            | Insn::Endian { .. }
            | Insn::LoadImm { .. }
            | Insn::LoadImmHi { .. }
            | Insn::Load { .. }
            | Insn::LoadAcquire { .. }
            | Insn::AddrSpaceCast { .. }
            | Insn::Branch { .. }
            | Insn::Goto { .. }
            | Insn::Gotol { .. }
            | Insn::Gotox { .. }
            | Insn::MayGoto { .. }
            | Insn::Exit => {}
        }
    }

    /// Bytes of the frame change, to a value that is kept if a plain store put it there.
    fn write(&self, off: i16, size: Size, kept: bool, known: &mut [u8]) {
        let (from, to) = (i32::from(off), i32::from(off) + size.bytes() as i32);
        for (word, known) in self.offs.iter().zip(known) {
            let word = i32::from(*word);
            if word == from {
                *known = if kept { size.bytes() as u8 } else { 0 };
            } else if word < to && from < word + i32::from(*known) {
                *known = (from - word).max(0) as u8;
            }
        }
    }
}

/// Whether an instruction copies r10.
fn passes_on(insn: Insn) -> bool {
    match insn {
        Insn::Alu { op, src, .. } => src == Operand::Reg(Reg::FP) && op != AluOp::Neg,
        Insn::Store { src, .. } => src == Operand::Reg(Reg::FP),
        Insn::Atomic { src, .. } | Insn::StoreRelease { src, .. } | Insn::AddrSpaceCast { src, .. } => src == Reg::FP,
        Insn::Endian { .. }
        | Insn::LoadImm { .. }
        | Insn::LoadImmHi { .. }
        | Insn::Load { .. }
        | Insn::LoadAcquire { .. }
        | Insn::LoadPacket { .. }
        | Insn::Branch { .. }
        | Insn::Goto { .. }
        | Insn::Gotol { .. }
        | Insn::Gotox { .. }
        | Insn::MayGoto { .. }
        | Insn::Call { .. }
        | Insn::Callx { .. }
        | Insn::Exit => false,
    }
}
