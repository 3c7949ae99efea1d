//! Writes to values of elements that stay where they are, without their buckets: beside the value they touch a line that no other
//! thread writes, or few do.
//!
//! A writer puts the number of the slot into a word of its own, and only then looks whether the element is still there. Who takes
//! an element out marks that first, and then waits for the writers of its slot. One of both sees the other: all four accesses are
//! sequentially consistent.

use super::free_slots::LINE;
use super::lock::{Locked, wait_for};
use super::sync::{AtomicU32, Ordering, fence};
use crate::mem::Block;

/// The most writers of a map: with more CPUs, two are one writer.
const MOST: u32 = 128;

/// As many as a map with so many CPUs has.
pub(super) fn count(cpus: u32) -> u32 {
    cpus.min(MOST)
}

/// A line for each writer, in a map's header.
pub(super) struct Writers<'a> {
    pub(super) header: &'a Block,
    /// Where the first line is.
    pub(super) start: u32,
    pub(super) count: u32,
}

/// The words of a writer.
struct Line<'a> {
    /// The number of the slot whose value is being written, plus 1; 0 if none is.
    slot: &'a AtomicU32,
    /// Odd during a write.
    version: &'a AtomicU32,
}

/// A writer, which no other thread is meanwhile.
pub(super) struct Writing<'a> {
    version: &'a AtomicU32,
    _locked: Locked<'a>,
}

impl Writing<'_> {
    fn renew(&self, order: Ordering) {
        self.version.store(self.version.load(Ordering::Relaxed).wrapping_add(1), order);
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        self.renew(Ordering::Release);
    }
}

impl<'a> Writers<'a> {
    #[inline(always)]
    fn line(&self, writer: u32) -> Line<'a> {
        let writer = if writer < self.count { writer } else { writer % self.count };
        let [slot, version] = self.header.words(self.start + writer * LINE);
        Line { slot, version }
    }

    /// Becomes this writer, if no thread is. An element that a sequentially consistent load finds in the slot from here on stays
    /// there.
    #[inline(always)]
    pub(super) fn try_hold(&self, writer: u32, slot: u32) -> Option<Writing<'a>> {
        let Line { slot: word, version } = self.line(writer);
        let taken = word.compare_exchange_weak(0, slot + 1, Ordering::SeqCst, Ordering::Relaxed);
        taken.ok()?;
        let writing = Writing { version, _locked: Locked::new(word) };
        writing.renew(Ordering::Relaxed);
        // What is written must not be seen before the version is.
        fence(Ordering::Release);
        Some(writing)
    }

    /// The same once no thread is.
    #[inline(always)]
    pub(super) fn hold(&self, writer: u32, slot: u32) -> Writing<'a> {
        wait_for(|| self.try_hold(writer, slot))
    }

    /// Does `read`, which must do nothing else than read. `None` where this writer has written meanwhile.
    pub(super) fn read<R>(&self, writer: u32, read: impl FnOnce() -> R) -> Option<R> {
        let version = self.line(writer).version;
        let before = version.load(Ordering::Acquire);
        if before & 1 != 0 {
            return None;
        }
        let result = read();
        fence(Ordering::Acquire);
        (version.load(Ordering::Relaxed) == before).then_some(result)
    }

    /// Waits for those who write the value of a slot, of which a sequentially consistent store says that no element is there.
    pub(super) fn wait(&self, slot: u32) {
        for writer in 0..self.count {
            wait_for(|| (self.line(writer).slot.load(Ordering::SeqCst) != slot + 1).then_some(()));
        }
    }
}
