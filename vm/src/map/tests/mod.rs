//! Tests of the in-process maps: one file for each family, and threads. Models are in the fuzzer.

use std::sync::Arc;

use super::{MapKind, MapOps, MapSpec, create};
use crate::mem::{Arena, Bounds, View};

mod arena;
mod array;
mod check;
mod hash;
mod lpm;
mod lru;
mod order;
mod queue;
mod registry;
mod ring;
mod slots;
mod threads;
mod wild;

fn arena() -> Arc<Arena> {
    Arena::new(64 << 20).unwrap()
}

fn spec(kind: MapKind, key: u32, value: u32, max_entries: u32) -> MapSpec {
    MapSpec::new("counts", kind, key, value, max_entries)
}

fn make(arena: &Arc<Arena>, spec: MapSpec) -> Arc<dyn MapOps> {
    create(spec, arena, 4).unwrap()
}

fn refused(spec: MapSpec) -> String {
    create(spec, &arena(), 4).unwrap_err().to_string()
}

fn view(arena: &Arc<Arena>) -> View {
    View::new(Arc::clone(arena), 0, Bounds::Exact)
}

fn key(number: u32) -> [u8; 4] {
    number.to_le_bytes()
}

fn copy(map: &dyn MapOps, key: &[u8]) -> Option<Vec<u8>> {
    let mut value = vec![0xee; map.spec().value_size as usize];
    map.lookup_copy(key, 0, &mut value).ok().map(|()| value)
}
