//! Helpers that change the shape or the metadata of a `struct __sk_buff`, net/core/filter.c.

use super::Host;
use super::packet::{skb, skb_to_move};
use crate::helper::HelperResult;
use crate::host::skb::{HASH, PKT_TYPE, PROTOCOL, VLAN_PRESENT, VLAN_PROTO, VLAN_TCI};
use crate::host::{ETH_HEADER, HostFn, MAX_SKB, Packet, Ptr};
use crate::map::Errno;
use crate::trap::Trap;

/// 802.1Q and 802.1ad, as they read in memory.
const VLANS: [u32; 2] = [0x0081, 0xa888];
/// IPv4 and IPv6, likewise.
const IPV4: u32 = 0x0008;
const IPV6: u32 = 0xdd86;
/// `BPF_F_ADJ_ROOM_MASK`.
const ROOM_FLAGS: u64 = 0xff << 56 | 0x1ff;

pub(super) fn functions() -> Vec<HostFn> {
    vec![
        HostFn::typed::<(), _>("bpf_skb_change_tail", change_tail),
        HostFn::typed::<(), _>("bpf_skb_change_head", change_head),
        HostFn::typed::<(), _>("bpf_skb_change_type", change_type),
        HostFn::typed::<(), _>("bpf_skb_adjust_room", adjust_room),
        HostFn::typed::<(), _>("bpf_skb_vlan_push", vlan_push),
        HostFn::typed::<(), _>("bpf_skb_vlan_pop", vlan_pop),
        HostFn::typed::<(), _>("bpf_get_hash_recalc", |mut caller: Host<'_>, context: Ptr| -> Result<u32, Trap> {
            Ok(hash(skb(&mut caller, context)?))
        }),
        HostFn::typed::<(), _>("bpf_set_hash", |mut caller: Host<'_>, context: Ptr, hash: u32| {
            skb(&mut caller, context).map(|packet| packet.set_u32(HASH, hash))
        }),
        HostFn::typed::<(), _>("bpf_set_hash_invalid", |mut caller: Host<'_>, context: Ptr| {
            skb(&mut caller, context).map(|packet| packet.set_u32(HASH, 0))
        }),
        // A packet has no socket, route or control group.
        HostFn::typed::<(), _>("bpf_get_socket_cookie", |_context: Ptr| 0u64),
        HostFn::typed::<(), _>("bpf_get_route_realm", |_context: Ptr| 0u32),
        HostFn::typed::<(), _>("bpf_get_cgroup_classid", |_context: Ptr| 0u32),
    ]
}

/// FNV-1a over the packet where there is no hash yet; only that equal packets have equal hashes is promised.
fn hash(packet: &Packet) -> u32 {
    let known = packet.get_u32(HASH);
    if known != 0 {
        return known;
    }
    let step = |hash: u32, byte: &u8| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
    let hash = packet.bytes().iter().fold(0x811c_9dc5, step).max(1);
    packet.set_u32(HASH, hash);
    hash
}

fn change_tail(mut caller: Host<'_>, context: Ptr, len: u32, flags: u64) -> HelperResult {
    let packet = skb_to_move(&mut caller, context)?;
    if flags != 0 || !(ETH_HEADER..=MAX_SKB).contains(&len) {
        return Err(Errno::EINVAL.into());
    }
    let old = packet.len();
    match len.checked_sub(old) {
        Some(more) => packet.splice(old, 0, &vec![0; more as usize])?,
        None => packet.splice(len, old - len, &[])?,
    }
    Ok(())
}

fn change_head(mut caller: Host<'_>, context: Ptr, room: u32, flags: u64) -> HelperResult {
    let packet = skb_to_move(&mut caller, context)?;
    if flags != 0 || room > MAX_SKB || packet.len() + room > MAX_SKB {
        return Err(Errno::EINVAL.into());
    }
    Ok(packet.splice(0, 0, &vec![0; room as usize])?)
}

