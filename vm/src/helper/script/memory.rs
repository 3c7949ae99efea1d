//! The `mem*` functions of `<string.h>`.

use super::Host;
use crate::host::{HostFn, Ptr};
use crate::mem::Access;
use crate::trap::Trap;

/// Bytes compared or searched at a time.
const CHUNK: u64 = 4096;

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
    caller.copy(to, from, n)?;
    Ok(to)
}

fn memset(mut caller: Host<'_>, to: Ptr, byte: i32, n: u64) -> Result<Ptr, Trap> {
    caller.fill(to, n, byte as u8)?;
    Ok(to)
}

fn memcmp(mut caller: Host<'_>, a: Ptr, b: Ptr, n: u64) -> Result<i32, Trap> {
    caller.check(a, n, Access::Read)?;
    caller.check(b, n, Access::Read)?;
    let mut off = 0;
    while off < n {
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
        let chunk = caller.bytes(from.offset(off), CHUNK.min(n - off))?;
        if let Some(at) = chunk.iter().position(|found| *found == byte as u8) {
            return Ok(Some(from.offset(off + at as u64)));
        }
        off += CHUNK;
    }
    Ok(None)
}
