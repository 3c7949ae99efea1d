//! The `mem*` functions of `<string.h>`.

use super::Host;
use crate::host::{HostFn, Ptr};
use crate::mem::Access;
use crate::trap::Trap;

/// Bytes compared or searched at a time.
const CHUNK: u64 = 4096;
/// Bytes set or copied at a time. In between it shows whether the run is to end.
const LARGE: u64 = 1 << 18;

pub(super) fn functions() -> Vec<HostFn> {
    let mut all = vec![HostFn::typed::<(), _>("memcmp", memcmp), HostFn::typed::<(), _>("memchr", memchr)];
    all.extend(
        ["memcpy", "twinbpf_memcpy", "memmove", "twinbpf_memmove"].map(|name| HostFn::typed::<(), _>(name, memmove)),
    );
    all.extend(["memset", "twinbpf_memset"].map(|name| HostFn::typed::<(), _>(name, memset)));
    all
}

/// `memcpy` too: ranges that overlap are harmless here.
fn memmove(mut caller: Host<'_>, to: Ptr, from: Ptr, n: u64) -> Result<Ptr, Trap> {
    if n <= LARGE {
        caller.copy(to, from, n)?;
        return Ok(to);
    }
    caller.check(from, n, Access::Read)?;
    caller.check(to, n, Access::Write)?;
    // Bytes that overlap are read before they are written. Only the low halves of addresses say where they lead.
    let backwards = u64::from((to.addr() as u32).wrapping_sub(from.addr() as u32)) < n;
    for index in 0..n.div_ceil(LARGE) {
        caller.check_interrupt()?;
        let off = if backwards { n.div_ceil(LARGE) - 1 - index } else { index } * LARGE;
        caller.copy(to.offset(off), from.offset(off), LARGE.min(n - off))?;
    }
    Ok(to)
}

fn memset(mut caller: Host<'_>, to: Ptr, byte: i32, n: u64) -> Result<Ptr, Trap> {
    caller.check(to, n, Access::Write)?;
    for off in (0..n).step_by(LARGE as usize) {
        caller.check_interrupt()?;
        caller.fill(to.offset(off), LARGE.min(n - off), byte as u8)?;
    }
    Ok(to)
}

fn memcmp(mut caller: Host<'_>, a: Ptr, b: Ptr, n: u64) -> Result<i32, Trap> {
    caller.check(a, n, Access::Read)?;
    caller.check(b, n, Access::Read)?;
    let mut off = 0;
    while off < n {
        caller.check_interrupt()?;
        let len = CHUNK.min(n - off);
        let (left, right) = (caller.bytes(a.offset(off), len)?, caller.bytes(b.offset(off), len)?);
        if let Some((left, right)) = left.iter().zip(&right).find(|(left, right)| left != right) {
            return Ok(i32::from(*left) - i32::from(*right));
        }
        off += len;
    }
    Ok(0)
}

fn memchr(mut caller: Host<'_>, from: Ptr, byte: i32, n: u64) -> Result<Option<Ptr>, Trap> {
    caller.check(from, n, Access::Read)?;
    let mut off = 0;
    while off < n {
        caller.check_interrupt()?;
        let chunk = caller.bytes(from.offset(off), CHUNK.min(n - off))?;
        if let Some(at) = chunk.iter().position(|found| *found == byte as u8) {
            return Ok(Some(from.offset(off + at as u64)));
        }
        off += CHUNK;
    }
    Ok(None)
}
