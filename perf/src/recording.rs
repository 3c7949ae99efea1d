//! Formats of tracepoints in a recording: the feature `HEADER_TRACING_DATA` of a `perf.data` file, which holds what
//! `tools/perf/util/trace-event-read.c` reads. All of it is data that others may have written.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Start of a file, `PERF_MAGIC2`.
const MAGIC: &[u8; 8] = b"PERFILE2";
/// Bytes of the header, to the end of its bitmap of features.
const HEADER: usize = 104;
/// Number of the feature.
const TRACING_DATA: u32 = 1;
/// Most bytes of tracing data that are read; all events of a kernel have some 3 MiB.
const MOST: u64 = 256 << 20;
/// Start of the tracing data.
const TRACING_MAGIC: &[u8] = b"\x17\x08\x44tracing";

/// The texts of formats that a recording has; none where it has no tracepoints.
///
/// # Errors
/// It cannot be read, or is no recording.
pub(crate) fn formats(path: &Path) -> Result<Vec<String>, String> {
    let name = path.display();
    let file = File::open(path).map_err(|error| format!("cannot read {name}: {error}"))?;
    let mut header = [0; HEADER];
    let whole = file.read_exact_at(&mut header, 0).is_ok();
    if !whole || header[..8] != *MAGIC {
        return Err(format!("{name} is no recording of perf in the byte order of this machine"));
    }
    let word = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("8 bytes"));
    // Sections: attributes, data, event types; then the bitmap.
    let (data, features) = (word(40).checked_add(word(48)), word(72));
    if features & 1 << TRACING_DATA == 0 {
        return Ok(Vec::new());
    }
    let cut = || format!("{name} is cut off or damaged: its tracing data cannot be read");
    let before = u64::from((features & ((1 << TRACING_DATA) - 1)).count_ones());
    let mut section = [0; 16];
    let at = data.and_then(|data| data.checked_add(16 * before)).ok_or_else(cut)?;
    file.read_exact_at(&mut section, at).map_err(|_| cut())?;
    let [start, size] = [0, 8].map(|at| u64::from_le_bytes(section[at..at + 8].try_into().expect("8 bytes")));
    let length = file.metadata().map_err(|_| cut())?.len();
    if size > MOST || start.checked_add(size).is_none_or(|end| end > length) {
        return Err(cut());
    }
    let mut bytes = vec![0; size as usize];
    file.read_exact_at(&mut bytes, start).map_err(|_| cut())?;
    parse(&bytes).ok_or_else(cut)
}

/// What is left to be read.
struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn take(&mut self, count: u64) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(usize::try_from(count).ok()?)?;
        self.0 = rest;
        Some(taken)
    }

    /// A text that a zero byte ends.
    fn text(&mut self) -> Option<&'a [u8]> {
        let end = self.0.iter().position(|byte| *byte == 0)?;
        let text = self.take(end as u64)?;
        self.take(1)?;
        Some(text)
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    /// Bytes after their number.
    fn sized(&mut self) -> Option<&'a [u8]> {
        let size = u64::from_le_bytes(self.take(8)?.try_into().ok()?);
        self.take(size)
    }
}

fn parse(bytes: &[u8]) -> Option<Vec<String>> {
    let mut cursor = Cursor(bytes);
    (cursor.take(TRACING_MAGIC.len() as u64)? == TRACING_MAGIC).then_some(())?;
    cursor.text()?; // version
    (cursor.take(1)? == [0]).then_some(())?; // little-endian
    cursor.take(1 + 4)?; // sizes of long and of a page
    for name in [b"header_page".as_slice(), b"header_event"] {
        (cursor.text()? == name).then_some(())?;
        cursor.sized()?;
    }
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut formats = Vec::new();
    for _ in 0..cursor.u32()? {
        formats.push(text(cursor.sized()?));
    }
    for _ in 0..cursor.u32()? {
        cursor.text()?; // system
        for _ in 0..cursor.u32()? {
            formats.push(text(cursor.sized()?));
        }
    }
    Some(formats)
}

#[cfg(test)]
mod tests {
    use super::parse;

    fn sized(text: &str) -> Vec<u8> {
        [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat()
    }

    #[test]
    fn tracing_data_is_read_and_no_part_of_it_panics() {
        let mut bytes = b"\x17\x08\x44tracing0.6\0\0\x08\0\x10\0\0header_page\0".to_vec();
        bytes.extend(sized("page"));
        bytes.extend(b"header_event\0");
        bytes.extend([sized("event"), 1_u32.to_le_bytes().to_vec(), sized("ftrace format")].concat());
        bytes.extend([1_u32.to_le_bytes().to_vec(), b"sched\0".to_vec(), 2_u32.to_le_bytes().to_vec()].concat());
        bytes.extend([sized("first"), sized("second")].concat());
        assert_eq!(parse(&bytes).unwrap(), ["ftrace format", "first", "second"]);
        for end in 0..bytes.len() {
            assert!(parse(&bytes[..end]).is_none(), "{end}");
        }
        for at in 0..bytes.len() {
            bytes[at] ^= 0xff;
            let _ = parse(&bytes);
            bytes[at] ^= 0xff;
        }
    }
}
