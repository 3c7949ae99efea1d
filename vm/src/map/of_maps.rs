//! Maps of maps: kernel/bpf/map_in_map.c, with the array of arraymap.c or the hash of hashtab.c around it.
//!
//! What a program's lookup gets is the inner map's handle, found without a lock. Inner maps are put in by
//! [`MapOps::set_inner`]; each must equal the template. Slots are sparse and listed in the order of the bytes of their keys.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, RwLock};

use super::array::{array_index, next_index};
use super::hash::check_sizes;
use super::slot_words::SlotWords;
use super::store::{Extra, Store};
use super::words::Words;
use super::{Errno, MapFlags, MapKind, MapOps, MapSpec};
use crate::mem::{Arena, MemError};

/// See the module documentation.
#[derive(Debug)]
pub(super) struct OfMaps {
    spec: MapSpec,
    /// Definition that inner maps must match.
    template: MapSpec,
    /// What the host sees, and the lock of all changes.
    slots: RwLock<Slots>,
    handles: Handles,
}

/// Inner maps by key.
type Slots = BTreeMap<Box<[u8]>, Arc<dyn MapOps>>;

/// Handles of inner maps, as programs look them up.
#[derive(Debug)]
enum Handles {
    /// By index; 0 where there is no map.
    Array(Words),
    /// In words of the slots.
    Hash(Box<Store>),
}

/// Sets the two words of a handle.
fn write([low, high]: [&AtomicU32; 2], handle: u64) {
    low.store(handle as u32, Ordering::Relaxed);
    high.store((handle >> 32) as u32, Ordering::Relaxed);
}

impl Handles {
    fn new(spec: &MapSpec, arena: &Arc<Arena>) -> Result<Handles, MemError> {
        if spec.kind == MapKind::HashOfMaps {
            let store = Store::new(spec, arena, 1, Extra { words: 2, ..Extra::default() })?;
            return Ok(Handles::Hash(Box::new(store)));
        }
        let label = format!("handles of map {}", spec.name);
        Words::new(arena, label, spec.max_entries).map(Handles::Array)
    }

    fn arena(&self) -> &Arc<Arena> {
        match self {
            Handles::Hash(store) => store.arena(),
            Handles::Array(words) => words.arena(),
        }
    }

    fn get(&self, key: &[u8]) -> Option<u64> {
        match self {
            Handles::Array(words) => Some(words.get(array_index(key)?)).filter(|handle| *handle != 0),
            Handles::Hash(store) => store.find(key, |slot| {
                let [low, high] = store.extra(slot).map(|word: &AtomicU32| word.load(Ordering::Relaxed));
                u64::from(high) << 32 | u64::from(low)
            }),
        }
    }

    fn set(&self, map: &str, key: &[u8], handle: u64) -> Result<(), Errno> {
        match self {
            Handles::Array(words) => {
                let index = array_index(key).ok_or(Errno::E2BIG)?;
                words.make(map, index)?.store(handle, Ordering::Release);
            }
            Handles::Hash(store) => {
                let mut entry = store.entry(key)?;
                match entry.slot() {
                    Some(slot) => {
                        entry.change();
                        write(store.extra(slot), handle);
                    }
                    None => {
                        let slot = store.take_any()?;
                        write(store.extra(slot), handle);
                        entry.insert(key, slot, || ());
                    }
                }
            }
        }
        Ok(())
    }

    fn remove(&self, key: &[u8]) {
        match self {
            Handles::Array(words) => {
                array_index(key).map(|index| words.clear(index));
            }
            Handles::Hash(store) => store.delete(key).expect("the map has this key"),
        }
    }
}

/// `map_meta_equal` of the inner map's kind: whether a map can stand where `template` is expected.
pub(super) fn equal(template: &MapSpec, map: &MapSpec) -> bool {
    let shape = |spec: &MapSpec| (spec.kind, spec.key_size, spec.value_size, spec.flags, spec.spin_lock);
    // array_map_meta_equal, xsk_map_meta_equal: programs have the size compiled in.
    let sized = match template.kind == MapKind::Array {
        true => !template.flags().contains(MapFlags::INNER_MAP),
        false => template.kind == MapKind::Xskmap,
    };
    shape(template) == shape(map) && (!sized || template.max_entries == map.max_entries)
}

