//! The slots of a map that hold no element.
//!
//! Every thread gives slots back to a lane and takes them from there again, oldest first; two threads share a lane only where
//! there are more threads than processors or threads have ended. A thread whose lane is empty takes a slot that was never used, then
//! one from another lane; the other way round where most of the slots that were ever used are free. Links between slots are numbers plus
//! 1, with 0 for none.

use std::cell::Cell;
use std::sync::{OnceLock, atomic};
use std::thread::available_parallelism;

use super::Errno;
use super::fifo::Fifo;
use super::lock::{Locked, lock};
use super::sync::{AtomicU32, Ordering, STEP, fence};
use crate::mem::Block;

/// Bytes of a cache line: the most that changes together.
pub(super) const LINE: u32 = 64;
/// The most lanes, so that a map's header is a page or two.
const MOST: u32 = 32;

/// As many lanes as every map of this process has.
pub(super) fn lanes() -> u32 {
    static LANES: OnceLock<u32> = OnceLock::new();
    *LANES.get_or_init(|| available_parallelism().map_or(1, |count| count.get().min(MOST as usize)) as u32)
}

/// The lane of the calling thread, where there are so many as every map has, or one.
#[inline(always)]
pub(super) fn own_lane(lanes: u32) -> u32 {
    const UNKNOWN: u32 = u32::MAX;
    thread_local! {
        static LANE: Cell<u32> = const { Cell::new(UNKNOWN) };
    }
    #[cold]
    fn next() -> u32 {
        static THREADS: atomic::AtomicU32 = atomic::AtomicU32::new(0);
        let lane = THREADS.fetch_add(1, atomic::Ordering::Relaxed) % self::lanes();
        LANE.set(lane);
        lane
    }
    match LANE.get() {
        _ if lanes == 1 => 0,
        UNKNOWN => next(),
        lane => lane,
    }
}

/// A lane in memory.
#[derive(Clone, Copy)]
struct Lane<'a> {
    lock: &'a AtomicU32,
    slots: Fifo<'a>,
    /// Slots that were taken here, without those given back here; may be negative. Changes under the lock.
    used: &'a AtomicU32,
    /// Counts elements that came.
    came: &'a AtomicU32,
}

impl Lane<'_> {
    /// The lane is locked.
    fn count(self, more: u32) {
        self.used.store(self.used.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
    }
}

/// See the module documentation.
pub(super) struct FreeSlots<'a, L> {
    /// A line for what all lanes share, and one for each.
    pub(super) header: &'a Block,
    /// Where that begins.
    pub(super) start: u32,
    pub(super) capacity: u32,
    pub(super) lanes: u32,
    /// The link of a slot, which nothing else uses while the slot is here.
    pub(super) link: L,
}

