//! Writes to values of elements that stay where they are, without their buckets: they touch no memory that another thread writes,
//! unless that is the value.
//!
//! A writer puts the number of the slot into a word of its own, and only then looks whether the element is still there. Who takes
//! an element out marks that first, and then waits for the writers of its slot. One of both sees the other: all four accesses are
//! sequentially consistent.

use super::free_slots::LINE;
use super::lock::{Locked, lock_as, pause};
use super::sync::{AtomicU32, Ordering};
use crate::mem::Block;

/// A line for each writer, in a map's header.
pub(super) struct Writers<'a> {
    pub(super) header: &'a Block,
    /// Where the first line is.
    pub(super) start: u32,
    pub(super) count: u32,
}

impl<'a> Writers<'a> {
    /// The number of the slot whose value is being written, plus 1; 0 if none is.
    #[inline(always)]
    fn word(&self, writer: u32) -> &'a AtomicU32 {
        let [word] = self.header.words(self.start + writer * LINE);
        word
    }

    /// Becomes this writer, which no other thread is meanwhile. An element that a sequentially consistent load finds in the slot
    /// from here on stays there.
    #[inline(always)]
    pub(super) fn hold(&self, writer: u32, slot: u32) -> Locked<'a> {
        lock_as(self.word(writer), slot + 1, Ordering::SeqCst)
    }

    /// Waits for those who write the value of a slot, of which a sequentially consistent store says that no element is there.
    pub(super) fn wait(&self, slot: u32) {
        for writer in 0..self.count {
            let mut spins = 0;
            while self.word(writer).load(Ordering::SeqCst) == slot + 1 {
                pause(&mut spins);
            }
        }
    }
}
