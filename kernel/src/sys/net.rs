//! A netlink socket, and names of network interfaces.
#![expect(unsafe_code, reason = "system calls")]

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::answer;

/// A socket for `NETLINK_ROUTE` that says why it refuses (`NETLINK_EXT_ACK`), where the kernel can.
pub(crate) fn route_socket() -> io::Result<OwnedFd> {
    // SAFETY: takes numbers, gives a descriptor.
    let fd = answer(unsafe {
        libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::NETLINK_ROUTE).into()
    })?;
    // SAFETY: just opened for us.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    let on = 1_i32;
    // SAFETY: the option's value is the live `on`.
    let result = unsafe {
        let value = std::ptr::from_ref(&on).cast();
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_NETLINK, libc::NETLINK_EXT_ACK, value, 4)
    };
    if result != 0 {
        log::debug!("netlink without extended acknowledgements: {}", io::Error::last_os_error());
    }
    Ok(socket)
}

/// Sends a message.
pub(crate) fn send(socket: BorrowedFd<'_>, message: &[u8]) -> io::Result<()> {
    // SAFETY: `message` lives for the call.
    let sent = unsafe { libc::send(socket.as_raw_fd(), message.as_ptr().cast(), message.len(), 0) };
    answer(sent as libc::c_long).map(drop)
}

/// Receives a message into `buffer`; its length.
pub(crate) fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    // SAFETY: `buffer` is a live exclusive buffer of that size.
    let got = unsafe { libc::recv(socket.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), 0) };
    answer(got as libc::c_long).map(|got| got as usize)
}

/// The number of a network interface.
pub(crate) fn interface(name: &CStr) -> io::Result<u32> {
    // SAFETY: a C string.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(io::Error::last_os_error()),
        index => Ok(index),
    }
}
