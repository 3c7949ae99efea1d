//! The hash table under every map with arbitrary keys: a chained [`Index`] of slots, with keys and values in slabs.
//!
//! Looking up takes no lock and writes nothing. A change holds one bucket; slots are given out under a lock of their own.
//! Iteration follows slots, so a map that only grows lists its elements in the order of insertion. The slot
//! of a deleted element is taken again as late as possible: a program that still holds a pointer to it
//! mostly reads the old bytes, and never faults.
//!
//! Of all that, only values lie where programs can write. The rest is hidden memory, with numbers of slots for links, so
//! that no program breaks what a search or a lock relies on, and it counts for the arena's limit.

use std::collections::HashSet;
use std::hash::BuildHasher;
use std::sync::Arc;

use super::cell::Cell;
use super::index::{Bucket, Changed, Index, LockedBucket, Words, lock};
use super::slab::{Layout, Slab};
use super::sync::{AtomicU32, DefaultHashBuilder, Ordering};
use super::{Errno, MapSpec};
use crate::mem::{Arena, Block, MemError, RegionKind, RegionSpec};

/// Bytes before a key: a link, and the hash.
const KEY: u32 = 8;
/// A word for each of [`Header`].
const HEADER: u32 = 64;

/// The map's words that are no slot's.
struct Header<'a> {
    /// Taken while a slot is given out or back.
    lock: &'a AtomicU32,
    /// Links to the slots given back: the oldest, and the newest.
    oldest: &'a AtomicU32,
    newest: &'a AtomicU32,
    /// Slots from here on were never used.
    fresh: &'a AtomicU32,
    /// Slots in use.
    len: &'a AtomicU32,
    /// Counts slots given out.
    taken: &'a AtomicU32,
    index: Words<'a>,
}

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Store {
    name: Arc<str>,
    key_size: u32,
    capacity: u32,
    cpus: u32,
    lock: Option<u32>,
    hasher: DefaultHashBuilder,
    header: Block,
    index: Index,
    /// Link to the next slot of the chain or of those given back; hash, 0 where no element is; key.
    records: Slab,
    values: Slab,
}

/// A slot, and the one before it in the chain.
type Found = (u32, Option<u32>);

/// Where a key is or would be, while this thread alone changes that.
pub(super) struct LockedEntry<'a> {
    store: &'a Store,
    held: LockedBucket<'a>,
    hash: u32,
    found: Option<Found>,
}

impl Store {
    pub(super) fn new(spec: &MapSpec, arena: &Arc<Arena>, cpus: u32) -> Result<Store, MemError> {
        let capacity = spec.max_entries;
        let records = Layout {
            label: format!("key of map {}", spec.name).into(),
            size: KEY + spec.key_size,
            cpus: 1,
            capacity,
            writable: true,
            hidden: true,
        };
        let values = Layout {
            label: format!("value of map {}", spec.name).into(),
            size: spec.value_size,
            cpus,
            capacity,
            writable: spec.program_writable(),
            hidden: false,
        };
        let header = RegionSpec::new(format!("header of map {}", spec.name), RegionKind::Map, HEADER);
        Ok(Store {
            name: Arc::clone(&spec.name),
            key_size: spec.key_size,
            capacity,
            cpus,
            lock: spec.spin_lock,
            hasher: DefaultHashBuilder::default(),
            header: arena.alloc_hidden(header)?,
            index: Index::new(arena, &spec.name, capacity),
            records: Slab::new(arena, records),
            values: Slab::new(arena, values),
        })
    }

