//! The trie of kernel/bpf/lpm_trie.c: path-compressed, one node for each prefix or fork.
//!
//! Data bits and values of a node are in slabs under the node's number. A fork without a value of its own is
//! an intermediate node; it always has two children.

use std::sync::Arc;

use super::cell::Cell;
use super::slab::{Layout, Slab};
use super::store::no_memory;
use super::{BPF_EXIST, BPF_NOEXIST, Errno, MapSpec};
use crate::mem::Arena;

/// Most data bytes after the prefix length.
pub(super) const DATA_MAX: usize = 256;

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

    /// Number of leading bits in common, at most as many as both have.
    fn common(&self, other: &Prefix<'_>) -> u32 {
        let differ = self.data.iter().zip(other.data).position(|(one, two)| one != two);
        let equal = match differ {
            Some(at) => at as u32 * 8 + (self.data[at] ^ other.data[at]).leading_zeros(),
            None => self.data.len() as u32 * 8,
        };
        equal.min(self.bits).min(other.bits)
    }
}

#[derive(Debug)]
struct Node {
    bits: u32,
    /// Has no value.
    intermediate: bool,
    child: [Option<u32>; 2],
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
    data_size: usize,
    max_entries: u32,
    /// Elements: nodes that are not intermediate.
    entries: u32,
    root: Option<u32>,
    nodes: Vec<Node>,
    free: Vec<u32>,
    data: Slab,
    values: Slab,
    lock: Option<u32>,
}

/// A walk down from the root.
struct Walk {
    link: Link,
    node: Option<u32>,
    /// Bits that the node at the end has in common with the key.
    matched: u32,
    /// The nodes above it, and where they hang.
    path: Vec<(Link, u32)>,
}

impl Trie {
    pub(super) fn new(spec: &MapSpec, arena: &Arc<Arena>) -> Trie {
        let data_size = spec.key_size as usize - 4;
        // Every element can need one intermediate node.
        let capacity = spec.max_entries.saturating_mul(2);
        let layout = |what, size, writable, hidden| Layout {
            label: format!("{what} of map {}", spec.name).into(),
            size,
            cpus: 1,
            capacity,
            writable,
            hidden,
        };
        Trie {
            name: Arc::clone(&spec.name),
            data_size,
            max_entries: spec.max_entries,
            entries: 0,
            root: None,
            nodes: Vec::new(),
            free: Vec::new(),
            data: Slab::new(arena, layout("key", data_size as u32, true, true)),
            values: Slab::new(arena, layout("value", spec.value_size, spec.program_writable(), false)),
            lock: spec.spin_lock,
        }
    }

    pub(super) fn len(&self) -> u32 {
        self.entries
    }

    fn max_bits(&self) -> u32 {
        self.data_size as u32 * 8
    }

    fn node(&self, node: u32) -> &Node {
        &self.nodes[node as usize]
    }

