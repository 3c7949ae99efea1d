//! LRU hash maps, plain and per-CPU: kernel/bpf/hashtab.c over bpf_lru_list.c.
//!
//! The order is exact: a full map drops the element that was not used for longest. (The kernel approximates
//! it in batches, and with `BPF_F_NO_COMMON_LRU` per CPU.) A use is a program's lookup or any update; a look
//! from the host side is none.

use std::sync::{Arc, Mutex, MutexGuard};

use super::hash::{check_flags, check_sizes};
use super::store::Store;
use super::{BPF_EXIST, Errno, MapOps, MapSpec};
use crate::mem::{Arena, MemError};

/// No neighbour.
const NONE: u32 = u32::MAX;

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Lru {
    spec: MapSpec,
    cpus: u32,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    store: Store,
    order: Order,
}

/// Slots in use from the newest to the oldest, doubly linked.
#[derive(Debug)]
struct Order {
    links: Vec<Link>,
    newest: u32,
    oldest: u32,
}

#[derive(Clone, Copy, Debug)]
struct Link {
    newer: u32,
    older: u32,
}

impl Order {
    fn link(&mut self, slot: u32) -> &mut Link {
        let index = slot as usize;
        if index >= self.links.len() {
            self.links.resize(index + 1, Link { newer: NONE, older: NONE });
        }
        &mut self.links[index]
    }

    fn remove(&mut self, slot: u32) {
        let Link { newer, older } = *self.link(slot);
        match newer {
            NONE => self.newest = older,
            newer => self.link(newer).older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.link(older).newer = newer,
        }
    }

    fn push(&mut self, slot: u32) {
        let older = self.newest;
        *self.link(slot) = Link { newer: NONE, older };
        match older {
            NONE => self.oldest = slot,
            older => self.link(older).newer = slot,
        }
        self.newest = slot;
    }

    fn use_slot(&mut self, slot: u32) {
        if self.newest != slot {
            self.remove(slot);
            self.push(slot);
        }
    }
}

impl State {
    fn remove(&mut self, slot: u32) {
        self.order.remove(slot);
        self.store.remove(slot);
    }

    fn insert(&mut self, key: &[u8], cpu: u32, value: &[u8]) -> Result<(), Errno> {
        if self.store.is_full() {
            self.remove(self.order.oldest);
        }
        let add = |store: &Store| store.entry(key)?.insert(key, |slot| store.init(slot, cpu, value));
        let slot = match add(&self.store) {
            // The arena is full before the map is: make room as a full map does.
            Err(Errno::ENOMEM) if self.order.oldest != NONE => {
                self.remove(self.order.oldest);
                add(&self.store)?
            }
            result => result?,
        };
        self.order.push(slot);
        Ok(())
    }
}

impl Lru {
    /// `cpus` is 1 unless the map is per-CPU.
    pub(super) fn new(spec: MapSpec, arena: &Arc<Arena>, cpus: u32) -> Result<Lru, MemError> {
        let store = Store::new(&spec, arena, cpus)?;
        let order = Order { links: Vec::new(), newest: NONE, oldest: NONE };
        Ok(Lru { spec, cpus, state: Mutex::new(State { store, order }) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic while held")
    }

    fn slot_cpu(&self, cpu: u32) -> Option<u32> {
        if self.cpus == 1 { Some(0) } else { Some(cpu).filter(|cpu| *cpu < self.cpus) }
    }
}

impl MapOps for Lru {
    fn spec(&self) -> &MapSpec {
        &self.spec
    }

    fn lookup(&self, key: &[u8], cpu: u32) -> Option<u64> {
        let cpu = self.slot_cpu(cpu)?;
        let mut state = self.state();
        let slot = state.store.find(key, |slot| slot)?;
        state.order.use_slot(slot);
        Some(state.store.addr(slot, cpu))
    }

    fn lookup_copy(&self, key: &[u8], cpu: u32, value: &mut [u8]) -> Result<(), Errno> {
        check_sizes(&self.spec, key, value)?;
        let cpu = self.slot_cpu(cpu).ok_or(Errno::EINVAL)?;
        let state = self.state();
        let slot = state.store.find(key, |slot| slot).ok_or(Errno::ENOENT)?;
        state.store.value(slot, cpu).load(value);
        Ok(())
    }

    fn update(&self, key: &[u8], value: &[u8], flags: u64, cpu: u32) -> Result<(), Errno> {
        check_sizes(&self.spec, key, value)?;
        let cpu = self.slot_cpu(cpu).filter(|_| flags <= BPF_EXIST).ok_or(Errno::EINVAL)?;
        let mut state = self.state();
        let found = state.store.find(key, |slot| slot);
        check_flags(found.is_some(), flags)?;
        match found {
            Some(slot) => {
                state.order.use_slot(slot);
                state.store.value(slot, cpu).store(value);
            }
            None => {
                state.insert(key, cpu, value)?;
            }
        }
        Ok(())
    }

    fn delete(&self, key: &[u8]) -> Result<(), Errno> {
        let mut state = self.state();
        let slot = state.store.find(key, |slot| slot).ok_or(Errno::ENOENT)?;
        state.remove(slot);
        Ok(())
    }

    fn next_key(&self, key: Option<&[u8]>, next: &mut [u8]) -> Result<(), Errno> {
        self.state().store.next_key(key, next)
    }

    fn keys(&self) -> Vec<Vec<u8>> {
        self.state().store.keys()
    }

    fn cpus(&self) -> u32 {
        self.cpus
    }

    fn len(&self) -> u32 {
        self.state().store.len()
    }
}
