//! LRU hash maps, plain and per-CPU: kernel/bpf/hashtab.c over bpf_lru_list.c.
//!
//! Elements are in a list in the order of insertion. A use only marks the element, so that it writes nothing that is as it
//! should be. A full map takes the oldest element that is not marked; marked ones that it finds go to the new end, without
//! their marks. (The kernel works in batches and for each CPU, so there a map is full before it has `max_entries`.) A use is a
//! program's lookup or any update; a look from the host side is none.
//!
//! A thread puts new elements into a pending list of its own, which it appends to the common list when it is long, and before it
//! evicts an element. With `BPF_F_NO_COMMON_LRU` there is a list for each
//! processor and no common one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::free_slots::{lanes, own_lane};
use super::hash::{check_flags, check_sizes};
use super::lock::{lock, pause};
use super::store::{Extra, Store};
use super::{BPF_EXIST, BPF_NOEXIST, Entry, Errno, MapFlags, MapOps, MapSpec};
use crate::mem::{Arena, MemError};

/// Marks that one eviction takes at most. After that the oldest element goes, marked or not.
const PATIENCE: u32 = 1024;
/// The common list.
const COMMON: u32 = 0;
/// The most elements that are pending for a thread, and by which part of a map these are for all threads together: `LOCAL_FREE_TARGET`
/// of bpf_lru_list.c.
const MOST_PENDING: u32 = 128;
const PENDING_PART: u32 = 4;

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Lru {
    spec: MapSpec,
    cpus: u32,
    /// Number of lists.
    lists: u32,
    /// Elements that make a pending list long. Where it is 0, each element goes to the thread's own list or the only one.
    pending: u32,
    /// A line for each list, and the words of [`Links`].
    store: Store,
}

/// What a slot has of lists. Links are numbers of slots plus 1.
struct Links<'a> {
    newer: &'a AtomicU32,
    older: &'a AtomicU32,
    /// Not zero if the element was used since it came to the new end.
    marked: &'a AtomicU32,
    /// Number of the list that it is in, plus 1. Changes under that list's lock.
    list: &'a AtomicU32,
}

/// A list in memory.
#[derive(Clone, Copy)]
struct List<'a> {
    lock: &'a AtomicU32,
    newest: &'a AtomicU32,
    oldest: &'a AtomicU32,
    count: &'a AtomicU32,
}

fn set(word: &AtomicU32, value: u32) {
    word.store(value, Ordering::Relaxed);
}

fn get(word: &AtomicU32) -> u32 {
    word.load(Ordering::Relaxed)
}

