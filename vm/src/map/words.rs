//! A word for each index of a map, 0 at first: read without a lock, in memory that no program sees and that counts as far as words
//! have been set.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Errno;
use super::hidden_slab::HiddenSlab;
use super::slot_words::SlotWords;
use super::store::no_memory;
use crate::mem::{Arena, MemError};

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Words {
    /// As many as a power of two, if there are addresses for them: the words after the last index stay 0.
    slab: Arc<HiddenSlab>,
    count: u32,
}

impl Words {
    /// Words for `count` indices; `label` names them where they do not fit.
    pub(super) fn new(arena: &Arc<Arena>, label: String, count: u32) -> Result<Words, MemError> {
        let room = count.checked_next_power_of_two().unwrap_or(count);
        let slab = Arc::new(HiddenSlab::new(arena, label, 8, room)?);
        Ok(Words { count: count.min(slab.slots()), slab })
    }

    pub(super) fn arena(&self) -> &Arc<Arena> {
        self.slab.memory().arena()
    }

    /// The word of an index that has had one.
    #[inline(always)]
    pub(super) fn word(&self, index: u32) -> Option<&AtomicU64> {
        if index >= self.count || !self.slab.has(index) {
            return None;
        }
        let (block, off) = self.slab.at(index);
        Some(block.atomic(off))
    }

    /// The same words, for generated code.
    pub(super) fn shared(&self) -> SlotWords {
        SlotWords::new(&self.slab, self.count)
    }

    /// What an index has.
    #[inline(always)]
    pub(super) fn get(&self, index: u32) -> u64 {
        self.word(index).map_or(0, |word| word.load(Ordering::Acquire))
    }

    /// The word of an index, which gets memory.
    ///
    /// # Errors
    /// `ENOMEM` if the map's arena has none, which is reported under the map's name; `E2BIG` if there is no such index.
    pub(super) fn make(&self, map: &str, index: u32) -> Result<&AtomicU64, Errno> {
        self.slab.grow(index).map_err(|error| no_memory(map, &error))?;
        self.word(index).ok_or(Errno::E2BIG)
    }

    /// Sets what an index has to 0: what it had.
    pub(super) fn clear(&self, index: u32) -> u64 {
        self.word(index).map_or(0, |word| word.swap(0, Ordering::AcqRel))
    }

    /// The indices that have something, in order.
    pub(super) fn indices(&self) -> impl Iterator<Item = u32> + '_ {
        (0..)
            .map_while(|index| Some((index, self.word(index)?)))
            .filter_map(|(index, word)| (word.load(Ordering::Relaxed) != 0).then_some(index))
    }
}
