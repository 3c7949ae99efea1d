//! Parts of files that a process has mapped: where the addresses of a file are in it.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use twinbpf_vm::host::TargetMemory;

/// Bytes at the beginning of a file that has headers, and most often its build ID.
const BEGIN: usize = 4096;

/// A part of a file in the memory of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Mapping {
    /// Address of the first byte.
    pub start: u64,
    /// Address after the last byte.
    pub end: u64,
    /// Where in the file the first byte is.
    pub offset: u64,
    /// The file, as the process had it.
    pub path: PathBuf,
}

impl Mapping {
    /// What a process has mapped, by `/proc/PID/maps`. A process that has ended has nothing.
    ///
    /// # Errors
    /// There is no such process, or the kernel does not let us look into it.
    pub fn of_process(pid: u32) -> io::Result<Vec<Mapping>> {
        let text = fs::read_to_string(format!("/proc/{pid}/maps"))?;
        Ok(text.lines().filter_map(Mapping::parse).collect())
    }

    /// One line of `/proc/PID/maps`, if it is of a file.
    fn parse(line: &str) -> Option<Mapping> {
        let mut words = line.splitn(6, ' ');
        let (start, end) = words.next()?.split_once('-')?;
        let offset = words.nth(1)?;
        let path = words.nth(2)?.trim_start();
        let number = |text| u64::from_str_radix(text, 16).ok();
        if !path.starts_with('/') {
            return None;
        }
        Some(Mapping { start: number(start)?, end: number(end)?, offset: number(offset)?, path: PathBuf::from(path) })
    }

    /// Where in its file the byte at an address is, if it is of this part.
    pub fn file_offset(&self, address: u64) -> Option<u64> {
        let inside = (self.start..self.end).contains(&address);
        if inside { (address - self.start).checked_add(self.offset) } else { None }
    }

    /// Whether it is a part of the file of a path, symbolic links aside.
    pub fn is_of(&self, path: &Path) -> bool {
        self.path == path
            || fs::canonicalize(&self.path).is_ok_and(|own| fs::canonicalize(path).is_ok_and(|path| own == path))
    }

    /// Whether it is the beginning of its file and memory has other bytes there: the file was made anew since.
    pub fn is_outdated(&self, memory: &dyn TargetMemory) -> bool {
        if self.offset != 0 {
            return false;
        }
        let (mut mapped, mut own) = ([0; BEGIN], Vec::new());
        let count = memory.read(self.start, &mut mapped).min(self.end.saturating_sub(self.start) as usize);
        let read = File::open(&self.path).and_then(|file| file.take(count as u64).read_to_end(&mut own));
        // After the end of a file, its last page has zeros.
        read.is_ok() && !mapped[..count].starts_with(&own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_files_are_mappings() {
        let line = "55e8c0a01000-55e8c0a02000 r-xp 00001000 fe:00 262149                     /usr/bin/a b";
        let mapping = Mapping::parse(line).unwrap();
        assert_eq!(mapping.path, Path::new("/usr/bin/a b"));
        assert_eq!(mapping.file_offset(0x55e8_c0a0_1234), Some(0x1234));
        assert_eq!(mapping.file_offset(0x55e8_c0a0_2000), None);
        assert_eq!(Mapping::parse("7ffd3a5f6000-7ffd3a617000 rw-p 00000000 00:00 0   [stack]"), None);
        assert_eq!(Mapping::parse("7ffd3a5f6000-7ffd3a617000 rw-p 00000000 00:00 0 "), None);
    }

    #[test]
    fn a_file_that_was_made_anew_begins_otherwise() {
        let path = std::env::temp_dir().join(format!("twinbpf-{}-anew", std::process::id()));
        fs::write(&path, b"a file").unwrap();
        let mapping = Mapping { start: 0x1000, end: 0x2000, offset: 0, path };
        let outdated = |bytes: &[u8]| {
            let mut memory = twinbpf_vm::host::Segments::new();
            mapping.is_outdated(memory.add(0x1000, bytes))
        };
        assert!(!outdated(b"a file\0\0\0") && !outdated(b"a f") && !outdated(b""));
        assert!(outdated(b"a fill") && outdated(b"b"));
        fs::remove_file(&mapping.path).unwrap();
        assert!(!outdated(b"b"), "there is no file to compare");
    }
}
