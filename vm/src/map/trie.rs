//! The tries of kernel/bpf/lpm_trie.c: path-compressed, one node for each prefix or fork.
//!
//! There is a trie for each first byte of prefixes that have one, and one for shorter prefixes, so that a search begins below the
//! first eight bits and threads that change the map seldom meet. A fork without a value of its own is an intermediate node; it
//! always has two children. Only values lie where programs can write; the rest is hidden memory.
//!
//! A search takes no lock and writes nothing. A change holds the lock of its trie, shows by one store of a link, and changes the
//! version before and after that; a search that finds another version at its end begins anew. A thread that copies a value or
//! replaces it holds the lock of the value, and one that takes an element out waits for it; a replacement takes no other lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use super::cell::Cell;
use super::free_slots::{FreeSlots, LINE, lanes};
use super::hidden_slab::HiddenSlab;
use super::lock::{Locked, lock};
use super::slab::{Layout, Slab};
use super::trie_node::{INFO, INTERMEDIATE, NODE, Node, Prefix, WORD, follow, get, number};
use super::{Errno, MapSpec};
use crate::mem::{Arena, Block, MemError, Record, RegionKind, RegionSpec};

/// Bits of the first byte.
pub(super) const FIRST_BITS: u32 = 8;
/// The trie of prefixes that are shorter than the first byte; before it are those of its values.
pub(super) const SHORT: u32 = 1 << FIRST_BITS;
/// Bytes of the words of a trie.
const ROOT: u32 = 16;
/// Where the lines of free slots begin, after the words of all tries.
const SLOTS: u32 = ((SHORT + 1) * ROOT).next_multiple_of(LINE);
/// Locks of values, which nodes share by their numbers. Nodes themselves stay unwritten, as all searches read them.
const LOCKS: u32 = 256;
/// Searches without the lock before one with it.
const TRIES: u32 = 64;

/// The words of a trie.
#[derive(Clone, Copy)]
pub(super) struct Root<'a> {
    pub(super) lock: &'a AtomicU32,
    /// Odd while elements come or go. It has changed before a node that was taken out is used again.
    pub(super) version: &'a AtomicU32,
    pub(super) top: &'a AtomicU64,
}

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Trie {
    pub(super) name: Arc<str>,
    pub(super) data_size: u32,
    pub(super) value_size: u32,
    /// Offset of the data in a node.
    data_off: u32,
    max_entries: u32,
    lanes: u32,
    /// Words of all tries, lines of free slots of elements and of forks, and locks of values.
    header: Block,
    /// After one that is none, each element's node and one for a fork in turn.
    pub(super) nodes: HiddenSlab,
    pub(super) values: Slab,
    lock: Option<u32>,
}

/// What a search found.
#[derive(Clone, Copy, PartialEq)]
struct Found {
    node: u32,
    trie: u32,
    /// The trie's version meanwhile.
    version: u32,
}

/// A trie has changed during a search.
struct Changed;

impl Trie {
    pub(super) fn arena(&self) -> &Arc<Arena> {
        self.header.arena()
    }

    pub(super) fn new(spec: &MapSpec, arena: &Arc<Arena>) -> Result<Trie, MemError> {
        let (data_size, lanes) = (spec.key_size - 4, lanes());
        // Words that are read as numbers are aligned.
        let data_off = if data_size == 4 { INFO + 4 } else { INFO + 8 };
        let values = Layout {
            label: format!("value of map {}", spec.name).into(),
            size: spec.value_size,
            cpus: 1,
            capacity: spec.max_entries,
            writable: spec.program_writable(),
        };
        let bytes = SLOTS + 2 * (1 + lanes) * LINE + 4 * LOCKS;
        let header = RegionSpec::new(format!("header of map {}", spec.name), RegionKind::Map, bytes);
        let capacity = spec.max_entries.saturating_mul(2).saturating_add(1);
        Ok(Trie {
            name: Arc::clone(&spec.name),
            data_size,
            value_size: spec.value_size,
            data_off,
            max_entries: spec.max_entries,
            lanes,
            header: arena.alloc_hidden(header)?,
            nodes: HiddenSlab::new(arena, format!("key of map {}", spec.name), data_off + data_size, capacity)?,
            values: Slab::new(arena, values),
            lock: spec.spin_lock,
        })
    }

