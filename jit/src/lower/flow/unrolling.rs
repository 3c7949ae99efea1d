//! Loop unrolling: a short innermost loop becomes a longer one, whose body is so many copies of the original one.
//!
//! An iteration of the longer loop checks the budget once and pays once for all copies, and Cranelift merges their increments,
//! addresses and masks. Each edge leads to a copy of the block that it led to, and copies keep the instructions' places, so results,
//! traps and counts are those of the original. A path that leaves the loop pays for what it has executed, as after any branch
//! ([`payments`](super::payments)). Where the budget may end within the copies the interpreter takes over, somewhat sooner.
//!
//! Loops with calls are as they were: with a budget a return is a header.

use smallvec::SmallVec;
use twinbpf_isa::Insn;
use twinbpf_vm::image::Image;

use super::super::Input;
use super::{Flow, Next};
use crate::limits::Room;
use crate::options::Options;

/// Instructions of a loop that is unrolled, at most, and of it and its copies.
const LONGEST: u32 = 64;
const UNROLLED: u32 = 128;
/// Copies of a body, the original one included: what is left to save by a fifth is small.
const COPIES: u32 = 4;
/// Instructions that a function gets by unrolling: a quarter of what it has, between these. The shortest loops come first, which gain
/// most.
const GROWTH: (u32, u32) = (32, 1024);

/// The mutant of loop unrolling.
pub(crate) const MUTANT: &str = "unrolled_loops_invert_the_last_branch";

/// What a function may become by unrolling.
struct Growth {
    insns: u32,
    room: Room,
}

impl Growth {
    fn of(insns: &[Insn], options: Options) -> Growth {
        Growth { insns: (insns.len() as u32 / 4).clamp(GROWTH.0, GROWTH.1), room: Room::of(insns, options) }
    }

    /// How many bodies a loop gets of so many instructions and blocks.
    fn take(&mut self, len: u32, blocks: usize) -> u32 {
        let copies = (UNROLLED / len).min(COPIES).min(1 + self.insns / len);
        let more = copies.saturating_sub(1);
        if !self.room.take((more * len).into(), u64::from(more) * blocks as u64) {
            return 1;
        }
        self.insns -= more * len;
        copies
    }
}

impl Flow {
    /// Unrolls loops. To be done after [`Flow::thread`], before anything else is found out about the blocks.
    pub(crate) fn unroll(&mut self, input: Input<'_>) {
        self.loops_from();
        if self.back_edges.is_empty() {
            return;
        }
        let image = input.image;
        let preds = self.predecessors();
        let mut edges = std::mem::take(&mut self.back_edges);
        edges.sort_unstable();
        let loops = edges.chunk_by(|(one, _), (two, _)| one == two);
        let mut loops: Vec<_> = loops.filter_map(|edges| self.short_loop(image, &preds, edges)).collect();
        if loops.is_empty() {
            return;
        }
        loops.sort_by_key(|(_, len)| *len);
        let mut growth = Growth::of(&image.insns()[self.start as usize..self.end as usize], input.options);
        for (body, len) in loops {
            let copies = growth.take(len, body.len());
            if copies > 1 {
                self.repeat(&body, copies);
                if input.mutant == MUTANT {
                    let last = self.next.last_mut().expect("there are copies");
                    *last = if let Next::Two(on, taken) = *last { Next::Two(taken, on) } else { *last };
                }
            }
        }
        self.exits.sort_unstable();
        self.reach();
        self.find_sources();
    }

    /// Whether an edge leaves a loop that is unrolled.
    pub(crate) fn exits_unrolled(&self, from: u32, to: u32) -> bool {
        self.exits.binary_search(&(from, to)).is_ok()
    }

    /// Predecessors of each block.
    fn predecessors(&self) -> Vec<Vec<u32>> {
        let mut preds: Vec<_> = self.preds.iter().map(|preds| Vec::with_capacity(*preds as usize)).collect();
        for block in (0..self.len()).filter(|block| self.preds(*block) > 0) {
            self.for_next(block, |next| preds[next as usize].push(block));
        }
        preds
    }

    /// The blocks of a loop with these edges back in order, the header first, and how many instructions they have: if it is short, and
    /// without another header.
    fn short_loop(&self, image: &Image, preds: &[Vec<u32>], edges: &[(u32, u32)]) -> Option<(Vec<u32>, u32)> {
        let header = edges[0].0;
        let mut latches: Vec<u32> = edges.iter().map(|(_, from)| *from).collect();
        let mut body = vec![header];
        let mut len = self.count(image, self.range(header)).0;
        while let Some(block) = latches.pop() {
            if body.contains(&block) {
                continue;
            }
            // Only a header has computed jumps to it, so none of them stays within the loop.
            if self.header(block) {
                return None;
            }
            len += self.count(image, self.range(block)).0;
            if len > LONGEST {
                return None;
            }
            body.push(block);
            latches.extend(&preds[block as usize]);
        }
        body[1..].sort_unstable();
        (1..=LONGEST).contains(&len).then_some((body, len))
    }

    /// Puts copies of a loop's body between its end and its header.
    fn repeat(&mut self, body: &[u32], times: u32) {
        let first = self.len();
        let next: Vec<Next> = body.iter().map(|block| self.next[*block as usize]).collect();
        for _ in 1..times {
            for block in body {
                self.copy(*block);
            }
        }
        let number = |time: u32, at: usize| match time.checked_sub(1) {
            None => body[at],
            Some(copy) => first + copy * body.len() as u32 + at as u32,
        };
        for time in 0..times {
            let lead = |to: u32| match body.iter().position(|block| *block == to) {
                Some(0) if time + 1 == times => to,
                Some(0) => number(time + 1, 0),
                Some(at) => number(time, at),
                None => to,
            };
            for (at, next) in next.iter().enumerate() {
                self.next[number(time, at) as usize] = next.map(lead);
            }
        }
        for from in body.iter().copied().chain(first..self.len()) {
            for to in (0..2).map_while(|nth| self.nth_next(from, nth)).collect::<SmallVec<[u32; 2]>>() {
                // It may come after a copy that leads to it.
                self.looped[to as usize] |= to < first;
                if to < first && !body.contains(&to) {
                    self.exits.push((from, to));
                }
            }
        }
    }
}