impl<'a, L: Fn(u32) -> &'a AtomicU32> FreeSlots<'a, L> {
    /// Taken to change the second, from which on no slot was ever used.
    #[inline(always)]
    fn fresh(&self) -> [&'a AtomicU32; 2] {
        self.header.words(self.start)
    }

    #[inline(always)]
    fn lane(&self, number: u32) -> Lane<'a> {
        let [lock, oldest, newest, used, came] = self.header.words(self.start + (1 + number) * LINE);
        Lane { lock, slots: Fifo { oldest, newest }, used, came }
    }

    /// Slots from here on were never used.
    pub(super) fn end(&self) -> u32 {
        self.fresh()[1].load(Ordering::Acquire)
    }

    /// Slots that are not here; about as many while other threads take and give some.
    pub(super) fn used(&self) -> u32 {
        let used = |lane| self.lane(lane).used.load(Ordering::Relaxed);
        let sum = (0..self.lanes).map(used).fold(0, u32::wrapping_add);
        // A slot may have gone from one lane to another meanwhile.
        if sum > self.capacity && (sum as i32) < 0 { 0 } else { sum.min(self.capacity) }
    }

    /// Takes note of an element that comes.
    pub(super) fn note(&self) {
        self.lane(own_lane(self.lanes)).came.fetch_add(1, Ordering::Relaxed);
    }

    /// Changes whenever an element comes.
    pub(super) fn noted(&self) -> u32 {
        (0..self.lanes).map(|lane| self.lane(lane).came.load(Ordering::Acquire)).fold(0, u32::wrapping_add)
    }

    /// A slot. `E2BIG` if there is none, which other threads may change meanwhile; where `grow` has no memory for one that
    /// was never used, and no other is here, its error.
    pub(super) fn take(&self, grow: impl FnOnce(u32) -> Result<(), Errno>) -> Result<u32, Errno> {
        let slot = self.find(grow);
        // What is written to it must not be seen before what another thread did that gave it back.
        fence(Ordering::Release);
        slot
    }

    fn find(&self, grow: impl FnOnce(u32) -> Result<(), Errno>) -> Result<u32, Errno> {
        let own = self.lane(own_lane(self.lanes));
        if let Some(slot) = self.pop(own, 1) {
            return Ok(slot);
        }
        let elsewhere = || (0..self.lanes).find_map(|lane| self.pop(self.lane(lane), 0));
        let spared = if self.is_sparse() { elsewhere() } else { None };
        let slot = match spared {
            Some(slot) => slot,
            None => self.take_fresh(grow).or_else(|errno| elsewhere().ok_or(errno))?,
        };
        let _locked = lock(own.lock);
        own.count(1);
        Ok(slot)
    }

    /// Whether most slots that were ever used are free; asked once for each [`STEP`] new ones. Without that a map would grow where one
    /// thread adds elements and another deletes them.
    fn is_sparse(&self) -> bool {
        let end = self.fresh()[1].load(Ordering::Relaxed);
        end != 0 && end.is_multiple_of(STEP) && self.used() <= end / 2
    }

    /// As [`FreeSlots::take`]; `E2BIG` only when at some moment no slot was here.
    pub(super) fn take_exact(&self, grow: impl FnOnce(u32) -> Result<(), Errno>) -> Result<u32, Errno> {
        self.take(grow).or_else(|errno| self.take_last().ok_or(errno))
    }

    /// A slot, while no thread gives or takes any: after [`FreeSlots::take`] has found none.
    fn take_last(&self) -> Option<u32> {
        let locked: Vec<Locked<'_>> = (0..self.lanes).map(|lane| lock(self.lane(lane).lock)).collect();
        let slot = (0..self.lanes).find_map(|lane| self.lane(lane).slots.pop(&self.link));
        self.lane(own_lane(self.lanes)).count(u32::from(slot.is_some()));
        drop(locked);
        fence(Ordering::Release);
        slot
    }

    fn take_fresh(&self, grow: impl FnOnce(u32) -> Result<(), Errno>) -> Result<u32, Errno> {
        let [locked, fresh] = self.fresh();
        if fresh.load(Ordering::Relaxed) == self.capacity {
            return Err(Errno::E2BIG);
        }
        let _locked = lock(locked);
        let slot = fresh.load(Ordering::Relaxed);
        if slot == self.capacity {
            return Err(Errno::E2BIG);
        }
        grow(slot)?;
        fresh.store(slot + 1, Ordering::Release);
        Ok(slot)
    }

    /// A slot of this lane, where it counts for so many.
    fn pop(&self, lane: Lane<'_>, count: u32) -> Option<u32> {
        if lane.slots.oldest.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let _locked = lock(lane.lock);
        let slot = lane.slots.pop(&self.link)?;
        lane.count(count);
        Some(slot)
    }

    /// Puts a slot here that is in no chain any more.
    pub(super) fn give(&self, slot: u32) {
        let lane = self.lane(own_lane(self.lanes));
        let _locked = lock(lane.lock);
        lane.slots.push(slot, &self.link);
        lane.count(u32::MAX);
    }
}
