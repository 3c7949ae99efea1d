//! The hash table under every map with arbitrary keys: indices of slots, with keys and values in slabs.
//!
//! Iteration follows slots, so a map that only grows lists its elements in the order of insertion. The slot
//! of a deleted element is taken again as late as possible: a program that still holds a pointer to it
//! mostly reads the old bytes, and never faults.

use std::collections::VecDeque;
use std::hash::BuildHasher;
use std::sync::Arc;

use hashbrown::{DefaultHashBuilder, HashTable};

use super::cell::Cell;
use super::slab::{Layout, Slab};
use super::{Errno, MapSpec};
use crate::mem::{Arena, MemError};

#[derive(Debug)]
struct Entry {
    hash: u64,
    slot: u32,
}

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Store {
    name: Arc<str>,
    key_size: usize,
    capacity: u32,
    cpus: u32,
    lock: Option<u32>,
    hasher: DefaultHashBuilder,
    index: HashTable<Entry>,
    keys: Slab,
    values: Slab,
    /// One bit for each slot in use.
    live: Vec<u64>,
    /// Slots given back, oldest first.
    free: VecDeque<u32>,
    /// Slots from here on were never used.
    fresh: u32,
}

impl Store {
    pub(super) fn new(spec: &MapSpec, arena: &Arc<Arena>, cpus: u32) -> Store {
        let capacity = spec.max_entries;
        let keys = Layout {
            label: format!("key of map {}", spec.name).into(),
            size: spec.key_size,
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
        Store {
            name: Arc::clone(&spec.name),
            key_size: spec.key_size as usize,
            capacity,
            cpus,
            lock: spec.spin_lock,
            hasher: DefaultHashBuilder::default(),
            index: HashTable::new(),
            keys: Slab::new(arena, keys),
            values: Slab::new(arena, values),
            live: Vec::new(),
            free: VecDeque::new(),
            fresh: 0,
        }
    }

    pub(super) fn len(&self) -> u32 {
        self.index.len() as u32
    }

    pub(super) fn is_full(&self) -> bool {
        self.len() >= self.capacity
    }

    fn same_key(&self, slot: u32, key: &[u8]) -> bool {
        let cell = self.keys.cell(slot, 0, None);
        key.len() == self.key_size && cell.block.equals(cell.off, key)
    }

    pub(super) fn find(&self, key: &[u8]) -> Option<u32> {
        let hash = self.hasher.hash_one(key);
        let same = |entry: &Entry| entry.hash == hash && self.same_key(entry.slot, key);
        self.index.find(hash, same).map(|entry| entry.slot)
    }

    /// Adds a key that is not there. `E2BIG` when full, `ENOMEM` when the arena is. Whose value it is writes
    /// the value next.
    pub(super) fn insert(&mut self, key: &[u8]) -> Result<u32, Errno> {
        assert_eq!(key.len(), self.key_size, "callers check sizes");
        if self.is_full() {
            return Err(Errno::E2BIG);
        }
        let slot = match self.free.pop_front() {
            Some(slot) => slot,
            None => self.take_fresh()?,
        };
        let cell = self.keys.cell(slot, 0, None);
        cell.block.write(cell.off, key);
        let hash = self.hasher.hash_one(key);
        self.index.insert_unique(hash, Entry { hash, slot }, |entry| entry.hash);
        self.live[slot as usize / 64] |= 1 << (slot % 64);
        Ok(slot)
    }

    fn take_fresh(&mut self) -> Result<u32, Errno> {
        let slot = self.fresh;
        let grown = self.keys.grow(slot).and_then(|()| self.values.grow(slot));
        grown.map_err(|error| no_memory(&self.name, &error))?;
        self.fresh += 1;
        if self.live.len() * 64 <= slot as usize {
            self.live.push(0);
        }
        Ok(slot)
    }

    /// Takes a slot out of the map.
    pub(super) fn remove(&mut self, slot: u32) {
        let mut key = vec![0; self.key_size];
        self.key(slot, &mut key);
        let hash = self.hasher.hash_one(key.as_slice());
        let found = self.index.find_entry(hash, |entry| entry.slot == slot);
        found.expect("a live slot is in the index").remove();
        self.live[slot as usize / 64] &= !(1 << (slot % 64));
        self.free.push_back(slot);
    }

    /// Copies the key of a slot.
    pub(super) fn key(&self, slot: u32, out: &mut [u8]) {
        self.keys.cell(slot, 0, None).load(out);
    }

    /// The value of a slot.
    pub(super) fn value(&self, slot: u32, cpu: u32) -> Cell<'_> {
        self.values.cell(slot, cpu, self.lock)
    }

    /// Address of the value of a slot.
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

    /// The first slot in use, or the first one after `slot`.
    fn after(&self, slot: Option<u32>) -> Option<u32> {
        let from = slot.map_or(0, |slot| slot as usize + 1);
        let first = self.live.get(from / 64)? & (u64::MAX << (from % 64));
        let rest = self.live.iter().skip(from / 64 + 1).copied();
        let mut words = std::iter::once(first).chain(rest).zip(from / 64..);
        words.find(|(word, _)| *word != 0).map(|(word, at)| at as u32 * 64 + word.trailing_zeros())
    }

    /// `BPF_MAP_GET_NEXT_KEY`.
    pub(super) fn next_key(&self, key: Option<&[u8]>, next: &mut [u8]) -> Result<(), Errno> {
        let slot = key.and_then(|key| self.find(key));
        let slot = self.after(slot).ok_or(Errno::ENOENT)?;
        if next.len() != self.key_size {
            return Err(Errno::EINVAL);
        }
        self.key(slot, next);
        Ok(())
    }

    /// All keys.
    pub(super) fn keys(&self) -> Vec<Vec<u8>> {
        let slots = std::iter::successors(self.after(None), |slot| self.after(Some(*slot)));
        slots
            .map(|slot| {
                let mut key = vec![0; self.key_size];
                self.key(slot, &mut key);
                key
            })
            .collect()
    }
}

/// An element could not be allocated at run time: helpers return an errno, the log has the reason.
pub(super) fn no_memory(map: &str, error: &MemError) -> Errno {
    log::warn!("map {map}: {error}");
    Errno::ENOMEM
}