/// `PACKET_HOST` to `PACKET_OTHERHOST`.
fn change_type(mut caller: Host<'_>, context: Ptr, kind: u32) -> HelperResult {
    let packet = skb_to_move(&mut caller, context)?;
    if kind > 3 || packet.get_u32(PKT_TYPE) > 3 {
        return Err(Errno::EINVAL.into());
    }
    packet.set_u32(PKT_TYPE, kind);
    Ok(())
}

/// Makes or takes room after the MAC header (mode 1) or the network header (mode 0).
fn adjust_room(mut caller: Host<'_>, context: Ptr, delta: i32, mode: u32, flags: u64) -> HelperResult {
    let packet = skb_to_move(&mut caller, context)?;
    let size = delta.unsigned_abs();
    if flags & !ROOM_FLAGS != 0 {
        return Err(Errno::EINVAL.into());
    }
    if size > 0xfff {
        return Err(Errno::EFAULT.into());
    }
    let header = match packet.get_u32(PROTOCOL) {
        IPV4 => 20,
        IPV6 => 40,
        _ => return Err(Errno::ENOTSUPP.into()),
    };
    let at = match mode {
        0 => ETH_HEADER + header,
        1 => ETH_HEADER,
        _ => return Err(Errno::ENOTSUPP.into()),
    };
    let network = packet.len().saturating_sub(ETH_HEADER);
    let fits = if delta < 0 { network >= size + header } else { packet.len() + size <= MAX_SKB };
    if !fits || at > packet.len() {
        return Err(Errno::ENOTSUPP.into());
    }
    if delta < 0 {
        packet.splice(at, size, &[])?;
    } else {
        packet.splice(at, 0, &vec![0; size as usize])?;
    }
    Ok(())
}

/// The tag goes beside the packet, as hardware delivers it; one that is there already goes into the packet.
fn vlan_push(mut caller: Host<'_>, context: Ptr, protocol: u16, tci: u16) -> HelperResult {
    let packet = skb_to_move(&mut caller, context)?;
    let protocol = Some(u32::from(protocol)).filter(|protocol| VLANS.contains(protocol)).unwrap_or(VLANS[0]);
    if packet.get_u32(VLAN_PRESENT) != 0 {
        if packet.len() < 12 {
            return Err(Errno::ENOMEM.into());
        }
        let (proto, tag) = (packet.get_u32(VLAN_PROTO) as u16, packet.get_u32(VLAN_TCI) as u16);
        packet.splice(12, 0, &[proto.to_le_bytes(), tag.to_be_bytes()].concat())?;
        packet.set_u32(PROTOCOL, u32::from(proto));
    }
    set_tag(packet, true, protocol, u32::from(tci));
    Ok(())
}

fn vlan_pop(mut caller: Host<'_>, context: Ptr) -> HelperResult {
    let packet = skb_to_move(&mut caller, context)?;
    if packet.get_u32(VLAN_PRESENT) != 0 {
        set_tag(packet, false, 0, 0);
    } else if take_tag(packet)?.is_none() {
        return Ok(());
    }
    // A second tag in the packet becomes the one beside it.
    if let Some((protocol, tci)) = take_tag(packet)? {
        set_tag(packet, true, protocol, tci);
    }
    Ok(())
}

fn set_tag(packet: &Packet, present: bool, protocol: u32, tci: u32) {
    packet.set_u32(VLAN_PRESENT, u32::from(present));
    packet.set_u32(VLAN_PROTO, protocol);
    packet.set_u32(VLAN_TCI, tci);
}

/// Removes a tag from the packet's bytes: protocol and TCI.
fn take_tag(packet: &mut Packet) -> Result<Option<(u32, u32)>, Errno> {
    let protocol = packet.get_u32(PROTOCOL);
    let Some(tag) = packet.load(12, 4).filter(|_| VLANS.contains(&protocol)) else { return Ok(None) };
    packet.splice(12, 4, &[])?;
    packet.set_u32(PROTOCOL, packet.ethertype());
    Ok(Some((protocol, u32::from(u16::from_be_bytes([tag[2], tag[3]])))))
}