    #[inline(always)]
    fn header(&self) -> Header<'_> {
        let [lock, oldest, newest, fresh, len, taken, version, growing] = self.header.words(0);
        Header { lock, oldest, newest, fresh, len, taken, index: Words { version, growing } }
    }

    pub(super) fn len(&self) -> u32 {
        self.header().len.load(Ordering::Relaxed)
    }

    pub(super) fn is_full(&self) -> bool {
        self.len() >= self.capacity
    }

    /// Never 0.
    #[inline(always)]
    fn hash(&self, key: &[u8]) -> u32 {
        let hash = match key.len() {
            4 => self.hasher.hash_one(u32::from_ne_bytes(key.try_into().expect("4 bytes"))),
            8 => self.hasher.hash_one(u64::from_ne_bytes(key.try_into().expect("8 bytes"))),
            _ => self.hasher.hash_one(key),
        };
        (hash >> 32) as u32 | 1
    }

    /// Link and hash of a slot.
    #[inline(always)]
    fn record(&self, slot: u32) -> (Cell<'_>, [&AtomicU32; 2]) {
        let cell = self.records.cell(slot, 0, None);
        let words = cell.block.words(cell.off);
        (cell, words)
    }

    fn link(&self, slot: u32) -> &AtomicU32 {
        self.record(slot).1[0]
    }

    /// Searches a chain: the slot, and the one before it. Gives up where the chain has changed since `version`.
    #[inline(always)]
    fn search(&self, bucket: Bucket<'_>, version: u32, hash: u32, key: &[u8]) -> Result<Option<Found>, Changed> {
        let mut before = None;
        let mut link = bucket.head.load(Ordering::Acquire);
        while let Some(slot) = link.checked_sub(1) {
            let (cell, [next, own]) = self.record(slot);
            if own.load(Ordering::Relaxed) == hash && cell.block.equals(cell.off + KEY, key) {
                return Ok(Some((slot, before)));
            }
            link = next.load(Ordering::Acquire);
            before = Some(slot);
            if !bucket.is(version) {
                return Err(Changed);
            }
        }
        Ok(None)
    }

    /// What `get` makes of the slot of a key. It is called again where the element has changed meanwhile, and must do
    /// nothing else than read.
    #[inline(always)]
    pub(super) fn find<R>(&self, key: &[u8], get: impl Fn(u32) -> R) -> Option<R> {
        if key.len() != self.key_size as usize || !self.index.has_begun() {
            return None;
        }
        let hash = self.hash(key);
        self.index.read(self.header().index, hash, |bucket, version| {
            Ok(self.search(bucket, version, hash, key)?.map(|(slot, _)| get(slot)))
        })
    }

    /// Where a key is or would be, to be changed. `ENOMEM` when the arena is full.
    pub(super) fn entry(&self, key: &[u8]) -> Result<LockedEntry<'_>, Errno> {
        assert_eq!(key.len(), self.key_size as usize, "callers check sizes");
        if !self.index.has_begun() {
            self.index.begin().map_err(|error| no_memory(&self.name, &error))?;
        }
        let hash = self.hash(key);
        let held = self.index.hold(self.header().index, hash);
        let found = self.search(held.bucket, held.version(), hash, key).expect("nothing changes meanwhile");
        Ok(LockedEntry { store: self, held, hash, found })
    }

    /// Takes the element of a key out. `ENOENT` if there is none.
    pub(super) fn delete(&self, key: &[u8]) -> Result<(), Errno> {
        let fits = key.len() == self.key_size as usize && self.index.has_begun();
        if fits && self.entry(key)?.remove() { Ok(()) } else { Err(Errno::ENOENT) }
    }

    /// A slot that is not in use. `E2BIG` when all are, `ENOMEM` when the arena is full.
    fn take(&self) -> Result<u32, Errno> {
        let header = self.header();
        let _lock = lock(header.lock);
        let slot = match header.oldest.load(Ordering::Relaxed).checked_sub(1) {
            Some(slot) => {
                let next = self.link(slot).load(Ordering::Relaxed);
                header.oldest.store(next, Ordering::Relaxed);
                if next == 0 {
                    header.newest.store(0, Ordering::Relaxed);
                }
                slot
            }
            None => {
                let slot = header.fresh.load(Ordering::Relaxed);
                if slot == self.capacity {
                    return Err(Errno::E2BIG);
                }
                let grown = self.records.grow(slot).and_then(|()| self.values.grow(slot));
                grown.map_err(|error| no_memory(&self.name, &error))?;
                header.fresh.store(slot + 1, Ordering::Release);
                slot
            }
        };
        header.len.fetch_add(1, Ordering::Relaxed);
        header.taken.fetch_add(1, Ordering::Relaxed);
        Ok(slot)
    }

    /// Gives a slot back that is in no chain any more.
    fn give(&self, slot: u32) {
        let header = self.header();
        let _lock = lock(header.lock);
        // A search that is still at a slot must see what has become of its chain before it sees the new link.
        self.link(slot).store(0, Ordering::Release);
        match header.newest.load(Ordering::Relaxed).checked_sub(1) {
            None => header.oldest.store(slot + 1, Ordering::Relaxed),
            Some(newest) => self.link(newest).store(slot + 1, Ordering::Release),
        }
        header.newest.store(slot + 1, Ordering::Relaxed);
        header.len.fetch_sub(1, Ordering::Relaxed);
    }

    /// Takes the element of a slot out of the map.
    pub(super) fn remove(&self, slot: u32) {
        let mut key = vec![0; self.key_size as usize];
        if self.key(slot, &mut key)
            && let Ok(entry) = self.entry(&key)
        {
            entry.remove();
        }
    }

    /// Copies the key of a slot. False if no element is there.
    pub(super) fn key(&self, slot: u32, out: &mut [u8]) -> bool {
        loop {
            let (cell, [_, own]) = self.record(slot);
            let hash = own.load(Ordering::Acquire);
            if hash == 0 {
                return false;
            }
            let _held = self.index.hold(self.header().index, hash);
            if own.load(Ordering::Relaxed) == hash {
                cell.block.load(cell.off + KEY, out);
                return true;
            }
        }
    }

    /// The value of a slot.
    #[inline(always)]
    pub(super) fn value(&self, slot: u32, cpu: u32) -> Cell<'_> {
        self.values.cell(slot, cpu, self.lock)
    }

    /// Address of the value of a slot.
    #[inline(always)]
    pub(super) fn addr(&self, slot: u32, cpu: u32) -> u64 {
        self.values.addr(slot, cpu)
    }

    /// Writes the first value of a new slot: that of `cpu`, with zeroes for all others (kernel `pcpu_init_value`).
    pub(super) fn init(&self, slot: u32, cpu: u32, value: &[u8]) {
        for other in 0..self.cpus {
            if other == cpu {
                self.value(slot, other).init(value);
            } else {
                let cell = self.value(slot, other);
                cell.block.fill(cell.off, value.len(), 0);
            }
        }
    }

    /// Copies the key of the first element from `slot` on, and gives its slot.
    fn first_from(&self, slot: u32, out: &mut [u8]) -> Option<u32> {
        let fresh = self.header().fresh.load(Ordering::Acquire);
        (slot..fresh).find(|slot| self.key(*slot, out))
    }

    /// `BPF_MAP_GET_NEXT_KEY`.
    pub(super) fn next_key(&self, key: Option<&[u8]>, next: &mut [u8]) -> Result<(), Errno> {
        if next.len() != self.key_size as usize {
            return Err(Errno::EINVAL);
        }
        let slot = key.and_then(|key| self.find(key, |slot| slot));
        let from = slot.map_or(0, |slot| slot + 1);
        self.first_from(from, next).map(|_| ()).ok_or(Errno::ENOENT)
    }

    /// All keys, each once.
    pub(super) fn keys(&self) -> Vec<Vec<u8>> {
        let taken = self.header().taken.load(Ordering::Acquire);
        let mut keys = Vec::new();
        let mut key = vec![0; self.key_size as usize];
        let mut from = 0;
        while let Some(slot) = self.first_from(from, &mut key) {
            keys.push(key.clone());
            from = slot + 1;
        }
        // An element that went and came again meanwhile may have been in two slots.
        if self.header().taken.load(Ordering::Acquire) != taken {
            let mut seen = HashSet::new();
            keys.retain(|key| seen.insert(key.clone()));
        }
        keys
    }
}

