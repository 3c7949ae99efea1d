//! Where a prog array keeps its programs, and an array of maps its inner maps, for generated code that reads them.

use std::ops::Range;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::hidden_slab::HiddenSlab;

/// The words of such a map, which stay as long as this: the index of each slot's program plus 1, or the handle of its inner map;
/// 0 where a slot has nothing.
///
/// ```
/// use twinbpf_vm::map::{MapKind, MapSpec, create};
/// use twinbpf_vm::mem::Arena;
///
/// let map = create(MapSpec::new("programs", MapKind::ProgArray, 4, 4, 8), &Arena::new(1 << 20)?, 1).expect("a map");
/// let words = map.slot_words().expect("a prog array");
/// assert_eq!(words.range(), words.address(0)..words.address(8));
/// # Ok::<(), twinbpf_vm::mem::MemError>(())
/// ```
#[derive(Clone, Debug)]
pub struct SlotWords {
    slab: Arc<HiddenSlab>,
    count: u32,
}

impl SlotWords {
    pub(super) fn new(slab: &Arc<HiddenSlab>, count: u32) -> SlotWords {
        SlotWords { slab: Arc::clone(slab), count }
    }

    /// Number of slots with a word. A map whose memory is limited has fewer than slots.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// All bits that the index of a slot may have, if there are words at all such indices.
    pub fn mask(&self) -> Option<u32> {
        let room = self.count.checked_next_power_of_two()?;
        (room <= self.slab.slots()).then_some(room - 1)
    }

    /// Where in this process the word of a slot is, or would be.
    pub fn address(&self, index: u32) -> u64 {
        let first = ptr::from_ref::<AtomicU64>(self.slab.memory().atomic(0)).expose_provenance() as u64;
        first + 8 * u64::from(index)
    }

    /// Addresses of all words, which may be read.
    pub fn range(&self) -> Range<u64> {
        self.address(0)..self.address(self.slab.slots())
    }
}
