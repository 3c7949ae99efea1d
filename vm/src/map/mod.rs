//! Maps: definitions ([`MapSpec`]), and the in-process implementations of [`MapOps`].
//!
//! [`create`] makes a map of a [`MapSpec`] after the checks the kernel would do; [`Maps`] holds all maps of an
//! instantiated object. Values that programs can point to live in the arena and stay where they are until
//! the map is dropped. This module knows neither programs nor the interpreter.

#![forbid(unsafe_code)]

mod absent;
mod arena;
mod array;
mod array_table;
mod bloom;
mod cell;
mod check;
mod entry;
mod field;
mod fifo;
mod free_slots;
mod given;
mod hash;
mod hidden_slab;
mod index;
mod lock;
mod lpm;
mod lru;
mod of_maps;
mod ops;
mod order;
mod planes;
mod prog;
mod queue;
mod redirect;
mod registry;
mod ring;
mod seen_keys;
mod slab;
mod slot_words;
mod snapshot;
mod spec;
mod spread;
mod store;
mod sync;
mod trie;
mod trie_change;
mod trie_node;
mod trie_walk;
mod walk;
mod words;
mod writers;

use std::sync::Arc;

use crate::mem::Arena;

pub use arena::ARENA_PAGE;
pub use array_table::ArrayTable;
pub use check::{MapError, kernel_only, only_in_kernel};
pub use entry::Entry;
pub use ops::{ArrayLayout, BPF_ANY, BPF_EXIST, BPF_F_LOCK, BPF_NOEXIST, Errno, MapOps, Pages, Ring, Sent};
pub use order::compare;
pub(crate) use order::{Direction, SortBy};
pub use registry::{Given, Maps};
pub(crate) use seen_keys::SeenKeys;
pub use slot_words::SlotWords;
pub(crate) use snapshot::{Snapshot, sorted};
pub use spec::{Data, Field, FieldKind, MapFlags, MapKind, MapSpec, Pointer, Slot};

/// Makes a map in an arena, as `BPF_MAP_CREATE` after libbpf's adjustments. Per-CPU maps have values for
/// `cpus` CPUs. Initial slots are filled by [`Maps`].
pub fn create(spec: MapSpec, arena: &Arc<Arena>, cpus: u32) -> Result<Arc<dyn MapOps>, MapError> {
    let cpus = cpus.max(1);
    let spec = check::check(spec, cpus)?;
    let name = Arc::clone(&spec.name);
    let memory = |source| MapError::Memory { map: name, source };
    Ok(match spec.kind {
        MapKind::Array => Arc::new(array::Array::new(spec, arena, 1).map_err(memory)?),
        MapKind::PercpuArray => Arc::new(array::Array::new(spec, arena, cpus).map_err(memory)?),
        MapKind::Hash => Arc::new(hash::Hash::new(spec, arena, 1).map_err(memory)?),
        MapKind::PercpuHash => Arc::new(hash::Hash::new(spec, arena, cpus).map_err(memory)?),
        MapKind::LruHash => Arc::new(lru::Lru::new(spec, arena, 1).map_err(memory)?),
        MapKind::LruPercpuHash => Arc::new(lru::Lru::new(spec, arena, cpus).map_err(memory)?),
        MapKind::LpmTrie => Arc::new(lpm::Lpm::new(spec, arena).map_err(memory)?),
        MapKind::Queue | MapKind::Stack => Arc::new(queue::Queue::new(spec, arena).map_err(memory)?),
        MapKind::BloomFilter => Arc::new(bloom::Bloom::new(spec, arena).map_err(memory)?),
        MapKind::ProgArray => Arc::new(prog::ProgArray::new(spec, arena).map_err(memory)?),
        MapKind::ArrayOfMaps | MapKind::HashOfMaps => {
            let template = check::template(&spec, cpus)?;
            Arc::new(of_maps::OfMaps::new(spec, template, arena).map_err(memory)?)
        }
        MapKind::Ringbuf | MapKind::UserRingbuf => Arc::new(ring::RingBuffer::new(spec, arena).map_err(memory)?),
        MapKind::PerfEventArray => Arc::new(redirect::PerfEvents::new(spec)),
        MapKind::Devmap | MapKind::Cpumap | MapKind::Xskmap => {
            Arc::new(redirect::Targets::new(spec, arena).map_err(memory)?)
        }
        MapKind::Arena => Arc::new(arena::ArenaMap::new(spec, arena).map_err(memory)?),
        MapKind::DevmapHash => Arc::new(redirect::TargetHash::new(spec, arena).map_err(memory)?),
        MapKind::StackTrace
        | MapKind::CgroupArray
        | MapKind::Sockmap
        | MapKind::Sockhash
        | MapKind::CgroupStorage
        | MapKind::ReuseportSockarray
        | MapKind::PercpuCgroupStorage
        | MapKind::SkStorage
        | MapKind::StructOps
        | MapKind::InodeStorage
        | MapKind::TaskStorage
        | MapKind::CgrpStorage
        | MapKind::InsnArray => unreachable!("refused by the check"),
    })
}

#[cfg(test)]
mod tests;
