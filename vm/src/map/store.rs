//! The hash table under every map with arbitrary keys: a chained [`Index`] of slots, with keys and values in slabs.
//!
//! Looking up takes no lock and writes nothing. A change holds one bucket; [`FreeSlots`] gives slots out.
//! Iteration follows slots, so a map that only grows lists its elements in the order of insertion. The slot
//! of a deleted element is taken again as late as possible: a program that still holds a pointer to it
//! mostly reads the old bytes, and never faults.
//!
//! Of all that, only values lie where programs can write. The rest is hidden memory, with numbers of slots for links, so
//! that no program breaks what a search or a lock relies on, and it counts for the arena's limit.

use std::cell::RefCell;
use std::hash::BuildHasher;
use std::sync::Arc;

use super::cell::Cell;
use super::free_slots::{FreeSlots, LINE, lanes, own_lane};
use super::hidden_slab::HiddenSlab;
use super::index::{Bucket, Changed, Index, LockedBucket, Search, Words};
use super::slab::{Layout, Slab};
use super::spread::spread;
use super::sync::{AtomicU32, DefaultHashBuilder, Ordering, TRIES};
use super::writers::{self, Writers};
use super::{Errno, MapSpec};
use crate::mem::{Arena, Block, MemError, RegionKind, RegionSpec};

/// Bytes before what belongs to the map, and the key: a link, and the hash.
const OWN: u32 = 8;

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Store {
    name: Arc<str>,
    pub(super) key_size: u32,
    capacity: u32,
    pub(super) cpus: u32,
    lock: Option<u32>,
    hasher: DefaultHashBuilder,
    /// Lines: the words of the index, of free slots, of writers, and the map's.
    header: Block,
    lanes: u32,
    /// A writer for each CPU of the map, or for each lane where a value is written in one piece; otherwise none.
    writers: u32,
    index: Index,
    /// Link to the next slot of the chain or of those given back; hash, 0 where no element is; words of the map; key.
    records: HiddenSlab,
    /// Offset of the key in a record.
    key_off: u32,
    values: Slab,
}

/// What a map has in its store beside keys and values.
#[derive(Clone, Copy, Default)]
pub(super) struct Extra {
    /// Lines of the header.
    pub(super) lines: u32,
    /// Words of each slot, an even number.
    pub(super) words: u32,
    /// Whether it [replaces](Store::replace) values.
    pub(super) replaces: bool,
}

/// A slot, and the one before it in the chain.
type Found = (u32, Option<u32>);

/// The search for a key.
struct Find<'a, K: ?Sized, G> {
    store: &'a Store,
    hash: u32,
    key: &'a K,
    get: G,
}

impl<K: AsRef<[u8]> + ?Sized, R, G: Fn(u32) -> R> Search for Find<'_, K, G> {
    type Found = Option<R>;

    #[inline(always)]
    fn search(&self, bucket: Bucket<'_>, version: u32) -> Result<Option<R>, Changed> {
        let found = self.store.search(bucket, version, self.hash, self.key.as_ref())?;
        Ok(found.map(|(slot, _)| (self.get)(slot)))
    }
}

/// The copy of the key of a slot that has had this hash.
struct CopyKey<'a> {
    store: &'a Store,
    slot: u32,
    hash: u32,
    out: RefCell<&'a mut [u8]>,
}

impl Search for CopyKey<'_> {
    type Found = bool;

    #[inline(always)]
    fn search(&self, _: Bucket<'_>, _: u32) -> Result<bool, Changed> {
        let [_, own] = self.store.record(self.slot);
        let there = own.load(Ordering::Relaxed) == self.hash;
        if there {
            self.store.load_key(self.slot, &mut self.out.borrow_mut());
        }
        Ok(there)
    }
}

/// Where a key is or would be, while this thread alone changes that.
pub(super) struct LockedEntry<'a> {
    store: &'a Store,
    held: LockedBucket<'a>,
    hash: u32,
    found: Option<Found>,
}

