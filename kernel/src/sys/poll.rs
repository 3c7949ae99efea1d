//! `epoll(7)`: waiting for ring buffers and perf events.
#![expect(unsafe_code, reason = "system calls")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use super::answer;

/// An epoll descriptor.
pub(crate) fn create() -> io::Result<OwnedFd> {
    // SAFETY: takes a flag, gives a descriptor.
    let fd = answer(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) }.into())?;
    // SAFETY: just opened for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Watches a descriptor for something to read; `token` comes back when there is.
pub(crate) fn add(epoll: BorrowedFd<'_>, fd: BorrowedFd<'_>, token: u64) -> io::Result<()> {
    let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: token };
    // SAFETY: both descriptors are open, `event` lives for the call.
    answer(unsafe { libc::epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, fd.as_raw_fd(), &mut event) }.into())
        .map(drop)
}

/// The tokens of what became readable; none after `timeout` (for ever without one) or a signal.
pub(crate) fn wait(epoll: BorrowedFd<'_>, timeout: Option<Duration>) -> io::Result<Vec<u64>> {
    let mut events = [libc::epoll_event { events: 0, u64: 0 }; 64];
    let timeout = timeout.map_or(-1, |timeout| i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX));
    // SAFETY: `events` is a live buffer of that many entries.
    let count = unsafe { libc::epoll_wait(epoll.as_raw_fd(), events.as_mut_ptr(), events.len() as i32, timeout) };
    match answer(count.into()) {
        Ok(count) => Ok(events[..count as usize].iter().map(|event| event.u64).collect()),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}
