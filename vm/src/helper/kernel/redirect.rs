//! Redirect and event helpers: a redirect is recorded with the packet, an event with its map.

use super::Host;
use super::map::Map;
use super::packet::skb;
use crate::helper::{HelperResult, counted};
use crate::host::{BROADCAST, HostFn, MapCall, Packet, PacketKind, Ptr, Redirect, bad_argument};
use crate::map::{Errno, MapKind};
use crate::trap::Trap;

const XDP_ABORTED: i64 = 0;
const XDP_REDIRECT: i64 = 4;
const TC_ACT_SHOT: i64 = 2;
const TC_ACT_REDIRECT: i64 = 7;
/// `BPF_F_INGRESS`.
const INGRESS: u64 = 1;
/// `XDP_ABORTED | XDP_DROP | XDP_PASS | XDP_TX`: the action for a key that the map does not have.
const ACTIONS: u64 = 3;
/// `BPF_F_BROADCAST | BPF_F_EXCLUDE_INGRESS`.
const BROADCAST_FLAGS: u64 = BROADCAST | 16;
/// `BPF_F_INDEX_MASK`; all ones is the current CPU.
const INDEX: u64 = 0xffff_ffff;
/// `BPF_F_CTXLEN_MASK`: bytes of the packet to append.
const CONTEXT_LEN: u64 = 0xfffff << 32;

pub(super) fn functions() -> Vec<HostFn> {
    vec![
        HostFn::typed::<(), _>("bpf_redirect", redirect),
        HostFn::typed::<(), _>("bpf_redirect_peer", |caller: Host<'_>, ifindex: u32, flags: u64| {
            to_interface(caller, ifindex, flags, flags == 0)
        }),
        HostFn::typed::<(), _>(
            "bpf_redirect_neigh",
            |caller: Host<'_>, ifindex: u32, _params: Ptr, size: u32, flags: u64| {
                to_interface(caller, ifindex, flags, flags == 0 && (size == 0 || size >= 20))
            },
        ),
        HostFn::of_map("bpf_redirect_map", redirect_map).with_direct(|call: &mut MapCall<'_>, [key, flags, _]| {
            let map = call.map();
            to_map(map, call.packet()?, key, flags).map(|action| action as u64)
        }),
        HostFn::typed::<(), _>("bpf_clone_redirect", clone_redirect),
        HostFn::typed::<(), _>("bpf_perf_event_output", event_output),
    ]
}

fn kind(caller: &mut Host<'_>) -> Result<PacketKind, Trap> {
    let kind = caller.runtime().packet.as_ref().map(|packet| packet.kind());
    let name = caller.function();
    kind.ok_or_else(|| Trap::new(crate::trap::TrapCode::Host, format!("{name} without a packet; give one to the run")))
}

fn choose(caller: &mut Host<'_>, redirect: Redirect) {
    if let Some(packet) = &mut caller.runtime().packet {
        packet.redirect(redirect);
    }
}

fn redirect(mut caller: Host<'_>, ifindex: u32, flags: u64) -> Result<i64, Trap> {
    match kind(&mut caller)? {
        PacketKind::Skb => to_interface(caller, ifindex, flags, flags & !INGRESS == 0),
        PacketKind::Xdp if flags != 0 => Ok(XDP_ABORTED),
        PacketKind::Xdp => {
            choose(&mut caller, Redirect::Interface { ifindex, flags });
            Ok(XDP_REDIRECT)
        }
    }
}

fn to_interface(mut caller: Host<'_>, ifindex: u32, flags: u64, valid: bool) -> Result<i64, Trap> {
    kind(&mut caller)?;
    if !valid {
        return Ok(TC_ACT_SHOT);
    }
    choose(&mut caller, Redirect::Interface { ifindex, flags });
    Ok(TC_ACT_REDIRECT)
}

fn redirect_map(mut caller: Host<'_>, map: &Map, key: u64, flags: u64) -> Result<i64, Trap> {
    kind(&mut caller)?;
    let packet = caller.runtime().packet.as_mut();
    let action = packet.and_then(|packet| to_map(map, packet, key, flags));
    action.ok_or_else(|| {
        let spec = map.spec();
        let why = format!("map {} is of type {}; it needs a devmap, cpumap or xskmap", spec.name, spec.kind.name());
        // Maps are first arguments.
        bad_argument(caller.function(), 1, why)
    })
}

/// Chooses an entry of a map for the packet: the action for the program, or `None` if maps of this type are no targets.
fn to_map(map: &Map, packet: &mut Packet, key: u64, flags: u64) -> Option<i64> {
    let extra = match map.spec().kind {
        MapKind::Devmap | MapKind::DevmapHash => BROADCAST_FLAGS,
        MapKind::Cpumap | MapKind::Xskmap => 0,
        _ => return None,
    };
    if flags & !(ACTIONS | extra) != 0 {
        return Some(XDP_ABORTED);
    }
    let key = key as u32;
    if flags & BROADCAST == 0 && map.lookup(&key.to_le_bytes(), 0).is_none() {
        // __bpf_xdp_redirect_map of include/linux/filter.h: the last of several calls takes precedence.
        packet.forget_map();
        return Some((flags & ACTIONS) as i64);
    }
    packet.redirect_to_map(map, key, flags);
    Some(XDP_REDIRECT)
}

fn clone_redirect(mut caller: Host<'_>, context: Ptr, ifindex: u32, flags: u64) -> HelperResult {
    let packet = skb(&mut caller, context)?;
    if flags & !INGRESS != 0 {
        return Err(Errno::EINVAL.into());
    }
    Ok(packet.clone_to(ifindex, flags)?)
}

/// Data, and after it the start of the packet if the flags say so.
fn event_output(mut caller: Host<'_>, _context: Ptr, handle: Ptr, flags: u64, data: Ptr, size: u64) -> HelperResult {
    let map = caller.map(handle)?;
    if map.spec().kind != MapKind::PerfEventArray {
        let why = format!("map {} is of type {}, not a perf_event_array", map.spec().name, map.spec().kind.name());
        return Err(caller.bad_argument(handle, why).into());
    }
    let append = ((flags & CONTEXT_LEN) >> 32) as u32;
    let known = if caller.runtime().packet.is_some() { INDEX | CONTEXT_LEN } else { INDEX };
    if flags & !known != 0 {
        return Err(Errno::EINVAL.into());
    }
    let mut bytes = caller.bytes(data, size)?;
    if let Some(packet) = caller.runtime().packet.as_ref().filter(|_| append > 0) {
        bytes.extend(packet.load(0, append).ok_or(Errno::EFAULT)?);
    }
    let slot = match flags & INDEX {
        INDEX => caller.runtime().cpu(),
        index => index as u32,
    };
    let sent = map.send(slot, &bytes);
    Ok(counted(&mut caller, &map.spec().name, sent)?)
}
