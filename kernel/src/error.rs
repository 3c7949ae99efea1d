//! What a command answered when it failed.

use std::fmt;
use std::io;

/// A command of `bpf(2)` that failed, with the evidence the kernel gave.
///
/// `Display` is one line; the alternate form (`{:#}`) adds all that the verifier wrote.
#[derive(Debug, thiserror::Error)]
pub struct Error {
    /// Name of the command, as in `linux/bpf.h` without its prefix: `PROG_LOAD`.
    pub command: &'static str,
    /// What the command was about: the name of the program or map.
    pub subject: String,
    /// The kernel's error number.
    #[source]
    pub cause: io::Error,
    /// What the verifier wrote; empty when the command has no log or failed before the verifier began.
    pub log: String,
}

impl Error {
    pub(crate) fn new(command: &'static str, subject: &str, cause: io::Error) -> Self {
        Self { command, subject: subject.to_owned(), cause, log: String::new() }
    }

    /// The line of the log that says why: the last before the verifier's statistics.
    pub fn reason(&self) -> Option<&str> {
        let statistics = |line: &&str| line.starts_with("processed ") || line.starts_with("verification time ");
        self.log.lines().map(str::trim).rfind(|line| !line.is_empty() && !statistics(line))
    }

    /// What a user can do about it, where the error number alone says so.
    pub fn hint(&self) -> Option<&'static str> {
        match self.cause.raw_os_error()? {
            libc::EPERM if self.log.is_empty() => Some("run as root or with CAP_BPF and CAP_PERFMON"),
            libc::E2BIG if self.command == "PROG_LOAD" => {
                Some("the verifier gives up after a million instructions: make loops shorter or bound them by may_goto")
            }
            libc::ENOSYS => Some("this kernel was built without CONFIG_BPF_SYSCALL"),
            _ => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}: {}", self.command, self.subject, self.cause)?;
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
