//! The trie of kernel/bpf/lpm_trie.c: path-compressed, one node for each prefix or fork.
//!
//! A fork without a value of its own is an intermediate node; it always has two children. Links are numbers of nodes plus 1,
//! with 0 for none. Only values lie where programs can write, under the node's number; the rest is hidden memory.
//!
//! A search takes no lock and writes nothing. A change holds the lock of the map, and shows by one store of a link. A node that
//! was taken out is used again only after the version has changed; a search that finds another version at its end begins anew.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use super::cell::Cell;
use super::fifo::Fifo;
use super::hidden_slab::HiddenSlab;
use super::lock::{Locked, lock};
use super::slab::{Layout, Slab};
use super::store::no_memory;
use super::{BPF_EXIST, BPF_NOEXIST, Errno, MapSpec};
use crate::mem::{Arena, Block, MemError, RegionKind, RegionSpec};

/// Bytes of the words that are no node's.
const HEADER: u32 = 32;
/// Bytes of a node before its data: two links, bits, and a word that is not used.
const DATA: u32 = 16;
/// In a node's word of bits: it has no value.
const INTERMEDIATE: u32 = 1 << 31;
/// Searches without the lock before one with it.
const TRIES: u32 = 64;

/// A key taken apart: number of bits that count, and data bytes from the most significant on.
#[derive(Clone, Copy)]
pub(super) struct Prefix<'a> {
    pub(super) bits: u32,
    pub(super) data: &'a [u8],
}

impl Prefix<'_> {
    fn bit(&self, index: u32) -> usize {
        usize::from(self.data[index as usize / 8] >> (7 - index % 8) & 1)
    }
}

/// The map's words that are no node's.
struct Header<'a> {
    lock: &'a AtomicU32,
    /// Changes before a node that was taken out is used again.
    version: &'a AtomicU32,
    root: &'a AtomicU32,
    /// Elements: nodes that are not intermediate.
    entries: &'a AtomicU32,
    /// Nodes from here on were never used.
    fresh: &'a AtomicU32,
    /// Nodes that were taken out, linked by their first children.
    free: Fifo<'a>,
}

/// A node in memory.
struct Node<'a> {
    block: &'a Block,
    off: u32,
    children: [&'a AtomicU32; 2],
    info: &'a AtomicU32,
}

impl Node<'_> {
    fn bits(&self) -> u32 {
        get(self.info) & !INTERMEDIATE
    }

    fn is_intermediate(&self) -> bool {
        get(self.info) & INTERMEDIATE != 0
    }

    /// Leading bits in common with a key, at most as many as both have.
    #[inline(always)]
    fn common(&self, bits: u32, key: Prefix<'_>) -> u32 {
        self.block.common_bits(self.off + DATA, key.data).min(bits).min(key.bits)
    }

    fn child(&self, side: usize) -> Option<u32> {
        get(self.children[side]).checked_sub(1)
    }
}

fn get(word: &AtomicU32) -> u32 {
    word.load(Ordering::Acquire)
}

