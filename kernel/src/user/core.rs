//! Core files: memory and registers of a process that has ended. The bytes are not trusted.
//!
//! Memory that is not in the core, such as code, is read from the files that the process had mapped, as gdb does.
//!
//! Source: `fs/binfmt_elf.c`; `NT_FILE` and `struct elf_prstatus` as of core(5) and `<sys/procfs.h>`.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::SystemTime;

use object::NativeEndian;
use object::elf::{self, ProgramHeader64};
use object::read::elf::{FileHeader, ProgramHeader};
use object::read::{ReadCache, ReadRef};
use twinbpf_vm::host::{TargetMemory, read_on};

use super::Mapping;
use super::elf::ENDIAN;
use crate::arch::CORE;

/// Most bytes of notes in a core: a thread has some 3,000.
const MOST_NOTES: u64 = 256 << 20;
/// Bytes up to which a file stands in for memory at once: whole pages are in the core or are not.
const PAGE: u64 = 4096;
/// In `struct elf_prstatus`: the thread, its registers, and what follows these.
const TID: usize = 32;
const REGISTERS: usize = 112;

/// A core file that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CoreError {
    /// It cannot be read.
    #[error("{0}")]
    Read(std::io::Error),
    /// It is something else.
    #[error("not a core file: no 64-bit ELF file of this machine's kind")]
    Kind,
    /// It is an executable or a library.
    #[error("not a core file, but an executable, a library or an object")]
    NoCore,
    /// A table of it lies outside the file, or is none.
    #[error("the core file is damaged: {0}")]
    Damaged(object::read::Error),
    /// Its notes have more bytes than any process needs.
    #[error("the core file is damaged: its notes have {0} bytes")]
    Notes(u64),
}

/// A thread that a core file has the registers of.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CoreThread {
    /// Its number, as `gettid()` returned it.
    pub tid: u32,
    /// Its registers as the context of a program at a probe: `struct pt_regs` on x86-64, `struct user_pt_regs` elsewhere.
    pub registers: Vec<u8>,
}

/// A part of memory.
#[derive(Clone, Copy, Debug)]
struct Segment {
    start: u64,
    /// Where in the core its first byte is.
    offset: u64,
    /// Bytes in the core, which memory may have more of.
    size: u64,
}

/// A file that stands in for memory; opened when it is needed.
#[derive(Debug)]
enum Mapped {
    Unopened,
    /// `None` where it cannot be read.
    Opened(Option<File>),
}

/// A core file.
#[derive(Debug)]
pub struct CoreFile {
    path: PathBuf,
    file: File,
    modified: Option<SystemTime>,
    segments: Vec<Segment>,
    threads: Vec<CoreThread>,
    mappings: Vec<Mapping>,
    /// For each mapping.
    mapped: Vec<Mutex<Mapped>>,
}

type Header = elf::FileHeader64<NativeEndian>;

impl CoreFile {
    /// Reads the headers and notes of a core file; memory is read when it is needed.
    ///
    /// # Errors
    /// It cannot be read, is no core file of this machine, or its headers are damaged.
    pub fn open(path: &Path) -> Result<CoreFile, CoreError> {
        let file = File::open(path).map_err(CoreError::Read)?;
        let metadata = file.metadata().map_err(CoreError::Read)?;
        if !metadata.is_file() {
            return Err(CoreError::Kind);
        }
        let cache = ReadCache::new(file);
        let mut core = parse(&cache)?;
        let truncated = core.0.iter().filter(|part| part.offset.saturating_add(part.size) > metadata.len()).count();
        if truncated > 0 {
            log::warn!("{}: the core is cut off: {truncated} parts of memory are not complete", path.display());
        }
        let mapped = core.2.iter().map(|_| Mutex::new(Mapped::Unopened)).collect();
        let (segments, threads, mappings) = (std::mem::take(&mut core.0), core.1, core.2);
        let (path, modified, file) = (path.to_owned(), metadata.modified().ok(), cache.into_inner());
        Ok(CoreFile { path, file, modified, segments, threads, mappings, mapped })
    }

    /// Its threads. The one that ended the process is the first.
    pub fn threads(&self) -> &[CoreThread] {
        &self.threads
    }

    /// Files that the process had mapped.
    pub fn mappings(&self) -> &[Mapping] {
        &self.mappings
    }

    fn in_core(&self, at: u64, bytes: &mut [u8]) -> usize {
        let inside =
            |part: &Segment| at.checked_sub(part.start).filter(|into| *into < part.size).map(|into| (*part, into));
        let Some((part, into)) = self.segments.iter().find_map(inside) else { return 0 };
        let count = bytes.len().min(usize::try_from(part.size - into).unwrap_or(usize::MAX));
        let Some(from) = part.offset.checked_add(into) else { return 0 };
        self.file.read_at(&mut bytes[..count], from).unwrap_or(0)
    }

