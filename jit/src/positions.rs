//! Positions: numbers of a function's instructions in the order of its code, those of inlined functions among them.
//!
//! While a function is compiled, source locations, trap sites and marks of listings have positions in place of flat pcs. They count
//! the instructions of an inlined function right after the call in whose place it is, each time that it is inlined, so that the distance of
//! two positions is the number of instructions between them. Without inlined functions a position is a flat pc.

use std::ops::Range;

/// The positions of a function.
#[derive(Clone, Debug, Default)]
pub(crate) struct Positions {
    /// Inlined functions, in order.
    inlined: Vec<Inlined>,
}

#[derive(Clone, Copy, Debug)]
struct Inlined {
    /// Flat pc of the call.
    call: u32,
    /// Position of the callee's first instruction.
    first: u32,
    /// Flat pc of that.
    start: u32,
    /// Number of its instructions.
    len: u32,
}

impl Inlined {
    /// By how much the positions of the instructions after the call exceed their pcs.
    fn shift(self) -> u32 {
        self.first + self.len - self.call - 1
    }
}

impl Positions {
    pub(crate) fn clear(&mut self) {
        self.inlined.clear();
    }

    /// Adds a call after all others, and the flat pcs of the function that is inlined there.
    pub(crate) fn push(&mut self, call: u32, callee: &Range<u32>) {
        let first = self.of(call) + 1;
        self.inlined.push(Inlined { call, first, start: callee.start, len: callee.end - callee.start });
    }

    /// The position of an instruction of the function itself.
    pub(crate) fn of(&self, pc: u32) -> u32 {
        let before = self.inlined.partition_point(|inlined| inlined.call < pc);
        pc + before.checked_sub(1).map_or(0, |last| self.inlined[last].shift())
    }

    /// The position of an instruction of the function that is inlined at a call.
    pub(crate) fn inside(&self, call: u32, pc: u32) -> u32 {
        let at = self.inlined.binary_search_by_key(&call, |inlined| inlined.call).expect("a call that is inlined");
        self.inlined[at].first + pc - self.inlined[at].start
    }

    /// The flat pc of a position, and that of the call if it is in an inlined function.
    pub(crate) fn resolve(&self, position: u32) -> (u32, Option<u32>) {
        let before = self.inlined.partition_point(|inlined| inlined.first <= position);
        let Some(last) = before.checked_sub(1).map(|last| self.inlined[last]) else { return (position, None) };
        match position - last.first {
            off if off < last.len => (last.start + off, Some(last.call)),
            _ => (position - last.shift(), None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_follow_each_other() {
        let mut positions = Positions::default();
        assert_eq!((positions.of(7), positions.resolve(7)), (7, (7, None)));
        for (call, callee) in [(12, 40..43), (13, 40..43), (20, 50..51)] {
            positions.push(call, &callee);
        }
        let order = (10..=12).map(|pc| (pc, None));
        let order = order.chain((40..43).map(|pc| (pc, Some(12)))).chain([(13, None)]);
        let order = order.chain((40..43).map(|pc| (pc, Some(13)))).chain((14..=20).map(|pc| (pc, None)));
        let order = order.chain([(50, Some(20)), (21, None), (22, None)]);
        for (position, (pc, call)) in (10..).zip(order) {
            assert_eq!(positions.resolve(position), (pc, call));
            assert_eq!(call.map_or_else(|| positions.of(pc), |call| positions.inside(call, pc)), position);
        }
    }
}
