//! Changes of a trie while this thread alone changes it: elements that come and go.

use std::sync::atomic::{Ordering, fence};

use super::lock::{Locked, lock, wait_for};
use super::store::no_memory;
use super::trie::{Root, Trie};
use super::trie_node::{INTERMEDIATE, Prefix, by_side, follow, hang, number, set};
use super::{BPF_EXIST, BPF_NOEXIST, Errno};

/// Where a node hangs.
#[derive(Clone, Copy)]
pub(super) enum Link {
    Root,
    Child(u32, usize),
}

/// A trie while this thread alone changes it.
pub(super) struct LockedTrie<'a> {
    pub(super) trie: &'a Trie,
    pub(super) root: Root<'a>,
    pub(super) _locked: Locked<'a>,
}

/// A walk down from the root.
pub(super) struct Walk {
    pub(super) link: Link,
    pub(super) node: Option<u32>,
    /// Bits that the node at the end has in common with the key.
    pub(super) matched: u32,
}

impl Trie {
    pub(super) fn locked(&self, trie: u32) -> LockedTrie<'_> {
        let root = self.root(trie);
        LockedTrie { trie: self, _locked: lock(root.lock), root }
    }

    /// The element with exactly this prefix.
    pub(super) fn exact(&self, key: Prefix<'_>) -> Option<u32> {
        self.locked(Self::trie_of(key)).exact(key, |_, _| ()).map(|(node, _)| node)
    }

    /// Adds or replaces an element.
    pub(super) fn update(&self, key: Prefix<'_>, value: &[u8], flags: u64) -> Result<(), Errno> {
        if flags != BPF_NOEXIST && self.replace_at_once(key, value) {
            return Ok(());
        }
        self.locked(Self::trie_of(key)).update(key, value, flags)
    }

    /// Removes an element.
    pub(super) fn delete(&self, key: Prefix<'_>) -> Result<(), Errno> {
        self.locked(Self::trie_of(key)).delete(key)
    }
}

