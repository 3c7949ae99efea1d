//! Promotion of stack slots to SSA variables (mem2reg): clang spills because BPF has ten registers, and the register
//! allocator of a machine with more can keep what was spilled.
//!
//! A word of the frame is promoted if r10 does not escape, that is, the function uses it for nothing but accesses; if plain
//! loads and stores that begin at the word's first byte are its only accesses; and if no load that is wider than the word's narrowest
//! store may follow a store that is narrower than the widest load. clang gives one word to values of different widths that do not live
//! at the same time. A word is in memory only where other code needs it: an OSR entry, and a path on which the word may be read before it is
//! written, load it; a transition to the interpreter stores it. What a frame leaves in memory when the function returns or
//! traps is therefore not what the interpreter leaves. A program sees that only by reading a frame of its own that it has
//! not written.

use cranelift_codegen::ir::types::{I32, I64};
use cranelift_codegen::ir::{InstBuilder as _, Type, Value};
use cranelift_frontend::Variable;
use twinbpf_isa::{AluOp, Insn, Operand, Reg, Size};
use twinbpf_vm::image::Image;

use super::flags::frame;
use super::flow::Flow;
use super::memory::{At, size_ty};
use super::{Input, Translator};
use crate::options::OptLevel;

/// Words as a bit set.
type Set = u64;
/// Offsets examined, at most.
const MAX_OFFSETS: usize = 1024;
/// Words that become variables, at most.
const MAX_WORDS: usize = Set::BITS as usize;
/// Accesses of a word that becomes a variable without the optimiser, at least: the work is to be worth it.
const MIN_ACCESSES: u32 = 8;
/// Words that are live at once without the optimiser, at most: with more, the register allocator has more work with them than
/// with the loads and stores that they replace.
const MAX_LIVE: u32 = 2;
/// Bytes of a frame whose words are found by a table.
const NEAR: usize = 512;
/// Passes over the blocks before all words are taken to be live everywhere.
const MAX_PASSES: u32 = 12;

/// The mutant that also makes variables of words which a load puts together of two stores.
pub(crate) const MUTANT: &str = "pieced_words_are_variables";

/// What is done at an offset of the frame.
#[derive(Clone, Copy, Debug)]
struct Word {
    off: i16,
    /// Bytes of the smallest store.
    stored: usize,
    /// The largest load.
    loaded: Option<Size>,
    /// Where the largest access of any kind ends.
    end: i32,
    /// Whether it can be a variable.
    alone: bool,
    /// Instructions that access it.
    accesses: u32,
}

/// What of the words is live at a point.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Live {
    /// Words that are.
    words: Set,
    /// Those of them of which bytes are that the word's narrowest store does not write.
    wide: Set,
}

impl Live {
    const ALL: Live = Live { words: Set::MAX, wide: Set::MAX };
}

/// How an instruction uses the frame.
enum Use {
    Load(i16, Size),
    Store(i16, Size),
    Other(i16, Size),
    /// It copies r10.
    Copy,
    None,
}

/// Reused from function to function.
#[derive(Debug, Default)]
pub(crate) struct StackSlots {
    /// Words of the frame, sorted by offset.
    list: Vec<Word>,
    /// Of each byte below r10 the number of the word that begins there, from 1, or 0.
    near: Vec<u8>,
    /// Those that are variables.
    chosen: Set,
    /// Those that are live at the start of each block.
    live: Vec<Live>,
}

impl StackSlots {
    /// There are none.
    pub(crate) fn clear(&mut self) {
        self.list.clear();
        self.near.clear();
        self.live.clear();
    }

