//! Lines of `/proc/PID/maps` (proc_pid_maps(5)).

use std::ops::Range;

/// A mapping of a process.
pub(crate) struct Mapped {
    pub(crate) range: Range<u64>,
    /// Of its first byte in the file.
    pub(crate) offset: u64,
    pub(crate) is_code: bool,
    pub(crate) is_writable: bool,
    /// A file, a name such as `[stack]`, or nothing.
    pub(crate) path: String,
}

impl Mapped {
    pub(crate) fn parse(line: &str) -> Option<Mapped> {
        let mut words = line.splitn(6, ' ');
        let (start, end) = words.next()?.split_once('-')?;
        let hex = |text: &str| u64::from_str_radix(text, 16).ok();
        let allowed = words.next()?;
        let (is_code, is_writable) = (allowed.contains('x'), allowed.contains('w'));
        let offset = hex(words.next()?)?;
        let path = words.nth(2).unwrap_or("").trim_start().to_owned();
        Some(Mapped { range: hex(start)?..hex(end)?, offset, is_code, is_writable, path })
    }
}
