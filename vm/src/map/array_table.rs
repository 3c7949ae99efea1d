//! Where the arrays among the maps of an object are, by handle, for generated code that finds values in inner maps itself.

use std::ops::Range;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::hidden_slab::HiddenSlab;
use super::{ArrayLayout, MapKind, MapOps};
use crate::mem::{Arena, HandleTable};

/// Bytes of an entry: address of the first value, bytes from one to the next, number of values.
const ENTRY: u32 = 16;

/// An entry for each handle that the arena can give, at the distance from the first that the handle has from the first handle.
/// That of a plain array has two words: the address of its first value; bytes from one to the next in the lower half, the number
/// of values in the upper. All others have no values. An entry is there before its handle is, and stays as it is.
///
/// ```
/// use twinbpf_vm::map::{ArrayTable, MapKind, MapSpec, Maps};
/// use twinbpf_vm::mem::Arena;
///
/// let inner = MapSpec::new("inner", MapKind::Array, 4, 8, 16);
/// let outer = MapSpec::new("outer", MapKind::ArrayOfMaps, 4, 4, 2);
/// let specs = [inner.clone(), MapSpec { inner: Some(Box::new(inner)), ..outer }];
/// let maps = Maps::new(&specs, &Arena::new(1 << 22)?, 1, &mut |_| None).expect("maps");
/// let table = maps.array_table().expect("inner maps are arrays");
/// assert_eq!((maps.handle(0) - table.first_handle()) & !table.mask(), 0);
/// # Ok::<(), twinbpf_vm::mem::MemError>(())
/// ```
#[derive(Debug)]
pub struct ArrayTable {
    entries: HiddenSlab,
    handles: Arc<HandleTable>,
}

impl ArrayTable {
    /// A table for the handles of an arena; takes no memory yet. `None` where that is limited to less than it may need, or handles
    /// do not fit.
    pub(super) fn new(arena: &Arc<Arena>) -> Option<ArrayTable> {
        let handles = Arc::clone(arena.maps());
        let count = handles.capacity();
        if !count.is_power_of_two() || handles.stride() != u64::from(ENTRY) {
            return None;
        }
        let entries = HiddenSlab::new(arena, "addresses of inner maps".to_owned(), ENTRY, count).ok()?;
        (entries.slots() == count).then_some(ArrayTable { entries, handles })
    }

    /// Whether inner maps of a map may have entries.
    pub(super) fn serves(map: &dyn MapOps) -> bool {
        let of_arrays = |inner: &super::MapSpec| inner.kind == MapKind::Array;
        map.spec().inner.as_deref().is_some_and(of_arrays)
    }

    /// Makes the entry of a map that gets a handle. Without memory for it there is none.
    pub(super) fn add(&self, handle: u64, map: &dyn MapOps) {
        let Some(slot) = self.handles.slot(handle) else { return };
        if map.spec().kind != MapKind::Array {
            return;
        }
        if let Some(ArrayLayout { addr, stride, count, cpus: 1, .. }) = map.layout()
            && self.entries.grow(slot).is_ok()
        {
            let (block, off) = self.entries.at(slot);
            block.atomic::<AtomicU64>(off).store(addr, Ordering::Release);
            block.atomic::<AtomicU64>(off + 8).store(u64::from(count) << 32 | u64::from(stride), Ordering::Release);
        }
    }

    /// The first handle of the arena.
    pub fn first_handle(&self) -> u64 {
        self.handles.base()
    }

    /// All bits that a handle's distance from the first may have.
    pub fn mask(&self) -> u64 {
        u64::from(ENTRY) * (u64::from(self.entries.slots()) - 1)
    }

    /// Addresses of all entries, which may be read.
    pub fn range(&self) -> Range<u64> {
        let first = ptr::from_ref::<AtomicU64>(self.entries.memory().atomic(0)).expose_provenance() as u64;
        first..first + u64::from(ENTRY) * u64::from(self.entries.slots())
    }
}
