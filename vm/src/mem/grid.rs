//! Elements at equal distances.

/// A region whose elements lie at equal distances: enough to find the next one without the table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grid {
    pub(super) start: u32,
    pub(super) len: u32,
    pub(super) size: u32,
    pub(super) writable: bool,
    pub(super) stride: u32,
}

impl Grid {
    /// Holds no offset.
    pub(super) const EMPTY: Grid = Grid { start: 0, len: 0, size: 0, writable: false, stride: 1 };

    /// Elements of `size` bytes from `start` on, which begin `stride` bytes apart.
    pub(super) fn new(start: u32, len: u32, size: u32, stride: u32, writable: bool) -> Grid {
        Grid { start, len, size, writable, stride: stride.max(1) }
    }

    /// Offset of the element at or before an offset inside the region.
    #[inline]
    pub(super) fn element(&self, off: u32) -> u32 {
        let inside = off - self.start;
        if self.stride >= self.len { self.start } else { self.start + inside / self.stride * self.stride }
    }
}
