//! Walks over the elements of tries in postorder, which lists longer prefixes before those that contain them.
//!
//! A short prefix comes after the elements of all first bytes that it contains.

use super::trie::{FIRST_BITS, SHORT, Trie};
use super::trie_change::LockedTrie;
use super::trie_node::{Prefix, follow, number};

/// What comes after an element of a trie.
enum After {
    Element(u32),
    Nothing,
    /// It is not there.
    Missing,
}

impl Trie {
    /// Copies the data of the element after this one, or of the first if there is no such element, and gives its bits. `None`
    /// after the last.
    pub(super) fn next(&self, key: Option<Prefix<'_>>, data: &mut [u8]) -> Option<u32> {
        let Some(key) = key else { return self.first_from(0, data) };
        let trie = self.locked(Self::trie_of(key));
        match trie.after(key) {
            After::Missing => {
                drop(trie);
                return self.first_from(0, data);
            }
            After::Element(node) if key.bits >= FIRST_BITS => return Some(trie.key(node, data)),
            After::Element(_) | After::Nothing => drop(trie),
        }
        let bits = key.bits.min(FIRST_BITS);
        let last = u32::from(key.data[0]) | (SHORT - 1) >> bits;
        self.short(last, bits, data).or_else(|| self.first_from(last + 1, data))
    }

    /// The first element of those from this first byte on.
    fn first_from(&self, byte: u32, data: &mut [u8]) -> Option<u32> {
        for byte in byte..SHORT {
            let found = self.first(byte, data).or_else(|| self.short(byte, FIRST_BITS, data));
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// The first element of a trie.
    fn first(&self, trie: u32, data: &mut [u8]) -> Option<u32> {
        self.has_any(trie)?;
        let trie = self.locked(trie);
        let node = trie.leftmost(number(follow(trie.root.top))?);
        Some(trie.key(node, data))
    }

    /// The longest prefix of fewer bits than these that contains this first byte as the last one.
    fn short(&self, last: u32, below: u32, data: &mut [u8]) -> Option<u32> {
        self.has_any(SHORT)?;
        let (trie, last) = (self.locked(SHORT), last as u8);
        let least = FIRST_BITS.saturating_sub(last.trailing_ones());
        let find = |bits| trie.exact(Prefix { bits, data: &[last] }, |_, _| ());
        let (node, _) = (least..below).rev().find_map(find)?;
        Some(trie.key(node, data))
    }

    fn has_any(&self, trie: u32) -> Option<()> {
        number(follow(self.root(trie).top)).map(|_| ())
    }
}

impl LockedTrie<'_> {
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

    /// What comes after the element with exactly this prefix.
    fn after(&self, key: Prefix<'_>) -> After {
        let mut path = Vec::new();
        let Some((mut node, _)) = self.exact(key, |_, node| path.push(node)) else { return After::Missing };
        while let Some(above) = path.pop() {
            let parent = self.trie.node(above);
            let [left, right] = parent.children().map(number);
            if left == Some(node)
                && let Some(right) = right
            {
                return After::Element(self.leftmost(right));
            }
            if !parent.is_intermediate() {
                return After::Element(above);
            }
            node = above;
        }
        After::Nothing
    }
}