    /// Copies a node's key out into `buffer`.
    pub(super) fn prefix<'a>(&self, node: u32, buffer: &'a mut [u8; DATA_MAX]) -> Prefix<'a> {
        let data = &mut buffer[..self.data_size];
        self.data.cell(node, 0, None).load(data);
        Prefix { bits: self.node(node).bits, data }
    }

    pub(super) fn value(&self, node: u32) -> Cell<'_> {
        self.values.cell(node, 0, self.lock)
    }

    pub(super) fn addr(&self, node: u32) -> u64 {
        self.values.addr(node, 0)
    }

    fn common(&self, node: u32, key: Prefix<'_>) -> u32 {
        self.prefix(node, &mut [0; DATA_MAX]).common(&key)
    }

    /// The element with the longest prefix of `key`.
    pub(super) fn longest(&self, key: Prefix<'_>) -> Option<u32> {
        let mut found = None;
        let mut at = self.root;
        while let Some(number) = at {
            let node = self.node(number);
            let matched = self.common(number, key);
            if matched < node.bits {
                break;
            }
            if !node.intermediate {
                found = Some(number);
            }
            if matched == self.max_bits() {
                break;
            }
            at = node.child[key.bit(node.bits)];
        }
        found
    }

    /// Walks to where `key` is or would be.
    fn walk(&self, key: Prefix<'_>) -> Walk {
        let mut walk = Walk { link: Link::Root, node: self.root, matched: 0, path: Vec::new() };
        while let Some(number) = walk.node {
            let node = self.node(number);
            walk.matched = self.common(number, key);
            if node.bits != walk.matched || node.bits == key.bits {
                break;
            }
            walk.path.push((walk.link, number));
            let side = key.bit(node.bits);
            walk.link = Link::Child(number, side);
            walk.node = node.child[side];
        }
        walk
    }

    /// The element with exactly this prefix.
    fn exact(&self, key: Prefix<'_>) -> Option<(u32, Walk)> {
        let walk = self.walk(key);
        let node = walk.node?;
        let found = self.node(node);
        let same = found.bits == key.bits && walk.matched == key.bits && !found.intermediate;
        same.then_some((node, walk))
    }

    fn hang(&mut self, link: Link, node: Option<u32>) {
        match link {
            Link::Root => self.root = node,
            Link::Child(parent, side) => self.nodes[parent as usize].child[side] = node,
        }
    }

    /// A new node with the data of `key`, cut to `bits`.
    fn make(&mut self, bits: u32, data: &[u8], intermediate: bool) -> Result<u32, Errno> {
        let node = Node { bits, intermediate, child: [None, None] };
        let number = match self.free.pop() {
            Some(number) => {
                self.nodes[number as usize] = node;
                number
            }
            None => {
                let number = self.nodes.len() as u32;
                let grown = self.data.grow(number).and_then(|()| self.values.grow(number));
                grown.map_err(|error| no_memory(&self.name, &error))?;
                self.nodes.push(node);
                number
            }
        };
        self.data.cell(number, 0, None).store(data);
        Ok(number)
    }

    fn may_add(&self, flags: u64) -> Result<(), Errno> {
        if flags == BPF_EXIST {
            return Err(Errno::ENOENT);
        }
        if self.entries == self.max_entries { Err(Errno::ENOSPC) } else { Ok(()) }
    }

    /// Adds or replaces an element; gives its node, and whether it is new.
    pub(super) fn update(&mut self, key: Prefix<'_>, flags: u64) -> Result<(u32, bool), Errno> {
        let walk = self.walk(key);
        if let Some(node) = walk.node
            && self.node(node).bits == walk.matched
        {
            return self.take_over(node, key, flags);
        }
        self.may_add(flags)?;
        let new = self.make(key.bits, key.data, false)?;
        let top = match walk.node {
            None => new,
            Some(below) => {
                let mut buffer = [0; DATA_MAX];
                let old = self.prefix(below, &mut buffer);
                let side = old.bit(walk.matched);
                if walk.matched == key.bits {
                    self.nodes[new as usize].child[side] = Some(below);
                    new
                } else {
                    let fork = self.make(walk.matched, old.data, true);
                    let fork = fork.inspect_err(|_| self.free.push(new))?;
                    self.nodes[fork as usize].child[side] = Some(below);
                    self.nodes[fork as usize].child[1 - side] = Some(new);
                    fork
                }
            }
        };
        self.hang(walk.link, Some(top));
        self.entries += 1;
        Ok((new, true))
    }

    /// The node for this prefix is there, perhaps as an intermediate one.
    fn take_over(&mut self, node: u32, key: Prefix<'_>, flags: u64) -> Result<(u32, bool), Errno> {
        let new = self.node(node).intermediate;
        if new {
            self.may_add(flags)?;
            self.entries += 1;
        } else if flags == BPF_NOEXIST {
            return Err(Errno::EEXIST);
        }
        self.nodes[node as usize].intermediate = false;
        self.data.cell(node, 0, None).store(key.data);
        Ok((node, new))
    }

    /// Removes an element, and the intermediate node that it makes superfluous.
    pub(super) fn delete(&mut self, key: Prefix<'_>) -> Result<(), Errno> {
        let (node, walk) = self.exact(key).ok_or(Errno::ENOENT)?;
        self.entries -= 1;
        match (self.node(node).child, walk.link, walk.path.last()) {
            ([Some(_), Some(_)], _, _) => self.nodes[node as usize].intermediate = true,
            ([None, None], Link::Child(parent, side), Some((above, _))) if self.node(parent).intermediate => {
                let sibling = self.node(parent).child[1 - side];
                self.hang(*above, sibling);
                self.free.extend([parent, node]);
            }
            ([zero, one], link, _) => {
                self.hang(link, zero.or(one));
                self.free.push(node);
            }
        }
        Ok(())
    }

    /// The first element below `node` in postorder.
    fn leftmost(&self, node: u32) -> u32 {
        let mut at = node;
        while let Some(next) = self.node(at).child[0].or(self.node(at).child[1]) {
            at = next;
        }
        at
    }

    /// The element after this one in postorder, which lists longer prefixes before those that contain them;
    /// the first if there is no such element. `None` after the last.
    pub(super) fn next(&self, key: Option<Prefix<'_>>) -> Option<u32> {
        let found = key.filter(|key| key.bits <= self.max_bits()).and_then(|key| self.exact(key));
        let Some((mut node, mut walk)) = found else {
            return self.root.map(|root| self.leftmost(root));
        };
        while let Some((_, parent)) = walk.path.pop() {
            let above = self.node(parent);
            if above.child[0] == Some(node)
                && let Some(right) = above.child[1]
            {
                return Some(self.leftmost(right));
            }
            if !above.intermediate {
                return Some(parent);
            }
            node = parent;
        }
        None
    }
}