    fn in_files(&self, at: u64, bytes: &mut [u8]) -> usize {
        let found = self.mappings.iter().position(|mapping| (mapping.start..mapping.end).contains(&at));
        let Some(index) = found else { return 0 };
        let mapping = &self.mappings[index];
        let Some(from) = mapping.file_offset(at) else { return 0 };
        let left = (mapping.end - at).min(PAGE - at % PAGE);
        let count = bytes.len().min(left as usize);
        let mut mapped = self.mapped[index].lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Mapped::Unopened = *mapped {
            *mapped = Mapped::Opened(self.open_mapped(&mapping.path));
        }
        match &*mapped {
            Mapped::Opened(Some(file)) => file.read_at(&mut bytes[..count], from).unwrap_or(0),
            Mapped::Opened(None) | Mapped::Unopened => 0,
        }
    }

    fn open_mapped(&self, path: &Path) -> Option<File> {
        // To open a pipe would wait.
        let metadata = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
        if self.modified.zip(metadata.modified().ok()).is_some_and(|(core, file)| file > core) {
            let (core, file) = (self.path.display(), path.display());
            log::warn!("{file} is newer than {core}: what is read of it may not be what the process had in memory");
        }
        File::open(path).ok()
    }
}

impl TargetMemory for CoreFile {
    fn read(&self, address: u64, bytes: &mut [u8]) -> usize {
        read_on(address, bytes, |at, rest| match self.in_core(at, rest) {
            0 => self.in_files(at, rest),
            count => count,
        })
    }
}

type Parts = (Vec<Segment>, Vec<CoreThread>, Vec<Mapping>);

fn parse<'data, R: ReadRef<'data>>(data: R) -> Result<Parts, CoreError> {
    let header = Header::parse(data).map_err(|_| CoreError::Kind)?;
    header.endian().map_err(|_| CoreError::Kind)?;
    if header.e_type(ENDIAN) != elf::ET_CORE {
        return Err(CoreError::NoCore);
    }
    let Some((_, words)) = CORE.filter(|(machine, _)| *machine == header.e_machine(ENDIAN)) else {
        return Err(CoreError::Kind);
    };
    let (mut segments, mut threads, mut mappings) = (Vec::new(), Vec::new(), Vec::new());
    for segment in header.program_headers(ENDIAN, data).map_err(CoreError::Damaged)? {
        match segment.p_type(ENDIAN) {
            elf::PT_LOAD => segments.push(Segment {
                start: segment.p_vaddr(ENDIAN),
                offset: segment.p_offset(ENDIAN),
                size: segment.p_filesz(ENDIAN).min(segment.p_memsz(ENDIAN)),
            }),
            elf::PT_NOTE => notes(segment, data, words, &mut threads, &mut mappings)?,
            _ => {}
        }
    }
    Ok((segments, threads, mappings))
}

fn notes<'data, R: ReadRef<'data>>(
    segment: &ProgramHeader64<NativeEndian>,
    data: R,
    words: usize,
    threads: &mut Vec<CoreThread>,
    mappings: &mut Vec<Mapping>,
) -> Result<(), CoreError> {
    let size = segment.p_filesz(ENDIAN);
    if size > MOST_NOTES {
        return Err(CoreError::Notes(size));
    }
    let Some(mut notes) = segment.notes(ENDIAN, data).map_err(CoreError::Damaged)? else { return Ok(()) };
    while let Some(note) = notes.next().map_err(CoreError::Damaged)? {
        match (note.name(), note.n_type(ENDIAN)) {
            (b"CORE", elf::NT_PRSTATUS) => threads.extend(thread(note.desc(), words)),
            (b"CORE", elf::NT_FILE) => mappings.extend(files(note.desc()).unwrap_or_default()),
            _ => {}
        }
    }
    Ok(())
}

/// `struct elf_prstatus`.
fn thread(status: &[u8], words: usize) -> Option<CoreThread> {
    let tid = u32::from_ne_bytes(status.get(TID..TID + 4)?.try_into().ok()?);
    let registers = status.get(REGISTERS..)?.get(..8 * words)?.to_vec();
    Some(CoreThread { tid, registers })
}

/// `NT_FILE`: how many, the unit of offsets, start, end and offset of each, then their names.
fn files(note: &[u8]) -> Option<Vec<Mapping>> {
    let (words, _) = note.as_chunks::<8>();
    let word = |at: usize| words.get(at).map(|word| u64::from_ne_bytes(*word));
    let (count, unit) = (usize::try_from(word(0)?).ok()?, word(1)?);
    let names = count.checked_mul(24)?.checked_add(16)?;
    let mut names = note.get(names..)?.split(|byte| *byte == 0);
    let mapping = |index: usize| {
        let [start, end, offset] = [0, 1, 2].map(|field| word(2 + 3 * index + field));
        let path = PathBuf::from(OsStr::from_bytes(names.next()?));
        Some(Mapping { start: start?, end: end?, offset: offset?.checked_mul(unit)?, path })
    };
    (0..count).map(mapping).collect()
}

#[cfg(test)]
#[path = "core_tests.rs"]
mod tests;
