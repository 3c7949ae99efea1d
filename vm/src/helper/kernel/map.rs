//! Map helpers, `bpf_for_each_map_elem` and `bpf_loop`.

use super::Host;
use crate::helper::HelperResult;
use crate::helper::walk::{Entry, Visit, snapshot_fits, walk};
use crate::host::{HostFn, MapRef, Ptr};
use crate::map::{Errno, MapKind};
use crate::mem::Access;
use crate::trap::{Trap, TrapCode};

/// `BPF_MAX_LOOPS`.
const MAX_LOOPS: u32 = 8 << 20;

pub(super) fn functions() -> Vec<HostFn> {
    vec![
        HostFn::typed::<(), _>("bpf_map_lookup_elem", |mut caller: Host<'_>, map: MapRef, key: Ptr| {
            let cpu = caller.runtime().cpu;
            lookup(caller, &map, key, cpu)
        }),
        HostFn::typed::<(), _>("bpf_map_lookup_percpu_elem", |caller: Host<'_>, map: MapRef, key: Ptr, cpu: u32| {
            lookup(caller, &map, key, cpu)
        }),
        HostFn::typed::<(), _>("bpf_map_update_elem", update),
        HostFn::typed::<(), _>("bpf_map_delete_elem", delete),
        HostFn::typed::<(), _>("bpf_map_push_elem", |mut caller: Host<'_>, map: MapRef, value: Ptr, flags: u64| {
            writable(&caller, &map)?;
            let value = caller.value(&map, value)?;
            HelperResult::Ok(map.push(&value, flags)?)
        }),
        HostFn::typed::<(), _>("bpf_map_pop_elem", |caller: Host<'_>, map: MapRef, value: Ptr| {
            take(caller, &map, value, true)
        }),
        HostFn::typed::<(), _>("bpf_map_peek_elem", |caller: Host<'_>, map: MapRef, value: Ptr| {
            take(caller, &map, value, false)
        }),
        HostFn::typed::<(), _>("bpf_for_each_map_elem", for_each),
        HostFn::typed::<(), _>("bpf_loop", repeat),
    ]
}

/// Runs `work` on the key a program points to, without an allocation for keys of usual size.
fn with_key<R>(caller: &mut Host<'_>, map: &MapRef, key: Ptr, work: impl FnOnce(&[u8]) -> R) -> Result<R, Trap> {
    let size = map.spec().key_size as usize;
    let mut small = [0; 64];
    match small.get_mut(..size) {
        Some(bytes) => {
            caller.read_into(key, bytes)?;
            Ok(work(bytes))
        }
        None => Ok(work(&caller.bytes(key, size as u64)?)),
    }
}

/// Address of the value, or null.
fn lookup(mut caller: Host<'_>, map: &MapRef, key: Ptr, cpu: u32) -> Result<u64, Trap> {
    with_key(&mut caller, map, key, |key| map.lookup(key, cpu).unwrap_or(0))
}

/// Programs must not write to this map; the kernel's verifier refuses the program.
fn writable(caller: &Host<'_>, map: &MapRef) -> Result<(), Trap> {
    if map.spec().program_writable() {
        return Ok(());
    }
    let detail = format!("{} of map {}, which is read-only for programs", caller.function(), map.spec().name);
    Err(Trap::new(TrapCode::ReadOnly, detail))
}

fn update(mut caller: Host<'_>, map: MapRef, key: Ptr, value: Ptr, flags: u64) -> HelperResult {
    writable(&caller, &map)?;
    let cpu = caller.runtime().cpu;
    let value = caller.value(&map, value)?;
    with_key(&mut caller, &map, key, |key| map.update(key, &value, flags, cpu))??;
    Ok(())
}

fn delete(mut caller: Host<'_>, map: MapRef, key: Ptr) -> HelperResult {
    writable(&caller, &map)?;
    with_key(&mut caller, &map, key, |key| map.delete(key))??;
    Ok(())
}

/// Pop and peek. For a bloom filter the value is a question, so it is read first and stays as it is.
fn take(mut caller: Host<'_>, map: &MapRef, at: Ptr, remove: bool) -> HelperResult {
    let size = u64::from(map.spec().value_size);
    if map.spec().kind == MapKind::BloomFilter {
        let mut value = caller.value(map, at)?;
        return Ok(map.peek(&mut value)?);
    }
    caller.check(at, size, Access::Write)?;
    let mut value = vec![0; size as usize];
    // As in the kernel, a failure clears the value.
    let result = if remove { map.pop(&mut value) } else { map.peek(&mut value) };
    if result.is_err() {
        value.fill(0);
    }
    caller.write(at, &value[..])?;
    Ok(result?)
}

/// Kinds whose `map_ops` have a `map_for_each_callback`.
fn can_walk(kind: MapKind) -> bool {
    matches!(
        kind,
        MapKind::Array
            | MapKind::PercpuArray
            | MapKind::Hash
            | MapKind::PercpuHash
            | MapKind::LruHash
            | MapKind::LruPercpuHash
    )
}

/// The callback gets map, key, value and ctx; any result but 0 ends the walk.
fn for_each(mut caller: Host<'_>, handle: Ptr, callback: Ptr, context: Ptr, flags: u64) -> HelperResult<i64> {
    let map = caller.map(handle)?;
    if flags != 0 || !can_walk(map.spec().kind) {
        return Err(Errno::EINVAL.into());
    }
    let call = |caller: &mut Host<'_>, entry: Entry| {
        caller.call(callback, &[handle.addr(), entry.key, entry.value, context.addr()])
    };
    let visit = |key| Visit { key, copy: None, live: true };
    // An array's keys need no list, which could be much larger than the array.
    if matches!(map.spec().kind, MapKind::Array | MapKind::PercpuArray) {
        let visits = (0..map.spec().max_entries).map(|index| visit(index.to_le_bytes().to_vec()));
        return walk(&mut caller, &map, visits, call);
    }
    let visits = snapshot_fits(&map, 0).map(|()| map.keys())?.into_iter().map(visit);
    walk(&mut caller, &map, visits, call)
}

/// Calls back with index and ctx until the callback returns other than 0; gives the number of calls.
fn repeat(mut caller: Host<'_>, count: u32, callback: Ptr, context: Ptr, flags: u64) -> HelperResult<i64> {
    if flags != 0 {
        return Err(Errno::EINVAL.into());
    }
    if count > MAX_LOOPS {
        return Err(Errno::E2BIG.into());
    }
    for index in 0..count {
        if caller.call(callback, &[u64::from(index), context.addr()])? != 0 {
            return Ok(i64::from(index) + 1);
        }
    }
    Ok(i64::from(count))
}
