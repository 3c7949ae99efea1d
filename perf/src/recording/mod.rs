//! A recording beside what perf says of it: a `perf.data` file, which others may have written. Numbers and layout are those of
//! `tools/perf/util/header.h` and `tools/lib/perf/include/perf/event.h`.

mod formats;
mod losses;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

pub(crate) use losses::Losses;

/// Start of a file, `PERF_MAGIC2`.
const MAGIC: &[u8; 8] = b"PERFILE2";
/// Bytes of the header, to the end of its bitmap of features.
const HEADER: usize = 104;
/// Number of the feature with the formats of tracepoints.
const TRACING_DATA: u32 = 1;
/// Most bytes of tracing data that are read; all events of a kernel have some 3 MiB.
const MOST: u64 = 256 << 20;
/// Most events whose attributes are read.
const MOST_EVENTS: u64 = 1 << 16;
/// Offset of `sample_type` in `struct perf_event_attr`.
pub(crate) const SAMPLE_TYPE: usize = 24;
/// `PERF_SAMPLE_STACK_USER`.
const STACK_USER: u64 = 1 << 13;

/// A part of the file.
#[derive(Clone, Copy, Debug)]
struct Section {
    start: u64,
    size: u64,
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Recording {
    path: PathBuf,
    file: File,
    /// Bytes of the file.
    length: u64,
    /// Bytes of an entry of `attrs`.
    attr_size: u64,
    attrs: Section,
    data: Section,
    features: u64,
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

impl Section {
    fn read(bytes: &[u8], at: usize) -> Section {
        Section { start: word(bytes, at), size: word(bytes, at + 8) }
    }
}

/// Whether a sample of these attributes has a stack, from which perf makes the call chain when it prints.
pub(crate) fn has_stack(sample_type: u64) -> bool {
    sample_type & STACK_USER != 0
}

impl Recording {
    /// Opens a file and reads its header.
    ///
    /// # Errors
    /// It cannot be read, or is no recording.
    pub(crate) fn open(path: &Path) -> Result<Recording, String> {
        let name = path.display();
        let cannot = |error| format!("cannot read {name}: {error}");
        let file = File::open(path).map_err(cannot)?;
        let length = file.metadata().map_err(cannot)?.len();
        let mut header = [0; HEADER];
        let whole = file.read_exact_at(&mut header, 0).is_ok();
        if !whole || header[..8] != *MAGIC {
            return Err(format!("{name} is no recording of perf in the byte order of this machine"));
        }
        Ok(Recording {
            path: path.to_owned(),
            file,
            length,
            attr_size: word(&header, 16),
            attrs: Section::read(&header, 24),
            data: Section::read(&header, 40),
            features: word(&header, 72),
        })
    }

    fn damaged(&self, part: &str) -> String {
        format!("{} is cut off or damaged: {part} cannot be read", self.path.display())
    }

    fn bytes(&self, section: Section, most: u64) -> Option<Vec<u8>> {
        if section.size > most || section.start.checked_add(section.size)? > self.length {
            return None;
        }
        let mut bytes = vec![0; section.size as usize];
        self.file.read_exact_at(&mut bytes, section.start).ok()?;
        Some(bytes)
    }

    /// The texts of the formats of its tracepoints; none where it has no tracepoints.
    ///
    /// # Errors
    /// They are cut off or damaged.
    pub(crate) fn formats(&self) -> Result<Vec<String>, String> {
        if self.features & 1 << TRACING_DATA == 0 {
            return Ok(Vec::new());
        }
        let before = u64::from((self.features & ((1 << TRACING_DATA) - 1)).count_ones());
        let read = || {
            let table = self.data.start.checked_add(self.data.size)?;
            let entry = Section { start: table.checked_add(16 * before)?, size: 16 };
            let section = Section::read(&self.bytes(entry, 16)?, 0);
            formats::parse(&self.bytes(section, MOST)?)
        };
        read().ok_or_else(|| self.damaged("its tracing data"))
    }

    /// Whether an event has stacks in place of call chains (`--call-graph dwarf`).
    ///
    /// # Errors
    /// The attributes of its events are cut off or damaged.
    pub(crate) fn has_stacks(&self) -> Result<bool, String> {
        let read = || {
            let size = usize::try_from(self.attr_size).ok().filter(|size| *size >= SAMPLE_TYPE + 8)?;
            let bytes = self.bytes(self.attrs, self.attr_size.saturating_mul(MOST_EVENTS))?;
            Some(bytes.chunks_exact(size).any(|attr| has_stack(word(attr, SAMPLE_TYPE))))
        };
        read().ok_or_else(|| self.damaged("the attributes of its events"))
    }
}
