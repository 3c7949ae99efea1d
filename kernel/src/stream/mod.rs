//! What programs send out, read from memory that is shared with the kernel: ring buffers and perf event arrays; and the
//! opposite direction, user ring buffers.

mod perf;
mod ring;
mod user;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

pub use perf::{PerfReader, Sample};
pub use ring::RingReader;
pub use user::RingWriter;

use crate::error::Error;
use crate::sys::poll;

/// Waits for any of several sources.
#[derive(Debug)]
pub struct Waiter {
    epoll: OwnedFd,
}

impl Waiter {
    /// For no source yet.
    ///
    /// # Errors
    /// This process has too many descriptors.
    pub fn new() -> Result<Waiter, Error> {
        let epoll = poll::create().map_err(|cause| Error::new("epoll_create1", "a waiter", cause))?;
        Ok(Waiter { epoll })
    }

    /// One more source; `token` comes back when there is something to read. Perf readers have several descriptors.
    ///
    /// # Errors
    /// The descriptor cannot be waited for.
    pub fn add(&self, source: BorrowedFd<'_>, token: u64) -> Result<(), Error> {
        poll::add(self.epoll.as_fd(), source, token).map_err(|cause| Error::new("epoll_ctl", "a source", cause))
    }

    /// The tokens of what can be read; none after `timeout` (never without one), or a signal.
    ///
    /// # Errors
    /// The kernel's.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<Vec<u64>, Error> {
        poll::wait(self.epoll.as_fd(), timeout).map_err(|cause| Error::new("epoll_wait", "sources", cause))
    }
}

impl AsFd for Waiter {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}
