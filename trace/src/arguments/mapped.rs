//! Files with code and debug information, of which most is never read.
#![expect(unsafe_code, reason = "a mapping of a file, as gdb and perf have it")]

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use memmap2::Mmap;
use twinbpf_probe::Bytes;

/// The bytes of a file: mapped, or read where it cannot be. A file that shrinks meanwhile ends the process with SIGBUS, as
/// it does with gdb and perf; linkers and package managers write new files instead.
pub(super) fn bytes(path: &Path) -> io::Result<Bytes> {
    let mut file = File::open(path)?;
    // SAFETY: only read, and nothing in this process writes the file.
    if let Ok(mapped) = unsafe { Mmap::map(&file) } {
        return Ok(Box::new(mapped));
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(Box::new(bytes))
}
