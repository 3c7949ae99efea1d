//! Ranges that are free: pages of an arena, slots of a handle table, code memory.

/// Free (start, length), sorted by start and never adjacent, so that ranges of changing sizes do not use up the
/// space.
#[derive(Debug)]
pub struct FreeList(Vec<(u64, u64)>);

impl FreeList {
    /// A list with one range.
    pub fn new(start: u64, len: u64) -> FreeList {
        FreeList(vec![(start, len)])
    }

    /// Takes a range of this length, the first that fits.
    pub fn take(&mut self, len: u64) -> Option<u64> {
        let index = self.0.iter().position(|range| range.1 >= len)?;
        let (start, size) = self.0[index];
        if size > len {
            self.0[index] = (start + len, size - len);
        } else {
            self.0.remove(index);
        }
        Some(start)
    }

    /// Takes the range of this length that begins at `start`, if all of it is free.
    pub fn take_at(&mut self, start: u64, len: u64) -> bool {
        let index = self.0.partition_point(|range| range.0 <= start);
        let Some(index) = index.checked_sub(1).filter(|index| start + len <= self.0[*index].0 + self.0[*index].1)
        else {
            return false;
        };
        let (first, size) = self.0.remove(index);
        let pieces = [(first, start - first), (start + len, first + size - start - len)];
        self.0.splice(index..index, pieces.into_iter().filter(|piece| piece.1 > 0));
        true
    }

    /// The free ranges, (start, length), in order.
    pub fn ranges(&self) -> &[(u64, u64)] {
        &self.0
    }

    /// Gives a range back.
    pub fn give(&mut self, start: u64, len: u64) {
        let index = self.0.partition_point(|range| range.0 < start);
        self.0.insert(index, (start, len));
        if self.0.get(index + 1).is_some_and(|next| start + len == next.0) {
            self.0[index].1 += self.0.remove(index + 1).1;
        }
        if index > 0 && self.0[index - 1].0 + self.0[index - 1].1 == start {
            self.0[index - 1].1 += self.0.remove(index).1;
        }
    }
}

/// A half of an arena.
#[derive(Debug)]
pub(super) struct Space {
    /// Pages below can be accessed: everything that was ever allocated.
    pub(super) frontier: u64,
    pub(super) free: FreeList,
}

impl Space {
    pub(super) fn new(start: u64, end: u64) -> Space {
        Space { frontier: start, free: FreeList::new(start, end - start) }
    }
}
