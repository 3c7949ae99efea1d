//! The trie of kernel/bpf/lpm_trie.c: path-compressed, one node for each prefix or fork.
//!
//! A fork without a value of its own is an intermediate node; it always has two children. Only values lie where programs can
//! write; the rest is hidden memory.
//!
//! A search takes no lock and writes nothing. A change holds the lock of the map, and shows by one store of a link. A node that
//! was taken out is used again only after the version has changed; a search that finds another version at its end begins anew.
//! A thread that copies a value, replaces it or takes it away holds the lock of the value; a replacement takes no other lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use super::cell::Cell;
use super::fifo::Fifo;
use super::hidden_slab::HiddenSlab;
use super::lock::{Locked, lock};
use super::slab::{Layout, Slab};
use super::store::no_memory;
use super::trie_node::{INFO, INTERMEDIATE, NODE, Node, Prefix, WORD, by_side, follow, get, hang, number, set};
use super::{BPF_EXIST, BPF_NOEXIST, Errno, MapSpec};
use crate::mem::{Arena, Block, MemError, Record, RegionKind, RegionSpec};

/// Bytes of the words that are no node's, locks of values apart.
const HEADER: u32 = 64;
/// Locks of values, which nodes share by their numbers. Nodes themselves stay unwritten, as all searches read them.
const LOCKS: u32 = 256;
/// Offset of the root's link in these.
const ROOT: u32 = 24;
/// Searches without the lock before one with it.
const TRIES: u32 = 64;

/// The map's words that are no node's.
struct Header<'a> {
    lock: &'a AtomicU32,
    /// Changes before a node that was taken out is used again.
    version: &'a AtomicU32,
    root: &'a AtomicU64,
    /// Elements: nodes that are not intermediate.
    entries: &'a AtomicU32,
    /// Nodes that were ever used.
    fresh: &'a AtomicU32,
    /// Nodes that were taken out, linked by the words that have bits otherwise.
    free: Fifo<'a>,
}

/// Where a node hangs.
#[derive(Clone, Copy)]
enum Link {
    Root,
    Child(u32, usize),
}

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Trie {
    name: Arc<str>,
    data_size: u32,
    /// Offset of the data in a node.
    data_off: u32,
    max_entries: u32,
    header: Block,
    nodes: HiddenSlab,
    values: Slab,
    lock: Option<u32>,
}

/// The trie while this thread alone changes it.
pub(super) struct LockedTrie<'a> {
    trie: &'a Trie,
    header: Header<'a>,
    _locked: Locked<'a>,
}

/// A walk down from the root.
struct Walk {
    link: Link,
    node: Option<u32>,
    /// Bits that the node at the end has in common with the key.
    matched: u32,
}

impl Trie {
    pub(super) fn new(spec: &MapSpec, arena: &Arc<Arena>) -> Result<Trie, MemError> {
        let data_size = spec.key_size - 4;
        // Words that are read as numbers are aligned.
        let data_off = if data_size == 4 { INFO + 4 } else { INFO + 8 };
        // Every element can need one intermediate node.
        let capacity = spec.max_entries.saturating_mul(2);
        let values = Layout {
            label: format!("value of map {}", spec.name).into(),
            size: spec.value_size,
            cpus: 1,
            capacity,
            writable: spec.program_writable(),
        };
        let header = RegionSpec::new(format!("header of map {}", spec.name), RegionKind::Map, HEADER + 4 * LOCKS);
        Ok(Trie {
            name: Arc::clone(&spec.name),
            data_size,
            data_off,
            max_entries: spec.max_entries,
            header: arena.alloc_hidden(header)?,
            nodes: HiddenSlab::new(
                arena,
                format!("key of map {}", spec.name),
                data_off + data_size,
                capacity.saturating_add(1),
            )?,
            values: Slab::new(arena, values),
            lock: spec.spin_lock,
        })
    }