    /// Finds the words of a function.
    pub(super) fn build(&mut self, input: &Input<'_>, flow: &Flow) {
        let Input { image, options, .. } = *input;
        self.clear();
        let insns = &image.insns()[flow.start() as usize..flow.end() as usize];
        if !self.find(insns) {
            self.clear();
            return;
        }
        for at in 0..self.list.len() {
            for next in at + 1..self.list.len() {
                if i32::from(self.list[next].off) >= self.list[at].end {
                    break;
                }
                self.list[at].alone = false;
                self.list[next].alone = false;
            }
        }
        self.list.retain(|word| word.alone);
        if options.opt == OptLevel::None {
            self.list.retain(|word| word.accesses >= MIN_ACCESSES);
        }
        if self.list.len() > MAX_WORDS {
            self.list.retain(Word::is_stored_whole);
        }
        self.list.truncate(MAX_WORDS);
        self.tabulate();
        self.chosen = Set::MAX;
        if !self.list.is_empty() {
            self.liveness(image, flow);
            if input.mutant != MUTANT {
                self.leave_pieced(image, flow);
            }
            if options.opt == OptLevel::None {
                self.choose(image, flow, options.fuel);
            } else if options.fuel {
                self.limit_given(flow, insns.len());
            }
        }
    }

    fn tabulate(&mut self) {
        self.near.clear();
        self.near.resize(NEAR, 0);
        for (number, word) in (1..).zip(&self.list) {
            if let Some(entry) = below(word.off).and_then(|at| self.near.get_mut(at)) {
                *entry = number;
            }
        }
    }

    /// Leaves in memory what would be more work for the compiler as a variable. An access less is an instruction less. But
    /// where a word is live and edges meet, it is a parameter of the block; and where the budget is checked, it is stored for the
    /// interpreter.
    fn choose(&mut self, image: &Image, flow: &Flow, fuel: bool) {
        let costs = self.costs(flow, |block| u32::from(flow.preds(block) > 1) + u32::from(fuel && flow.header(block)));
        let pays = |(word, cost): (&Word, u32)| word.accesses > cost;
        let chosen = self.list.iter().zip(costs).map(pays).enumerate();
        self.chosen &= chosen.fold(0, |set, (word, pays)| set | Set::from(pays) << word);
        if self.most_live(image, flow) > MAX_LIVE {
            self.chosen = 0;
        }
    }

    /// Leaves words in memory, until there are no more than `most` stores that give the interpreter the others where the budget is
    /// checked: there is one for each word that is live at a check. Words with many for an access go first.
    fn limit_given(&mut self, flow: &Flow, most: usize) {
        let costs = self.costs(flow, |block| u32::from(flow.header(block)));
        let mut order: Vec<usize> = (0..self.list.len()).filter(|word| self.chosen & 1 << word != 0).collect();
        let mut given: usize = order.iter().map(|word| costs[*word] as usize).sum();
        order.sort_by_key(|word| costs[*word] / self.list[*word].accesses);
        while given > most
            && let Some(word) = order.pop()
        {
            self.chosen &= !(1 << word);
            given -= costs[word] as usize;
        }
    }

    /// Sums of what it costs that each word is live where blocks start.
    fn costs(&self, flow: &Flow, cost: impl Fn(u32) -> u32) -> [u32; MAX_WORDS] {
        let mut costs = [0; MAX_WORDS];
        for block in (0..flow.len()).filter(|block| flow.preds(*block) > 0) {
            let cost = cost(block);
            let mut left = if cost > 0 { self.live[block as usize].words } else { 0 };
            while left != 0 {
                costs[left.trailing_zeros() as usize] += cost;
                left &= left - 1;
            }
        }
        costs
    }

    /// Leaves in memory what a load puts together of a narrow store and an earlier one.
    fn leave_pieced(&mut self, image: &Image, flow: &Flow) {
        if self.list.iter().all(Word::is_stored_whole) {
            return;
        }
        let mut pieced = 0;
        self.for_points(image, flow, |insn, after| {
            if let Use::Store(off, size) = frame_use(insn)
                && let Some(word) = self.index(off)
                && self.list[word].loads_more_than(size)
            {
                pieced |= after.wide & 1 << word;
            }
        });
        self.chosen &= !pieced;
    }

    /// How many variables are live at once, at most.
    fn most_live(&self, image: &Image, flow: &Flow) -> u32 {
        let mut most = 0;
        self.for_points(image, flow, |_, after| most = most.max((after.words & self.chosen).count_ones()));
        most
    }

