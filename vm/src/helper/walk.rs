//! Callbacks for every entry of a map: `bpf_for_each_map_elem` and `map_for_each`.

use std::sync::Arc;

use super::HelperResult;
use crate::host::{Caller, MapRef};
use crate::map::Errno;
use crate::mem::{Block, RegionKind, RegionSpec};
use crate::trap::Trap;

/// What a callback gets: addresses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    /// A read-only copy of the key.
    pub(super) key: u64,
    /// The value itself where programs can point to it, else a read-only copy.
    pub(super) value: u64,
}

/// In which order entries are visited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// That of the map.
    Map,
}

/// Calls back for every entry of a snapshot of the keys until the callback gives other than 0. Entries that go
/// away before their turn are passed over. Gives the number of calls.
pub(super) fn walk(
    caller: &mut Caller<'_, ()>,
    map: &MapRef,
    order: Order,
    mut call: impl FnMut(&mut Caller<'_, ()>, Entry) -> Result<u64, Trap>,
) -> HelperResult<i64> {
    let keys = match order {
        Order::Map => map.keys(),
    };
    let spec = map.spec();
    let key = scratch(caller, &format!("key of map {}", spec.name), spec.key_size)?;
    let mut calls = 0;
    for bytes in keys {
        let cpu = caller.runtime().cpu;
        let Some(value) = map.lookup(&bytes, cpu) else { continue };
        key.write(0, &bytes);
        calls += 1;
        if call(caller, Entry { key: key.addr(), value })? != 0 {
            break;
        }
    }
    Ok(calls)
}

/// Memory of this instance that its program can only read.
fn scratch(caller: &mut Caller<'_, ()>, label: &str, size: u32) -> Result<Block, Errno> {
    let view = caller.view();
    let spec = RegionSpec::new(label, RegionKind::Host, size);
    let spec = RegionSpec { writable: false, owner: view.owner(), ..spec };
    Arc::clone(view.arena()).alloc(spec).map_err(|_| Errno::ENOMEM)
}
