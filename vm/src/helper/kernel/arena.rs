//! `bpf_arena_alloc_pages` and what belongs to it, kernel/bpf/arena.c.

use super::Host;
use crate::host::{HostFn, Ptr};
use crate::map::{Errno, Pages};
use crate::trap::Trap;

/// `NUMA_NO_NODE`.
const NO_NODE: i32 = -1;

pub(super) fn functions() -> Vec<HostFn> {
    vec![
        HostFn::typed::<(), _>("bpf_arena_alloc_pages", alloc),
        HostFn::typed::<(), _>("bpf_arena_free_pages", free),
        HostFn::typed::<(), _>("bpf_arena_reserve_pages", reserve),
    ]
}

/// Null where the kernel gives null: wrong flags, no such pages, or they are not free.
fn alloc(caller: Host<'_>, map: Ptr, addr: u64, count: u32, node: i32, flags: u64) -> Result<u64, Trap> {
    with_pages(caller, map, |pages| {
        // There is one node here.
        let known = flags == 0 && count > 0 && matches!(node, NO_NODE | 0);
        known.then(|| pages.alloc(addr, count)).flatten().unwrap_or(0)
    })
}

fn free(caller: Host<'_>, map: Ptr, addr: u64, count: u32) -> Result<(), Trap> {
    with_pages(caller, map, |pages| {
        if addr != 0 && count > 0 {
            pages.free(addr, count);
        }
    })
}

fn reserve(caller: Host<'_>, map: Ptr, addr: u64, count: u32) -> Result<i32, Trap> {
    let done = with_pages(caller, map, |pages| if count == 0 { Ok(()) } else { pages.reserve(addr, count) })?;
    Ok(done.map_or_else(|Errno(errno)| -errno, |()| 0))
}

fn with_pages<R>(mut caller: Host<'_>, handle: Ptr, work: impl FnOnce(&dyn Pages) -> R) -> Result<R, Trap> {
    let map = caller.map(handle)?;
    match map.map().pages() {
        Some(pages) => Ok(work(pages)),
        None => {
            let spec = map.spec();
            let why = format!("map {} is of type {}, not an arena", spec.name, spec.kind.name());
            Err(caller.bad_argument(handle, why))
        }
    }
}
