//! Hash maps, plain and per-CPU: kernel/bpf/hashtab.c.
//!
//! An update of an existing element writes its value in place: as a [writer](super::writers) where nothing else is needed, and
//! otherwise while it holds the element's bucket. (The kernel puts a new element in place of the old one, so there a program never
//! sees half of an update. Here it can, as in arrays; in return the address of a value stays.)

use std::sync::Arc;

use super::cell::patiently;
use super::store::{Extra, Store};
use super::{BPF_ANY, BPF_EXIST, BPF_F_LOCK, BPF_NOEXIST, Entry, Errno, MapOps, MapSpec};
use crate::mem::{Arena, MemError};

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Hash {
    spec: MapSpec,
    cpus: u32,
    store: Store,
}

impl Hash {
    /// `cpus` is 1 unless the map is per-CPU.
    pub(super) fn new(spec: MapSpec, arena: &Arc<Arena>, cpus: u32) -> Result<Hash, MemError> {
        let store = Store::new(&spec, arena, cpus, Extra { replaces: true, ..Extra::default() })?;
        Ok(Hash { spec, cpus, store })
    }

    /// False where a program has the lock of the value.
    fn try_update(&self, key: &[u8], value: &[u8], flags: u64, cpu: u32) -> Result<bool, Errno> {
        if matches!(flags, BPF_ANY | BPF_EXIST) && self.store.replace(key, cpu, value).is_some() {
            return Ok(true);
        }
        let mut entry = self.store.entry(key)?;
        check_flags(entry.slot().is_some(), flags)?;
        let Some(slot) = entry.slot() else {
            let slot = self.store.take_any()?;
            self.store.init(slot, cpu, value);
            entry.insert(key, slot, || ());
            return Ok(true);
        };
        if flags & BPF_F_LOCK != 0 {
            return self.store.value(slot, cpu).try_store_locked(value, || entry.change());
        }
        entry.change();
        self.store.store(slot, cpu, value);
        Ok(true)
    }

    fn slot_cpu(&self, cpu: u32) -> Option<u32> {
        if self.cpus == 1 { Some(0) } else { Some(cpu).filter(|cpu| *cpu < self.cpus) }
    }
}

/// What an update with these flags may do to an element that is there or not: `check_flags` of hashtab.c.
pub(super) fn check_flags(exists: bool, flags: u64) -> Result<(), Errno> {
    match flags & !BPF_F_LOCK {
        BPF_NOEXIST if exists => Err(Errno::EEXIST),
        BPF_EXIST if !exists => Err(Errno::ENOENT),
        _ => Ok(()),
    }
}

/// Keys and values must have the sizes of the map.
pub(super) fn check_sizes(spec: &MapSpec, key: &[u8], value: &[u8]) -> Result<(), Errno> {
    let fits = key.len() == spec.key_size as usize && value.len() == spec.value_size as usize;
    if fits { Ok(()) } else { Err(Errno::EINVAL) }
}

impl MapOps for Hash {
    fn spec(&self) -> &MapSpec {
        &self.spec
    }

    fn lookup(&self, key: &[u8], cpu: u32) -> Option<u64> {
        let cpu = self.slot_cpu(cpu)?;
        self.store.slot_of(key).map(|slot| self.store.addr(slot, cpu))
    }

    fn lookup_copy(&self, key: &[u8], cpu: u32, value: &mut [u8]) -> Result<(), Errno> {
        check_sizes(&self.spec, key, value)?;
        let cpu = self.slot_cpu(cpu).ok_or(Errno::EINVAL)?;
        self.store.load(key, cpu, value)
    }

    fn update(&self, key: &[u8], value: &[u8], flags: u64, cpu: u32) -> Result<(), Errno> {
        check_sizes(&self.spec, key, value)?;
        let allowed = if self.cpus == 1 { flags & !BPF_F_LOCK } else { flags };
        let cpu = self.slot_cpu(cpu).filter(|_| allowed <= BPF_EXIST).ok_or(Errno::EINVAL)?;
        if flags & BPF_F_LOCK != 0 && self.spec.spin_lock.is_none() {
            return Err(Errno::EINVAL);
        }
        // No bucket is held while a program has the lock: what that does next may need the bucket.
        patiently(|| self.try_update(key, value, flags, cpu))
    }

    fn delete(&self, key: &[u8]) -> Result<(), Errno> {
        self.store.delete(key)
    }

    fn next_key(&self, key: Option<&[u8]>, next: &mut [u8]) -> Result<(), Errno> {
        self.store.next_key(key, next)
    }

    fn keys(&self) -> Vec<Vec<u8>> {
        self.store.keys()
    }

    fn entries(&self, each: &mut dyn FnMut(Entry<'_>) -> bool) -> Result<(), Errno> {
        let size = self.spec.value_size;
        self.store.entries(size, self.spec.kind.copy_size(size, self.cpus as usize), each);
        Ok(())
    }

    fn slots(&self) -> Option<u32> {
        Some(self.store.slots())
    }

    fn additions(&self) -> Option<u32> {
        Some(self.store.noted())
    }

    fn element(&self, slot: u32, cpu: u32, key: &mut [u8]) -> Option<u64> {
        self.store.element(slot, self.slot_cpu(cpu)?, key)
    }

    fn cpus(&self) -> u32 {
        self.cpus
    }

    fn arena(&self) -> Option<&Arc<Arena>> {
        Some(self.store.arena())
    }

    fn len(&self) -> u32 {
        self.store.len()
    }
}
