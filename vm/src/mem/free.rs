//! Ranges that are free: pages of an arena, slots of a handle table.

/// Free (start, length), sorted by start and never adjacent, so that ranges of changing sizes do not use up the
/// space.
#[derive(Debug)]
pub(super) struct FreeList(Vec<(u64, u64)>);

impl FreeList {
    /// A list with one range.
    pub(super) fn new(start: u64, len: u64) -> FreeList {
        FreeList(vec![(start, len)])
    }

    /// Takes a range of this length, the first that fits.
    pub(super) fn take(&mut self, len: u64) -> Option<u64> {
        let index = self.0.iter().position(|range| range.1 >= len)?;
        let (start, size) = self.0[index];
        if size > len {
            self.0[index] = (start + len, size - len);
        } else {
            self.0.remove(index);
        }
        Some(start)
    }

    /// Gives a range back.
    pub(super) fn give(&mut self, start: u64, len: u64) {
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
