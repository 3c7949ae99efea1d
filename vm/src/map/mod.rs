//! Maps: blueprints, and the in-process implementations behind [`MapOps`].
//!
//! [`create`] makes a map of a [`MapSpec`] after the checks the kernel would do; [`Maps`] holds all maps of an
//! instantiated object. Values that programs can point to live in the arena and stay where they are until
//! the map is dropped. This module knows neither programs nor the interpreter.

mod array;
mod cell;
mod check;
mod hash;
mod ops;
mod registry;
mod slab;
mod spec;
mod store;

use std::sync::Arc;

use crate::mem::Arena;

pub use check::MapError;
pub use ops::{BPF_ANY, BPF_EXIST, BPF_F_LOCK, BPF_NOEXIST, Errno, MapOps, Ring, Sent};
pub use registry::{Given, Maps};
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
        MapKind::Hash => Arc::new(hash::Hash::new(spec, arena, 1)),
        MapKind::PercpuHash => Arc::new(hash::Hash::new(spec, arena, cpus)),
        kind => return Err(MapError::Kind { map: spec.name, kind, reason: "not built yet" }),
    })
}

#[cfg(test)]
mod tests;