impl Store {
    pub(super) fn new(spec: &MapSpec, arena: &Arc<Arena>, cpus: u32, extra: Extra) -> Result<Store, MemError> {
        let (capacity, key_off) = (spec.max_entries, OWN + 4 * extra.words);
        let label = format!("key of map {}", spec.name);
        let records = HiddenSlab::new(arena, label, key_off + spec.key_size, capacity)?;
        let values = Layout {
            label: format!("value of map {}", spec.name).into(),
            size: spec.value_size,
            cpus,
            capacity,
            writable: spec.program_writable(),
        };
        let (lanes, label) = (lanes(), format!("header of map {}", spec.name));
        let one_piece = spec.value_size.is_power_of_two() && spec.value_size <= 8 && spec.spin_lock.is_none();
        let writers = match extra.replaces {
            true if cpus > 1 => writers::count(cpus),
            true if one_piece => lanes,
            _ => 0,
        };
        let header = RegionSpec::new(label, RegionKind::Map, (2 + lanes + writers + extra.lines) * LINE);
        Ok(Store {
            name: Arc::clone(&spec.name),
            key_size: spec.key_size,
            capacity,
            cpus,
            lock: spec.spin_lock,
            hasher: DefaultHashBuilder::default(),
            header: arena.alloc_hidden(header)?,
            lanes,
            writers,
            index: Index::new(arena, &spec.name, capacity)?,
            records,
            key_off,
            values: Slab::new(arena, values),
        })
    }

