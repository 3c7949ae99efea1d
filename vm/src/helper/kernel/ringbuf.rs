//! Ring buffers, kernel/bpf/ringbuf.c.

use super::Host;
use super::map::{Map, Room};
use crate::helper::{HelperResult, counted};
use crate::host::{HostFn, MapCall, Ptr, Runtime, bad_argument};
use crate::map::{Errno, Ring};
use crate::trap::Trap;

/// `BPF_RB_NO_WAKEUP | BPF_RB_FORCE_WAKEUP`.
const WAKEUP_FLAGS: u64 = 3;

pub(super) fn functions() -> Vec<HostFn> {
    vec![
        HostFn::of_map("bpf_ringbuf_reserve", reserve).with_direct(|call: &mut MapCall<'_>, [size, flags, _]| {
            if flags != 0 {
                return None;
            }
            match call.map().reserve_sample(size) {
                Ok(sample) => {
                    call.hold_sample(sample, size);
                    Some(sample)
                }
                // The general body counts what is lost.
                Err(_) => None,
            }
        }),
        HostFn::typed::<(), _>("bpf_ringbuf_submit", |caller: Host<'_>, sample: Ptr, _flags: u64| {
            commit(caller, sample, false)
        })
        .with_runtime_only(|runtime, sample| end(runtime, sample, false).then_some(0)),
        HostFn::typed::<(), _>("bpf_ringbuf_discard", |caller: Host<'_>, sample: Ptr, _flags: u64| {
            commit(caller, sample, true)
        })
        .with_runtime_only(|runtime, sample| end(runtime, sample, true).then_some(0)),
        HostFn::of_map("bpf_ringbuf_output", output).with_direct(|call: &mut MapCall<'_>, [data, size, flags]| {
            let ring = if flags & !WAKEUP_FLAGS == 0 { call.map().ring() } else { None }?;
            let size = usize::try_from(size).ok()?;
            match call.bytes(data, size, |bytes| ring.output(bytes))? {
                Ok(()) => Some(0),
                Err(errno) => (!errno.is_loss()).then_some(errno.to_r0()),
            }
        }),
        HostFn::of_map("bpf_ringbuf_query", |caller: Host<'_>, map: &Map, flags: u64| {
            Ok::<_, Trap>(ring(&caller, map)?.query(flags))
        }),
    ]
}

fn ring<'m>(caller: &Host<'_>, map: &'m Map) -> Result<&'m dyn Ring, Trap> {
    map.ring().ok_or_else(|| {
        let spec = map.spec();
        // Maps are first arguments.
        let why = format!("map {} is of type {}, not a ring buffer", spec.name, spec.kind.name());
        bad_argument(caller.function(), 1, why)
    })
}

fn reserve(mut caller: Host<'_>, map: &Map, size: u64, flags: u64) -> Result<u64, Trap> {
    let ring = ring(&caller, map)?;
    let sample = if flags == 0 { ring.reserve(size) } else { None };
    match sample {
        Some(sample) => caller.runtime().held.samples.add(sample, map),
        None => {
            let function = caller.function();
            caller.runtime().lose(&map.spec().name, function);
        }
    }
    Ok(sample.unwrap_or(0))
}

/// Ends a reservation, which the program cannot touch from here on. False if there is none.
fn end(runtime: &mut Runtime, sample: u64, discard: bool) -> bool {
    let ended = runtime.held.samples.end(sample, discard);
    runtime.view.forget_element(sample);
    ended
}

fn commit(mut caller: Host<'_>, sample: Ptr, discard: bool) -> Result<(), Trap> {
    if end(caller.runtime(), sample.addr(), discard) {
        return Ok(());
    }
    Err(caller.bad_argument(sample, "not an open reservation; pass what bpf_ringbuf_reserve returned, once"))
}

fn output(mut caller: Host<'_>, map: &Map, data: Ptr, size: u64, flags: u64) -> HelperResult {
    if flags & !WAKEUP_FLAGS != 0 {
        return Err(Errno::EINVAL.into());
    }
    let mut room = Room::default();
    let bytes = room.copy(&mut caller, data, size)?;
    let sent = ring(&caller, map)?.output(bytes);
    Ok(counted(&mut caller, &map.spec().name, sent)?)
}
