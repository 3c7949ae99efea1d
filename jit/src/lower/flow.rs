//! The basic blocks of one function, and what is known about them before code is made: which of them are reachable,
//! which registers are live, how many instructions lie ahead. Everything here is linear in the number of instructions
//! or gives up in favour of an answer that is always right.

mod facts;
mod inlined_calls;
mod jump_threading;
mod payments;
mod unrolling;

use std::cmp::Reverse;

use twinbpf_isa::Insn;
use twinbpf_vm::host::Intrinsic;
use twinbpf_vm::image::{Image, Link};

pub(super) use inlined_calls::InlinedCall;
use payments::Payments;
pub(crate) use unrolling::MUTANT as UNROLLING_MUTANT;

use super::effects::{ALL, Callees, Effects, Regs, Successors, effects};

/// No block.
const NONE: u32 = u32::MAX;
/// Passes over the blocks before liveness settles for "all registers". Nested loops need one each.
const MAX_PASSES: u32 = 12;
/// Edges from computed jumps to labels, or for each instruction. Code with more of both stays in the interpreter.
const MAX_COMPUTED: usize = 1 << 17;
const MAX_COMPUTED_EACH: usize = 4;
/// Functions with more instructions times call returns than this store live registers before each budget check. If only the
/// cold path stored them, the optimiser would recompute their values in every cold block.
const EARLY: u64 = 1 << 14;

/// Successors of a block.
#[derive(Clone, Copy, Debug)]
enum Next {
    None,
    One(u32),
    Two(u32, u32),
    /// Every label, after a computed jump.
    Labels,
}

impl Next {
    /// The same, with edges that lead elsewhere.
    fn map(self, lead: impl Fn(u32) -> u32) -> Next {
        match self {
            Next::One(next) => Next::One(lead(next)),
            Next::Two(on, taken) => Next::Two(lead(on), lead(taken)),
            Next::None | Next::Labels => self,
        }
    }
}

/// Whether a call may be lowered to one of a function of the image.
fn nests(image: &Image, link: Link) -> bool {
    match link {
        Link::Host(host) => {
            matches!(image.hosts()[host as usize].intrinsic(), Some(Intrinsic::Loop | Intrinsic::ForEachElement))
        }
        Link::TailCall => false,
        Link::Function(_) | Link::Trap(_) | Link::None | Link::Value(_) => true,
    }
}

/// Blocks are numbered in the order of their instructions, copies of them after. Reused from function to function.
#[derive(Debug, Default)]
pub(crate) struct Flow {
    start: u32,
    end: u32,
    /// Flat pc of each block's first instruction.
    starts: Vec<u32>,
    /// The original block of each copy.
    copies: Vec<u32>,
    /// Block that starts at each instruction of the function, if one does.
    at: Vec<u32>,
    next: Vec<Next>,
    /// Edges that lead to each block from reachable ones, the function's entry among them; 0 if none does.
    preds: Vec<u32>,
    /// The only predecessor of each block that has just one incoming edge.
    sources: Vec<u32>,
    /// Whether a later block or an indirect jump leads to the block.
    looped: Vec<bool>,
    /// Whether the budget is checked there: where loops begin, the entry, labels, and where calls return to.
    header: Vec<bool>,
    /// Registers that a block's first instruction or a later one reads.
    live: Vec<Regs>,
    /// Of each block as a whole.
    effects: Vec<Effects>,
    /// Blocks that computed jumps can reach, in the order of their addresses.
    labels: Vec<u32>,
    /// Slot of the first of them in the image's table of addresses.
    pub(crate) first_label: u32,
    /// What is paid from the budget, and where.
    payments: Payments,
    /// Calls that are inlined, in order. They end no block, and are no calls here otherwise.
    inlined: Vec<InlinedCall>,
    /// Whether there are calls.
    pub(crate) calls: bool,
    /// Whether some of them may be of functions of the image.
    nests: bool,
    /// Whether budget checks store live registers first, see [`EARLY`].
    early: bool,
    /// Whether `may_goto` is used.
    pub(crate) loops: bool,
    /// Header and source of each edge back to where a loop begins, after [`Flow::loops_from`].
    back_edges: Vec<(u32, u32)>,
    /// Headers of loops that lie in no other one, in order, after [`Flow::find_outer`].
    pub(crate) outer: Vec<u32>,
    /// Edges out of unrolled loops, in order.
    exits: Vec<(u32, u32)>,
    stack: Vec<u32>,
    entry: u32,
}

