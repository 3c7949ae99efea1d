//! Files with code and debug information, of which most is never read.
#![expect(unsafe_code, reason = "a mapping of a file, as gdb and perf have it")]

use std::fs;
use std::io::{self, Read};
use std::ops::Range;
use std::path::Path;

use memmap2::{Mmap, UncheckedAdvice};
use twinbpf_probe::{Bytes, File};

/// A file in memory.
struct Mapped(Mmap);

impl AsRef<[u8]> for Mapped {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl File for Mapped {
    fn searched(&self, part: Range<usize>) {
        // SAFETY: the mapping is shared and only read: what is read again comes from the file again.
        // Where the kernel refuses, the memory stays.
        let _ = unsafe { self.0.unchecked_advise_range(UncheckedAdvice::DontNeed, part.start, part.len()) };
    }
}

/// The bytes of a file: mapped, or read where it cannot be. A file that shrinks meanwhile ends the process with SIGBUS, as
/// it does with gdb and perf; linkers and package managers write new files instead.
pub(super) fn bytes(path: &Path) -> io::Result<Bytes> {
    let mut file = fs::File::open(path)?;
    // SAFETY: only read, and nothing in this process writes the file.
    if let Ok(mapped) = unsafe { Mmap::map(&file) } {
        return Ok(Box::new(Mapped(mapped)));
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(Box::new(bytes))
}