    #[inline(always)]
    pub(super) fn root(&self, trie: u32) -> Root<'_> {
        let [lock, version] = self.header.words(trie * ROOT);
        Root { lock, version, top: self.header.atomic(trie * ROOT + 8) }
    }

    fn free<'a>(&'a self, start: u32, node: fn(&Self, u32) -> u32) -> FreeSlots<'a, impl Fn(u32) -> &'a AtomicU32> {
        let &Trie { max_entries: capacity, lanes, ref header, .. } = self;
        FreeSlots { header, start, capacity, lanes, link: move |slot| self.node(node(self, slot)).info }
    }

    /// Slots of elements that are not in use.
    pub(super) fn elements<'a>(&'a self) -> FreeSlots<'a, impl Fn(u32) -> &'a AtomicU32> {
        self.free(SLOTS, Self::element)
    }

    /// Slots of forks that are not in use. There are fewer forks than elements.
    pub(super) fn forks<'a>(&'a self) -> FreeSlots<'a, impl Fn(u32) -> &'a AtomicU32> {
        self.free(SLOTS + (1 + self.lanes) * LINE, Self::fork)
    }

    pub(super) fn len(&self) -> u32 {
        self.elements().used()
    }

    fn max_bits(&self) -> u32 {
        self.data_size * 8
    }

    /// The node of an element's slot.
    pub(super) fn element(&self, slot: u32) -> u32 {
        self.nodes.at(2 * slot + 1).1 / WORD
    }

    /// The node of a fork's slot.
    pub(super) fn fork(&self, slot: u32) -> u32 {
        self.nodes.at(2 * slot + 2).1 / WORD
    }

    /// The slot of a node of either kind; there is no node 0.
    pub(super) fn slot(&self, node: u32) -> u32 {
        (self.nodes.slot(node * WORD) - 1) / 2
    }

    #[inline(always)]
    pub(super) fn node(&self, number: u32) -> Node<'_> {
        let (block, off) = (self.nodes.memory(), number * WORD);
        let [info] = block.words(off + INFO);
        Node { block, off, data: off + self.data_off, info }
    }

    pub(super) fn value(&self, node: u32) -> Cell<'_> {
        self.values.cell(self.slot(node), 0, self.lock)
    }

    pub(super) fn addr(&self, node: u32) -> u64 {
        self.values.addr(self.slot(node), 0)
    }

    /// The trie that has a prefix.
    #[inline(always)]
    pub(super) fn trie_of(key: Prefix<'_>) -> u32 {
        if key.bits < FIRST_BITS { SHORT } else { u32::from(key.data[0]) }
    }

    /// The element with the longest prefix of `key`.
    pub(super) fn longest(&self, key: Prefix<'_>) -> Option<u32> {
        for _ in 0..TRIES {
            if let Ok(found) = self.attempt(key) {
                return found.map(|found| found.node);
            }
        }
        self.with_longest(key, |node| node)
    }

    /// The same, if nothing changes meanwhile.
    #[inline(always)]
    fn attempt(&self, key: Prefix<'_>) -> Result<Option<Found>, Changed> {
        let own = Self::trie_of(key);
        let version = get(self.root(own).version);
        let node = self.attempt_in(own, version, key)?;
        if node.is_some() || own == SHORT {
            return Ok(node.map(|node| Found { node, trie: own, version }));
        }
        let short = get(self.root(SHORT).version);
        let node = self.attempt_in(SHORT, short, key)?;
        // There may be a longer prefix by now, and the short one newer than that.
        if version & 1 != 0 || !self.is(own, version) {
            return Err(Changed);
        }
        Ok(node.map(|node| Found { node, trie: SHORT, version: short }))
    }

    /// The same in one trie, which has this version.
    #[inline(always)]
    fn attempt_in(&self, trie: u32, version: u32, key: Prefix<'_>) -> Result<Option<u32>, Changed> {
        let found = self.search(trie, key, || self.is(trie, version));
        fence(Ordering::Acquire);
        if self.is(trie, version) { Ok(found) } else { Err(Changed) }
    }

    /// Whether a trie has not changed since this version.
    fn is(&self, trie: u32, version: u32) -> bool {
        self.root(trie).version.load(Ordering::Relaxed) == version
    }

    /// What `work` makes of the element with the longest prefix of `key`, which stays until it has.
    #[cold]
    fn with_longest<R>(&self, key: Prefix<'_>, work: impl FnOnce(u32) -> R) -> Option<R> {
        let own = Self::trie_of(key);
        let _own = lock(self.root(own).lock);
        let (found, _short) = match self.search(own, key, || true) {
            None if own != SHORT => {
                let short = lock(self.root(SHORT).lock);
                (self.search(SHORT, key, || true), Some(short))
            }
            found => (found, None),
        };
        found.map(work)
    }

    /// Takes the lock of a node's value.
    pub(super) fn lock_value(&self, number: u32) -> Locked<'_> {
        let locks = SLOTS + 2 * (1 + self.lanes) * LINE;
        let [word] = self.header.words(locks + 4 * (self.slot(number) % LOCKS));
        lock(word)
    }

    /// The element with the longest prefix of `key`, whose value is locked; `None` also where a trie changes.
    fn held(&self, key: Prefix<'_>) -> Option<(Found, Locked<'_>)> {
        let found = self.attempt(key).ok()??;
        let locked = self.lock_value(found.node);
        // Without another version the node is still the one that was found.
        self.is(found.trie, found.version).then_some((found, locked))
    }

    /// Copies the value under the longest prefix of `key`, never half of an update.
    pub(super) fn load(&self, key: Prefix<'_>, value: &mut [u8]) -> Result<(), Errno> {
        if let Some((found, _locked)) = self.held(key)
            // There may be a longer prefix by now, and the value newer than that.
            && self.attempt(key).is_ok_and(|again| again == Some(found))
        {
            self.value(found.node).load(value);
            return Ok(());
        }
        let load = |node| {
            let _locked = self.lock_value(node);
            self.value(node).load(value);
        };
        self.with_longest(key, load).ok_or(Errno::ENOENT)
    }

    /// Replaces an element without the lock of its trie: whether that can be, and the element is there.
    pub(super) fn replace_at_once(&self, key: Prefix<'_>, value: &[u8]) -> bool {
        let held = self.held(key).filter(|(found, _)| self.node(found.node).bits() == key.bits);
        if let Some((found, _)) = &held {
            self.replace(found.node, key, value);
        }
        held.is_some()
    }

    /// Replaces the value of an element, which is locked.
    pub(super) fn replace(&self, number: u32, key: Prefix<'_>, value: &[u8]) {
        let node = self.node(number);
        // Bits that count are the same.
        if key.bits < self.max_bits() {
            node.block.store(node.data, key.data);
        }
        self.value(number).store(value);
    }

    /// Searches a trie for the longest prefix, as long as `valid`.
    #[inline(always)]
    fn search(&self, trie: u32, key: Prefix<'_>, valid: impl Fn() -> bool) -> Option<u32> {
        match <[u8; 4]>::try_from(key.data) {
            // Data of this size is one word of the node.
            Ok(data) => self.descend(trie, key, valid, |record, _, bits| {
                let own: &AtomicU32 = record.atomic::<_, { INFO as usize + 4 }>();
                let differ = u32::from_ne_bytes(data) ^ own.load(Ordering::Relaxed);
                bits <= key.bits.min(u32::from_be(differ).leading_zeros())
            }),
            Err(_) => self.descend(trie, key, valid, |_, number, bits| self.node(number).common(bits, key) >= bits),
        }
    }

    /// The same, where `fits` compares the first bits of a node with the key's.
    #[inline(always)]
    fn descend(
        &self,
        trie: u32,
        key: Prefix<'_>,
        valid: impl Fn() -> bool,
        fits: impl Fn(Record<'_, NODE>, u32, u32) -> bool,
    ) -> Option<u32> {
        let (mut found, mut link, head) = (None, follow(self.root(trie).top), key.head());
        while let Some(number) = number(link) {
            let (node, bits) = (self.nodes.memory().record::<NODE>(number * WORD), (link >> 32) as u32);
            let last = bits >= self.max_bits();
            if !last {
                let side = if bits < u64::BITS { (head >> (u64::BITS - 1 - bits) & 1) as usize } else { key.bit(bits) };
                let child: &AtomicU64 = if side == 0 { node.atomic::<_, 0>() } else { node.atomic::<_, 8>() };
                link = follow(child);
            }
            if !fits(node, number, bits) {
                break;
            }
            let info: &AtomicU32 = node.atomic::<_, { INFO as usize }>();
            if get(info) & INTERMEDIATE == 0 {
                found = Some(number);
            }
            if last || !valid() {
                break;
            }
        }
        found
    }
}