impl Flow {
    /// Finds the blocks of the function that are reachable from its first instruction, where nothing is inlined.
    pub(crate) fn build_plain(&mut self, image: &Image, function: u32, fuel: bool) -> bool {
        let start = image.functions()[function as usize].start;
        self.build(image, (function, start), fuel, u32::MAX, &[])
    }

    /// Finds the blocks of a function that are reachable from a flat pc. With `fuel` a call ends a block, and what follows is a
    /// header: the callee has used up some of the budget. Of inlined calls it is known how much they use.
    ///
    /// No block has more than `longest` instructions. False if the function is too entangled.
    pub(crate) fn build(
        &mut self,
        image: &Image,
        (function, entry): (u32, u32),
        fuel: bool,
        longest: u32,
        inlined: &[InlinedCall],
    ) -> bool {
        let function = &image.functions()[function as usize];
        (self.start, self.end) = (function.start, function.end);
        self.inlined.clear();
        self.inlined.extend_from_slice(inlined);
        self.at.clear();
        self.at.resize((self.end - self.start) as usize + 1, NONE);
        self.labels.clear();
        self.exits.clear();
        self.outer.clear();
        (self.calls, self.nests, self.loops) = (false, false, false);
        self.mark(entry);
        // Baseline code keeps no values over calls.
        let jumps = self.leaders(image, fuel || longest < u32::MAX);
        if jumps > 0 {
            let (first, labels) = image.labels_in(self.start..self.end);
            let most = MAX_COMPUTED.max(MAX_COMPUTED_EACH * (self.end - self.start) as usize);
            if jumps.saturating_mul(labels.len()) > most {
                return false;
            }
            self.first_label = first;
            labels.iter().for_each(|pc| self.mark(*pc));
            self.mark(self.start);
            self.labels.extend_from_slice(labels);
        }
        self.cut(image, longest);
        self.number();
        for label in &mut self.labels {
            *label = self.at[(*label - self.start) as usize];
        }
        self.entry = self.block_at(entry);
        self.edges(image, fuel);
        let headers = self.header.iter().zip(&self.looped).filter(|(header, looped)| **header && !**looped).count();
        self.early = u64::from(self.end - self.start) * headers as u64 > EARLY;
        self.reach();
        true
    }

    fn mark(&mut self, pc: u32) {
        self.at[(pc - self.start) as usize] = 0;
    }

    /// Marks what starts a block. Gives the number of computed jumps.
    fn leaders(&mut self, image: &Image, calls_end: bool) -> usize {
        let mut computed = 0;
        for pc in self.start..self.end {
            let insn = image.insns()[pc as usize];
            match self.successors(image, pc) {
                Successors::FallThrough => {}
                Successors::Call => {
                    self.calls = true;
                    self.nests |= nests(image, image.links()[pc as usize]);
                    if calls_end {
                        self.mark(pc + 1);
                    }
                }
                Successors::Branch(target) => {
                    self.loops |= matches!(insn, Insn::MayGoto { .. });
                    self.mark(target);
                    self.mark(pc + 1);
                }
                Successors::Jump(target) => {
                    self.mark(target);
                    self.mark(pc + 1);
                }
                Successors::Computed => {
                    computed += 1;
                    self.mark(pc + 1);
                }
                Successors::Exit => self.mark(pc + 1),
            }
            self.calls |= matches!(insn, Insn::LoadPacket { .. });
        }
        computed
    }

    /// Marks instructions so that no block has more than so many.
    fn cut(&mut self, image: &Image, longest: u32) {
        let mut left = longest;
        for pc in self.start..self.end {
            let marked = self.at[(pc - self.start) as usize] != NONE;
            if marked || left == 0 && !matches!(image.insns()[pc as usize], Insn::LoadImmHi { .. }) {
                self.mark(pc);
                left = longest;
            }
            left = left.saturating_sub(1);
        }
    }

    /// Numbers the marked instructions. The mark past the last begins no block.
    fn number(&mut self) {
        self.starts.clear();
        self.copies.clear();
        self.at.pop();
        for (pc, at) in (self.start..).zip(&mut self.at) {
            if *at != NONE {
                *at = self.starts.len() as u32;
                self.starts.push(pc);
            }
        }
        let blocks = self.starts.len();
        self.next.clear();
        for flags in [&mut self.header, &mut self.looped] {
            flags.clear();
            flags.resize(blocks, false);
        }
    }

