//! What the index of a hash table is made of. A model checker has its own of all this (`vm/tests/model/`).

pub(super) use hashbrown::DefaultHashBuilder;
pub(super) use std::hint::spin_loop;
pub(super) use std::sync::atomic::{AtomicU32, Ordering, fence};
pub(super) use std::thread::yield_now;

/// Searches without the lock before one with it.
pub(super) const TRIES: u32 = 64;
/// Attempts at a lock between two yields of the processor.
pub(super) const SPINS: u32 = 100;
/// Buckets at first, a power of two.
pub(super) const FIRST: u32 = 64;
/// Slots that come into use before a thread looks whether most of them are free.
pub(super) const STEP: u32 = 64;
