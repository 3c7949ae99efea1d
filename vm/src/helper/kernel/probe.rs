//! Reads through pointers that may be bad, of the target's memory where the embedder gave one ([`TargetMemory`]). What
//! cannot be read is `EFAULT`, with the destination cleared, as for an unmapped address in the kernel.
//!
//! Without a target all of them read the program's own memory. With one, the helpers for user memory read that alone, in the
//! lower half of addresses; those for kernel memory read the program's own and the target's upper half. The two without
//! a word in their name read either.

use std::sync::Arc;

use super::Host;
use crate::helper::HelperResult;
use crate::host::{HostFn, Ptr, TargetMemory};
use crate::map::Errno;
use crate::mem::Access;

/// Whose memory a helper reads.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Space {
    User,
    Kernel,
    /// By the address, as helpers before Linux 5.5.
    Either,
}

/// Where the kernel's addresses begin.
const UPPER_HALF: u64 = 1 << 63;
/// Bytes that are read from a target at a time.
const PIECE: usize = 4096;

pub(super) fn functions() -> Vec<HostFn> {
    let bytes = [
        ("bpf_probe_read", Space::Either),
        ("bpf_probe_read_kernel", Space::Kernel),
        ("bpf_probe_read_user", Space::User),
        ("bpf_copy_from_user", Space::User),
    ];
    let strings = [
        ("bpf_probe_read_str", Space::Either),
        ("bpf_probe_read_kernel_str", Space::Kernel),
        ("bpf_probe_read_user_str", Space::User),
    ];
    let bytes = bytes.map(|(name, space)| {
        HostFn::typed::<(), _>(name, move |caller: Host<'_>, to: Ptr, size: u32, from: Ptr| {
            read(caller, to, size.into(), from, space)
        })
    });
    let strings = strings.map(|(name, space)| {
        HostFn::typed::<(), _>(name, move |caller: Host<'_>, to: Ptr, size: u32, from: Ptr| {
            read_str(caller, to, size.into(), from, space)
        })
    });
    bytes.into_iter().chain(strings).collect()
}

/// The target, if these bytes are read from it and not from the program's memory.
fn target(caller: &mut Host<'_>, from: Ptr, size: u64, space: Space) -> Option<Arc<dyn TargetMemory>> {
    let target = caller.runtime().target.clone()?;
    let view = caller.view();
    let is_own = || view.check(from.addr(), size.min(1), Access::Read).is_ok();
    let is_target = match space {
        Space::User => true,
        Space::Kernel => from.addr() >= UPPER_HALF,
        // Low addresses count as offsets in the arena elsewhere, and a trusted program has raw pointers.
        Space::Either => view.is_trusted() || from.addr() >> 32 == 0 || !is_own(),
    };
    is_target.then_some(target)
}

/// Whether the bytes are in the half of addresses that a helper reads.
fn is_in(space: Space, from: u64, size: u64) -> bool {
    let Some(end) = from.checked_add(size) else { return false };
    match space {
        Space::User => end <= UPPER_HALF,
        Space::Kernel => from >= UPPER_HALF,
        Space::Either => end <= UPPER_HALF || from >= UPPER_HALF,
    }
}

fn read(mut caller: Host<'_>, to: Ptr, size: u64, from: Ptr, space: Space) -> HelperResult {
    caller.check(to, size, Access::Write)?;
    let is_read = match target(&mut caller, from, size, space) {
        Some(target) => is_in(space, from.addr(), size) && copy(&mut caller, to, size, from, &*target)?,
        None => {
            let is_there = caller.view().check(from.addr(), size, Access::Read).is_ok();
            if is_there {
                caller.copy(to, from, size)?;
            }
            is_there
        }
    };
    if is_read { Ok(()) } else { failed(&mut caller, to, size) }
}

/// Clears the destination.
fn failed<R>(caller: &mut Host<'_>, to: Ptr, size: u64) -> HelperResult<R> {
    caller.fill(to, size, 0)?;
    Err(Errno::EFAULT.into())
}

/// Copies bytes of a target; false where not all can be read.
fn copy(caller: &mut Host<'_>, to: Ptr, size: u64, from: Ptr, target: &dyn TargetMemory) -> HelperResult<bool> {
    let mut piece = [0; PIECE];
    let mut done = 0;
    while done < size {
        let part = &mut piece[..(size - done).min(PIECE as u64) as usize];
        if target.read(from.addr() + done, part) < part.len() {
            return Ok(false);
        }
        caller.write(to.offset(done), &*part)?;
        done += part.len() as u64;
    }
    Ok(true)
}

/// Copies up to the NUL, cut so that one fits; gives the bytes written, NUL included.
fn read_str(mut caller: Host<'_>, to: Ptr, size: u64, from: Ptr, space: Space) -> HelperResult<i64> {
    caller.check(to, size, Access::Write)?;
    if size == 0 {
        return Ok(0);
    }
    let text = match target(&mut caller, from, size, space) {
        Some(target) => text(&*target, from.addr(), size, space),
        None => caller.view().c_str(from.addr(), size).ok().map(|text| text.to_vec()),
    };
    let Some(mut text) = text else { return failed(&mut caller, to, size) };
    text.truncate(size as usize - 1);
    text.push(0);
    caller.write(to, &text[..])?;
    Ok(text.len() as i64)
}

/// The bytes of a target's string before its NUL, or so many of them; `None` where it cannot be read.
fn text(target: &dyn TargetMemory, from: u64, size: u64, space: Space) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    let mut piece = [0; PIECE];
    while (text.len() as u64) < size {
        let at = from.checked_add(text.len() as u64).filter(|at| is_in(space, *at, 1))?;
        let part = &mut piece[..(size - text.len() as u64).min(PIECE as u64) as usize];
        let wanted = part.len();
        let found = target.read(at, part).min(wanted);
        let end = part[..found].iter().position(|byte| *byte == 0);
        text.extend_from_slice(&part[..end.unwrap_or(found)]);
        if end.is_some() {
            break;
        }
        if found < wanted {
            return None;
        }
    }
    Some(text)
}
