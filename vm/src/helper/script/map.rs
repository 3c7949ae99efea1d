//! Maps by copy, as the commands of bpf(2): 0 or a negative errno. A per-CPU map means the value of the CPU the
//! program runs on, where bpf(2) copies those of all.

use super::Host;
use crate::helper::walk::{Entry, Visit, snapshot_fits, walk};
use crate::helper::{HelperResult, counted};
use crate::host::{Fail, HostFn, MapRef, Ptr};
use crate::map::{BPF_ANY, Direction, Errno, MapFlags, MapKind, Snapshot, SortBy, sorted};
use crate::trap::Trap;

/// `MAP_BY_KEY`.
const BY_KEY: u64 = 1;
/// `MAP_BY_VALUE`.
const BY_VALUE: u64 = 2;
/// `MAP_DESCENDING`.
const DESCENDING: u64 = 0x10;
/// `MAP_SUMMED`.
const SUMMED: u64 = 0x20;

pub(super) fn functions() -> Vec<HostFn> {
    // libbpf would compare the types of the plain names with the kernel's own functions, hence two names each.
    let mut all = vec![HostFn::typed::<(), _>("map_for_each", for_each)];
    all.extend(["map_lookup_elem", "twinbpf_map_lookup_elem"].map(|name| HostFn::typed::<(), _>(name, lookup)));
    all.extend(["map_update_elem", "twinbpf_map_update_elem"].map(|name| HostFn::typed::<(), _>(name, update)));
    all.extend(["map_delete_elem", "twinbpf_map_delete_elem"].map(|name| HostFn::typed::<(), _>(name, delete)));
    all.extend(["map_get_next_key", "twinbpf_map_get_next_key"].map(|name| HostFn::typed::<(), _>(name, next_key)));
    all.push(HostFn::typed::<(), _>("twinbpf_clear", clear));
    all.push(HostFn::typed::<(), _>("twinbpf_zero", zero));
    all
}

/// Deletes every element; of an array, whose elements stay, makes them zero.
fn clear(caller: Host<'_>, map: MapRef) -> HelperResult<i32> {
    if matches!(map.spec().kind, MapKind::Array | MapKind::PercpuArray) {
        return zero(caller, map);
    }
    for_all(caller, &map, |map, key| match map.delete(key) {
        // Another program was sooner.
        Err(Errno::ENOENT) => Ok(()),
        result => result,
    })
}

/// Makes the value of every element zero, on all CPUs.
fn zero(mut caller: Host<'_>, map: MapRef) -> HelperResult<i32> {
    let value = vec![0; map.spec().value_size as usize];
    let zero = |map: &MapRef, key: &[u8]| (0..map.cpus()).try_for_each(|cpu| map.update(key, &value, BPF_ANY, cpu));
    if !matches!(map.spec().kind, MapKind::Array | MapKind::PercpuArray) {
        return for_all(caller, &map, zero);
    }
    // An array may have more elements than there is memory for a list of their keys.
    permitted(&map, MapFlags::RDONLY)?;
    for index in 0..map.spec().max_entries {
        caller.check_interrupt()?;
        zero(&map, &index.to_ne_bytes())?;
    }
    Ok(i32::try_from(map.spec().max_entries).unwrap_or(i32::MAX))
}

/// Does something to each key of a map; gives how many there are.
fn for_all(
    mut caller: Host<'_>,
    map: &MapRef,
    each: impl Fn(&MapRef, &[u8]) -> Result<(), Errno>,
) -> HelperResult<i32> {
    permitted(map, MapFlags::RDONLY)?;
    let keys = map.keys();
    for key in &keys {
        caller.check_interrupt()?;
        each(map, key)?;
    }
    Ok(i32::try_from(keys.len()).unwrap_or(i32::MAX))
}

/// `EPERM` if the map was made with a flag that keeps user space from it.
fn permitted(map: &MapRef, forbidden: MapFlags) -> Result<(), Errno> {
    if map.spec().flags().intersects(forbidden) { Err(Errno::EPERM) } else { Ok(()) }
}