    #[inline(always)]
    fn words(&self) -> Words<'_> {
        let [version, growing] = self.header.words(0);
        Words { version, growing }
    }

    fn free_slots<'a>(&'a self) -> FreeSlots<'a, impl Fn(u32) -> &'a AtomicU32> {
        let &Store { capacity, lanes, ref header, .. } = self;
        FreeSlots { header, start: LINE, capacity, lanes, link: |slot| self.link(slot) }
    }

    fn writers(&self) -> Writers<'_> {
        Writers { header: &self.header, start: (2 + self.lanes) * LINE, count: self.writers }
    }

    /// Words of one of the map's lines.
    pub(super) fn line<const N: usize>(&self, line: u32) -> [&AtomicU32; N] {
        self.header.words((2 + self.lanes + self.writers + line) * LINE)
    }

    /// The map's words of a slot.
    #[inline(always)]
    pub(super) fn extra<const N: usize>(&self, slot: u32) -> [&AtomicU32; N] {
        self.records.words(slot, OWN)
    }

    pub(super) fn len(&self) -> u32 {
        self.free_slots().used()
    }

    /// Never 0.
    #[inline(always)]
    fn hash(&self, key: &[u8]) -> u32 {
        let hash = match key.len() {
            4 => self.hasher.hash_one(u32::from_ne_bytes(key.try_into().expect("4 bytes"))),
            8 => self.hasher.hash_one(u64::from_ne_bytes(key.try_into().expect("8 bytes"))),
            16 => self.hasher.hash_one(u128::from_ne_bytes(key.try_into().expect("16 bytes"))),
            _ => self.hasher.hash_one(key),
        };
        spread(hash)
    }

    /// Link and hash of a slot.
    #[inline(always)]
    fn record(&self, slot: u32) -> [&AtomicU32; 2] {
        self.records.words(slot, 0)
    }

    /// The memory of the key of a slot.
    #[inline(always)]
    fn key_at(&self, slot: u32) -> (&Block, u32) {
        let (block, off) = self.records.at(slot);
        (block, off + self.key_off)
    }

    fn link(&self, slot: u32) -> &AtomicU32 {
        self.record(slot)[0]
    }

    /// Searches a chain: the slot, and the one before it. Gives up where the chain has changed since `version`.
    #[inline(always)]
    fn search(&self, bucket: Bucket<'_>, version: u32, hash: u32, key: &[u8]) -> Result<Option<Found>, Changed> {
        let mut before = None;
        let mut link = bucket.head.load(Ordering::Acquire);
        while let Some(slot) = link.checked_sub(1) {
            let [next, own] = self.record(slot);
            if own.load(Ordering::Relaxed) == hash {
                let (block, off) = self.key_at(slot);
                if block.equals(off, key) {
                    return Ok(Some((slot, before)));
                }
            }
            link = next.load(Ordering::Acquire);
            before = Some(slot);
            if !bucket.is(version) {
                return Err(Changed);
            }
        }
        Ok(None)
    }

    /// The slot of a key.
    #[inline(always)]
    pub(super) fn slot_of(&self, key: &[u8]) -> Option<u32> {
        self.find(key, |slot| slot)
    }

    /// What `get` makes of the slot of a key. It is called again where the element has changed meanwhile, and must do
    /// nothing else than read.
    #[inline(always)]
    pub(super) fn find<R>(&self, key: &[u8], get: impl Fn(u32) -> R) -> Option<R> {
        self.find_or_guess(key, false, get)
    }

    /// [`Store::find`], or where a guess is enough [`Index::guess`].
    #[inline(always)]
    fn find_or_guess<R>(&self, key: &[u8], guess: bool, get: impl Fn(u32) -> R) -> Option<R> {
        if key.len() != self.key_size as usize || !self.index.has_begun() {
            return None;
        }
        // Keys of known lengths are compared without a loop.
        match key.len() {
            4 => self.find_known(key.first_chunk::<4>()?, guess, get),
            8 => self.find_known(key.first_chunk::<8>()?, guess, get),
            16 => self.find_known(key.first_chunk::<16>()?, guess, get),
            _ => self.find_known(key, guess, get),
        }
    }

    /// The same for a key of the map's size.
    #[inline(always)]
    fn find_known<K: AsRef<[u8]> + ?Sized, R>(&self, key: &K, guess: bool, get: impl Fn(u32) -> R) -> Option<R> {
        let hash = self.hash(key.as_ref());
        let (words, find) = (self.words(), Find { store: self, hash, key, get });
        if guess { self.index.guess(words, hash, &find)? } else { self.index.read(words, hash, &find) }
    }

    /// Replaces the value of a key without its bucket, and gives its slot. `None` where that cannot be, or the key is not there.
    #[inline(always)]
    pub(super) fn replace(&self, key: &[u8], cpu: u32, value: &[u8]) -> Option<u32> {
        let slot = if self.writers == 0 { None } else { self.find_or_guess(key, true, |slot| slot) }?;
        let writers = self.writers();
        // A value in one piece may also be stored with the bucket.
        let _writing = match self.cpus {
            1 => writers.try_hold(own_lane(self.writers), slot)?,
            _ => writers.hold(cpu, slot),
        };
        let there = self.record(slot)[1].load(Ordering::SeqCst) != 0;
        let (block, off) = self.key_at(slot);
        (there && block.equals(off, key)).then(|| self.value(slot, cpu).store(value))?;
        Some(slot)
    }

    /// Stores the value of a slot whose bucket is held.
    pub(super) fn store(&self, slot: u32, cpu: u32, value: &[u8]) {
        let _writing = (self.cpus > 1).then(|| self.writers().hold(cpu, slot));
        self.value(slot, cpu).store(value);
    }

    /// Copies the value of a slot whose bucket is held, or does not change.
    pub(super) fn load_slot(&self, slot: u32, cpu: u32, out: &mut [u8]) {
        let (cell, writers) = (self.value(slot, cpu), self.writers());
        if self.cpus > 1 && (0..TRIES).any(|_| writers.read(cpu, || cell.load(out)).is_some()) {
            return;
        }
        let _writing = (self.cpus > 1).then(|| writers.hold(cpu, slot));
        cell.load(out);
    }

    /// Copies the value of a key. `ENOENT` if there is none.
    pub(super) fn load(&self, key: &[u8], cpu: u32, value: &mut [u8]) -> Result<(), Errno> {
        let value = RefCell::new(value);
        self.find(key, |slot| self.load_slot(slot, cpu, &mut value.borrow_mut())).ok_or(Errno::ENOENT)
    }

    pub(super) fn arena(&self) -> &Arc<Arena> {
        self.header.arena()
    }

    /// Where a key is or would be, to be changed. `ENOMEM` when the arena is full.
    pub(super) fn entry(&self, key: &[u8]) -> Result<LockedEntry<'_>, Errno> {
        assert_eq!(key.len(), self.key_size as usize, "callers check sizes");
        if !self.index.has_begun() {
            self.index.begin().map_err(|error| no_memory(&self.name, &error))?;
        }
        let hash = self.hash(key);
        let held = self.index.hold(self.words(), hash);
        let found = self.search(held.bucket, held.version(), hash, key).expect("nothing changes meanwhile");
        Ok(LockedEntry { store: self, held, hash, found })
    }

    /// Takes the element of a key out: its slot, which is the caller's then. `ENOENT` if there is none.
    pub(super) fn unlink_key(&self, key: &[u8]) -> Result<u32, Errno> {
        let fits = key.len() == self.key_size as usize && self.index.has_begun();
        let entry = if fits { Some(self.entry(key)?) } else { None };
        entry.and_then(LockedEntry::unlink).ok_or(Errno::ENOENT)
    }

    /// Deletes the element of a key. `ENOENT` if there is none.
    pub(super) fn delete(&self, key: &[u8]) -> Result<(), Errno> {
        self.unlink_key(key).map(|slot| self.give(slot))
    }

    /// A slot for [`LockedEntry::insert`]. `E2BIG` when all are in use or on their way to other threads, `ENOMEM` when the
    /// arena is full.
    pub(super) fn take(&self) -> Result<u32, Errno> {
        self.free_slots().take(|slot| self.grow(slot))
    }

    fn grow(&self, slot: u32) -> Result<(), Errno> {
        let grown = self.records.grow(slot).and_then(|()| self.values.grow(slot));
        grown.map_err(|error| no_memory(&self.name, &error))
    }

    /// As [`Store::take`]; `E2BIG` only when at some moment all slots were in use.
    pub(super) fn take_any(&self) -> Result<u32, Errno> {
        self.free_slots().take_exact(|slot| self.grow(slot))
    }

    /// Gives a slot back that is in no chain any more.
    pub(super) fn give(&self, slot: u32) {
        self.free_slots().give(slot);
    }

    /// Number of slots that have had an element.
    pub(super) fn slots(&self) -> u32 {
        self.free_slots().end()
    }

    /// Holds the bucket of the element of a slot, whatever it is, and gives its hash. `None` if no element is there.
    pub(super) fn hold_slot(&self, slot: u32) -> Option<(LockedBucket<'_>, u32)> {
        let [_, own] = self.record(slot);
        loop {
            let hash = own.load(Ordering::Acquire);
            if hash == 0 {
                return None;
            }
            let held = self.index.hold(self.words(), hash);
            if own.load(Ordering::Relaxed) == hash {
                return Some((held, hash));
            }
        }
    }

    /// Takes the element of a slot out, whatever it is. False if there is none; otherwise the slot is the caller's.
    pub(super) fn unlink(&self, slot: u32) -> bool {
        let Some((held, hash)) = self.hold_slot(slot) else { return false };
        let before = self.before(held.bucket, slot);
        LockedEntry { store: self, held, hash, found: Some((slot, before)) }.unlink();
        true
    }

    /// The slot before another in the chain of a bucket that is held.
    fn before(&self, bucket: Bucket<'_>, slot: u32) -> Option<u32> {
        let mut before = None;
        let mut link = bucket.head.load(Ordering::Relaxed);
        while link != slot + 1 {
            before = Some(link - 1);
            link = self.link(link - 1).load(Ordering::Relaxed);
        }
        before
    }

    pub(super) fn load_key(&self, slot: u32, out: &mut [u8]) {
        let (block, off) = self.key_at(slot);
        block.load(off, out);
    }

    /// Copies the key of a slot. False if no element is there.
    pub(super) fn key(&self, slot: u32, out: &mut [u8]) -> bool {
        let [_, own] = self.record(slot);
        let hash = own.load(Ordering::Acquire);
        hash != 0 && self.index.read(self.words(), hash, &CopyKey { store: self, slot, hash, out: RefCell::new(out) })
    }

    /// Changes whenever an element comes.
    pub(super) fn noted(&self) -> u32 {
        self.free_slots().noted()
    }

    /// As `MapOps::element`.
    pub(super) fn element(&self, slot: u32, cpu: u32, key: &mut [u8]) -> Option<u64> {
        let there = slot < self.slots() && key.len() == self.key_size as usize && self.key(slot, key);
        there.then(|| self.addr(slot, cpu))
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

    /// Adds the key, which is not there, in a slot that was [taken](Store::take) and has its value. Until `before` returns, no
    /// other thread finds the element.
    pub(super) fn insert(mut self, key: &[u8], slot: u32, before: impl FnOnce()) {
        assert!(self.found.is_none(), "a key that is not there");
        let store = self.store;
        let [link, own] = store.record(slot);
        self.held.change();
        let (block, off) = store.key_at(slot);
        block.store(off, key);
        let head = self.held.bucket.head;
        // As in `FreeSlots::give`: another thread may have given the slot back.
        link.store(head.load(Ordering::Relaxed), Ordering::Release);
        own.store(self.hash, Ordering::Release);
        head.store(slot + 1, Ordering::Release);
        before();
        store.free_slots().note();
        drop(self);
        let hash = |slot| store.record(slot)[1].load(Ordering::Relaxed);
        store.index.grow(store.words(), slot + 1, hash, |slot| store.link(slot));
    }

    /// Takes the element out: its slot, which is the caller's then. `None` if it is not there.
    pub(super) fn unlink(mut self) -> Option<u32> {
        let (slot, before) = self.found?;
        let store = self.store;
        self.held.change();
        let [link, own] = store.record(slot);
        let next = link.load(Ordering::Relaxed);
        let from = before.map_or(self.held.bucket.head, |before| store.link(before));
        from.store(next, Ordering::Release);
        own.store(0, Ordering::SeqCst);
        store.writers().wait(slot);
        Some(slot)
    }
}

/// An element could not be allocated at run time: helpers return an errno, the log has the reason.
pub(super) fn no_memory(map: &str, error: &MemError) -> Errno {
    log::warn!("map {map}: {error}");
    Errno::ENOMEM
}