/// Shows what was written before.
fn set(word: &AtomicU32, value: u32) {
    word.store(value, Ordering::Release);
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
        // Every element can need one intermediate node.
        let capacity = spec.max_entries.saturating_mul(2);
        let values = Layout {
            label: format!("value of map {}", spec.name).into(),
            size: spec.value_size,
            cpus: 1,
            capacity,
            writable: spec.program_writable(),
        };
        let header = RegionSpec::new(format!("header of map {}", spec.name), RegionKind::Map, HEADER);
        Ok(Trie {
            name: Arc::clone(&spec.name),
            data_size,
            max_entries: spec.max_entries,
            header: arena.alloc_hidden(header)?,
            nodes: HiddenSlab::new(arena, format!("key of map {}", spec.name), DATA + data_size, capacity)?,
            values: Slab::new(arena, values),
            lock: spec.spin_lock,
        })
    }

    #[inline(always)]
    fn header(&self) -> Header<'_> {
        let [lock, version, root, entries, fresh, oldest, newest] = self.header.words(0);
        Header { lock, version, root, entries, fresh, free: Fifo { oldest, newest } }
    }

    pub(super) fn len(&self) -> u32 {
        get(self.header().entries)
    }

    fn max_bits(&self) -> u32 {
        self.data_size * 8
    }

    #[inline(always)]
    fn node(&self, node: u32) -> Node<'_> {
        let (block, off) = self.nodes.at(node);
        let [zero, one, info] = block.words(off);
        Node { block, off, children: [zero, one], info }
    }

    pub(super) fn value(&self, node: u32) -> Cell<'_> {
        self.values.cell(node, 0, self.lock)
    }

    pub(super) fn addr(&self, node: u32) -> u64 {
        self.values.addr(node, 0)
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

    /// Searches for the longest prefix, as long as `valid`.
    #[inline(always)]
    fn search(&self, key: Prefix<'_>, valid: impl Fn() -> bool) -> Option<u32> {
        let (mut found, mut link) = (None, get(self.header().root));
        while let Some(number) = link.checked_sub(1) {
            let node = self.node(number);
            let info = get(node.info);
            let bits = info & !INTERMEDIATE;
            if node.common(bits, key) < bits {
                break;
            }
            if info & INTERMEDIATE == 0 {
                found = Some(number);
            }
            if bits >= self.max_bits() || !valid() {
                break;
            }
            link = get(node.children[key.bit(bits)]);
        }
        found
    }
}