    fn edges(&mut self, image: &Image, fuel: bool) {
        self.header[self.entry as usize] = true;
        for block in 0..self.starts.len() as u32 {
            let pc = self.end_of(block) - 1;
            let flow = self.successors(image, pc);
            let on = if pc + 1 < self.end { self.block_at(pc + 1) } else { NONE };
            let next = match flow {
                Successors::FallThrough => Next::One(on),
                // The call at the end of a function does not return.
                Successors::Call if on == NONE => Next::None,
                Successors::Call => {
                    self.header[on as usize] |= fuel;
                    Next::One(on)
                }
                Successors::Branch(target) => Next::Two(on, self.target(pc, target)),
                Successors::Jump(target) => Next::One(self.target(pc, target)),
                Successors::Computed => Next::Labels,
                Successors::Exit => Next::None,
            };
            self.next.push(next);
        }
        if self.next.iter().any(|next| matches!(next, Next::Labels)) {
            for label in self.labels.iter().chain([&0]) {
                self.header[*label as usize] = true;
                self.looped[*label as usize] = true;
            }
        }
    }

    fn target(&mut self, from: u32, pc: u32) -> u32 {
        let block = self.block_at(pc);
        self.looped[block as usize] |= pc <= from;
        block
    }

    /// Counts edges from reachable blocks.
    fn reach(&mut self) {
        let mut stack = std::mem::take(&mut self.stack);
        let mut preds = std::mem::take(&mut self.preds);
        preds.clear();
        preds.resize(self.next.len(), 0);
        preds[self.entry as usize] = 1;
        stack.push(self.entry);
        while let Some(block) = stack.pop() {
            self.for_next(block, |next| {
                if preds[next as usize] == 0 {
                    stack.push(next);
                }
                preds[next as usize] += 1;
            });
        }
        (self.stack, self.preds) = (stack, preds);
    }

    /// Calls `f` for each edge that leaves a block.
    pub(crate) fn for_next(&self, block: u32, f: impl FnMut(u32)) {
        (0..).map_while(|nth| self.nth_next(block, nth)).for_each(f);
    }

    /// Where the edge of this number leads that leaves a block.
    pub(crate) fn nth_next(&self, block: u32, nth: usize) -> Option<u32> {
        match (self.next[block as usize], nth) {
            (Next::One(next), 0) | (Next::Two(next, _), 0) | (Next::Two(_, next), 1) => Some(next),
            // The function's own address comes last.
            (Next::Labels, nth) if nth == self.labels.len() => Some(0),
            (Next::Labels, nth) => self.labels.get(nth).copied(),
            (Next::None | Next::One(_) | Next::Two(..), _) => None,
        }
    }

    /// Finds the loops that lie in no other one: by the order of blocks, between a header and what
    /// jumps back to it. Only at headers is the budget exact.
    pub(crate) fn find_outer(&mut self, counted: bool) {
        // With a budget, `distances` has found the back edges.
        if !counted {
            self.loops_from();
        }
        let mut spans: Vec<(u32, u32, u32)> = Vec::new();
        self.back_edges.sort_unstable();
        for edges in self.back_edges.chunk_by(|(one, _), (two, _)| one == two) {
            let (header, sources) = (edges[0].0, edges.iter().map(|(_, from)| *from));
            let (low, high) = sources.fold((header, header), |(low, high), from| (low.min(from), high.max(from)));
            spans.push((low, high, header));
        }
        // Of those that begin together the longest first.
        spans.sort_unstable_by_key(|(low, high, _)| (*low, Reverse(*high)));
        let mut end = None;
        for (_, high, header) in spans {
            if end.is_none_or(|end| high > end) {
                self.outer.push(header);
                end = Some(high);
            }
        }
        self.outer.sort_unstable();
    }

    /// Finds the registers that are live at the start of each block.
    pub(crate) fn liveness(&mut self, image: &Image, callees: &impl Callees) {
        let mut live = std::mem::take(&mut self.live);
        live.clear();
        live.resize(self.next.len(), 0);
        self.sum_effects(image, callees);
        let mut again = true;
        let mut passes = 0;
        while again && passes < MAX_PASSES {
            (again, passes) = (false, passes + 1);
            for block in (0..self.len()).rev() {
                if self.preds[block as usize] == 0 {
                    continue;
                }
                let mut regs = 0;
                self.for_next(block, |next| regs |= live[next as usize]);
                let Effects { uses, defs } = self.effects[block as usize];
                regs = regs & !defs | uses;
                if live[block as usize] != regs {
                    live[block as usize] = regs;
                    // Only blocks after it have used what was known before.
                    again |= self.looped[block as usize];
                }
            }
        }
        if again {
            live.fill(ALL);
        }
        self.live = live;
    }

