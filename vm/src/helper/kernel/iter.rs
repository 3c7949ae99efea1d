//! `bpf_iter_num_*`: what `bpf_for` and `bpf_repeat` of libbpf's bpf_helpers.h count with, as kernel/bpf/bpf_iter.c has it.
//!
//! The iterator is 8 bytes of the program's: the last number it gave, and the end.

use super::Host;
use super::map::MAX_LOOPS;
use crate::helper::HelperResult;
use crate::host::{HostFn, Intrinsic, Ptr};
use crate::map::Errno;
use crate::trap::Trap;

pub(super) fn functions() -> Vec<HostFn> {
    vec![
        HostFn::typed::<(), _>("bpf_iter_num_new", new).with_intrinsic(Intrinsic::IterNumNew),
        HostFn::typed::<(), _>("bpf_iter_num_next", next).with_intrinsic(Intrinsic::IterNumNext),
        HostFn::typed::<(), _>("bpf_iter_num_destroy", destroy).with_intrinsic(Intrinsic::IterNumDestroy),
    ]
}

/// One that gives nothing, where the range is refused.
fn new(mut caller: Host<'_>, iter: Ptr, start: i32, end: i32) -> HelperResult {
    put(&mut caller, iter, 0, 0)?;
    match i64::from(end) - i64::from(start) {
        ..0 => Err(Errno::EINVAL.into()),
        numbers if numbers > i64::from(MAX_LOOPS) => Err(Errno::E2BIG.into()),
        _ => Ok(put(&mut caller, iter, start.wrapping_sub(1), end)?),
    }
}

/// Where the next number is, or nowhere after the last.
fn next(mut caller: Host<'_>, iter: Ptr) -> Result<Option<Ptr>, Trap> {
    let [last, end] = caller.read::<[[u8; 4]; 2]>(iter)?.map(i32::from_le_bytes);
    let number = last.wrapping_add(1);
    if number >= end {
        put(&mut caller, iter, 0, 0)?;
        return Ok(None);
    }
    put(&mut caller, iter, number, end)?;
    Ok(Some(iter))
}

fn destroy(mut caller: Host<'_>, iter: Ptr) -> Result<(), Trap> {
    put(&mut caller, iter, 0, 0)
}

fn put(caller: &mut Host<'_>, iter: Ptr, last: i32, end: i32) -> Result<(), Trap> {
    caller.write(iter, &[last.to_le_bytes(), end.to_le_bytes()])
}