impl LockedTrie<'_> {
    /// The element with the longest prefix of `key`.
    pub(super) fn longest(&self, key: Prefix<'_>) -> Option<u32> {
        self.trie.search(key, || true)
    }

    fn word(&self, link: Link) -> &AtomicU32 {
        match link {
            Link::Root => self.header.root,
            Link::Child(parent, side) => self.trie.node(parent).children[side],
        }
    }

    /// Copies a node's key out: bits, and data.
    pub(super) fn key(&self, node: u32, data: &mut [u8]) -> u32 {
        let node = self.trie.node(node);
        node.block.load(node.off + DATA, data);
        node.bits()
    }

    /// Walks to where `key` is or would be, by the nodes that `pass` gets with where they hang.
    fn walk(&self, key: Prefix<'_>, mut pass: impl FnMut(Link, u32)) -> Walk {
        let mut walk = Walk { link: Link::Root, node: get(self.header.root).checked_sub(1), matched: 0 };
        while let Some(number) = walk.node {
            let node = self.trie.node(number);
            let bits = node.bits();
            walk.matched = node.common(bits, key);
            if bits != walk.matched || bits == key.bits {
                break;
            }
            pass(walk.link, number);
            let side = key.bit(bits);
            (walk.link, walk.node) = (Link::Child(number, side), node.child(side));
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
        if let Some(number) = free.pop(|node| self.trie.node(node).children[0]) {
            return Ok(number);
        }
        let number = get(fresh);
        let grown = self.trie.nodes.grow(number).and_then(|()| self.trie.values.grow(number));
        grown.map_err(|error| no_memory(&self.trie.name, &error))?;
        set(fresh, number + 1);
        Ok(number)
    }

    /// Takes back nodes that hang nowhere any more. Searches that are at them are void.
    fn give(&self, nodes: &[u32]) {
        self.header.version.fetch_add(1, Ordering::Relaxed);
        // What is written to the nodes from here on must not be seen before the version is.
        fence(Ordering::Release);
        nodes.iter().for_each(|node| self.header.free.push(*node, |node| self.trie.node(node).children[0]));
    }

    /// A new node, which hangs nowhere yet.
    fn make(&self, info: u32, data: &[u8], children: [u32; 2]) -> Result<u32, Errno> {
        let number = self.take()?;
        let node = self.trie.node(number);
        node.block.store(node.off + DATA, data);
        set(node.info, info);
        node.children.into_iter().zip(children).for_each(|(word, child)| set(word, child));
        Ok(number)
    }

    fn may_add(&self, flags: u64) -> Result<(), Errno> {
        if flags == BPF_EXIST {
            return Err(Errno::ENOENT);
        }
        if self.trie.len() == self.trie.max_entries { Err(Errno::ENOSPC) } else { Ok(()) }
    }

    /// Adds or replaces an element.
    pub(super) fn update(&self, key: Prefix<'_>, value: &[u8], flags: u64) -> Result<(), Errno> {
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
            let new = self.add(key, value, by_side(side, below + 1, 0))?;
            return self.hang(walk.link, new);
        }
        let new = self.add(key, value, [0, 0])?;
        let fork = self.make(walk.matched | INTERMEDIATE, &old, by_side(side, below + 1, new + 1));
        let fork = fork.inspect_err(|_| self.give(&[new]))?;
        self.hang(walk.link, fork)
    }

    /// A node for a new element.
    fn add(&self, key: Prefix<'_>, value: &[u8], children: [u32; 2]) -> Result<u32, Errno> {
        let new = self.make(key.bits, key.data, children)?;
        self.trie.value(new).init(value);
        Ok(new)
    }

    /// Hangs the top of what is new into the trie.
    fn hang(&self, link: Link, top: u32) -> Result<(), Errno> {
        set(self.word(link), top + 1);
        set(self.header.entries, self.trie.len() + 1);
        Ok(())
    }

    /// The node for this prefix is there, perhaps as an intermediate one.
    fn take_over(&self, number: u32, key: Prefix<'_>, value: &[u8], flags: u64) -> Result<(), Errno> {
        let (node, cell) = (self.trie.node(number), self.trie.value(number));
        let new = node.is_intermediate();
        if new {
            self.may_add(flags)?;
        } else if flags == BPF_NOEXIST {
            return Err(Errno::EEXIST);
        }
        // Bits that count are the same.
        node.block.store(node.off + DATA, key.data);
        if !new {
            cell.store(value);
            return Ok(());
        }
        cell.init(value);
        set(node.info, node.bits());
        set(self.header.entries, self.trie.len() + 1);
        Ok(())
    }

    /// Removes an element, and the intermediate node that it makes superfluous.
    pub(super) fn delete(&self, key: Prefix<'_>) -> Result<(), Errno> {
        let mut above = None;
        let (number, link) = self.exact(key, |link, _| above = Some(link)).ok_or(Errno::ENOENT)?;
        let node = self.trie.node(number);
        set(self.header.entries, self.trie.len() - 1);
        match (node.children.map(get), link, above) {
            ([zero, one], _, _) if zero != 0 && one != 0 => set(node.info, node.bits() | INTERMEDIATE),
            ([0, 0], Link::Child(parent, side), Some(above)) if self.trie.node(parent).is_intermediate() => {
                let sibling = get(self.trie.node(parent).children[1 - side]);
                set(self.word(above), sibling);
                self.give(&[parent, number]);
            }
            ([zero, one], link, _) => {
                set(self.word(link), zero.max(one));
                self.give(&[number]);
            }
        }
        Ok(())
    }

    /// The first element below `node` in postorder.
    fn leftmost(&self, node: u32) -> u32 {
        let mut at = node;
        while let Some(next) = self.trie.node(at).child(0).or(self.trie.node(at).child(1)) {
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
            return get(self.header.root).checked_sub(1).map(|root| self.leftmost(root));
        };
        while let Some(number) = path.pop() {
            let parent = self.trie.node(number);
            if parent.child(0) == Some(node)
                && let Some(right) = parent.child(1)
            {
                return Some(self.leftmost(right));
            }
            if !parent.is_intermediate() {
                return Some(number);
            }
            node = number;
        }
        None
    }
}

/// Two links, one of them for this side.
fn by_side(side: usize, link: u32, other: u32) -> [u32; 2] {
    if side == 0 { [link, other] } else { [other, link] }
}
