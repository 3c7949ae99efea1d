//! Hash maps, plain and per-CPU: kernel/bpf/hashtab.c.
//!
//! An update of an existing element writes its value in place, under the map's lock. (The kernel puts a new
//! element in place of the old one, so there a program never sees half of an update. Here it can, as in
//! arrays; in return the address of a value stays.)

use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::store::Store;
use super::{BPF_EXIST, BPF_F_LOCK, BPF_NOEXIST, Errno, MapOps, MapSpec};
use crate::mem::Arena;

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Hash {
    spec: MapSpec,
    cpus: u32,
    store: RwLock<Store>,
}

impl Hash {
    /// `cpus` is 1 unless the map is per-CPU.
    pub(super) fn new(spec: MapSpec, arena: &Arc<Arena>, cpus: u32) -> Hash {
        let store = RwLock::new(Store::new(&spec, arena, cpus));
        Hash { spec, cpus, store }
    }

    fn read(&self) -> RwLockReadGuard<'_, Store> {
        self.store.read().expect("no panic while held")
    }

    fn write(&self) -> RwLockWriteGuard<'_, Store> {
        self.store.write().expect("no panic while held")
    }

    fn slot_cpu(&self, cpu: u32) -> Option<u32> {
        if self.cpus == 1 { Some(0) } else { Some(cpu).filter(|cpu| *cpu < self.cpus) }
    }

    fn update_locked(&self, key: &[u8], value: &[u8], flags: u64) -> Result<bool, Errno> {
        if self.spec.spin_lock.is_none() {
            return Err(Errno::EINVAL);
        }
        let store = self.read();
        match store.find(key) {
            Some(_) if flags & BPF_NOEXIST != 0 => Err(Errno::EEXIST),
            Some(slot) => store.value(slot, 0).store_locked(value).map(|()| true),
            None => Ok(false),
        }
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
        let store = self.read();
        store.find(key).map(|slot| store.addr(slot, cpu))
    }

    fn lookup_copy(&self, key: &[u8], cpu: u32, value: &mut [u8]) -> Result<(), Errno> {
        check_sizes(&self.spec, key, value)?;
        let cpu = self.slot_cpu(cpu).ok_or(Errno::EINVAL)?;
        let store = self.read();
        let slot = store.find(key).ok_or(Errno::ENOENT)?;
        store.value(slot, cpu).load(value);
        Ok(())
    }

    fn update(&self, key: &[u8], value: &[u8], flags: u64, cpu: u32) -> Result<(), Errno> {
        check_sizes(&self.spec, key, value)?;
        let allowed = if self.cpus == 1 { flags & !BPF_F_LOCK } else { flags };
        let cpu = self.slot_cpu(cpu).filter(|_| allowed <= BPF_EXIST).ok_or(Errno::EINVAL)?;
        if flags & BPF_F_LOCK != 0 && self.update_locked(key, value, flags)? {
            return Ok(());
        }
        let mut store = self.write();
        let found = store.find(key);
        check_flags(found.is_some(), flags)?;
        match found {
            Some(slot) => store.value(slot, cpu).store(value),
            None => {
                let slot = store.insert(key)?;
                store.init(slot, cpu, value);
            }
        }
        Ok(())
    }

    fn delete(&self, key: &[u8]) -> Result<(), Errno> {
        let mut store = self.write();
        let slot = store.find(key).ok_or(Errno::ENOENT)?;
        store.remove(slot);
        Ok(())
    }

    fn next_key(&self, key: Option<&[u8]>, next: &mut [u8]) -> Result<(), Errno> {
        self.read().next_key(key, next)
    }

    fn keys(&self) -> Vec<Vec<u8>> {
        self.read().keys()
    }

    fn cpus(&self) -> u32 {
        self.cpus
    }

    fn len(&self) -> u32 {
        self.read().len()
    }
}