impl OfMaps {
    /// `template` has passed the checks of its kind.
    pub(super) fn new(spec: MapSpec, template: MapSpec, arena: &Arc<Arena>) -> Result<OfMaps, MemError> {
        let handles = Handles::new(&spec, arena)?;
        Ok(OfMaps { spec, template, slots: RwLock::default(), handles })
    }

    fn is_array(&self) -> bool {
        self.spec.kind == MapKind::ArrayOfMaps
    }
}

impl MapOps for OfMaps {
    fn spec(&self) -> &MapSpec {
        &self.spec
    }

    /// The inner map's handle.
    fn lookup(&self, key: &[u8], _cpu: u32) -> Option<u64> {
        self.handles.get(key)
    }

    /// Gives the low half of the inner map's handle, where the kernel gives its id.
    fn lookup_copy(&self, key: &[u8], _cpu: u32, value: &mut [u8]) -> Result<(), Errno> {
        check_sizes(&self.spec, key, value)?;
        let handle = self.handles.get(key).ok_or(Errno::ENOENT)?;
        value.copy_from_slice(&(handle as u32).to_le_bytes());
        Ok(())
    }

    /// A value would be a file descriptor; see [`MapOps::set_inner`].
    fn update(&self, _key: &[u8], _value: &[u8], _flags: u64, _cpu: u32) -> Result<(), Errno> {
        Err(Errno::EINVAL)
    }

    fn delete(&self, key: &[u8]) -> Result<(), Errno> {
        if self.is_array() && array_index(key).is_none_or(|index| index >= self.spec.max_entries) {
            return Err(Errno::E2BIG);
        }
        let mut slots = self.slots.write().expect("no panic while held");
        slots.remove(key).ok_or(Errno::ENOENT)?;
        self.handles.remove(key);
        Ok(())
    }

    fn next_key(&self, key: Option<&[u8]>, next: &mut [u8]) -> Result<(), Errno> {
        if self.is_array() {
            return next_index(self.spec.max_entries, key, next);
        }
        let slots = self.slots.read().expect("no panic while held");
        let from = match key.filter(|key| slots.contains_key(*key)) {
            Some(key) => Bound::Excluded(key),
            None => Bound::Unbounded,
        };
        let (found, _) = slots.range::<[u8], _>((from, Bound::Unbounded)).next().ok_or(Errno::ENOENT)?;
        if next.len() != found.len() {
            return Err(Errno::EINVAL);
        }
        next.copy_from_slice(found);
        Ok(())
    }

    fn keys(&self) -> Vec<Vec<u8>> {
        let slots = self.slots.read().expect("no panic while held");
        slots.keys().map(|key| key.to_vec()).collect()
    }

    fn arena(&self) -> Option<&Arc<Arena>> {
        Some(self.handles.arena())
    }

    fn len(&self) -> u32 {
        match self.is_array() {
            true => self.spec.max_entries,
            false => self.slots.read().expect("no panic while held").len() as u32,
        }
    }

    fn inner(&self, key: &[u8]) -> Option<Arc<dyn MapOps>> {
        self.slots.read().expect("no panic while held").get(key).cloned()
    }

    fn slot_words(&self) -> Option<SlotWords> {
        match &self.handles {
            Handles::Array(words) => Some(words.shared()),
            Handles::Hash(_) => None,
        }
    }

    fn set_inner(&self, key: &[u8], map: Arc<dyn MapOps>, handle: u64) -> Result<(), Errno> {
        if key.len() != self.spec.key_size as usize || !equal(&self.template, map.spec()) {
            return Err(Errno::EINVAL);
        }
        let mut slots = self.slots.write().expect("no panic while held");
        let full = match self.is_array() {
            true => array_index(key).is_none_or(|index| index >= self.spec.max_entries),
            false => slots.len() >= self.spec.max_entries as usize && !slots.contains_key(key),
        };
        if full {
            return Err(Errno::E2BIG);
        }
        self.handles.set(&self.spec.name, key, handle)?;
        slots.insert(key.into(), map);
        Ok(())
    }
}
