//! Longest-prefix maps: kernel/bpf/lpm_trie.c.
//!
//! A key is a little-endian `__u32` number of bits, then data from the most significant byte on. A lookup finds
//! the longest stored prefix; update, delete and iteration mean exactly the given one.

use std::sync::Arc;

use super::hash::check_sizes;
use super::trie::Trie;
use super::trie_node::Prefix;
use super::{BPF_EXIST, Entry, Errno, MapOps, MapSpec};
use crate::mem::{Arena, MemError};

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Lpm {
    spec: MapSpec,
    trie: Trie,
}

impl Lpm {
    pub(super) fn new(spec: MapSpec, arena: &Arc<Arena>) -> Result<Lpm, MemError> {
        let trie = Trie::new(&spec, arena)?;
        Ok(Lpm { spec, trie })
    }

    /// Takes a key apart; `None` if it has another size or more bits than data.
    fn prefix<'a>(&self, key: &'a [u8]) -> Option<Prefix<'a>> {
        let (bits, data) = key.split_first_chunk()?;
        let bits = u32::from_le_bytes(*bits);
        let fits = key.len() == self.spec.key_size as usize && bits as usize <= data.len() * 8;
        fits.then_some(Prefix { bits, data })
    }
}

impl MapOps for Lpm {
    fn spec(&self) -> &MapSpec {
        &self.spec
    }

    fn lookup(&self, key: &[u8], _cpu: u32) -> Option<u64> {
        let key = self.prefix(key)?;
        self.trie.longest(key).map(|node| self.trie.addr(node))
    }

    fn lookup_exact(&self, key: &[u8], _cpu: u32) -> Option<u64> {
        self.trie.exact(self.prefix(key)?).map(|node| self.trie.addr(node))
    }

    fn lookup_copy(&self, key: &[u8], _cpu: u32, value: &mut [u8]) -> Result<(), Errno> {
        check_sizes(&self.spec, key, value)?;
        let key = self.prefix(key).ok_or(Errno::ENOENT)?;
        self.trie.load(key, value)
    }

    fn update(&self, key: &[u8], value: &[u8], flags: u64, _cpu: u32) -> Result<(), Errno> {
        check_sizes(&self.spec, key, value)?;
        let key = self.prefix(key).filter(|_| flags <= BPF_EXIST).ok_or(Errno::EINVAL)?;
        self.trie.update(key, value, flags)
    }

    fn delete(&self, key: &[u8]) -> Result<(), Errno> {
        let key = self.prefix(key).ok_or(Errno::EINVAL)?;
        self.trie.delete(key)
    }

    fn next_key(&self, key: Option<&[u8]>, next: &mut [u8]) -> Result<(), Errno> {
        if next.len() != self.spec.key_size as usize {
            return Err(Errno::EINVAL);
        }
        let key = key.and_then(|key| self.prefix(key));
        let bits = self.trie.next(key, &mut next[4..]).ok_or(Errno::ENOENT)?;
        next[..4].copy_from_slice(&bits.to_le_bytes());
        Ok(())
    }

    fn entries(&self, each: &mut dyn FnMut(Entry<'_>) -> bool) -> Result<(), Errno> {
        self.trie.entries(each);
        Ok(())
    }

    fn arena(&self) -> Option<&Arc<Arena>> {
        Some(self.trie.arena())
    }

    fn len(&self) -> u32 {
        self.trie.len()
    }
}