    /// What reachable blocks read before they write it, and what they write.
    fn sum_effects(&mut self, image: &Image, callees: &impl Callees) {
        let mut sums = std::mem::take(&mut self.effects);
        sums.clear();
        sums.extend((0..self.len()).map(|block| {
            let mut sum = Effects::default();
            if self.preds(block) > 0 {
                for pc in self.range(block) {
                    let next = effects(image.insns()[pc as usize], image.links()[pc as usize], callees);
                    sum.uses |= next.uses & !sum.defs;
                    sum.defs |= next.defs;
                }
            }
            sum
        }));
        self.effects = sums;
    }

    /// Marks the blocks that loops begin with as headers: each cycle has one. Gives the reachable blocks in post-order:
    /// successors before a block, unless they are headers.
    pub(crate) fn loops_from(&mut self) -> Vec<u32> {
        #[derive(Clone, Copy, PartialEq)]
        enum State {
            New,
            Open,
            Done,
        }
        self.back_edges.clear();
        let mut states = vec![State::New; self.next.len()];
        let mut done = Vec::with_capacity(self.next.len());
        let mut stack = vec![(self.entry, 0)];
        states[self.entry as usize] = State::Open;
        while let Some((block, seen)) = stack.last_mut() {
            let Some(next) = self.nth_next(*block, *seen) else {
                states[*block as usize] = State::Done;
                done.push(*block);
                stack.pop();
                continue;
            };
            *seen += 1;
            match states[next as usize] {
                State::New => {
                    states[next as usize] = State::Open;
                    stack.push((next, 0));
                }
                State::Open => {
                    self.header[next as usize] = true;
                    self.back_edges.push((next, *block));
                }
                State::Done => {}
            }
        }
        done
    }

    /// Whether there are calls, and nothing that they call leaves another frame than this as the innermost.
    pub(crate) fn calls_out_only(&self) -> bool {
        self.calls && !self.nests
    }

    pub(crate) fn len(&self) -> u32 {
        self.next.len() as u32
    }

    pub(crate) fn entry(&self) -> u32 {
        self.entry
    }

    /// Flat pcs of a block.
    pub(crate) fn range(&self, block: u32) -> std::ops::Range<u32> {
        let original = self.original(block);
        self.starts[original as usize]..self.end_of(original)
    }

    /// The block that one is a copy of; otherwise itself.
    fn original(&self, block: u32) -> u32 {
        (block as usize).checked_sub(self.starts.len()).map_or(block, |copy| self.copies[copy])
    }

    fn end_of(&self, block: u32) -> u32 {
        self.starts.get(block as usize + 1).copied().unwrap_or(self.end)
    }

    /// Flat pc of the function.
    pub(crate) fn start(&self) -> u32 {
        self.start
    }

    /// Flat pc after the function.
    pub(crate) fn end(&self) -> u32 {
        self.end
    }

    /// The block that starts at a flat pc.
    pub(crate) fn block_at(&self, pc: u32) -> u32 {
        let block = self.at[(pc - self.start) as usize];
        debug_assert_ne!(block, NONE, "jumps lead to blocks");
        block
    }

    pub(crate) fn preds(&self, block: u32) -> u32 {
        self.preds[block as usize]
    }

    pub(crate) fn header(&self, block: u32) -> bool {
        self.header[block as usize]
    }

    /// How many reachable headers there are.
    pub(crate) fn headers(&self) -> usize {
        self.header.iter().zip(&self.preds).filter(|(header, preds)| **header && **preds > 0).count()
    }

    /// Whether code of the first tier counts turns there.
    pub(crate) fn counts_turns(&self, block: u32) -> bool {
        self.outer.binary_search(&block).is_ok()
    }

    /// Whether the budget check at a header's start stores live registers first.
    pub(crate) fn stores_early(&self, block: u32) -> bool {
        self.early && !self.looped[block as usize]
    }

    pub(crate) fn live(&self, block: u32) -> Regs {
        self.live[block as usize]
    }

    pub(crate) fn labels(&self) -> &[u32] {
        &self.labels
    }
}
