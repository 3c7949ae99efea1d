//! `strftime`: when something happened, of the nanoseconds since boot that the kernel's clocks give.

use super::Host;
use crate::helper::HelperResult;
use crate::host::{CStr, HostFn, Ptr};
use crate::os;

/// Bytes a formatted time may have.
const MAX_TIME: u64 = 4096;

pub(super) fn functions() -> Vec<HostFn> {
    // C's own takes the broken-down time, hence the other name.
    vec![HostFn::typed::<(), _>("twinbpf_strftime", strftime)]
}

/// Formats the local time of `ns` nanoseconds since boot (`bpf_ktime_get_boot_ns`, bpftrace's `nsecs`) with the C
/// library's conversions, and `%f` for microseconds. As C: the length without the NUL, or 0 if it does not fit.
fn strftime(mut caller: Host<'_>, buf: Ptr, size: u64, format: CStr, ns: u64) -> HelperResult<u64> {
    let since_epoch = os::boot_time_ns().saturating_add(ns);
    let (seconds, nanos) = (since_epoch / 1_000_000_000, since_epoch % 1_000_000_000);
    let format = with_micros(&format, nanos / 1000);
    let Some(text) = os::strftime(&format, seconds, size.min(MAX_TIME) as usize) else {
        if size > 0 {
            caller.write(buf, b"\0")?;
        }
        return Ok(0);
    };
    caller.write(buf, &[&text[..], b"\0"].concat()[..])?;
    Ok(text.len() as u64)
}

/// Replaces `%f`, which C does not know.
fn with_micros(format: &[u8], micros: u64) -> Vec<u8> {
    let mut out = Vec::new();
    let mut bytes = format.iter();
    while let Some(&byte) = bytes.next() {
        match (byte, bytes.as_slice().first()) {
            (b'%', Some(b'f')) => {
                bytes.next();
                out.extend(format!("{micros:06}").bytes());
            }
            (b'%', Some(&conversion)) => {
                bytes.next();
                out.extend([b'%', conversion]);
            }
            _ => out.push(byte),
        }
    }
    out
}
