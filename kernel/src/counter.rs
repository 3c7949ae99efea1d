//! Events that count on one CPU, for slots of perf event arrays: programs read them by `bpf_perf_event_read_value`.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::error::Error;
use crate::link::Clock;
use crate::sys::perf::{self, PerfAttr};

/// An event that is opened and counts once it is enabled. It ends with this value, but for the slots it is in.
#[derive(Debug)]
pub struct Counter {
    event: OwnedFd,
    /// Name of event and CPU, for messages.
    name: String,
}

impl Counter {
    /// Opens an event of a CPU, of every task there or of one; it does not count yet.
    ///
    /// # Errors
    /// The kernel's: there is no such event or CPU, or no right to it.
    pub fn open(clock: Clock, task: Option<u32>, cpu: u32) -> Result<Counter, Error> {
        let (kind, config) = clock.event();
        let mut attr = PerfAttr { kind, config, flags: perf::DISABLED, ..PerfAttr::default() };
        let name = format!("event {kind}:{config:#x} of CPU {cpu}");
        let task = task.map_or(-1, u32::cast_signed);
        let event = perf::open(&mut attr, task, cpu.cast_signed());
        let event = event.map_err(|cause| Error::new("perf_event_open", &name, cause))?;
        Ok(Counter { event, name })
    }

    /// Starts counting.
    ///
    /// # Errors
    /// The kernel's.
    pub fn enable(&self) -> Result<(), Error> {
        perf::enable(self.event.as_fd()).map_err(|cause| Error::new("PERF_EVENT_IOC_ENABLE", &self.name, cause))
    }
}

impl AsFd for Counter {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}
