//! The Internet checksum: `bpf_csum_diff` as of Linux 6.13, and the replacements in packets.
//!
//! Sums are of 16-bit words as they read in memory, so byte order does not matter (RFC 1071).

use super::Host;
use super::packet::skb;
use crate::helper::HelperResult;
use crate::host::{HostFn, Ptr};
use crate::map::Errno;
use crate::trap::Trap;

/// `BPF_F_HDR_FIELD_MASK`: size of the field that changed.
const SIZE: u64 = 0xf;
/// `BPF_F_PSEUDO_HDR`.
const PSEUDO_HEADER: u64 = 1 << 4;
/// `BPF_F_MARK_MANGLED_0`: a sum of 0 means "none", as in UDP.
const MARK_MANGLED: u64 = 1 << 5;
/// `BPF_F_MARK_ENFORCE`.
const ENFORCE: u64 = 1 << 6;
/// `BPF_F_IPV6`.
const IPV6: u64 = 1 << 7;

pub(super) fn functions() -> Vec<HostFn> {
    vec![
        HostFn::typed::<(), _>("bpf_csum_diff", diff),
        HostFn::typed::<(), _>("bpf_csum_update", |mut caller: Host<'_>, context: Ptr, _sum: u32| {
            // Only for packets whose sum the hardware delivered; there are none here.
            skb(&mut caller, context)?;
            HelperResult::<i64>::Err(Errno::ENOTSUPP.into())
        }),
        HostFn::typed::<(), _>("bpf_l3_csum_replace", l3_replace),
        HostFn::typed::<(), _>("bpf_l4_csum_replace", l4_replace),
    ]
}

fn add(a: u32, b: u32) -> u32 {
    let (sum, carry) = a.overflowing_add(b);
    sum + u32::from(carry)
}

/// Sum of the bytes on top of a seed.
fn partial(bytes: &[u8], seed: u32) -> u32 {
    let words = bytes.chunks(2).map(|pair| u64::from(u16::from_le_bytes([pair[0], pair.get(1).copied().unwrap_or(0)])));
    let sum: u64 = words.sum();
    add(add(sum as u32, (sum >> 32) as u32), seed)
}

/// To 16 bits, with the carries added.
fn fold(sum: u32) -> u16 {
    (sum.wrapping_add(sum.rotate_left(16)) >> 16) as u16
}

fn diff(mut caller: Host<'_>, from: Ptr, from_size: u32, to: Ptr, to_size: u32, seed: u32) -> Result<u64, Trap> {
    let from = caller.bytes(from, u64::from(from_size))?;
    let to = caller.bytes(to, u64::from(to_size))?;
    let sum = match (from.is_empty(), to.is_empty()) {
        (false, false) => add(partial(&to, seed), !partial(&from, 0)),
        (true, false) => partial(&to, seed),
        (false, true) => !partial(&from, !seed),
        (true, true) => seed,
    };
    Ok(u64::from(fold(sum)))
}

/// The new checksum when a field of `flags & SIZE` bytes changes; size 0 means that `to` is a difference.
fn replace(sum: u16, from: u64, to: u64, flags: u64) -> Result<u16, Errno> {
    let (from, to) = match flags & SIZE {
        0 if from != 0 => return Err(Errno::EINVAL),
        0 => return Ok(!fold(add(to as u32, u32::from(!sum)))),
        2 => (u32::from(from as u16), u32::from(to as u16)),
        4 => (from as u32, to as u32),
        _ => return Err(Errno::EINVAL),
    };
    Ok(!fold(add(add(u32::from(!sum), !from), to)))
}

/// Offset of a checksum in a packet.
fn offset(off: u32) -> Result<u32, Errno> {
    if off > 0xffff || off & 1 != 0 { Err(Errno::EFAULT) } else { Ok(off) }
}

fn l3_replace(mut caller: Host<'_>, context: Ptr, off: u32, from: u64, to: u64, flags: u64) -> HelperResult {
    let packet = skb(&mut caller, context)?;
    if flags & !SIZE != 0 {
        return Err(Errno::EINVAL.into());
    }
    let off = offset(off)?;
    let old = packet.load(off, 2).ok_or(Errno::EFAULT)?;
    let new = replace(u16::from_le_bytes([old[0], old[1]]), from, to, flags)?;
    Ok(packet.store(off, &new.to_le_bytes()).ok_or(Errno::EFAULT)?)
}

fn l4_replace(mut caller: Host<'_>, context: Ptr, off: u32, from: u64, to: u64, flags: u64) -> HelperResult {
    let packet = skb(&mut caller, context)?;
    if flags & !(SIZE | PSEUDO_HEADER | MARK_MANGLED | ENFORCE | IPV6) != 0 {
        return Err(Errno::EINVAL.into());
    }
    let off = offset(off)?;
    let old = packet.load(off, 2).ok_or(Errno::EFAULT)?;
    let old = u16::from_le_bytes([old[0], old[1]]);
    if flags & MARK_MANGLED != 0 && flags & ENFORCE == 0 && old == 0 {
        return Ok(());
    }
    let mut new = replace(old, from, to, flags)?;
    if flags & MARK_MANGLED != 0 && new == 0 {
        new = 0xffff;
    }
    Ok(packet.store(off, &new.to_le_bytes()).ok_or(Errno::EFAULT)?)
}
