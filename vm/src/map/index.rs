//! The index of a hash table: chains of slots under buckets, searched without a lock.
//!
//! A bucket is two words: a version, which is odd while a thread changes the chain, and the first slot. A search takes
//! the version before and after; where it has changed, it searches again, and after a few attempts with the lock. So a
//! search writes nothing that others read. Links are slot numbers plus 1, with 0 for none.
//!
//! The number of buckets doubles while the table fills. During that, the table's own version is odd, and both searches
//! and changes wait. All of this lies in hidden memory, which no program reaches.

use std::sync::Arc;

use super::hidden_slab::HiddenSlab;
use super::lock::{lock, wait_for};
use super::sync::{AtomicU32, FIRST, Ordering, TRIES, fence, spin_loop};
use crate::mem::{Arena, MemError};

/// The most buckets there can be: hashes have one bit that is always set.
const MOST: u32 = 1 << 31;
/// Bytes of a bucket.
const BUCKET: u32 = 8;

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Index {
    buckets: HiddenSlab,
    /// As many as there can be, a power of two.
    most: u32,
}

/// Words of the map's header that the index uses.
#[derive(Clone, Copy)]
pub(super) struct Words<'a> {
    /// Doublings so far times 2, plus 1 during one.
    pub(super) version: &'a AtomicU32,
    /// Taken while the index is doubled.
    pub(super) growing: &'a AtomicU32,
}

/// A bucket in memory.
#[derive(Clone, Copy)]
pub(super) struct Bucket<'a> {
    version: &'a AtomicU32,
    /// Link to the first slot.
    pub(super) head: &'a AtomicU32,
}

/// A search gave up.
#[derive(Debug)]
pub(super) struct Changed;

/// A search in the chain of a bucket.
pub(super) trait Search {
    type Found;

    /// # Errors
    /// The chain has changed since this version of the bucket.
    fn search(&self, bucket: Bucket<'_>, version: u32) -> Result<Self::Found, Changed>;
}

/// A bucket while this thread alone changes its chain.
pub(super) struct LockedBucket<'a> {
    pub(super) bucket: Bucket<'a>,
    /// Its version before.
    version: u32,
    /// Whether searches that went on meanwhile are void.
    changed: bool,
}

impl LockedBucket<'_> {
    /// For searches of the chain.
    pub(super) fn version(&self) -> u32 {
        self.version + 1
    }

    /// The chain, or what its slots hold, changes.
    pub(super) fn change(&mut self) {
        self.changed = true;
    }
}

impl Drop for LockedBucket<'_> {
    fn drop(&mut self) {
        let version = if self.changed { self.version.wrapping_add(2) } else { self.version };
        self.bucket.version.store(version, Ordering::Release);
    }
}

impl<'a> Bucket<'a> {
    /// Takes the lock, if it is open.
    fn try_hold(self) -> Option<LockedBucket<'a>> {
        let version = self.version.load(Ordering::Relaxed) & !1;
        let taken = self.version.compare_exchange_weak(version, version + 1, Ordering::Acquire, Ordering::Relaxed);
        // What is written under the lock must not be seen before the odd version is.
        fence(Ordering::Release);
        taken.ok().map(|_| LockedBucket { bucket: self, version, changed: false })
    }

    fn hold(self) -> LockedBucket<'a> {
        wait_for(|| self.try_hold())
    }

    /// Whether a search since this version has seen one state of the chain.
    #[inline(always)]
    pub(super) fn is(self, version: u32) -> bool {
        self.version.load(Ordering::Relaxed) == version
    }
}

impl Index {
    /// An index for so many slots; takes no memory yet.
    pub(super) fn new(arena: &Arc<Arena>, map: &str, slots: u32) -> Result<Index, MemError> {
        let most = slots.min(MOST).next_power_of_two();
        Ok(Index { buckets: HiddenSlab::new(arena, format!("index of map {map}"), BUCKET, most)?, most })
    }

    fn count(&self, version: u32) -> u32 {
        FIRST.min(self.most) << (version / 2)
    }

