//! The current task, CPU and attachment. [`Task`](crate::host::Task) overrides what the operating system says.

use super::Host;
use crate::helper::HelperResult;
use crate::host::{HostFn, Intrinsic, Ptr};
use crate::map::Errno;
use crate::os;

/// `TASK_COMM_LEN`, NUL included.
const COMM_LEN: usize = 16;

pub(super) fn functions() -> Vec<HostFn> {
    vec![
        HostFn::typed::<(), _>("bpf_get_current_pid_tgid", |mut caller: Host<'_>| {
            caller.runtime().task.pid_tgid.unwrap_or_else(os::pid_tgid)
        }),
        HostFn::typed::<(), _>("bpf_get_current_uid_gid", |mut caller: Host<'_>| {
            caller.runtime().task.uid_gid.unwrap_or_else(os::uid_gid)
        }),
        HostFn::typed::<(), _>("bpf_get_current_comm", comm),
        HostFn::typed::<(), _>("bpf_get_smp_processor_id", |mut caller: Host<'_>| caller.runtime().cpu())
            .with_intrinsic(Intrinsic::CpuNumber),
        HostFn::typed::<(), _>("bpf_get_numa_node_id", || 0u32),
        HostFn::typed::<(), _>("bpf_get_func_ip", |mut caller: Host<'_>, _context: Ptr| {
            caller.runtime().attachment.address
        }),
        HostFn::typed::<(), _>("bpf_get_attach_cookie", |mut caller: Host<'_>, _context: Ptr| {
            caller.runtime().attachment.cookie
        }),
        HostFn::typed::<(), _>("bpf_get_prandom_u32", |mut caller: Host<'_>| random(&mut caller.runtime().random)),
    ]
}

/// strscpy_pad: cut, terminated, and zeros after.
fn comm(mut caller: Host<'_>, buf: Ptr, size: u32) -> HelperResult {
    if size == 0 {
        return Err(Errno::EINVAL.into());
    }
    let name = caller.runtime().task.comm.clone().map_or_else(os::comm, String::into_bytes);
    let keep = name.len().min(COMM_LEN - 1).min(size as usize - 1);
    caller.fill(buf, u64::from(size), 0)?;
    caller.write(buf, &name[..keep])?;
    Ok(())
}

/// SplitMix64, upper half.
fn random(state: &mut u64) -> u32 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((mixed ^ mixed >> 31) >> 32) as u32
}