impl LockedTrie<'_> {
    /// The link to a node.
    fn link_to(&self, number: u32) -> u64 {
        u64::from(self.trie.node(number).bits()) << 32 | u64::from(number)
    }

    /// Lets a link lead to another node, or none. Searches at what hangs nowhere any more are void.
    fn hang(&self, at: Link, top: u64) {
        let version = self.root.version.load(Ordering::Relaxed);
        let renew = |version| {
            self.root.version.store(version, Ordering::Release);
            // What is written from here on must not be seen before the version is.
            fence(Ordering::Release);
        };
        renew(version.wrapping_add(1));
        match at {
            Link::Root => hang(self.root.top, top),
            Link::Child(parent, side) => hang(self.trie.node(parent).child(side), top),
        }
        renew(version.wrapping_add(2));
    }

    /// Walks to where `key` is or would be, by the nodes that `pass` gets with where they hang.
    pub(super) fn walk(&self, key: Prefix<'_>, mut pass: impl FnMut(Link, u32)) -> Walk {
        let mut walk = Walk { link: Link::Root, node: number(follow(self.root.top)), matched: 0 };
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
    pub(super) fn exact(&self, key: Prefix<'_>, pass: impl FnMut(Link, u32)) -> Option<(u32, Link)> {
        let walk = self.walk(key, pass);
        let number = walk.node?;
        let node = self.trie.node(number);
        let same = node.bits() == key.bits && walk.matched == key.bits && !node.is_intermediate();
        same.then_some((number, walk.link))
    }

    /// A node for a new element, which hangs nowhere yet. `ENOSPC` when the map is full, `ENOMEM` when the arena is.
    fn add(&self, key: Prefix<'_>, value: &[u8], children: [u64; 2]) -> Result<u32, Errno> {
        let Trie { name, nodes, values, .. } = self.trie;
        let grow = |slot| {
            let grown = nodes.grow(2 * slot + 2).and_then(|()| values.grow(slot));
            grown.map_err(|error| no_memory(name, &error))
        };
        let slot = self.trie.elements().take_exact(grow).map_err(|errno| match errno {
            Errno::E2BIG => Errno::ENOSPC,
            errno => errno,
        })?;
        let new = self.trie.element(slot);
        self.write(new, key.bits, key.data, children);
        self.trie.value(new).init(value);
        Ok(new)
    }

    /// A node for a fork, which hangs nowhere yet.
    fn fork(&self, bits: u32, data: &[u8], children: [u64; 2]) -> u32 {
        // Elements have brought memory for as many forks as there can be.
        let grow = |slot| self.trie.nodes.grow(2 * slot + 2).map_err(|_| Errno::ENOMEM);
        // There are fewer forks than elements: at worst another thread has the slot for a moment.
        let slot = wait_for(|| self.trie.forks().take_exact(grow).ok());
        let new = self.trie.fork(slot);
        self.write(new, bits | INTERMEDIATE, data, children);
        new
    }

    fn write(&self, number: u32, info: u32, data: &[u8], children: [u64; 2]) {
        let node = self.trie.node(number);
        node.block.store(node.data, data);
        set(node.info, info);
        (0..2).zip(children).for_each(|(side, child)| hang(node.child(side), child));
    }

    /// Takes back a node that hangs nowhere any more.
    fn give(&self, node: u32) {
        let (trie, slot) = (self.trie, self.trie.slot(node));
        if node == trie.element(slot) { trie.elements().give(slot) } else { trie.forks().give(slot) }
    }

    /// Adds or replaces an element.
    fn update(&self, key: Prefix<'_>, value: &[u8], flags: u64) -> Result<(), Errno> {
        let Walk { link, node, matched } = self.walk(key, |_, _| ());
        let below = node.map(|below| (below, self.trie.node(below)));
        if let Some((below, node)) = below
            && node.bits() == matched
            && !node.is_intermediate()
        {
            if flags == BPF_NOEXIST {
                return Err(Errno::EEXIST);
            }
            let _locked = self.trie.lock_value(below);
            self.trie.replace(below, key, value);
            return Ok(());
        }
        if flags == BPF_EXIST {
            return Err(Errno::ENOENT);
        }
        let Some((below, node)) = below else {
            let new = self.add(key, value, [0, 0])?;
            self.hang(link, self.link_to(new));
            return Ok(());
        };
        if node.bits() == matched {
            let new = self.add(key, value, node.children())?;
            self.hang(link, self.link_to(new));
            self.give(below);
            return Ok(());
        }
        let mut old = vec![0; self.trie.data_size as usize];
        let bits = self.key(below, &mut old);
        let side = Prefix { bits, data: &old }.bit(matched);
        let top = if matched == key.bits {
            self.add(key, value, by_side(side, self.link_to(below), 0))?
        } else {
            let new = self.add(key, value, [0, 0])?;
            self.fork(matched, &old, by_side(side, self.link_to(below), self.link_to(new)))
        };
        self.hang(link, self.link_to(top));
        Ok(())
    }

    /// Copies a node's key out: bits, and data.
    pub(super) fn key(&self, node: u32, data: &mut [u8]) -> u32 {
        // A replacement of the value also writes bits of the data that do not count.
        let _locked = self.trie.lock_value(node);
        let node = self.trie.node(node);
        node.block.load(node.data, data);
        node.bits()
    }

    /// Removes an element, and the intermediate node that it makes superfluous.
    fn delete(&self, key: Prefix<'_>) -> Result<(), Errno> {
        let mut above = None;
        let (number, link) = self.exact(key, |link, _| above = Some(link)).ok_or(Errno::ENOENT)?;
        let node = self.trie.node(number);
        let superfluous = match (node.children(), link, above) {
            ([zero, one], _, _) if zero != 0 && one != 0 => {
                self.hang(link, self.link_to(self.fork(key.bits, key.data, [zero, one])));
                None
            }
            ([0, 0], Link::Child(parent, side), Some(above)) if self.trie.node(parent).is_intermediate() => {
                self.hang(above, follow(self.trie.node(parent).child(1 - side)));
                Some(parent)
            }
            ([zero, one], link, _) => {
                self.hang(link, zero.max(one));
                None
            }
        };
        // Who writes the value, or reads it, ends.
        drop(self.trie.lock_value(number));
        [superfluous, Some(number)].into_iter().flatten().for_each(|node| self.give(node));
        Ok(())
    }
}
