//! How the values of several CPUs lie: each CPU's in a plane of their own, so that no cache line has values of two CPUs.

/// Bytes of a cache line.
const LINE: u32 = 64;
/// Sizes of elements are multiples of this, in bytes.
const WORD: u32 = 8;

/// See the module documentation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Planes {
    pub(super) cpus: u32,
    /// Bytes from an element to the next of the same CPU.
    pub(super) stride: u32,
}

impl Planes {
    /// For elements of `size` bytes with at least `gap` unused bytes after each.
    pub(super) fn new(size: u32, gap: u32, cpus: u32) -> Planes {
        let stride = size.next_multiple_of(WORD) + gap;
        let whole_lines = cpus > 1 && stride > LINE;
        Planes { cpus, stride: if whole_lines { stride.next_multiple_of(LINE) } else { stride } }
    }

    /// Elements from one CPU's plane to the next one's, if there are so many of each CPU.
    pub(super) fn elements(self, used: u32) -> u32 {
        match self.cpus {
            1 => used,
            _ if self.stride.is_multiple_of(LINE) => used,
            _ => used.checked_next_multiple_of(LINE / WORD).unwrap_or(u32::MAX),
        }
    }
}