    /// Each instruction, with what is live after it.
    fn for_points(&self, image: &Image, flow: &Flow, mut visit: impl FnMut(Insn, Live)) {
        for block in (0..flow.len()).filter(|block| flow.preds(*block) > 0) {
            let mut live = after(&self.live, flow, block);
            for pc in flow.range(block).rev() {
                let insn = image.insns()[pc as usize];
                visit(insn, live);
                live = self.before(insn, live);
            }
        }
    }

    /// What is live before an instruction.
    fn before(&self, insn: Insn, live: Live) -> Live {
        let Live { words, wide } = live;
        let bit = |word: usize| 1 << word;
        match frame_use(insn) {
            Use::Load(off, size) => self.index(off).map_or(live, |word| {
                let more = if size.bytes() > self.list[word].stored { bit(word) } else { 0 };
                Live { words: words | bit(word), wide: wide | more }
            }),
            Use::Store(off, _) => {
                let others = !self.index(off).map_or(0, bit);
                Live { words: words & others, wide: wide & others }
            }
            Use::Other(..) | Use::Copy | Use::None => live,
        }
    }

    /// Notes what is done at each offset. False if the frame's address is copied, or if there are too many.
    fn find(&mut self, insns: &[Insn]) -> bool {
        for insn in insns {
            if self.list.len() > MAX_OFFSETS {
                return false;
            }
            let usage = frame_use(*insn);
            let (off, size) = match usage {
                Use::Load(off, size) | Use::Store(off, size) | Use::Other(off, size) => (off, size),
                Use::Copy => return false,
                Use::None => continue,
            };
            let at = self.list.binary_search_by_key(&off, |word| word.off).unwrap_or_else(|at| {
                self.list.insert(
                    at,
                    Word { off, stored: Size::Dw.bytes(), loaded: None, end: off.into(), alone: true, accesses: 0 },
                );
                at
            });
            let word = &mut self.list[at];
            word.accesses += 1;
            word.end = word.end.max(i32::from(off) + size.bytes() as i32);
            match usage {
                Use::Load(..) if word.loaded.is_none_or(|old| old.bytes() < size.bytes()) => word.loaded = Some(size),
                Use::Store(..) => word.stored = word.stored.min(size.bytes()),
                Use::Other(..) => word.alone = false,
                Use::Load(..) | Use::Copy | Use::None => {}
            }
        }
        true
    }

    fn liveness(&mut self, image: &Image, flow: &Flow) {
        let mut live = std::mem::take(&mut self.live);
        live.resize(flow.len() as usize, Live::default());
        let mut again = true;
        let mut passes = 0;
        while again && passes < MAX_PASSES {
            (again, passes) = (false, passes + 1);
            for block in (0..flow.len()).rev().filter(|block| flow.preds(*block) > 0) {
                let end = after(&live, flow, block);
                let start = flow.range(block).rev().fold(end, |live, pc| self.before(image.insns()[pc as usize], live));
                again |= live[block as usize] != start;
                live[block as usize] = start;
            }
        }
        if again {
            live.fill(Live::ALL);
        }
        self.live = live;
    }

    /// The variable at an offset.
    fn variable(&self, off: i16) -> Option<usize> {
        self.index(off).filter(|word| self.chosen & 1 << word != 0)
    }

    /// The word at an offset.
    fn index(&self, off: i16) -> Option<usize> {
        match below(off).and_then(|at| self.near.get(at)) {
            Some(number) => usize::from(*number).checked_sub(1),
            None => self.list.binary_search_by_key(&off, |word| word.off).ok(),
        }
    }

    /// Those that are live at the start of a block.
    fn live(&self, block: u32) -> impl Iterator<Item = (usize, i16, Size)> {
        let set = self.live.get(block as usize).copied().unwrap_or_default().words & self.chosen;
        let words = self.list.iter().enumerate().filter(move |(at, _)| set & 1 << at != 0);
        words.filter_map(|(at, word)| Some((at, word.off, word.loaded?)))
    }

    /// What each is as a variable.
    pub(crate) fn types(&self) -> impl Iterator<Item = Type> {
        self.list.iter().map(Word::ty)
    }
}

