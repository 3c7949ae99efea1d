//! Walks over the elements of tries in postorder, which lists longer prefixes before those that contain them.
//!
//! A short prefix comes after the elements of all first bytes that it contains.

use super::Entry;
use super::trie::{FIRST_BITS, SHORT, Trie};
use super::trie_change::{Link, LockedTrie};
use super::trie_node::{Prefix, follow, number};

/// Bytes of a key before its data: its number of bits.
const BITS: usize = 4;
/// Elements that are copied at once, while their trie is locked.
const BATCH: usize = 64;

/// A walk over a trie that is locked.
struct Cursor<'a> {
    trie: &'a LockedTrie<'a>,
    /// What comes next, if that is known.
    next: Option<u32>,
    /// The nodes above, and of each whether it hangs on the left.
    path: Vec<(u32, bool)>,
    /// Whether the last node hung on the left.
    left: bool,
}

impl Trie {
    /// Copies the data of the element after this one, or of the first if there is no such element, and gives its bits. `None`
    /// after the last.
    pub(super) fn next(&self, key: Option<Prefix<'_>>, data: &mut [u8]) -> Option<u32> {
        let Some(key) = key else { return self.go_on(0, 0, FIRST_BITS, data) };
        let trie = self.locked(Self::trie_of(key));
        if trie.exact(key, |_, _| ()).is_none() {
            drop(trie);
            return self.go_on(0, 0, FIRST_BITS, data);
        }
        if key.bits >= FIRST_BITS
            && let Some(node) = trie.after(key).next()
        {
            return Some(trie.key(node, data));
        }
        drop(trie);
        let bits = key.bits.min(FIRST_BITS);
        let last = u32::from(key.data[0]) | (SHORT - 1) >> bits;
        self.go_on(last + 1, last, bits, data)
    }

    /// The first element of those from a first byte on, or of short prefixes after those of more bits that end at another one.
    fn go_on(&self, byte: u32, last: u32, below: u32, data: &mut [u8]) -> Option<u32> {
        let short = self.short_after(last, below);
        let end = short.as_ref().map_or(SHORT, |(last, ..)| last + 1);
        let long = (byte..end).find_map(|byte| self.first(byte, data));
        long.or_else(|| {
            let (_, bits, short) = short?;
            data.copy_from_slice(&short);
            Some(bits)
        })
    }

    /// The first short prefix after those of more bits that end at this first byte: where it ends, its bits, and its data.
    fn short_after(&self, last: u32, below: u32) -> Option<(u32, u32, Vec<u8>)> {
        self.has_any(SHORT)?;
        let (trie, mut data) = (self.locked(SHORT), vec![0; self.data_size as usize]);
        let (end, bits) = trie.all().find_map(|node| {
            let bits = trie.key(node, &mut data);
            let end = u32::from(data[0]) | (SHORT - 1) >> bits;
            (end > last || end == last && bits < below).then_some((end, bits))
        })?;
        Some((end, bits, data))
    }

    /// The first element of a trie.
    fn first(&self, trie: u32, data: &mut [u8]) -> Option<u32> {
        self.has_any(trie)?;
        let trie = self.locked(trie);
        let node = trie.all().next()?;
        Some(trie.key(node, data))
    }

    /// The longest prefix of fewer bits than these that contains this first byte as the last one.
    fn locked_short(&self, last: u32, below: u32) -> Option<(LockedTrie<'_>, u32)> {
        let last = last as u8;
        let least = FIRST_BITS.saturating_sub(last.trailing_ones());
        if least >= below {
            return None;
        }
        self.has_any(SHORT)?;
        let trie = self.locked(SHORT);
        let find = |bits| trie.exact(Prefix { bits, data: &[last] }, |_, _| ());
        let (node, _) = (least..below).rev().find_map(find)?;
        Some((trie, node))
    }

