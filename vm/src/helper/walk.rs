//! Callbacks for every entry of a map: `map_for_each`, and `bpf_for_each_map_elem` where a map has no slots to walk over.

use super::HelperResult;
use crate::host::{Caller, MapRef, read_only};
use crate::map::{Errno, MapKind};
use crate::trap::Trap;

/// What a callback gets: addresses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    /// A read-only copy of the key.
    pub(super) key: u64,
    /// The value itself, or a read-only copy if programs cannot point to it.
    pub(super) value: u64,
}

/// One entry to visit.
#[derive(Debug)]
pub(super) struct Visit {
    pub(super) key: Vec<u8>,
    /// What the callback gets when the map has no value to point to (any more); without one, the entry is
    /// passed over.
    pub(super) copy: Option<Vec<u8>>,
    /// Whether the callback gets the map's own value as long as there is one.
    pub(super) live: bool,
}

/// Bytes of host memory that the copy of a map may take.
const MAX_SNAPSHOT: u64 = 1 << 30;
/// What an entry costs besides its bytes, about.
const ENTRY_BYTES: u64 = 64;

/// `ENOMEM` if a copy of the map's keys and this many values of each would be too large.
pub(super) fn snapshot_fits(map: &MapRef, values: u32) -> Result<(), Errno> {
    let spec = map.spec();
    let entry = ENTRY_BYTES + u64::from(spec.key_size) + u64::from(spec.value_size) * u64::from(values);
    let fits = |entries: u32| u64::from(entries).saturating_mul(entry) <= MAX_SNAPSHOT;
    // To count elements may take a walk over all of them.
    if !fits(spec.max_entries) && !fits(map.len()) { Err(Errno::ENOMEM) } else { Ok(()) }
}

/// Calls back for these entries until the callback gives other than 0. Gives the number of calls.
pub(super) fn walk(
    caller: &mut Caller<'_, ()>,
    map: &MapRef,
    visits: impl IntoIterator<Item = Visit>,
    mut call: impl FnMut(&mut Caller<'_, ()>, Entry) -> Result<u64, Trap>,
) -> HelperResult<i64> {
    let spec = map.spec();
    let view = caller.view();
    let key = read_only(view, &format!("key of map {}", spec.name), spec.key_size)?;
    let copy = read_only(view, &format!("copy of a value of map {}", spec.name), spec.value_size)?;
    // A lookup in a map of maps gives a handle, not memory.
    let points = !matches!(spec.kind, MapKind::ArrayOfMaps | MapKind::HashOfMaps);
    let mut calls = 0;
    for visit in visits {
        let cpu = caller.runtime().cpu();
        let value = match (map.lookup_exact(&visit.key, cpu).filter(|_| points && visit.live), &visit.copy) {
            (Some(value), _) => value,
            (None, Some(bytes)) => {
                copy.write(0, bytes);
                copy.addr()
            }
            (None, None) => continue,
        };
        key.write(0, &visit.key);
        calls += 1;
        if call(caller, Entry { key: key.addr(), value })? != 0 {
            break;
        }
    }
    Ok(calls)
}