/// How many bytes lie between the byte at an offset and r10.
fn below(off: i16) -> Option<usize> {
    usize::try_from(-1 - i32::from(off)).ok()
}

/// What is live where a block ends.
fn after(live: &[Live], flow: &Flow, block: u32) -> Live {
    let mut set = Live::default();
    flow.for_next(block, |next| {
        let next = live[next as usize];
        set = Live { words: set.words | next.words, wide: set.wide | next.wide };
    });
    set
}

impl Word {
    /// Whether a load reads bytes that a store of this size does not write.
    fn loads_more_than(&self, size: Size) -> bool {
        self.loaded.is_some_and(|loaded| loaded.bytes() > size.bytes())
    }

    /// Whether every store writes all that a load reads.
    fn is_stored_whole(&self) -> bool {
        self.loaded.is_none_or(|loaded| loaded.bytes() <= self.stored)
    }

    fn ty(&self) -> Type {
        if self.loaded == Some(Size::Dw) { I64 } else { I32 }
    }
}

/// Whether an instruction accesses the frame or copies r10.
pub(super) fn uses_frame(insn: Insn) -> bool {
    !matches!(frame_use(insn), Use::None)
}

fn frame_use(insn: Insn) -> Use {
    match insn {
        Insn::Store { src: Operand::Reg(Reg::FP), .. }
        | Insn::Atomic { src: Reg::FP, .. }
        | Insn::StoreRelease { src: Reg::FP, .. }
        | Insn::AddrSpaceCast { src: Reg::FP, .. } => Use::Copy,
        Insn::Alu { op, src: Operand::Reg(Reg::FP), .. } if op != AluOp::Neg => Use::Copy,
        Insn::Load { size, base: Reg::FP, off, .. } => Use::Load(off, size),
        Insn::Store { size, base: Reg::FP, off, .. } => Use::Store(off, size),
        Insn::LoadAcquire { size, base: Reg::FP, off, .. } | Insn::StoreRelease { size, base: Reg::FP, off, .. } => {
            Use::Other(off, size)
        }
        Insn::Atomic { base: Reg::FP, off, .. } => Use::Other(off, Size::Dw),
        Insn::Alu { .. }
        | Insn::Endian { .. }
        | Insn::LoadImm { .. }
        | Insn::LoadImmHi { .. }
        | Insn::Load { .. }
        | Insn::Store { .. }
        | Insn::Atomic { .. }
        | Insn::LoadAcquire { .. }
        | Insn::StoreRelease { .. }
        | Insn::LoadPacket { .. }
        | Insn::AddrSpaceCast { .. }
        | Insn::Branch { .. }
        | Insn::Goto { .. }
        | Insn::Gotol { .. }
        | Insn::Gotox { .. }
        | Insn::MayGoto { .. }
        | Insn::Call { .. }
        | Insn::Callx { .. }
        | Insn::Exit => Use::None,
    }
}

impl Translator<'_> {
    /// The variable for a word of the frame, and its type.
    pub(super) fn word(&self, (base, off): At) -> Option<(Variable, Type)> {
        if base != Reg::FP {
            return None;
        }
        let word = self.slots.variable(off)?;
        Some((self.variables[word], self.slots.list[word].ty()))
    }

    /// Takes words from memory that code from here on may read.
    pub(super) fn load_words(&mut self, block: u32) {
        let slots = self.slots;
        for (at, off, size) in slots.live(block) {
            let value = self.b.ins().load(size_ty(size), frame(), self.fp, i32::from(off));
            let value = if size.bytes() < 4 { self.b.ins().uextend(I32, value) } else { value };
            self.b.def_var(self.variables[at], value);
        }
    }

    /// Puts them where the interpreter finds them, below `fp`.
    pub(super) fn store_words(&mut self, block: u32, fp: Value) {
        let slots = self.slots;
        for (at, off, size) in slots.live(block) {
            let value = self.b.use_var(self.variables[at]);
            let value = if size.bytes() < 4 { self.b.ins().ireduce(size_ty(size), value) } else { value };
            self.b.ins().store(frame(), value, fp, i32::from(off));
        }
    }
}
