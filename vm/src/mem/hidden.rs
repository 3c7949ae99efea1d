//! Memory of the host that counts for the limit of an arena.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::ARENA_SIZE;
use super::arena::{Arena, PAGE};
use super::fault::MemError;
use super::sys::Reservation;

/// Zeroed pages outside of an arena, which no program reaches. They have one address range from the start, and count as they
/// are used.
#[derive(Debug)]
pub(super) struct Hidden {
    arena: Arc<Arena>,
    name: Arc<str>,
    pages: Reservation,
    /// Bytes that count, from the first one on. Changes under the lock of the arena's pages.
    counted: AtomicU64,
}

impl Hidden {
    /// Addresses for at least so many bytes, or for as many as the limit permits.
    pub(super) fn new(arena: &Arc<Arena>, name: &Arc<str>, wanted: u64) -> Result<Hidden, MemError> {
        // As much as an arena has, so that offsets fit.
        let most = arena.limit.clamp(PAGE, ARENA_SIZE - PAGE);
        let bytes = wanted.max(1).next_multiple_of(PAGE).min(most);
        let pages = Reservation::open(bytes as usize)?;
        Ok(Hidden { arena: Arc::clone(arena), name: Arc::clone(name), pages, counted: AtomicU64::new(0) })
    }

    /// Bytes that there are addresses for.
    pub(super) fn len(&self) -> u64 {
        self.pages.len() as u64
    }

    /// Address of the first byte.
    pub(super) fn at(&self) -> *mut u8 {
        self.pages.at(0)
    }

    /// Whether the bytes before `end` count.
    #[inline(always)]
    pub(super) fn has(&self, end: u64) -> bool {
        end <= self.counted.load(Ordering::Relaxed)
    }

    /// Counts the bytes before `end`, which are to be used.
    pub(super) fn grow(&self, end: u64) -> Result<(), MemError> {
        if self.has(end) {
            return Ok(());
        }
        let mut counted = self.arena.pages.lock().expect("no panic while held");
        let (own, wanted) = (self.counted.load(Ordering::Relaxed), end.next_multiple_of(PAGE));
        let more = wanted.saturating_sub(own);
        let free = self.arena.limit.saturating_sub(counted.used);
        if more > free || wanted > self.len() {
            return Err(MemError::Limit { name: Arc::clone(&self.name), wanted: more, free, limit: self.arena.limit });
        }
        counted.used += more;
        self.counted.store(own.max(wanted), Ordering::Relaxed);
        self.pages.prefer_huge(own as usize, wanted as usize);
        Ok(())
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        self.arena.pages.lock().expect("no panic while held").used -= *self.counted.get_mut();
    }
}
