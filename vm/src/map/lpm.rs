//! Longest-prefix maps: kernel/bpf/lpm_trie.c.
//!
//! A key is a little-endian `__u32` number of bits, then data from the most significant byte on. A lookup finds
//! the longest stored prefix; update, delete and iteration mean exactly the given one.

use std::sync::{Arc, RwLock, RwLockReadGuard};

use super::hash::check_sizes;
use super::trie::{DATA_MAX, Prefix, Trie};
use super::{BPF_EXIST, Errno, MapOps, MapSpec};
use crate::mem::Arena;

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Lpm {
    spec: MapSpec,
    trie: RwLock<Trie>,
}

impl Lpm {
    pub(super) fn new(spec: MapSpec, arena: &Arc<Arena>) -> Lpm {
        let trie = RwLock::new(Trie::new(&spec, arena));
        Lpm { spec, trie }
    }

    fn read(&self) -> RwLockReadGuard<'_, Trie> {
        self.trie.read().expect("no panic while held")
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
        let trie = self.read();
        trie.longest(key).map(|node| trie.addr(node))
    }

    fn lookup_copy(&self, key: &[u8], _cpu: u32, value: &mut [u8]) -> Result<(), Errno> {
        check_sizes(&self.spec, key, value)?;
        let key = self.prefix(key).ok_or(Errno::ENOENT)?;
        let trie = self.read();
        let node = trie.longest(key).ok_or(Errno::ENOENT)?;
        trie.value(node).load(value);
        Ok(())
    }

    fn update(&self, key: &[u8], value: &[u8], flags: u64, _cpu: u32) -> Result<(), Errno> {
        check_sizes(&self.spec, key, value)?;
        let key = self.prefix(key).filter(|_| flags <= BPF_EXIST).ok_or(Errno::EINVAL)?;
        let mut trie = self.trie.write().expect("no panic while held");
        let (node, new) = trie.update(key, flags)?;
        let cell = trie.value(node);
        if new {
            cell.init(value)
        } else {
            cell.store(value)
        }
        Ok(())
    }

    fn delete(&self, key: &[u8]) -> Result<(), Errno> {
        let key = self.prefix(key).ok_or(Errno::EINVAL)?;
        self.trie.write().expect("no panic while held").delete(key)
    }

    fn next_key(&self, key: Option<&[u8]>, next: &mut [u8]) -> Result<(), Errno> {
        if next.len() != self.spec.key_size as usize {
            return Err(Errno::EINVAL);
        }
        let trie = self.read();
        let node = trie.next(key.and_then(|key| self.prefix(key))).ok_or(Errno::ENOENT)?;
        let mut buffer = [0; DATA_MAX];
        let found = trie.prefix(node, &mut buffer);
        next[..4].copy_from_slice(&found.bits.to_le_bytes());
        next[4..].copy_from_slice(found.data);
        Ok(())
    }

    fn len(&self) -> u32 {
        self.read().len()
    }
}