impl LockedEntry<'_> {
    /// The slot of the key, if it is there.
    pub(super) fn slot(&self) -> Option<u32> {
        self.found.map(|(slot, _)| slot)
    }

    /// What was read of the element meanwhile is void.
    pub(super) fn change(&mut self) {
        self.held.change();
    }

    /// Adds the key, which is not there. `init` writes its value.
    pub(super) fn insert(mut self, key: &[u8], init: impl FnOnce(u32)) -> Result<u32, Errno> {
        assert!(self.found.is_none(), "a key that is not there");
        let store = self.store;
        let slot = store.take()?;
        let (cell, [link, own]) = store.record(slot);
        self.held.change();
        cell.block.store(cell.off + KEY, key);
        init(slot);
        let head = self.held.bucket.head;
        // As in `give`: another thread may have given the slot back.
        link.store(head.load(Ordering::Relaxed), Ordering::Release);
        own.store(self.hash, Ordering::Release);
        head.store(slot + 1, Ordering::Release);
        drop(self);
        let header = store.header();
        let hash = |slot| store.record(slot).1[1].load(Ordering::Relaxed);
        store.index.grow(header.index, header.fresh.load(Ordering::Relaxed), hash, |slot| store.link(slot));
        Ok(slot)
    }

    /// Takes the element out. False if it is not there.
    pub(super) fn remove(mut self) -> bool {
        let Some((slot, before)) = self.found else { return false };
        let store = self.store;
        self.held.change();
        let [link, own] = store.record(slot).1;
        let next = link.load(Ordering::Relaxed);
        let from = before.map_or(self.held.bucket.head, |before| store.link(before));
        from.store(next, Ordering::Release);
        own.store(0, Ordering::Relaxed);
        drop(self);
        store.give(slot);
        true
    }
}

/// An element could not be allocated at run time: helpers return an errno, the log has the reason.
pub(super) fn no_memory(map: &str, error: &MemError) -> Errno {
    log::warn!("map {map}: {error}");
    Errno::ENOMEM
}
