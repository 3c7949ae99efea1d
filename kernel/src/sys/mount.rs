//! A file system that is mounted nowhere: only the descriptor of this process leads to it.
#![expect(unsafe_code, reason = "system calls")]

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use super::answer;

/// `FSCONFIG_CMD_CREATE`.
const CREATE: libc::c_uint = 6;

/// The root directory of a new instance of a kind of file system (`fsopen`, `fsconfig`, `fsmount`; Linux 5.2).
pub(crate) fn detached(kind: &CStr) -> io::Result<OwnedFd> {
    // SAFETY: `kind` is a C string; the result is a new descriptor.
    let context = unsafe {
        let fd = answer(libc::syscall(libc::SYS_fsopen, kind.as_ptr(), 1))?;
        OwnedFd::from_raw_fd(fd)
    };
    let nothing = std::ptr::null::<u8>();
    // SAFETY: the command takes neither key nor value.
    answer(unsafe { libc::syscall(libc::SYS_fsconfig, context.as_raw_fd(), CREATE, nothing, nothing, 0) })?;
    // SAFETY: takes numbers; the result is a new descriptor.
    unsafe {
        let fd = answer(libc::syscall(libc::SYS_fsmount, context.as_raw_fd(), 1, 0))?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}
