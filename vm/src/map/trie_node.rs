//! Nodes of a trie in hidden memory, and keys as a trie sees them.
//!
//! A node is the links of two children, a word of bits, and data. Its number is its offset in words of 8 bytes, never 0. A link is
//! the number of a node, and above that the node's bits, so that a search knows which child is next before it has read the node;
//! 0 is none.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::mem::Block;

/// Offset of a node's bits, after the links of its children.
pub(super) const INFO: u32 = 16;
/// Bytes of a word that numbers of nodes count.
pub(super) const WORD: u32 = 8;
/// Bytes of a node that every trie has.
pub(super) const NODE: usize = 24;
/// In a node's word of bits: it has no value.
pub(super) const INTERMEDIATE: u32 = 1 << 31;

/// A key taken apart: number of bits that count, and data bytes from the most significant on.
#[derive(Clone, Copy)]
pub(super) struct Prefix<'a> {
    pub(super) bits: u32,
    pub(super) data: &'a [u8],
}

impl Prefix<'_> {
    pub(super) fn bit(&self, index: u32) -> usize {
        usize::from(self.data[index as usize / 8] >> (7 - index % 8) & 1)
    }

    /// The first bits of the data, the first in the most significant bit.
    pub(super) fn head(&self) -> u64 {
        match (self.data.first_chunk(), self.data.first_chunk()) {
            (Some(eight), _) => u64::from_be_bytes(*eight),
            (None, Some(four)) if self.data.len() == 4 => u64::from(u32::from_be_bytes(*four)) << 32,
            _ => self.data.iter().zip((0..8).rev()).fold(0, |head, (byte, at)| head | u64::from(*byte) << (8 * at)),
        }
    }
}

/// A node in memory.
#[derive(Clone, Copy)]
pub(super) struct Node<'a> {
    pub(super) block: &'a Block,
    pub(super) off: u32,
    /// Offset of its data.
    pub(super) data: u32,
    pub(super) info: &'a AtomicU32,
}

impl Node<'_> {
    pub(super) fn bits(&self) -> u32 {
        get(self.info) & !INTERMEDIATE
    }

    pub(super) fn is_intermediate(&self) -> bool {
        get(self.info) & INTERMEDIATE != 0
    }

    /// Leading bits in common with a key, at most as many as both have.
    #[inline(always)]
    pub(super) fn common(&self, bits: u32, key: Prefix<'_>) -> u32 {
        self.block.common_bits(self.data, key.data).min(bits).min(key.bits)
    }

    /// The link to a child.
    #[inline(always)]
    pub(super) fn child(&self, side: usize) -> &AtomicU64 {
        self.block.atomic(self.off + 8 * side as u32)
    }

    pub(super) fn children(&self) -> [u64; 2] {
        [0, 1].map(|side| follow(self.child(side)))
    }
}

/// The node that a link leads to.
#[inline(always)]
pub(super) fn number(link: u64) -> Option<u32> {
    Some(link as u32).filter(|number| *number != 0)
}

/// Reads a link, and what was written before it.
pub(super) fn follow(link: &AtomicU64) -> u64 {
    link.load(Ordering::Acquire)
}

/// Shows what was written before.
pub(super) fn hang(link: &AtomicU64, top: u64) {
    link.store(top, Ordering::Release);
}

/// Reads a word, and what was written before it.
pub(super) fn get(word: &AtomicU32) -> u32 {
    word.load(Ordering::Acquire)
}

/// Shows what was written before.
pub(super) fn set(word: &AtomicU32, value: u32) {
    word.store(value, Ordering::Release);
}

/// Two links, one of them for this side.
pub(super) fn by_side(side: usize, link: u64, other: u64) -> [u64; 2] {
    if side == 0 { [link, other] } else { [other, link] }
}