    #[inline(always)]
    fn header(&self) -> Header<'_> {
        let [lock, version, entries, fresh, oldest, newest] = self.header.words(0);
        let root = self.header.atomic(ROOT);
        Header { lock, version, root, entries, fresh, free: Fifo { oldest, newest } }
    }

    pub(super) fn len(&self) -> u32 {
        get(self.header().entries)
    }

    fn max_bits(&self) -> u32 {
        self.data_size * 8
    }

    #[inline(always)]
    fn node(&self, number: u32) -> Node<'_> {
        let (block, off) = (self.nodes.memory(), number * WORD);
        let [info] = block.words(off + INFO);
        Node { block, off, data: off + self.data_off, info }
    }

    /// The slot of a node's value; there is no node 0.
    fn slot(&self, node: u32) -> u32 {
        self.nodes.slot(node * WORD) - 1
    }

    fn value(&self, node: u32) -> Cell<'_> {
        self.values.cell(self.slot(node), 0, self.lock)
    }

    pub(super) fn addr(&self, node: u32) -> u64 {
        self.values.addr(self.slot(node), 0)
    }

    pub(super) fn locked(&self) -> LockedTrie<'_> {
        let header = self.header();
        LockedTrie { trie: self, _locked: lock(header.lock), header }
    }

    /// The element with the longest prefix of `key`.
    pub(super) fn longest(&self, key: Prefix<'_>) -> Option<u32> {
        let header = self.header();
        for _ in 0..TRIES {
            let version = get(header.version);
            let found = self.search(key, || header.version.load(Ordering::Relaxed) == version);
            fence(Ordering::Acquire);
            if header.version.load(Ordering::Relaxed) == version {
                return found;
            }
        }
        self.locked().longest(key)
    }

    /// Takes the lock of a node's value.
    fn lock_value(&self, number: u32) -> Locked<'_> {
        let [word] = self.header.words(HEADER + 4 * (self.slot(number) % LOCKS));
        lock(word)
    }

    /// The element with the longest prefix of `key`, whose value is locked; `None` also where the trie changes.
    fn held(&self, key: Prefix<'_>) -> Option<(u32, Locked<'_>)> {
        let version = get(self.header().version);
        let number = self.longest_at(key, version)?;
        let locked = self.lock_value(number);
        // Without another version the node is still the one that was found. Its bits are read first: those of its next use would
        // come with another version.
        (!self.node(number).is_intermediate() && self.is(version)).then_some((number, locked))
    }

    /// The element with the longest prefix of `key`, if the trie has this version until it is found.
    fn longest_at(&self, key: Prefix<'_>, version: u32) -> Option<u32> {
        let found = self.search(key, || self.is(version))?;
        fence(Ordering::Acquire);
        self.is(version).then_some(found)
    }

    /// Whether no node that was taken out is in use again since this version.
    fn is(&self, version: u32) -> bool {
        self.header().version.load(Ordering::Relaxed) == version
    }

    /// Copies the value under the longest prefix of `key`, never half of an update.
    pub(super) fn load(&self, key: Prefix<'_>, value: &mut [u8]) -> Result<(), Errno> {
        if let Some((number, _locked)) = self.held(key)
            // There may be a longer prefix by now, and the value newer than that.
            && self.longest_at(key, get(self.header().version)) == Some(number)
        {
            self.value(number).load(value);
            return Ok(());
        }
        let trie = self.locked();
        let number = trie.longest(key).ok_or(Errno::ENOENT)?;
        let _locked = self.lock_value(number);
        self.value(number).load(value);
        Ok(())
    }

    /// Adds or replaces an element.
    pub(super) fn update(&self, key: Prefix<'_>, value: &[u8], flags: u64) -> Result<(), Errno> {
        if flags != BPF_NOEXIST
            && let Some((number, _locked)) = self.held(key)
            && self.node(number).bits() == key.bits
        {
            self.replace(number, key, value);
            return Ok(());
        }
        self.locked().update(key, value, flags)
    }

    /// Replaces the value of an element, which is locked.
    fn replace(&self, number: u32, key: Prefix<'_>, value: &[u8]) {
        let node = self.node(number);
        // Bits that count are the same.
        if key.bits < self.max_bits() {
            node.block.store(node.data, key.data);
        }
        self.value(number).store(value);
    }

    /// Searches for the longest prefix, as long as `valid`.
    #[inline(always)]
    fn search(&self, key: Prefix<'_>, valid: impl Fn() -> bool) -> Option<u32> {
        match <[u8; 4]>::try_from(key.data) {
            // Data of this size is one word of the node.
            Ok(data) => self.descend(key, valid, |record, _, bits| {
                let own: &AtomicU32 = record.atomic::<_, { INFO as usize + 4 }>();
                let differ = u32::from_ne_bytes(data) ^ own.load(Ordering::Relaxed);
                bits <= key.bits.min(u32::from_be(differ).leading_zeros())
            }),
            Err(_) => self.descend(key, valid, |_, number, bits| self.node(number).common(bits, key) >= bits),
        }
    }

    /// The same, where `fits` compares the first bits of a node with the key's.
    #[inline(always)]
    fn descend(
        &self,
        key: Prefix<'_>,
        valid: impl Fn() -> bool,
        fits: impl Fn(Record<'_, NODE>, u32, u32) -> bool,
    ) -> Option<u32> {
        let (mut found, mut link, head) = (None, follow(self.header().root), key.head());
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

impl LockedTrie<'_> {
    /// The element with the longest prefix of `key`.
    fn longest(&self, key: Prefix<'_>) -> Option<u32> {
        self.trie.search(key, || true)
    }

    /// Lets a link lead to what is new.
    fn set(&self, at: Link, top: u64) {
        match at {
            Link::Root => hang(self.header.root, top),
            Link::Child(parent, side) => hang(self.trie.node(parent).child(side), top),
        }
    }

    /// The link to a node.
    fn link_to(&self, number: u32) -> u64 {
        u64::from(self.trie.node(number).bits()) << 32 | u64::from(number)
    }

    /// Copies a node's key out: bits, and data.
    pub(super) fn key(&self, node: u32, data: &mut [u8]) -> u32 {
        // A replacement of the value also writes bits of the data that do not count.
        let _locked = self.trie.lock_value(node);
        let node = self.trie.node(node);
        node.block.load(node.data, data);
        node.bits()
    }

    /// Walks to where `key` is or would be, by the nodes that `pass` gets with where they hang.
    fn walk(&self, key: Prefix<'_>, mut pass: impl FnMut(Link, u32)) -> Walk {
        let mut walk = Walk { link: Link::Root, node: number(follow(self.header.root)), matched: 0 };
        while let Some(at) = walk.node {
            let node = self.trie.node(at);
            let bits = node.bits();
            walk.matched = node.common(bits, key);
            if bits != walk.matched || bits == key.bits {
                break;
            }
            pass(walk.link, at);
            let side = key.bit(bits);
            (walk.link, walk.node) = (Link::Child(at, side), number(follow(node.child(side))));
        }
        walk
    }

    /// The element with exactly this prefix, and where it hangs.
    fn exact(&self, key: Prefix<'_>, pass: impl FnMut(Link, u32)) -> Option<(u32, Link)> {
        let walk = self.walk(key, pass);
        let number = walk.node?;
        let node = self.trie.node(number);
        let same = node.bits() == key.bits && walk.matched == key.bits && !node.is_intermediate();
        same.then_some((number, walk.link))
    }

    /// A node that is not in use. `ENOMEM` when the arena is full.
    fn take(&self) -> Result<u32, Errno> {
        let Header { fresh, free, .. } = &self.header;
        if let Some(number) = free.pop(|node| self.trie.node(node).info) {
            return Ok(number);
        }
        let slot = get(fresh);
        let grown = self.trie.nodes.grow(slot + 1).and_then(|()| self.trie.values.grow(slot));
        grown.map_err(|error| no_memory(&self.trie.name, &error))?;
        set(fresh, slot + 1);
        Ok(self.trie.nodes.at(slot + 1).1 / WORD)
    }

    /// Makes searches void.
    fn renew(&self) {
        self.header.version.fetch_add(1, Ordering::Relaxed);
        // What is written to nodes from here on must not be seen before the version is.
        fence(Ordering::Release);
    }

    /// Takes back nodes that hang nowhere any more. Searches that are at them are void.
    fn give(&self, nodes: &[u32]) {
        self.renew();
        nodes.iter().for_each(|node| self.header.free.push(*node, |node| self.trie.node(node).info));
    }

    /// A new node, which hangs nowhere yet.
    fn make(&self, info: u32, data: &[u8], children: [u64; 2]) -> Result<u32, Errno> {
        let number = self.take()?;
        let node = self.trie.node(number);
        node.block.store(node.data, data);
        set(node.info, info);
        (0..2).zip(children).for_each(|(side, child)| hang(node.child(side), child));
        Ok(number)
    }

    fn may_add(&self, flags: u64) -> Result<(), Errno> {
        if flags == BPF_EXIST {
            return Err(Errno::ENOENT);
        }
        if self.trie.len() == self.trie.max_entries { Err(Errno::ENOSPC) } else { Ok(()) }
    }

    /// Adds or replaces an element.
    fn update(&self, key: Prefix<'_>, value: &[u8], flags: u64) -> Result<(), Errno> {
        let walk = self.walk(key, |_, _| ());
        let Some(below) = walk.node else {
            self.may_add(flags)?;
            let new = self.add(key, value, [0, 0])?;
            return self.hang(walk.link, new);
        };
        let node = self.trie.node(below);
        if node.bits() == walk.matched {
            return self.take_over(below, key, value, flags);
        }
        self.may_add(flags)?;
        let mut old = vec![0; self.trie.data_size as usize];
        let bits = self.key(below, &mut old);
        let side = Prefix { bits, data: &old }.bit(walk.matched);
        if walk.matched == key.bits {
            let new = self.add(key, value, by_side(side, self.link_to(below), 0))?;
            return self.hang(walk.link, new);
        }
        let new = self.add(key, value, [0, 0])?;
        let fork = self.make(walk.matched | INTERMEDIATE, &old, by_side(side, self.link_to(below), self.link_to(new)));
        let fork = fork.inspect_err(|_| self.give(&[new]))?;
        self.hang(walk.link, fork)
    }

    /// A node for a new element.
    fn add(&self, key: Prefix<'_>, value: &[u8], children: [u64; 2]) -> Result<u32, Errno> {
        let new = self.make(key.bits, key.data, children)?;
        self.trie.value(new).init(value);
        Ok(new)
    }

    /// Hangs the top of what is new into the trie.
    fn hang(&self, link: Link, top: u32) -> Result<(), Errno> {
        self.set(link, self.link_to(top));
        set(self.header.entries, self.trie.len() + 1);
        Ok(())
    }

    /// The node for this prefix is there, perhaps as an intermediate one.
    fn take_over(&self, number: u32, key: Prefix<'_>, value: &[u8], flags: u64) -> Result<(), Errno> {
        let node = self.trie.node(number);
        if !node.is_intermediate() {
            if flags == BPF_NOEXIST {
                return Err(Errno::EEXIST);
            }
            let _locked = self.trie.lock_value(number);
            self.trie.replace(number, key, value);
            return Ok(());
        }
        self.may_add(flags)?;
        // Bits that count are the same.
        node.block.store(node.data, key.data);
        self.trie.value(number).init(value);
        set(node.info, node.bits());
        set(self.header.entries, self.trie.len() + 1);
        Ok(())
    }

    /// Removes an element, and the intermediate node that it makes superfluous.
    pub(super) fn delete(&self, key: Prefix<'_>) -> Result<(), Errno> {
        let mut above = None;
        let (number, link) = self.exact(key, |link, _| above = Some(link)).ok_or(Errno::ENOENT)?;
        let node = self.trie.node(number);
        let _locked = self.trie.lock_value(number);
        set(self.header.entries, self.trie.len() - 1);
        match (node.children(), link, above) {
            ([zero, one], _, _) if zero != 0 && one != 0 => {
                // A search that has passed it may have missed what came below it meanwhile.
                self.renew();
                set(node.info, node.bits() | INTERMEDIATE);
            }
            ([0, 0], Link::Child(parent, side), Some(above)) if self.trie.node(parent).is_intermediate() => {
                self.set(above, follow(self.trie.node(parent).child(1 - side)));
                self.give(&[parent, number]);
            }
            ([zero, one], link, _) => {
                self.set(link, zero.max(one));
                self.give(&[number]);
            }
        }
        Ok(())
    }

    /// The first element below `node` in postorder.
    fn leftmost(&self, node: u32) -> u32 {
        let mut at = node;
        while let [zero, one] = self.trie.node(at).children()
            && let Some(next) = number(zero).or(number(one))
        {
            at = next;
        }
        at
    }

    /// The element after this one in postorder, which lists longer prefixes before those that contain them;
    /// the first if there is no such element. `None` after the last.
    pub(super) fn next(&self, key: Option<Prefix<'_>>) -> Option<u32> {
        let mut path = Vec::new();
        let found = key.and_then(|key| self.exact(key, |_, node| path.push(node)));
        let Some((mut node, _)) = found else {
            return number(follow(self.header.root)).map(|root| self.leftmost(root));
        };
        while let Some(above) = path.pop() {
            let parent = self.trie.node(above);
            let [left, right] = parent.children().map(number);
            if left == Some(node)
                && let Some(right) = right
            {
                return Some(self.leftmost(right));
            }
            if !parent.is_intermediate() {
                return Some(above);
            }
            node = above;
        }
        None
    }
}
