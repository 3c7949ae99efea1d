//! Ring buffers, kernel/bpf/ringbuf.c.

use super::Host;
use crate::helper::HelperResult;
use crate::host::{HostFn, MapRef, Ptr};
use crate::map::{Errno, Ring};
use crate::trap::Trap;

/// `BPF_RB_NO_WAKEUP | BPF_RB_FORCE_WAKEUP`.
const WAKEUP_FLAGS: u64 = 3;

pub(super) fn functions() -> Vec<HostFn> {
    vec![
        HostFn::typed::<(), _>("bpf_ringbuf_reserve", reserve),
        HostFn::typed::<(), _>("bpf_ringbuf_submit", |caller: Host<'_>, sample: Ptr, _flags: u64| {
            commit(caller, sample, false)
        }),
        HostFn::typed::<(), _>("bpf_ringbuf_discard", |caller: Host<'_>, sample: Ptr, _flags: u64| {
            commit(caller, sample, true)
        }),
        HostFn::typed::<(), _>("bpf_ringbuf_output", output),
        HostFn::typed::<(), _>("bpf_ringbuf_query", |caller: Host<'_>, handle: Ptr, flags: u64| {
            with_ring(caller, handle, |ring| ring.query(flags))
        }),
    ]
}

fn with_ring<R>(mut caller: Host<'_>, handle: Ptr, work: impl FnOnce(&dyn Ring) -> R) -> Result<R, Trap> {
    let map = caller.map(handle)?;
    match map.ring() {
        Some(ring) => Ok(work(ring)),
        None => Err(not_a_ring(&caller, handle, &map)),
    }
}

fn not_a_ring(caller: &Host<'_>, handle: Ptr, map: &MapRef) -> Trap {
    let spec = map.spec();
    caller.bad_argument(handle, format!("map {} is of type {}, not a ring buffer", spec.name, spec.kind.name()))
}

fn reserve(mut caller: Host<'_>, handle: Ptr, size: u64, flags: u64) -> Result<u64, Trap> {
    let map = caller.map(handle)?;
    let Some(ring) = map.ring() else { return Err(not_a_ring(&caller, handle, &map)) };
    let sample = if flags == 0 { ring.reserve(size) } else { None };
    if let Some(sample) = sample {
        caller.runtime().held.samples.push((sample, map.map().clone()));
    }
    Ok(sample.unwrap_or(0))
}

fn commit(mut caller: Host<'_>, sample: Ptr, discard: bool) -> Result<(), Trap> {
    let open = &mut caller.runtime().held.samples;
    let index = open.iter().position(|(addr, _)| *addr as u32 == sample.addr() as u32);
    let Some(index) = index else {
        return Err(
            caller.bad_argument(sample, "not an open reservation; pass what bpf_ringbuf_reserve returned, once")
        );
    };
    let (addr, map) = open.swap_remove(index);
    let ring = map.ring().expect("reservations come from ring buffers");
    ring.commit(addr, discard).expect("the reservation was open");
    Ok(())
}

fn output(mut caller: Host<'_>, handle: Ptr, data: Ptr, size: u64, flags: u64) -> HelperResult {
    if flags & !WAKEUP_FLAGS != 0 {
        return Err(Errno::EINVAL.into());
    }
    let bytes = caller.bytes(data, size)?;
    with_ring(caller, handle, |ring| ring.output(&bytes))??;
    Ok(())
}