    /// As `MapOps::entries`. No trie is locked during `each`.
    pub(super) fn entries(&self, each: &mut dyn FnMut(Entry<'_>) -> bool) {
        let mut copies = Vec::new();
        for byte in 0..SHORT {
            if self.has_any(byte).is_some() && !self.entries_of(byte, &mut copies, each) {
                return;
            }
            let mut below = FIRST_BITS;
            while let Some((trie, node)) = self.locked_short(byte, below) {
                below = trie.copy(node, &mut copies);
                drop(trie);
                if !self.give_copies(&mut copies, each) {
                    return;
                }
            }
        }
    }

    /// Elements of one trie: whether all were wanted.
    fn entries_of(&self, trie: u32, copies: &mut Vec<u8>, each: &mut dyn FnMut(Entry<'_>) -> bool) -> bool {
        let (mut data, mut bits) = (vec![0; self.data_size as usize], None);
        loop {
            let locked = self.locked(trie);
            let cursor = bits.map_or_else(|| locked.all(), |bits| locked.after(Prefix { bits, data: &data }));
            bits = None;
            for node in cursor.take(BATCH) {
                bits = Some(locked.copy(node, copies));
            }
            drop(locked);
            if let Some(last) = copies.rchunks_exact(self.copied()).next() {
                let data_size = data.len();
                data.copy_from_slice(&last[BITS..][..data_size]);
            }
            if !self.give_copies(copies, each) {
                return false;
            }
            if bits.is_none() {
                return true;
            }
        }
    }

    /// Bytes of the copy of an element.
    fn copied(&self) -> usize {
        BITS + self.data_size as usize + self.value_size as usize
    }

    /// Gives copies of elements away: whether all were wanted.
    fn give_copies(&self, copies: &mut Vec<u8>, each: &mut dyn FnMut(Entry<'_>) -> bool) -> bool {
        let wanted = copies.chunks_exact(self.copied()).all(|copy| {
            let (key, value) = copy.split_at(BITS + self.data_size as usize);
            each(Entry::new(key, value, self.value_size))
        });
        copies.clear();
        wanted
    }

    fn has_any(&self, trie: u32) -> Option<()> {
        number(follow(self.root(trie).top)).map(|_| ())
    }
}

impl LockedTrie<'_> {
    /// Adds a copy of an element's key and value, and gives its bits.
    fn copy(&self, node: u32, copies: &mut Vec<u8>) -> u32 {
        let (start, trie) = (copies.len(), self.trie);
        let value = start + BITS + trie.data_size as usize;
        copies.resize(start + trie.copied(), 0);
        let _locked = trie.lock_value(node);
        trie.value(node).load(&mut copies[value..]);
        let node = trie.node(node);
        node.block.load(node.data, &mut copies[start + BITS..value]);
        copies[start..start + BITS].copy_from_slice(&node.bits().to_le_bytes());
        node.bits()
    }

    /// All elements.
    fn all(&self) -> Cursor<'_> {
        let mut cursor = Cursor { trie: self, next: None, path: Vec::new(), left: false };
        cursor.next = number(follow(self.root.top)).map(|top| cursor.descend(top, false));
        cursor
    }

    /// The elements after this prefix, whether it is there or not.
    fn after(&self, key: Prefix<'_>) -> Cursor<'_> {
        let left = |link: Link| matches!(link, Link::Child(_, 0));
        let mut path = Vec::new();
        let walk = self.walk(key, |link, node| path.push((node, left(link))));
        let mut cursor = Cursor { trie: self, next: None, path, left: left(walk.link) };
        if let Some(node) = walk.node
            && walk.matched < key.bits.min(self.trie.node(node).bits())
            && key.bit(walk.matched) == 0
        {
            cursor.next = Some(cursor.descend(node, cursor.left));
        }
        cursor
    }
}

impl Cursor<'_> {
    /// Goes down to the first element below a node, which comes next on the path.
    fn descend(&mut self, mut node: u32, mut left: bool) -> u32 {
        while let [zero, one] = self.trie.trie.node(node).children().map(number)
            && let Some(child) = zero.or(one)
        {
            self.path.push((node, left));
            (node, left) = (child, zero.is_some());
        }
        self.left = left;
        node
    }
}

impl Iterator for Cursor<'_> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        if self.next.is_some() {
            return self.next.take();
        }
        while let Some((parent, left)) = self.path.pop() {
            let node = self.trie.trie.node(parent);
            if self.left
                && let Some(right) = number(node.children()[1])
            {
                self.path.push((parent, left));
                return Some(self.descend(right, false));
            }
            self.left = left;
            if !node.is_intermediate() {
                return Some(parent);
            }
        }
        None
    }
}
