//! Errors of `bpf(2)` and related system calls.

use std::fmt;
use std::io;

/// A system call that failed, with the evidence there is.
///
/// `Display` is one line; the alternate form (`{:#}`) adds all that the verifier wrote.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub struct Error {
    /// Name of the command, as in `linux/bpf.h` without its prefix: `PROG_LOAD`; or of another system call.
    pub command: &'static str,
    /// What the command was about: the name of the program or map.
    pub subject: String,
    /// The kernel's error number; part of what is displayed.
    pub cause: io::Error,
    /// What else is known for sure: where a path leads, what a probe showed.
    pub detail: Option<String>,
    /// What the verifier wrote; empty when the command has no log or failed before the verifier began.
    pub log: String,
}

impl Error {
    pub(crate) fn new(command: &'static str, subject: &str, cause: io::Error) -> Self {
        Self { command, subject: subject.to_owned(), cause, detail: None, log: String::new() }
    }

    pub(crate) fn with_detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    /// A failure of our own, before any system call.
    pub(crate) fn ours(command: &'static str, subject: &str, errno: i32, detail: impl Into<String>) -> Self {
        Self::new(command, subject, io::Error::from_raw_os_error(errno)).with_detail(detail)
    }

    /// The kernel's error number, where there is one.
    pub fn errno(&self) -> Option<i32> {
        self.cause.raw_os_error()
    }

    /// The line of the log that says why: the last before the verifier's statistics.
    pub fn reason(&self) -> Option<&str> {
        crate::prog::log::reason(&self.log)
    }

    /// What a user can do about it, where there is evidence for it: the capabilities this process has, limits, what the
    /// verifier says. Never a guess.
    pub fn hint(&self) -> Option<String> {
        crate::hint::hint(self.command, &self.subject, self.errno()?, &self.log)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}: {}", self.command, self.subject, self.cause)?;
        if let Some(detail) = &self.detail {
            write!(f, ": {detail}")?;
        }
        if let Some(reason) = self.reason() {
            write!(f, ": {reason}")?;
        }
        if let Some(hint) = self.hint() {
            write!(f, " ({hint})")?;
        }
        if f.alternate() && !self.log.is_empty() {
            write!(f, "\n{}", self.log.trim_end())?;
        }
        Ok(())
    }
}
