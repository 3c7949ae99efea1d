//! The system calls themselves: one thin function a command, typed arguments in, owned descriptors out.
//!
//! Nothing here decides anything. Layouts are in `attr`, and every unsafe block of the crate is in this folder, or
//! where shared memory is read (`ring`).

pub(crate) mod attr;
pub(crate) mod bpf;
pub(crate) mod memory;
pub(crate) mod mount;
pub(crate) mod net;
pub(crate) mod perf;
pub(crate) mod poll;

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// An errno of the kernel's own; `libc` has no name for it.
pub(crate) const ENOTSUPP: i32 = 524;

/// A descriptor as the fields of `union bpf_attr` hold it.
pub(crate) fn number(fd: BorrowedFd<'_>) -> u32 {
    fd.as_raw_fd() as u32
}

/// The same of one that may be absent, which is zero.
pub(crate) fn number_or_zero(fd: Option<BorrowedFd<'_>>) -> u32 {
    fd.map_or(0, number)
}

/// The address of a buffer, 0 for none: what the kernel wants where it is to leave a buffer alone.
pub(crate) fn address<T>(items: &[T]) -> u64 {
    if items.is_empty() { 0 } else { items.as_ptr() as u64 }
}

/// The same of a buffer that the kernel writes.
pub(crate) fn address_of<T>(items: &mut [T]) -> u64 {
    if items.is_empty() { 0 } else { items.as_mut_ptr() as u64 }
}

/// The bytes of a C string in a field of fixed size: up to its end, or all.
pub(crate) fn c_string(field: &[u8]) -> &[u8] {
    field.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// The same as text.
pub(crate) fn text(field: &[u8]) -> String {
    String::from_utf8_lossy(c_string(field)).into_owned()
}

/// What a call that answers with -1 for failure said.
fn answer(result: libc::c_long) -> io::Result<i32> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as i32) }
}