/// The lists.
impl Lru {
    fn links(&self, slot: u32) -> Links<'_> {
        let [newer, older, marked, list] = self.store.extra(slot);
        Links { newer, older, marked, list }
    }

    fn list(&self, number: u32) -> List<'_> {
        let [lock, newest, oldest, count] = self.store.line(number);
        List { lock, newest, oldest, count }
    }

    /// The words that lead to a slot: its neighbours', or the list's.
    fn newer_end<'a>(&'a self, list: List<'a>, newer: u32) -> &'a AtomicU32 {
        newer.checked_sub(1).map_or(list.newest, |newer| self.links(newer).older)
    }

    fn older_end<'a>(&'a self, list: List<'a>, older: u32) -> &'a AtomicU32 {
        older.checked_sub(1).map_or(list.oldest, |older| self.links(older).newer)
    }

    /// The list is locked, and the slot not in it.
    fn push_locked(&self, list: List<'_>, slot: u32) {
        let links = self.links(slot);
        let older = get(list.newest);
        set(links.newer, 0);
        set(links.older, older);
        set(self.older_end(list, older), slot + 1);
        set(list.newest, slot + 1);
        set(list.count, get(list.count) + 1);
    }

    /// The list is locked, and the slot in it.
    fn take_locked(&self, list: List<'_>, slot: u32) {
        let links = self.links(slot);
        let (newer, older) = (get(links.newer), get(links.older));
        set(self.newer_end(list, newer), older);
        set(self.older_end(list, older), newer);
        set(list.count, get(list.count) - 1);
    }

    /// Appends a pending list, which is locked, to the common one.
    fn append_locked(&self, pending: List<'_>) {
        let common = self.list(COMMON);
        let _locked = lock(common.lock);
        let (newest, oldest) = (get(pending.newest), get(pending.oldest));
        let mut link = oldest;
        while let Some(slot) = link.checked_sub(1) {
            let links = self.links(slot);
            set(links.list, COMMON + 1);
            link = get(links.newer);
        }
        if let Some(oldest_slot) = oldest.checked_sub(1) {
            let before = get(common.newest);
            set(self.links(oldest_slot).older, before);
            set(self.older_end(common, before), oldest);
            set(common.newest, newest);
            set(common.count, get(common.count) + get(pending.count));
            [pending.newest, pending.oldest, pending.count].into_iter().for_each(|word| set(word, 0));
        }
    }

    /// Appends a thread's pending list before an eviction, and now and then those of all threads: one may add no more elements.
    fn append(&self, own: u32) {
        let [.., turns] = self.store.line::<5>(COMMON);
        let turn = get(turns).wrapping_add(1);
        set(turns, turn);
        let lists = if turn.is_multiple_of(self.pending) { 1..self.lists } else { own..own + 1 };
        for list in lists.map(|number| self.list(number)).filter(|list| get(list.count) != 0) {
            let _locked = lock(list.lock);
            self.append_locked(list);
        }
    }

    /// The list that the calling thread puts new elements into.
    fn own_list(&self) -> u32 {
        if self.pending == 0 { own_lane(self.lists) } else { 1 + own_lane(self.lists - 1) }
    }

    /// A use of the element.
    #[inline]
    fn mark(&self, slot: u32) {
        let marked = self.links(slot).marked;
        if get(marked) == 0 {
            set(marked, 1);
        }
    }

    /// A new element, in the slot of another that was evicted or in a free one.
    fn add(&self, slot: u32, evicted: bool) {
        let number = if evicted && self.pending != 0 { COMMON } else { self.own_list() };
        let (list, links) = (self.list(number), self.links(slot));
        set(links.marked, 0);
        let _locked = lock(list.lock);
        self.push_locked(list, slot);
        set(links.list, number + 1);
        if number != COMMON && get(list.count) == self.pending {
            self.append_locked(list);
        }
    }

    /// An element that is in the store no more.
    fn forget(&self, slot: u32) {
        let links = self.links(slot);
        while let Some(number) = get(links.list).checked_sub(1) {
            let list = self.list(number);
            let _locked = lock(list.lock);
            if get(links.list) == number + 1 {
                self.take_locked(list, slot);
                set(links.list, 0);
            }
        }
    }

    /// Takes the element of a list that is to go out of the list.
    fn oldest(&self, list: List<'_>) -> Option<u32> {
        if get(list.oldest) == 0 {
            return None;
        }
        let _locked = lock(list.lock);
        for marks in 0.. {
            let slot = get(list.oldest).checked_sub(1)?;
            let links = self.links(slot);
            self.take_locked(list, slot);
            if marks == PATIENCE || get(links.marked) == 0 {
                set(links.list, 0);
                return Some(slot);
            }
            set(links.marked, 0);
            self.push_locked(list, slot);
        }
        None
    }

    /// Evicts an element, preferably of the thread's own list. Its slot is the caller's.
    fn evict(&self) -> Option<u32> {
        let own = self.own_list();
        let first = if self.pending == 0 { own } else { COMMON };
        if self.pending != 0 {
            self.append(own);
        }
        let slot = (0..self.lists).find_map(|other| self.oldest(self.list((first + other) % self.lists)))?;
        if !self.store.unlink(slot) {
            return None;
        }
        // Another thread can have put another element there.
        self.forget(slot);
        Some(slot)
    }

    /// A slot for a new element, if need be that of another. No bucket may be held.
    fn make_room(&self) -> Result<u32, Errno> {
        let mut spins = 0;
        loop {
            if let Some(slot) = self.evict() {
                return Ok(slot);
            }
            // All slots are on their way to other threads, unless the arena is full.
            match self.store.take() {
                Err(errno) if self.store.slots() == 0 => return Err(errno),
                Err(_) => pause(&mut spins),
                taken => return taken,
            }
        }
    }
}

impl Lru {
    /// `cpus` is 1 unless the map is per-CPU.
    pub(super) fn new(spec: MapSpec, arena: &Arc<Arena>, cpus: u32) -> Result<Lru, MemError> {
        let common = !spec.flags().contains(MapFlags::NO_COMMON_LRU);
        let pending = (spec.max_entries / PENDING_PART / lanes()).min(MOST_PENDING);
        let (lists, pending) = match common {
            true if pending > 1 => (1 + lanes(), pending),
            true => (1, 0),
            false => (lanes(), 0),
        };
        let store = Store::new(&spec, arena, cpus, Extra { lines: lists, words: 4, replaces: true })?;
        Ok(Lru { spec, cpus, lists, pending, store })
    }

