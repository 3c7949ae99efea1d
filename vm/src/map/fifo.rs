//! A list of slots that is taken from where it is oldest. Links are numbers of slots plus 1, with 0 for none.

use super::sync::{AtomicU32, Ordering};

/// The ends of a list, while this thread alone changes it.
#[derive(Clone, Copy)]
pub(super) struct Fifo<'a> {
    pub(super) oldest: &'a AtomicU32,
    pub(super) newest: &'a AtomicU32,
}

impl Fifo<'_> {
    /// Takes the oldest slot.
    pub(super) fn pop<'s>(self, link: impl Fn(u32) -> &'s AtomicU32) -> Option<u32> {
        let slot = self.oldest.load(Ordering::Relaxed).checked_sub(1)?;
        let next = link(slot).load(Ordering::Relaxed);
        self.oldest.store(next, Ordering::Relaxed);
        if next == 0 {
            self.newest.store(0, Ordering::Relaxed);
        }
        Some(slot)
    }

    /// Adds a slot. A search that is still at a slot must see what has become of its chain before it sees the new link.
    pub(super) fn push<'s>(self, slot: u32, link: impl Fn(u32) -> &'s AtomicU32) {
        link(slot).store(0, Ordering::Release);
        match self.newest.load(Ordering::Relaxed).checked_sub(1) {
            None => self.oldest.store(slot + 1, Ordering::Relaxed),
            Some(newest) => link(newest).store(slot + 1, Ordering::Release),
        }
        self.newest.store(slot + 1, Ordering::Relaxed);
    }
}
