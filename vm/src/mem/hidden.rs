//! Memory of the host that counts for the limit of an arena.

use std::sync::Arc;

use super::ARENA_SIZE;
use super::arena::{Arena, PAGE};
use super::fault::MemError;
use super::sys::Reservation;

/// Zeroed pages outside of an arena, which no program reaches.
#[derive(Debug)]
pub(super) struct Hidden {
    arena: Arc<Arena>,
    pages: Reservation,
    bytes: u64,
}

impl Hidden {
    /// At least so many bytes.
    pub(super) fn new(arena: &Arc<Arena>, name: &Arc<str>, wanted: u64) -> Result<Hidden, MemError> {
        let bytes = wanted.max(1).next_multiple_of(PAGE);
        // As much as an arena has, so that offsets fit.
        let limit = arena.limit.min(ARENA_SIZE - PAGE);
        let mut counted = arena.pages.lock().expect("no panic while held");
        let free = limit.saturating_sub(counted.used);
        if bytes > free {
            return Err(MemError::Limit { name: Arc::clone(name), wanted, free, limit: arena.limit });
        }
        let pages = Reservation::open(bytes as usize)?;
        counted.used += bytes;
        Ok(Hidden { arena: Arc::clone(arena), pages, bytes })
    }

    /// Address of the first byte.
    pub(super) fn at(&self) -> *mut u8 {
        self.pages.at(0)
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        self.arena.pages.lock().expect("no panic while held").used -= self.bytes;
    }
}
