//! Errors of `bpf(2)` and related system calls.

use std::fmt;
use std::io;

/// A system call that failed, with the evidence there is.
///
/// `Display` is one line; the alternate form (`{:#}`) adds all that the verifier wrote.
#[derive(Debug, thiserror::Error)]
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

    /// What a user can do about it, where there is evidence for it: the capabilities this process has, the state of the
    /// kernel's lockdown. Never a guess.
    pub fn hint(&self) -> Option<String> {
        match self.errno()? {
            libc::EPERM if self.log.is_empty() => privilege::missing().or_else(privilege::lockdown),
            libc::EACCES if self.log.is_empty() && self.command != "PROG_LOAD" => privilege::missing(),
            libc::E2BIG if self.command == "PROG_LOAD" && !self.log.is_empty() => Some(
                "the verifier gives up after a million instructions: make loops shorter or bound them by may_goto"
                    .to_owned(),
            ),
            libc::ENOSYS if self.command != "perf_event_open" => {
                Some("this kernel was built without CONFIG_BPF_SYSCALL".to_owned())
            }
            _ => None,
        }
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

/// Evidence for refusals.
mod privilege {
    /// `CAP_NET_ADMIN`, `CAP_SYS_ADMIN`, `CAP_PERFMON`, `CAP_BPF`: number and name.
    const WANTED: [(u32, &str); 2] = [(39, "CAP_BPF"), (38, "CAP_PERFMON")];
    const SYS_ADMIN: u32 = 21;

    /// The capabilities for BPF that this process lacks.
    pub(super) fn missing() -> Option<String> {
        let status = std::fs::read_to_string("/proc/self/status").ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
        let held = u64::from_str_radix(line.trim(), 16).ok()?;
        let has = |number: u32| held >> number & 1 != 0;
        let lacking: Vec<&str> =
            WANTED.iter().filter(|(number, _)| !has(*number) && !has(SYS_ADMIN)).map(|(_, name)| *name).collect();
        (!lacking.is_empty()).then(|| format!("this process has no {}: run it as root", lacking.join(" and ")))
    }

    /// A kernel that is locked down refuses what could change it, also to root.
    pub(super) fn lockdown() -> Option<String> {
        let text = std::fs::read_to_string("/sys/kernel/security/lockdown").ok()?;
        let mode = text.split('[').nth(1)?.split(']').next()?.to_owned();
        (mode != "none").then(|| format!("this process may, the kernel's lockdown mode is {mode}"))
    }
}