fn lookup(mut caller: Host<'_>, map: MapRef, key: Ptr, value: Ptr) -> HelperResult<i32> {
    permitted(&map, MapFlags::WRONLY)?;
    let cpu = caller.runtime().cpu();
    let key = caller.key(&map, key)?;
    // A bloom filter looks up the value that the buffer holds.
    let mut bytes = caller.value(&map, value)?;
    map.lookup_copy(&key, cpu, &mut bytes)?;
    caller.write(value, &bytes[..])?;
    Ok(0)
}

fn update(mut caller: Host<'_>, map: MapRef, key: Ptr, value: Ptr, flags: u64) -> HelperResult<i32> {
    permitted(&map, MapFlags::RDONLY)?;
    let cpu = caller.runtime().cpu();
    let key = caller.key(&map, key)?;
    let value = caller.value(&map, value)?;
    let updated = map.update(&key, &value, flags, cpu);
    counted(&mut caller, &map.spec().name, updated)?;
    Ok(0)
}

fn delete(mut caller: Host<'_>, map: MapRef, key: Ptr) -> HelperResult<i32> {
    permitted(&map, MapFlags::RDONLY)?;
    let key = caller.key(&map, key)?;
    map.delete(&key)?;
    Ok(0)
}

fn next_key(mut caller: Host<'_>, map: MapRef, key: Ptr, next: Ptr) -> HelperResult<i32> {
    permitted(&map, MapFlags::WRONLY)?;
    let key = if key.is_null() { None } else { Some(caller.key(&map, key)?) };
    let mut bytes = vec![0; map.spec().key_size as usize];
    map.next_key(key.as_deref(), &mut bytes)?;
    caller.write(next, &bytes[..])?;
    Ok(0)
}

/// Calls back with key, value and ctx for every entry of a snapshot; gives the number of calls. The value is the
/// map's own as long as the entry is there, or, with `SUMMED`, a read-only sum of the values of all CPUs. A
/// map too large to copy is `ENOMEM`.
fn for_each(mut caller: Host<'_>, map: MapRef, callback: Ptr, context: Ptr, order: u64) -> HelperResult<i64> {
    let by = match order & !(DESCENDING | SUMMED) {
        0 => SortBy::Map,
        BY_KEY => SortBy::Key,
        BY_VALUE => SortBy::Value,
        _ => return Err(Errno::EINVAL.into()),
    };
    let direction = if order & DESCENDING == 0 { Direction::Ascending } else { Direction::Descending };
    let entries = snapshot(&map, by, direction, &mut || caller.check_interrupt())?;
    let sum = order & SUMMED != 0 && map.cpus() > 1;
    let cpu = caller.runtime().cpu() as usize;
    let fields = map.spec().value_fields.clone();
    let visits = entries.iter().map(|entry| {
        let copy = if sum {
            Some(entry.summed(&fields))
        } else {
            entry.values().nth(cpu.min(map.cpus().saturating_sub(1) as usize)).map(<[u8]>::to_vec)
        };
        Visit { key: entry.key.to_vec(), copy, live: !sum }
    });
    walk(&mut caller, &map, visits, |caller, Entry { key, value }| {
        // An `int`: the upper half of r0 means nothing.
        Ok(u64::from(caller.call(callback, &[key, value, context.addr()])? as u32))
    })
}

/// Checks for an interrupt in a long operation: an error is the trap of a run that must end.
pub(super) type InterruptCheck<'a> = &'a mut dyn FnMut() -> Result<(), Trap>;

/// Copies all entries of a map that has keys.
pub(super) fn snapshot(
    map: &MapRef,
    by: SortBy,
    direction: Direction,
    check_interrupt: InterruptCheck<'_>,
) -> HelperResult<Snapshot> {
    permitted(map, MapFlags::WRONLY)?;
    let mut first = vec![0; map.spec().key_size as usize];
    match map.next_key(None, &mut first) {
        Ok(()) | Err(Errno::ENOENT) => {}
        Err(errno) => return Err(errno.into()),
    }
    snapshot_fits(map, map.cpus())?;
    sorted(&**map.map(), by, direction, &mut || check_interrupt().map_err(Fail::from))
}
