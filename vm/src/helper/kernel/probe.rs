//! Reads through pointers that may be bad. In the sandbox only the arena can be read: anything else is
//! `EFAULT`, with the destination cleared, as for an unmapped address in the kernel.

use super::Host;
use crate::helper::HelperResult;
use crate::host::{HostFn, Ptr};
use crate::map::Errno;
use crate::mem::Access;

pub(super) fn functions() -> Vec<HostFn> {
    let bytes = ["bpf_probe_read", "bpf_probe_read_kernel", "bpf_probe_read_user", "bpf_copy_from_user"];
    let strings = ["bpf_probe_read_str", "bpf_probe_read_kernel_str", "bpf_probe_read_user_str"];
    let bytes = bytes.map(|name| HostFn::typed::<(), _>(name, read));
    let strings = strings.map(|name| HostFn::typed::<(), _>(name, read_str));
    bytes.into_iter().chain(strings).collect()
}

fn read(mut caller: Host<'_>, to: Ptr, size: u32, from: Ptr) -> HelperResult {
    let size = u64::from(size);
    caller.check(to, size, Access::Write)?;
    if caller.view().check(from.addr(), size, Access::Read).is_err() {
        caller.fill(to, size, 0)?;
        return Err(Errno::EFAULT.into());
    }
    caller.copy(to, from, size)?;
    Ok(())
}

/// Copies up to the NUL, cut so that one fits; gives the bytes written, NUL included.
fn read_str(mut caller: Host<'_>, to: Ptr, size: u32, from: Ptr) -> HelperResult<i64> {
    let size = u64::from(size);
    caller.check(to, size, Access::Write)?;
    if size == 0 {
        return Ok(0);
    }
    let Ok(mut text) = caller.view().c_str(from.addr(), size) else {
        caller.fill(to, size, 0)?;
        return Err(Errno::EFAULT.into());
    };
    text.truncate(size as usize - 1);
    text.push(0);
    caller.write(to, &text[..])?;
    Ok(text.len() as i64)
}
