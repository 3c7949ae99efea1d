//! Memory for elements that no program sees and that come and go: one range of addresses, of which pages count as they are used.

use std::sync::Arc;

use super::sync::AtomicU32;
use crate::mem::{Arena, Block, MemError, RegionKind, RegionSpec};

/// Sizes of elements are multiples of this, in bytes.
const WORD: u32 = 8;

/// See the module documentation.
#[derive(Debug)]
pub(super) struct HiddenSlab {
    memory: Block,
    stride: u32,
    /// Elements that there are addresses for.
    slots: u32,
}

impl HiddenSlab {
    /// A slab for `capacity` elements of `size` bytes; none counts for the arena's limit yet.
    pub(super) fn new(arena: &Arc<Arena>, label: String, size: u32, capacity: u32) -> Result<HiddenSlab, MemError> {
        let stride = size.next_multiple_of(WORD).max(WORD);
        let spec = RegionSpec::new(label, RegionKind::Map, stride);
        let memory = arena.reserve_hidden(RegionSpec { count: capacity, ..spec })?;
        let slots = capacity.min(memory.len() / stride);
        Ok(HiddenSlab { memory, stride, slots })
    }

    /// Counts the memory of all slots up to this one.
    pub(super) fn grow(&self, slot: u32) -> Result<(), MemError> {
        self.memory.grow((u64::from(slot) + 1) * u64::from(self.stride))
    }

    /// Whether a slot has memory.
    #[inline(always)]
    pub(super) fn has(&self, slot: u32) -> bool {
        slot < self.slots && self.memory.has((u64::from(slot) + 1) * u64::from(self.stride))
    }

    /// The memory, and where an element begins in it.
    ///
    /// # Panics
    /// If there are no addresses for it.
    #[inline(always)]
    pub(super) fn at(&self, slot: u32) -> (&Block, u32) {
        assert!(slot < self.slots, "slot inside the slab");
        (&self.memory, slot * self.stride)
    }

    /// Elements that there are addresses for: their bytes are 0 until they are used.
    pub(super) fn slots(&self) -> u32 {
        self.slots
    }

    /// The memory of all elements, which are at multiples of 8 bytes.
    #[inline(always)]
    pub(super) fn memory(&self) -> &Block {
        &self.memory
    }

    /// The slot whose element is at an offset.
    #[inline(always)]
    pub(super) fn slot(&self, off: u32) -> u32 {
        off / self.stride
    }

    /// Words of an element, from a byte on.
    #[inline(always)]
    pub(super) fn words<const N: usize>(&self, slot: u32, from: u32) -> [&AtomicU32; N] {
        let (memory, off) = self.at(slot);
        memory.words(off + from)
    }
}
