//! The guard of a recording's events: a process that removes them where this one ends without doing so.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::File;
use std::io::{PipeWriter, Write, pipe};
use std::os::fd::{AsFd, AsRawFd, RawFd};

use twinbpf_kernel::probe_event::ProbeKind;

use crate::error::Error;
use crate::sys::{self, Guarded};

/// A guard that waits. Dropping this sends it away: the events must be gone by then.
#[derive(Debug)]
pub(super) struct Guard {
    pid: i32,
    alive: PipeWriter,
}

impl Guard {
    /// Forks the guard, before the events are made.
    ///
    /// # Errors
    /// This process may not make such events, or cannot fork.
    pub(super) fn new(removals: &[(ProbeKind, String)]) -> Result<Option<Guard>, Error> {
        if removals.is_empty() {
            return Ok(None);
        }
        let failed = |cause| Error::System { what: "guard the events of the recording", cause };
        let mut files: BTreeMap<&str, File> = BTreeMap::new();
        let mut lines: Vec<(RawFd, CString)> = Vec::new();
        for (kind, line) in removals {
            if !files.contains_key(kind.file()) {
                files.insert(kind.file(), kind.open().map_err(|cause| Error::Events { file: kind.file(), cause })?);
            }
            lines.push((files[kind.file()].as_raw_fd(), CString::new(line.as_str()).expect("names have no zero byte")));
        }
        let (wait, alive) = pipe().map_err(failed)?;
        let mut kept: Vec<RawFd> = files.values().map(AsRawFd::as_raw_fd).chain([wait.as_raw_fd()]).collect();
        kept.sort_unstable();
        let pid = sys::fork_guard(&Guarded { alive: wait.as_fd(), kept: &kept, lines: &lines }).map_err(failed)?;
        Ok(Some(Guard { pid, alive }))
    }

    /// Where this process ends, the kernel interrupts that one, and the guard waits until it has written what it has.
    pub(super) fn watch(&mut self, perf: u32) {
        self.tell(perf);
    }

    fn tell(&mut self, number: u32) {
        // The guard may have been killed.
        let _ = self.alive.write_all(&number.to_ne_bytes());
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.tell(0);
        if let Err(error) = sys::wait(self.pid) {
            log::debug!("the guard: {error}");
        }
    }
}
