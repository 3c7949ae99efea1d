//! Where code pays for instructions from the budget, and how much.
//!
//! Between headers the code need not know the exact rest of the budget. A header pays in advance for the likely path to the next
//! one. A path that leaves it owes the difference, or has paid too much. A block with one predecessor takes that over, so
//! it costs nothing until paths join, a call is made or the function returns: there one subtraction pays what is owed.
//!
//! Likely is what stays in the loop, then the shorter path.

use std::cmp::Reverse;

use twinbpf_isa::Insn;
use twinbpf_vm::image::Image;

use super::Flow;

/// What is known of each block.
#[derive(Debug, Default)]
pub(super) struct Payments {
    /// Instructions from its start to the next header, at most.
    most: Vec<u32>,
    /// Instructions on the likely path to the next header.
    ahead: Vec<u32>,
    /// The successor on that path, by its number.
    likely: Vec<u32>,
    /// Instructions that have been executed and not paid for when it starts; less than zero where more is paid for.
    owed: Vec<i64>,
    /// What it pays at its end.
    due: Vec<i64>,
    /// What it owes after that.
    left: Vec<i64>,
}

/// Where the path from a block leads, the likely kind last.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum PathKind {
    /// Out of the function.
    Exit,
    /// To a header that does not lead back.
    Header,
    /// To the header of a loop around the block; of several the innermost, which comes first in post-order.
    Loop(Reverse<usize>),
}

impl Flow {
    /// Adds up the instructions between headers, and decides what is paid where.
    pub(crate) fn distances(&mut self, image: &Image) {
        let order = self.loops_from();
        let mut payments = std::mem::take(&mut self.payments);
        payments.reset(self.next.len());
        self.look_ahead(image, &order, &mut payments);
        for &block in order.iter().rev() {
            self.place(image, block, &mut payments);
        }
        self.payments = payments;
    }

    /// Finds the likely path from each block, and the longest.
    fn look_ahead(&self, image: &Image, order: &[u32], payments: &mut Payments) {
        let mut finished = vec![false; self.next.len()];
        let mut kinds = vec![PathKind::Exit; self.next.len()];
        let mut places = vec![0; self.next.len()];
        for (place, block) in order.iter().enumerate() {
            places[*block as usize] = place;
        }
        for &block in order {
            let (mut most, mut likely, mut nth) = (0, (PathKind::Exit, u32::MAX), 0);
            self.for_next(block, |next| {
                let to = next as usize;
                let (kind, ahead) = match self.header(next) {
                    true if !finished[to] => (PathKind::Loop(Reverse(places[to])), 0),
                    true => (PathKind::Header, 0),
                    false => {
                        most = most.max(payments.most[to]);
                        (kinds[to], payments.ahead[to])
                    }
                };
                if nth == 0 || kind > likely.0 || kind == likely.0 && ahead < likely.1 {
                    (likely, payments.likely[block as usize]) = ((kind, ahead), nth);
                }
                nth += 1;
            });
            let (longest, weight) = self.count(image, self.range(block));
            let ahead = if nth == 0 { 0 } else { likely.1 };
            finished[block as usize] = true;
            kinds[block as usize] = likely.0;
            payments.most[block as usize] = longest + most;
            payments.ahead[block as usize] = weight + ahead;
        }
    }

    /// Decides what a block owes and pays, and so what blocks owe that it alone leads to.
    fn place(&self, image: &Image, block: u32, payments: &mut Payments) {
        let at = block as usize;
        if self.header(block) || self.preds(block) > 1 {
            payments.owed[at] = -i64::from(payments.ahead[at]);
        }
        let owed = payments.owed[at] + i64::from(self.count(image, self.range(block)).1);
        let due = match self.nth_next(block, payments.likely[at] as usize) {
            None => owed,
            Some(next) if self.takes_over(next) => 0,
            Some(next) => owed - self.wanted(next, payments),
        };
        (payments.due[at], payments.left[at]) = (due, owed - due);
        self.for_next(block, |next| {
            if self.takes_over(next) {
                payments.owed[next as usize] = owed - due;
            }
        });
    }

    /// Instructions that these slots execute: at most, and with the likely paths of inlined callees. Those pay the difference themselves.
    pub(super) fn count(&self, image: &Image, pcs: std::ops::Range<u32>) -> (u32, u32) {
        let insns = &image.insns()[pcs.start as usize..pcs.end as usize];
        let own = insns.iter().filter(|insn| !matches!(insn, Insn::LoadImmHi { .. })).count() as u32;
        let first = self.inlined.partition_point(|call| call.pc < pcs.start);
        let calls = self.inlined[first..].iter().take_while(|call| call.pc < pcs.end);
        calls.fold((own, own), |(most, ahead), call| (most + call.most, ahead + call.ahead))
    }

    /// Whether a block starts with what its only predecessor owes.
    fn takes_over(&self, block: u32) -> bool {
        !self.header(block) && self.preds(block) == 1
    }

    /// What the predecessors of a block have to owe.
    fn wanted(&self, block: u32, payments: &Payments) -> i64 {
        if self.header(block) { 0 } else { -i64::from(payments.ahead[block as usize]) }
    }

    /// What a block pays at its end, before it leaves.
    pub(crate) fn due(&self, block: u32) -> i64 {
        self.payments.due[block as usize]
    }

    /// What the edge from one block to another pays besides.
    pub(crate) fn toll(&self, from: u32, to: u32) -> i64 {
        if self.takes_over(to) { 0 } else { self.payments.left[from as usize] - self.wanted(to, &self.payments) }
    }

    /// What a block owes before a flat pc in it.
    pub(crate) fn owed_after(&self, image: &Image, block: u32, pc: u32) -> i64 {
        self.payments.owed[block as usize] + i64::from(self.count(image, self.range(block).start..pc).1)
    }

    /// Instructions from the start of a block to the next header, at most.
    pub(crate) fn most(&self, block: u32) -> u32 {
        self.payments.most[block as usize]
    }

    /// Instructions that a header pays for in advance.
    pub(crate) fn ahead(&self, block: u32) -> u32 {
        self.payments.ahead[block as usize]
    }
}

impl Payments {
    fn reset(&mut self, blocks: usize) {
        for sums in [&mut self.most, &mut self.ahead, &mut self.likely] {
            sums.clear();
            sums.resize(blocks, 0);
        }
        for sums in [&mut self.owed, &mut self.due, &mut self.left] {
            sums.clear();
            sums.resize(blocks, 0);
        }
    }
}
