//! Jump threading: an edge that decides the branch at the end of its target leads to a copy of the target that ends in a
//! jump.
//!
//! BPF has no instruction for "1 if equal", so clang emits `r0 = 1; if r1 == 0 goto +1; r0 = 0` and tests `r0` later,
//! often after another `if r1 == 0`. While a test of a test remains, the processor has two branches to predict where one
//! matters.
//!
//! The facts of an edge often show, too, that a divisor is not zero.

use twinbpf_isa::{Insn, Reg, Width};
use twinbpf_vm::image::Image;

use super::facts::{Facts, branch};
use super::{Flow, NONE, Next};

/// Instructions of a block that is copied, at most.
const LONGEST: u32 = 4;
/// Predecessors in a row whose facts hold at an edge.
const BACK: usize = 4;
/// Instructions of each of them that are examined.
const LOOK: u32 = 16;
/// Each iteration threads edges that the one before has made adjacent.
const MAX_ITERATIONS: u32 = 3;

impl Flow {
    /// Leads edges past branches that they decide. To be done before anything else is found out about the blocks.
    pub(crate) fn thread(&mut self, image: &Image) {
        // A copy of a loop's first block would be a second entry into it.
        self.loops_from();
        for _ in 0..MAX_ITERATIONS {
            self.find_sources();
            let (blocks, room) = (self.len(), 2 * self.starts.len() as u32 + 16);
            let mut changed = false;
            for block in 0..blocks {
                for nth in 0..2 {
                    changed |= self.preds[block as usize] > 0 && self.len() < room && self.lead_on(image, block, nth);
                }
            }
            if !changed {
                return;
            }
            self.reach();
        }
        self.find_sources();
    }

    /// Whether a register of this width is certainly not zero before an instruction of a block. Requires that edges
    /// have been threaded.
    pub(crate) fn nonzero(&self, image: &Image, (block, pc): (u32, u32), (width, reg): (Width, Reg)) -> bool {
        let start = self.range(block).start;
        let source = self.sources[block as usize];
        let mut facts = match (0..2).find(|nth| source != NONE && self.nth_next(source, *nth) == Some(block)) {
            Some(nth) if pc - start <= LOOK => self.known(image, source, nth),
            _ => Facts::default(),
        };
        let insns = &image.insns()[start.max(pc.saturating_sub(LOOK)) as usize..pc as usize];
        insns.iter().for_each(|insn| facts.apply(*insn));
        facts.nonzero(width, reg)
    }

    /// Finds the only predecessor of each block that has just one incoming edge.
    pub(super) fn find_sources(&mut self) {
        let mut sources = std::mem::take(&mut self.sources);
        sources.clear();
        sources.resize(self.next.len(), NONE);
        for block in 0..self.len() {
            if self.preds[block as usize] > 0 {
                self.for_next(block, |next| {
                    if self.preds[next as usize] == 1 {
                        sources[next as usize] = block;
                    }
                });
            }
        }
        self.sources = sources;
    }

    /// Leads an edge past the branch of the block that it leads to. False if it does not decide it.
    fn lead_on(&mut self, image: &Image, block: u32, nth: usize) -> bool {
        // Labels are headers.
        let Some(to) = self.nth_next(block, nth) else { return false };
        let Next::Two(on, taken) = self.next[to as usize] else { return false };
        let range = self.range(to);
        if self.header[to as usize] || range.len() as u32 > LONGEST {
            return false;
        }
        let (last, rest) =
            image.insns()[range.start as usize..range.end as usize].split_last().expect("no block is empty");
        let Some(branch) = branch(*last) else { return false };
        if !rest.iter().all(|insn| matches!(insn, Insn::Alu { .. })) {
            return false;
        }
        let mut facts = self.known(image, block, nth);
        rest.iter().for_each(|insn| facts.apply(*insn));
        let Some(outcome) = facts.decide(branch) else { return false };
        let next = if outcome { taken } else { on };
        let threaded = if self.preds[to as usize] == 1 { to } else { self.copy(to) };
        self.next[threaded as usize] = Next::One(next);
        if threaded != to {
            self.preds[next as usize] += 1;
            self.looped[next as usize] = true;
            self.redirect(block, nth, threaded);
        }
        true
    }

    /// A copy of a block, with one edge to it.
    pub(super) fn copy(&mut self, block: u32) -> u32 {
        let copy = self.len();
        self.copies.push(self.original(block));
        self.next.push(Next::None);
        self.preds.push(1);
        self.looped.push(false);
        self.header.push(false);
        self.sources.push(NONE);
        copy
    }

    fn redirect(&mut self, block: u32, nth: usize, to: u32) {
        match (&mut self.next[block as usize], nth) {
            (Next::One(next), 0) | (Next::Two(next, _), 0) | (Next::Two(_, next), 1) => *next = to,
            _ => unreachable!("it has such an edge"),
        }
    }

    /// What is certain on an edge.
    fn known(&self, image: &Image, block: u32, nth: usize) -> Facts {
        let mut chain = [block; BACK];
        let mut len = 1;
        while len < BACK && self.sources[chain[len - 1] as usize] != NONE {
            chain[len] = self.sources[chain[len - 1] as usize];
            len += 1;
        }
        let mut facts = Facts::default();
        for at in (0..len).rev() {
            let range = self.range(chain[at]);
            if range.len() as u32 > LOOK {
                // Instructions that are not examined may write any register.
                facts = Facts::default();
            }
            let insns = &image.insns()[range.start.max(range.end.saturating_sub(LOOK)) as usize..range.end as usize];
            insns.iter().for_each(|insn| facts.apply(*insn));
            let Next::Two(on, taken) = self.next[chain[at] as usize] else { continue };
            // An edge of this iteration may lead elsewhere by now.
            let outcome = match at {
                _ if on == taken => None,
                0 => Some(nth == 1),
                _ if taken == chain[at - 1] => Some(true),
                _ if on == chain[at - 1] => Some(false),
                _ => None,
            };
            if let Some((outcome, branch)) = outcome.zip(insns.last().and_then(|last| branch(*last))) {
                facts.assume(branch, outcome);
            }
        }
        facts
    }
}
