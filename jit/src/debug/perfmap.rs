//! `/tmp/perf-PID.map`: `START SIZE NAME` in hexadecimal, a line per function.
//!
//! Nothing is ever taken back, so after an address was reused perf cannot determine which program a sample belongs to;
//! the jitdump can. Other compilers of the process may add to the same file.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use super::{PerfError, Symbol};

/// The map of this process.
#[derive(Debug)]
pub(super) struct PerfMap {
    process: u32,
    file: File,
}

impl PerfMap {
    pub(super) fn of_process() -> Result<Arc<PerfMap>, PerfError> {
        static MAP: Mutex<Option<Arc<PerfMap>>> = Mutex::new(None);
        let (mut map, process) = (MAP.lock().expect("no panic while held"), std::process::id());
        if let Some(map) = map.as_ref().filter(|map| map.process == process) {
            return Ok(Arc::clone(map));
        }
        let path = PathBuf::from(format!("/tmp/perf-{process}.map"));
        // Everybody may make a file of that name: a symbolic link would lead to a file of ours.
        let mut options = OpenOptions::new();
        let options = options.append(true).create(true).mode(0o644).custom_flags(libc::O_NOFOLLOW);
        let file = options.open(&path).map_err(|source| PerfError { path, source })?;
        Ok(Arc::clone(map.insert(Arc::new(PerfMap { process, file }))))
    }

    /// All in one write, so that lines of several threads do not mix.
    pub(super) fn add(&self, symbols: &[Symbol]) -> io::Result<()> {
        let mut text = String::new();
        for symbol in symbols {
            let (start, len) = (symbol.range.start, symbol.range.end - symbol.range.start);
            let name = symbol.name.replace(['\n', '\0'], "?");
            writeln!(text, "{start:x} {len:x} {name}").expect("a string takes any text");
        }
        (&self.file).write_all(text.as_bytes())
    }
}
