//! Packets of XDP and TC programs, net/core/filter.c.

use super::Host;
use crate::helper::HelperResult;
use crate::host::{Fail, HostFn, Packet, PacketKind, Ptr};
use crate::map::Errno;
use crate::mem::Access;
use crate::trap::Trap;

/// `BPF_F_RECOMPUTE_CSUM | BPF_F_INVALIDATE_HASH`.
const STORE_FLAGS: u64 = 3;

pub(super) fn functions() -> Vec<HostFn> {
    vec![
        HostFn::typed::<(), _>("bpf_xdp_adjust_head", |mut caller: Host<'_>, context: Ptr, delta: i32| {
            HelperResult::Ok(xdp_to_move(&mut caller, context)?.adjust_head(delta)?)
        }),
        HostFn::typed::<(), _>("bpf_xdp_adjust_tail", |mut caller: Host<'_>, context: Ptr, delta: i32| {
            HelperResult::Ok(xdp_to_move(&mut caller, context)?.adjust_tail(delta)?)
        }),
        HostFn::typed::<(), _>("bpf_xdp_adjust_meta", |mut caller: Host<'_>, context: Ptr, delta: i32| {
            HelperResult::Ok(xdp_to_move(&mut caller, context)?.adjust_meta(delta)?)
        }),
        HostFn::typed::<(), _>("bpf_xdp_get_buff_len", |mut caller: Host<'_>, context: Ptr| {
            xdp(&mut caller, context).map(|packet| u64::from(packet.len()))
        }),
        HostFn::typed::<(), _>("bpf_xdp_load_bytes", xdp_load),
        HostFn::typed::<(), _>("bpf_xdp_store_bytes", xdp_store),
        HostFn::typed::<(), _>("bpf_skb_load_bytes", |caller: Host<'_>, context: Ptr, off: u32, to: Ptr, len: u32| {
            skb_load(caller, context, Some(off), to, len)
        }),
        HostFn::typed::<(), _>("bpf_skb_load_bytes_relative", skb_load_relative),
        HostFn::typed::<(), _>("bpf_skb_store_bytes", skb_store),
        HostFn::typed::<(), _>("bpf_skb_pull_data", |mut caller: Host<'_>, context: Ptr, len: u32| {
            // All bytes are linear: there is nothing to pull.
            let packet = skb(&mut caller, context)?;
            if len > packet.len() { Err(Fail::Errno(Errno::ENOMEM)) } else { Ok(()) }
        }),
    ]
}

/// The packet of the context that a helper got as argument.
fn packet<'c>(caller: &'c mut Host<'_>, context: Ptr, kind: PacketKind) -> Result<&'c mut Packet, Trap> {
    let found = caller.runtime().packet.as_ref().map(|packet| (packet.kind(), packet.context_addr()));
    match found {
        Some((has, addr)) if has == kind && addr as u32 == context.addr() as u32 => {
            Ok(caller.runtime().packet.as_mut().expect("just seen"))
        }
        Some((has, addr)) if addr as u32 == context.addr() as u32 => {
            Err(caller.bad_argument(context, format!("needs a {}, not a {}", kind.context(), has.context())))
        }
        Some(_) => Err(caller.bad_argument(context, format!("not the {} of this run", kind.context()))),
        None => Err(caller.bad_argument(context, format!("there is no packet; give one for a {}", kind.context()))),
    }
}

pub(super) fn xdp<'c>(caller: &'c mut Host<'_>, context: Ptr) -> Result<&'c mut Packet, Trap> {
    packet(caller, context, PacketKind::Xdp)
}

/// As [`xdp`], for one whose ends are about to move.
fn xdp_to_move<'c>(caller: &'c mut Host<'_>, context: Ptr) -> Result<&'c mut Packet, Trap> {
    caller.runtime().view.invalidate();
    xdp(caller, context)
}

/// As [`skb`], for one whose ends are about to move.
pub(super) fn skb_to_move<'c>(caller: &'c mut Host<'_>, context: Ptr) -> Result<&'c mut Packet, Trap> {
    caller.runtime().view.invalidate();
    skb(caller, context)
}

pub(super) fn skb<'c>(caller: &'c mut Host<'_>, context: Ptr) -> Result<&'c mut Packet, Trap> {
    packet(caller, context, PacketKind::Skb)
}

fn xdp_range(off: u32, len: u32) -> Result<(), Errno> {
    if off > 0xffff || len > 0xffff { Err(Errno::EFAULT) } else { Ok(()) }
}

fn xdp_load(mut caller: Host<'_>, context: Ptr, off: u32, to: Ptr, len: u32) -> HelperResult {
    let packet = xdp(&mut caller, context)?;
    xdp_range(off, len)?;
    let bytes = packet.load(off, len).ok_or(Errno::EINVAL)?;
    Ok(caller.write(to, &bytes[..])?)
}

fn xdp_store(mut caller: Host<'_>, context: Ptr, off: u32, from: Ptr, len: u32) -> HelperResult {
    let bytes = caller.bytes(from, u64::from(len))?;
    let packet = xdp(&mut caller, context)?;
    xdp_range(off, len)?;
    Ok(packet.store(off, &bytes).ok_or(Errno::EINVAL)?)
}

/// Clears the destination where the packet does not have the bytes.
fn skb_load(mut caller: Host<'_>, context: Ptr, off: Option<u32>, to: Ptr, len: u32) -> HelperResult {
    caller.check(to, u64::from(len), Access::Write)?;
    let packet = skb(&mut caller, context)?;
    let bytes = off.filter(|off| *off <= i32::MAX as u32).and_then(|off| packet.load(off, len));
    match bytes {
        Some(bytes) => Ok(caller.write(to, &bytes[..])?),
        None => {
            caller.fill(to, u64::from(len), 0)?;
            Err(Errno::EFAULT.into())
        }
    }
}

/// From the MAC header (0) or the network header (1).
fn skb_load_relative(caller: Host<'_>, context: Ptr, off: u32, to: Ptr, len: u32, start: u32) -> HelperResult {
    let from = match start {
        0 => Some(off),
        1 => off.checked_add(crate::host::ETH_HEADER),
        _ => None,
    };
    skb_load(caller, context, from.filter(|_| off <= 0xffff), to, len)
}

fn skb_store(mut caller: Host<'_>, context: Ptr, off: u32, from: Ptr, len: u32, flags: u64) -> HelperResult {
    if flags & !STORE_FLAGS != 0 {
        return Err(Errno::EINVAL.into());
    }
    let bytes = caller.bytes(from, u64::from(len))?;
    let packet = skb(&mut caller, context)?;
    if off > i32::MAX as u32 {
        return Err(Errno::EFAULT.into());
    }
    packet.store(off, &bytes).ok_or(Errno::EFAULT)?;
    if flags & 2 != 0 {
        packet.set_u32(crate::host::skb::HASH, 0);
    }
    Ok(())
}
