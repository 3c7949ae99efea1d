//! Map helpers, `bpf_for_each_map_elem` and `bpf_loop`.

use std::sync::Arc;

use super::Host;
use crate::helper::walk::{Entry, Visit, snapshot_fits, walk as walk_copied};
use crate::helper::{HelperResult, counted};
use crate::host::{HostFn, Intrinsic, MapCall, Ptr};
use crate::map::{Errno, MapKind, MapOps};
use crate::mem::Access;
use crate::trap::{Trap, TrapCode};

/// The map of a call.
pub(super) type Map = Arc<dyn MapOps>;

/// `BPF_MAX_LOOPS`.
pub(super) const MAX_LOOPS: u32 = 8 << 20;

pub(super) fn functions() -> Vec<HostFn> {
    vec![
        HostFn::of_map("bpf_map_lookup_elem", |mut caller: Host<'_>, map: &Map, key: Ptr| {
            let cpu = caller.runtime().cpu();
            lookup(caller, map, key, cpu)
        })
        .with_intrinsic(Intrinsic::MapLookup)
        .with_direct(|call: &mut MapCall<'_>, [key, ..]| call.look_up(key)),
        HostFn::of_map("bpf_map_lookup_percpu_elem", lookup),
        HostFn::of_map("bpf_map_update_elem", update).with_direct(|call: &mut MapCall<'_>, [key, value, flags]| {
            let update = |key: &[u8], value: &[u8]| call.map().update(key, value, flags, call.cpu);
            changed(call, || call.value(value, |value| call.key(key, |key| update(key, value)))?)
        }),
        HostFn::of_map("bpf_map_delete_elem", delete).with_direct(|call: &mut MapCall<'_>, [key, ..]| {
            changed(call, || call.key(key, |key| call.map().delete(key)))
        }),
        HostFn::of_map("bpf_map_push_elem", |mut caller: Host<'_>, map: &Map, value: Ptr, flags: u64| {
            writable(&caller, map)?;
            let mut room = Room::default();
            let pushed = map.push(room.copy(&mut caller, value, map.spec().value_size.into())?, flags);
            HelperResult::Ok(counted(&mut caller, &map.spec().name, pushed)?)
        })
        .with_direct(|call: &mut MapCall<'_>, [value, flags, _]| {
            changed(call, || call.value(value, |value| call.map().push(value, flags)))
        }),
        HostFn::of_map("bpf_map_pop_elem", |caller: Host<'_>, map: &Map, value: Ptr| take(caller, map, value, true))
            .with_direct(|call: &mut MapCall<'_>, [value, ..]| taken(call, value, |value| call.map().pop(value))),
        HostFn::of_map("bpf_map_peek_elem", |caller: Host<'_>, map: &Map, value: Ptr| take(caller, map, value, false))
            .with_direct(|call: &mut MapCall<'_>, [value, ..]| match call.map().spec().kind {
                MapKind::BloomFilter => call.value(value, |value| r0(ask(call.map(), value))),
                _ => taken(call, value, |value| call.map().peek(value)),
            }),
        HostFn::typed::<(), _>("bpf_for_each_map_elem", for_each).with_intrinsic(Intrinsic::ForEachElement),
        HostFn::typed::<(), _>("bpf_loop", repeat).with_intrinsic(Intrinsic::Loop),
    ]
}

/// Room for a key or a value, without an allocation where it is small.
#[derive(Default)]
pub(super) struct Room {
    small: [[u8; 32]; 2],
    large: Vec<u8>,
}

impl Room {
    fn of(&mut self, size: u32) -> &mut [u8] {
        let size = size as usize;
        match self.small.as_flattened().len() {
            small if size <= small => &mut self.small.as_flattened_mut()[..size],
            _ => {
                self.large.resize(size, 0);
                &mut self.large
            }
        }
    }

    /// A copy of what a program points to.
    pub(super) fn copy(&mut self, caller: &mut Host<'_>, at: Ptr, size: u64) -> Result<&mut [u8], Trap> {
        // A size that no program has is refused before the host takes memory for it.
        if size > self.small.as_flattened().len() as u64 {
            self.large = caller.bytes(at, size)?;
            return Ok(&mut self.large);
        }
        let bytes = self.of(size as u32);
        caller.read_into(at, bytes)?;
        Ok(bytes)
    }
}

/// Runs `work` on the key a program points to.
fn with_key<R>(caller: &mut Host<'_>, map: &Map, key: Ptr, work: impl FnOnce(&[u8]) -> R) -> Result<R, Trap> {
    // Sizes that a copy is one instruction for.
    match map.spec().key_size {
        4 => Ok(work(&caller.read::<[u8; 4]>(key)?)),
        8 => Ok(work(&caller.read::<[u8; 8]>(key)?)),
        size => Ok(work(Room::default().copy(caller, key, size.into())?)),
    }
}

