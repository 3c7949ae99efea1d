//! Maps by handle, with what calls of their functions need to know.

use std::sync::Arc;

use crate::map::{MapKind, MapOps, Maps};

/// Finds maps by the handle a program holds.
pub trait MapTable: Send + Sync {
    /// The map with this handle, inner maps included. A handle that means a map means the same one from then on.
    fn get(&self, handle: u64) -> Option<Arc<dyn MapOps>>;

    /// Why the map with this handle cannot be used, if there is one: a sentence that names it.
    fn absent(&self, _handle: u64) -> Option<&str> {
        None
    }
}

impl MapTable for Maps {
    fn get(&self, handle: u64) -> Option<Arc<dyn MapOps>> {
        Maps::get(self, handle).cloned()
    }

    fn absent(&self, handle: u64) -> Option<&str> {
        Maps::absent(self, handle)
    }
}

/// A map, and what of its definition each call of its functions needs.
pub(super) struct KnownMap {
    pub(super) map: Arc<dyn MapOps>,
    pub(super) key_size: usize,
    pub(super) value_size: usize,
    /// Whether programs may change the map.
    pub(super) writable: bool,
    /// Whether values lie in the arena, each an element of the map's region.
    pub(super) in_arena: bool,
}

impl KnownMap {
    pub(super) fn new(map: Arc<dyn MapOps>) -> KnownMap {
        use MapKind::{Array, Hash, LpmTrie, LruHash, LruPercpuHash, PercpuArray, PercpuHash};
        let spec = map.spec();
        let (key_size, value_size) = (spec.key_size as usize, spec.value_size as usize);
        let in_arena = matches!(spec.kind, Array | Hash | LpmTrie | LruHash | LruPercpuHash | PercpuArray | PercpuHash);
        KnownMap { key_size, value_size, writable: spec.program_writable(), in_arena, map }
    }
}

/// The maps of the last calls, by handle.
#[derive(Default)]
pub(super) struct RecentMaps([Option<(u64, KnownMap)>; RecentMaps::COUNT]);

impl RecentMaps {
    const COUNT: usize = 16;

    /// The map with a handle, from `maps` if it was not in the last calls.
    #[inline(always)]
    pub(super) fn get(&mut self, handle: u64, maps: &Arc<dyn MapTable>) -> Option<&KnownMap> {
        // Handles are 16 bytes apart.
        let entry = &mut self.0[(handle >> 4) as usize % RecentMaps::COUNT];
        if entry.as_ref().is_none_or(|(own, _)| *own != handle) {
            *entry = Some((handle, find(handle, maps)?));
        }
        entry.as_ref().map(|(_, map)| map)
    }
}

#[cold]
fn find(handle: u64, maps: &Arc<dyn MapTable>) -> Option<KnownMap> {
    maps.get(handle).map(KnownMap::new)
}
