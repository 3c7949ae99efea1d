//! Memory for values that come and go, where programs can reach them: chunks that are made when needed and never move.
//!
//! A map with room for a million elements takes memory as it fills. Chunk sizes double, so there are few
//! regions, and finding the chunk of a slot is a count of leading zeroes.

use std::sync::{Arc, OnceLock};

use super::cell::Cell;
use super::planes::Planes;
use crate::mem::{Arena, Block, MemError, RegionKind, RegionSpec};

/// Bytes the first chunk aims at.
const FIRST_CHUNK: u32 = 4096;
/// Unused bytes after each value, so that an overflow by one byte faults.
pub(super) const GAP: u32 = 8;

/// What a slab holds.
#[derive(Debug)]
pub(super) struct Layout {
    /// How messages call an element.
    pub(super) label: Arc<str>,
    /// Bytes of an element.
    pub(super) size: u32,
    /// Elements under one slot.
    pub(super) cpus: u32,
    /// Number of slots.
    pub(super) capacity: u32,
    /// Whether programs may store to elements.
    pub(super) writable: bool,
}

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Slab {
    arena: Arc<Arena>,
    layout: Layout,
    planes: Planes,
    /// Logarithm of the slots of the first chunk; the next has as many, then each has twice the one before.
    first: u32,
    chunks: Box<[OnceLock<Block>]>,
}

impl Slab {
    /// An empty slab; takes no memory yet.
    pub(super) fn new(arena: &Arc<Arena>, layout: Layout) -> Slab {
        let planes = Planes::new(layout.size, GAP, layout.cpus);
        let slot_bytes = u64::from(planes.stride) * u64::from(layout.cpus);
        let first = (u64::from(FIRST_CHUNK) / slot_bytes.max(1)).max(1);
        let mut slab = Slab { arena: Arc::clone(arena), layout, planes, first: first.ilog2(), chunks: Box::default() };
        let chunks = slab.locate(slab.layout.capacity.saturating_sub(1)).0 + 1;
        slab.chunks = (0..chunks).map(|_| OnceLock::new()).collect();
        slab
    }

    /// Chunk of a slot, and the slot's place in it.
    #[inline(always)]
    fn locate(&self, slot: u32) -> (usize, u32) {
        match (slot >> self.first).checked_ilog2() {
            None => (0, slot),
            Some(log) => (log as usize + 1, slot - (1 << (self.first + log))),
        }
    }

    /// Slots of a chunk.
    #[inline(always)]
    fn slots(&self, chunk: usize) -> u32 {
        let start = if chunk == 0 { 0 } else { 1 << (self.first as usize + chunk - 1) };
        start.max(1 << self.first).min(self.layout.capacity - start)
    }

    /// Allocates the memory of a slot, unless it has some. Two threads that do so at once allocate twice, and one of them
    /// gives it back.
    pub(super) fn grow(&self, slot: u32) -> Result<(), MemError> {
        assert!(slot < self.layout.capacity, "slot inside the slab");
        let (chunk, _) = self.locate(slot);
        if self.chunks[chunk].get().is_some() {
            return Ok(());
        }
        let slots = self.planes.elements(self.slots(chunk));
        let spec = RegionSpec {
            label: Arc::clone(&self.layout.label),
            kind: RegionKind::Map,
            element_size: self.layout.size,
            stride: self.planes.stride,
            count: slots.saturating_mul(self.layout.cpus),
            writable: self.layout.writable,
            owner: 0,
        };
        let block = self.arena.alloc(spec)?;
        // The other thread's is as good.
        let _ = self.chunks[chunk].set(block);
        Ok(())
    }

    /// An element. The slot must have been grown.
    #[inline(always)]
    pub(super) fn cell(&self, slot: u32, cpu: u32, lock: Option<u32>) -> Cell<'_> {
        assert!(cpu < self.layout.cpus, "CPU inside the slab");
        let (chunk, slot) = self.locate(slot);
        let plane = if cpu == 0 { 0 } else { cpu * self.planes.elements(self.slots(chunk)) };
        let off = (plane + slot) * self.planes.stride;
        Cell { block: self.chunks[chunk].get().expect("a slot that was grown"), off, lock }
    }

    /// Address of an element.
    #[inline]
    pub(super) fn addr(&self, slot: u32, cpu: u32) -> u64 {
        let cell = self.cell(slot, cpu, None);
        cell.block.addr() + u64::from(cell.off)
    }
}