/// Address of the value, or null.
fn lookup(mut caller: Host<'_>, map: &Map, key: Ptr, cpu: u32) -> Result<u64, Trap> {
    with_key(&mut caller, map, key, |key| map.lookup(key, cpu).unwrap_or(0))
}

/// Programs must not write to this map; the kernel's verifier refuses the program.
fn writable(caller: &Host<'_>, map: &Map) -> Result<(), Trap> {
    if map.spec().program_writable() {
        return Ok(());
    }
    let detail = format!("{} of map {}, which is read-only for programs", caller.function(), map.spec().name);
    Err(Trap::new(TrapCode::ReadOnly, detail))
}

fn update(mut caller: Host<'_>, map: &Map, key: Ptr, value: Ptr, flags: u64) -> HelperResult {
    writable(&caller, map)?;
    let cpu = caller.runtime().cpu();
    let mut room = Room::default();
    let value = room.copy(&mut caller, value, map.spec().value_size.into())?;
    let updated = with_key(&mut caller, map, key, |key| map.update(key, value, flags, cpu))?;
    Ok(counted(&mut caller, &map.spec().name, updated)?)
}

fn delete(mut caller: Host<'_>, map: &Map, key: Ptr) -> HelperResult {
    writable(&caller, map)?;
    with_key(&mut caller, map, key, |key| map.delete(key))??;
    Ok(())
}

/// Pop and peek. For a bloom filter the value is a question, so it is read first and stays as it is.
fn take(mut caller: Host<'_>, map: &Map, at: Ptr, remove: bool) -> HelperResult {
    let (size, mut room) = (map.spec().value_size, Room::default());
    if map.spec().kind == MapKind::BloomFilter && !remove {
        return Ok(map.peek(room.copy(&mut caller, at, size.into())?)?);
    }
    caller.check(at, size.into(), Access::Write)?;
    let value = room.of(size);
    // As in the kernel, a failure clears the value.
    let result = if remove { map.pop(value) } else { map.peek(value) };
    if result.is_err() {
        value.fill(0);
    }
    caller.write(at, &*value)?;
    Ok(result?)
}

/// Asks a bloom filter for a value, which stays as it is.
fn ask(map: &Map, value: &[u8]) -> Result<(), Errno> {
    let mut room = Room::default();
    let copy = room.of(value.len() as u32);
    copy.copy_from_slice(value);
    map.peek(copy)
}

/// r0 of a change by generated code, unless the map is read-only for programs.
#[inline(always)]
fn changed(call: &MapCall<'_>, change: impl FnOnce() -> Option<Result<(), Errno>>) -> Option<u64> {
    let result = if call.writable() { change() } else { None }?;
    // The general body counts what is lost.
    if result.is_err_and(Errno::is_loss) { None } else { Some(r0(result)) }
}

/// r0 of a pop or peek by generated code.
#[inline(always)]
fn taken(call: &MapCall<'_>, at: u64, take: impl FnOnce(&mut [u8]) -> Result<(), Errno>) -> Option<u64> {
    call.set_value(at, |value| r0(take(value).inspect_err(|_| value.fill(0))))
}

#[inline(always)]
fn r0(result: Result<(), Errno>) -> u64 {
    result.map_or_else(Errno::to_r0, |()| 0)
}

/// The callback gets map, key, value and ctx; any result but 0 ends the walk.
fn for_each(mut caller: Host<'_>, handle: Ptr, callback: Ptr, context: Ptr, flags: u64) -> HelperResult<i64> {
    let map = caller.map(handle)?;
    if flags != 0 || !map.spec().kind.has_walk() {
        return Err(Errno::EINVAL.into());
    }
    let args = |key, value| [handle.addr(), key, value, context.addr()];
    if let Some(slots) = map.slots() {
        let runtime = caller.runtime();
        let mut walk = runtime.held.walks.make(&runtime.view, map.map(), slots)?;
        let (cpu, mut calls) = (runtime.cpu(), 0);
        while let Some(value) = walk.next(cpu) {
            calls += 1;
            if caller.call(callback, &args(walk.key(), value))? != 0 {
                break;
            }
        }
        caller.runtime().held.walks.end(walk);
        return Ok(calls);
    }
    let call = |caller: &mut Host<'_>, entry: Entry| caller.call(callback, &args(entry.key, entry.value));
    let visit = |key| Visit { key, copy: None, live: true };
    let visits = snapshot_fits(&map, 0).map(|()| map.keys())?.into_iter().map(visit);
    walk_copied(&mut caller, &map, visits, call)
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