    fn slot_cpu(&self, cpu: u32) -> Option<u32> {
        if self.cpus == 1 { Some(0) } else { Some(cpu).filter(|cpu| *cpu < self.cpus) }
    }

    /// Updates with a slot for a new element, if the thread has one already. Gives it back where the element is not new.
    fn put(&self, key: &[u8], value: &[u8], flags: u64, cpu: u32, mut spare: Option<u32>) -> Result<Done, Errno> {
        if spare.is_none()
            && flags != BPF_NOEXIST
            && let Some(slot) = self.store.replace(key, cpu, value)
        {
            self.mark(slot);
            return Ok(Done::Yes);
        }
        let mut entry = self.store.entry(key)?;
        let result = check_flags(entry.slot().is_some(), flags);
        if let (Ok(()), None) = (result, entry.slot()) {
            let Some(slot) = spare.or_else(|| self.store.take().ok()) else { return Ok(Done::NeedsRoom) };
            self.store.init(slot, cpu, value);
            entry.insert(key, slot, || self.add(slot, spare.is_some()));
            return Ok(Done::Yes);
        }
        if let (Ok(()), Some(slot)) = (result, entry.slot()) {
            entry.change();
            self.store.store(slot, cpu, value);
            self.mark(slot);
        }
        drop(entry);
        if let Some(slot) = spare.take() {
            self.store.give(slot);
        }
        result.map(|()| Done::Yes)
    }
}

/// How an update ended.
enum Done {
    Yes,
    /// It needs a slot, and there is none.
    NeedsRoom,
}

impl MapOps for Lru {
    fn spec(&self) -> &MapSpec {
        &self.spec
    }

    fn lookup(&self, key: &[u8], cpu: u32) -> Option<u64> {
        let cpu = self.slot_cpu(cpu)?;
        let slot = self.store.slot_of(key)?;
        self.mark(slot);
        Some(self.store.addr(slot, cpu))
    }

    fn lookup_copy(&self, key: &[u8], cpu: u32, value: &mut [u8]) -> Result<(), Errno> {
        check_sizes(&self.spec, key, value)?;
        let cpu = self.slot_cpu(cpu).ok_or(Errno::EINVAL)?;
        self.store.load(key, cpu, value)
    }

    fn update(&self, key: &[u8], value: &[u8], flags: u64, cpu: u32) -> Result<(), Errno> {
        check_sizes(&self.spec, key, value)?;
        let cpu = self.slot_cpu(cpu).filter(|_| flags <= BPF_EXIST).ok_or(Errno::EINVAL)?;
        match self.put(key, value, flags, cpu, None)? {
            Done::Yes => Ok(()),
            Done::NeedsRoom => self.put(key, value, flags, cpu, Some(self.make_room()?)).map(|_| ()),
        }
    }

    fn delete(&self, key: &[u8]) -> Result<(), Errno> {
        let slot = self.store.unlink_key(key)?;
        self.forget(slot);
        self.store.give(slot);
        Ok(())
    }

    fn next_key(&self, key: Option<&[u8]>, next: &mut [u8]) -> Result<(), Errno> {
        self.store.next_key(key, next)
    }

    fn keys(&self) -> Vec<Vec<u8>> {
        self.store.keys()
    }

    fn entries(&self, each: &mut dyn FnMut(Entry<'_>) -> bool) -> Result<(), Errno> {
        let size = self.spec.value_size;
        self.store.entries(size, self.spec.kind.copy_size(size, self.cpus as usize), each);
        Ok(())
    }

    fn slots(&self) -> Option<u32> {
        Some(self.store.slots())
    }

    fn additions(&self) -> Option<u32> {
        Some(self.store.noted())
    }

    fn element(&self, slot: u32, cpu: u32, key: &mut [u8]) -> Option<u64> {
        self.store.element(slot, self.slot_cpu(cpu)?, key)
    }

    fn cpus(&self) -> u32 {
        self.cpus
    }

    fn arena(&self) -> Option<&Arc<Arena>> {
        Some(self.store.arena())
    }

    fn len(&self) -> u32 {
        self.store.len()
    }
}