    #[inline(always)]
    fn bucket(&self, number: u32) -> Bucket<'_> {
        let [version, head] = self.buckets.words(number, 0);
        Bucket { version, head }
    }

    #[inline(always)]
    fn bucket_of(&self, hash: u32, version: u32) -> Bucket<'_> {
        self.bucket(hash >> 1 & (self.count(version) - 1))
    }

    /// Memory for the first buckets; [`Index::read`] and [`Index::hold`] are for an index that has some.
    pub(super) fn begin(&self) -> Result<(), MemError> {
        self.buckets.grow(0)
    }

    /// Whether it has.
    #[inline(always)]
    pub(super) fn has_begun(&self) -> bool {
        self.buckets.has(0)
    }

    /// The bucket of a hash, and the versions of bucket and table, where no thread changes either.
    #[inline(always)]
    fn settled(&self, words: Words<'_>, hash: u32) -> Option<(Bucket<'_>, u32, u32)> {
        let table = words.version.load(Ordering::Acquire);
        if table & 1 != 0 {
            return None;
        }
        let bucket = self.bucket_of(hash, table);
        let version = bucket.version.load(Ordering::Acquire);
        (version & 1 == 0).then_some((bucket, version, table))
    }

    /// What `search` may find in the chain for a hash: what it finds may have gone, and what it does not find may be there.
    #[inline(always)]
    pub(super) fn guess<S: Search>(&self, words: Words<'_>, hash: u32, search: &S) -> Option<S::Found> {
        let (bucket, version, _) = self.settled(words, hash)?;
        search.search(bucket, version).ok()
    }

    /// What `search` finds in the chain for a hash. It is called again where the chain has changed meanwhile, gives up
    /// where [`Bucket::is`] says so, and must do nothing else than read. (That it gave up has to be known: where the other
    /// thread changes nothing, the version is the same afterwards.)
    #[inline(always)]
    pub(super) fn read<S: Search>(&self, words: Words<'_>, hash: u32, search: &S) -> S::Found {
        for _ in 0..TRIES {
            if let Some((bucket, version, table)) = self.settled(words, hash) {
                let found = search.search(bucket, version);
                fence(Ordering::Acquire);
                if let Ok(found) = found
                    && bucket.is(version)
                    && words.version.load(Ordering::Relaxed) == table
                {
                    return found;
                }
            }
            spin_loop();
        }
        self.read_held(words, hash, search)
    }

    /// The same with the lock.
    #[cold]
    #[inline(never)]
    fn read_held<S: Search>(&self, words: Words<'_>, hash: u32, search: &S) -> S::Found {
        let held = self.hold(words, hash);
        search.search(held.bucket, held.version()).expect("nothing changes meanwhile")
    }

    /// The chain for a hash, to be changed.
    pub(super) fn hold(&self, words: Words<'_>, hash: u32) -> LockedBucket<'_> {
        wait_for(|| {
            let table = words.version.load(Ordering::Acquire);
            let held = if table & 1 == 0 { self.bucket_of(hash, table).try_hold() } else { None }?;
            // Doubling the index takes every bucket after the version has become odd.
            (words.version.load(Ordering::Acquire) == table).then_some(held)
        })
    }

    /// Doubles the number of buckets until it is that of the slots in use. Without memory chains stay long.
    /// `hash` and `next` are those of a slot. No bucket may be held.
    pub(super) fn grow<'s>(
        &self,
        words: Words<'_>,
        slots: u32,
        hash: impl Fn(u32) -> u32,
        next: impl Fn(u32) -> &'s AtomicU32,
    ) {
        let enough = |version| self.count(version) >= slots.min(self.most);
        if enough(words.version.load(Ordering::Relaxed)) {
            return;
        }
        let _growing = lock(words.growing);
        loop {
            let version = words.version.load(Ordering::Relaxed);
            let count = self.count(version);
            if enough(version) || self.buckets.grow(2 * count - 1).is_err() {
                return;
            }
            words.version.store(version + 1, Ordering::Relaxed);
            fence(Ordering::Release);
            for number in 0..count {
                let mut low = self.bucket(number).hold();
                low.change();
                let high = self.bucket(number + count);
                split([low.bucket.head, high.head], |slot| hash(slot) >> 1 & count != 0, &next);
            }
            words.version.store(version + 2, Ordering::Release);
        }
    }
}

/// Spreads the chain of the first head over both, in its order.
fn split<'s>(heads: [&AtomicU32; 2], upper: impl Fn(u32) -> bool, next: &impl Fn(u32) -> &'s AtomicU32) {
    let mut link = heads[0].load(Ordering::Relaxed);
    let mut ends = [None, None];
    let put = |end: Option<u32>, side: usize, link: u32| match end {
        None => heads[side].store(link, Ordering::Relaxed),
        Some(slot) => next(slot).store(link, Ordering::Relaxed),
    };
    while let Some(slot) = link.checked_sub(1) {
        link = next(slot).load(Ordering::Relaxed);
        let side = usize::from(upper(slot));
        put(ends[side], side, slot + 1);
        ends[side] = Some(slot);
    }
    put(ends[0], 0, 0);
    put(ends[1], 1, 0);
}
