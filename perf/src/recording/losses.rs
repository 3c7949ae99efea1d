//! What `perf record` could not write, by the records that say so.
#![expect(unsafe_code, reason = "the recording is mapped, as perf itself maps it")]

use std::fs::File;
use std::thread::JoinHandle;

use memmap2::{Mmap, MmapOptions};

use super::{Recording, word};

/// `PERF_RECORD_LOST`: the kernel had no room for so many records.
const LOST: u32 = 2;
/// `PERF_RECORD_LOST_SAMPLES`: the same, counted by event when the recording ended.
const LOST_SAMPLES: u32 = 13;
/// `PERF_RECORD_MISC_LOST_SAMPLES_BPF`: a filter dropped them.
const BY_FILTER: u16 = 1 << 15;
/// `PERF_RECORD_AUXTRACE`: as many bytes follow as its first word says.
const AUXTRACE: u32 = 71;
/// `PERF_RECORD_COMPRESSED`, `PERF_RECORD_COMPRESSED2`: other records, which are not read.
const COMPRESSED: [u32; 2] = [81, 83];
/// Bytes of `struct perf_event_header`.
const HEADER: usize = 8;
/// Bytes that are mapped at once, a multiple of every page size.
const WINDOW: u64 = 16 << 20;

/// What records say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lost {
    by_records: u64,
    by_events: u64,
    /// Some records are compressed, so that there may be more.
    pub(crate) unread: bool,
}

impl Lost {
    /// How many samples. A recent kernel says it twice.
    pub(crate) fn samples(self) -> u64 {
        self.by_records.max(self.by_events)
    }
}

/// The search for such records, while perf reads the recording.
#[derive(Debug)]
pub(crate) struct Losses(JoinHandle<Lost>);

impl Losses {
    /// Begins it.
    ///
    /// # Errors
    /// In words.
    pub(crate) fn of(recording: Recording) -> Result<Losses, String> {
        let search = move || {
            let Recording { file, data, length, .. } = recording;
            // A recorder that was killed has not written the size.
            let size = if data.size == 0 { length.saturating_sub(data.start) } else { data.size };
            let end = data.start.saturating_add(size).min(length);
            count(&mut Windows { file, length, map: None }, data.start, end)
        };
        let thread = std::thread::Builder::new().name("losses".to_owned()).spawn(search);
        thread.map(Losses).map_err(|error| format!("cannot start a thread: {error}"))
    }

    /// What it found.
    pub(crate) fn found(self) -> Lost {
        self.0.join().unwrap_or_default()
    }
}

/// Bytes of a recording.
trait Bytes {
    /// Some of them; `None` where it ends before.
    fn at(&mut self, at: u64, count: usize) -> Option<&[u8]>;
}

/// A file of which one part at a time is mapped.
struct Windows {
    file: File,
    length: u64,
    map: Option<(u64, Mmap)>,
}

impl Bytes for Windows {
    fn at(&mut self, at: u64, count: usize) -> Option<&[u8]> {
        let end = at.checked_add(count as u64).filter(|end| *end <= self.length)?;
        let has = |start: u64, map: &Mmap| start <= at && end <= start + map.len() as u64;
        if !self.map.as_ref().is_some_and(|(start, map)| has(*start, map)) {
            // The old one goes first.
            self.map = None;
            let start = at - at % WINDOW;
            // What begins close to its end is in it, too.
            let size = (self.length - start).min(2 * WINDOW);
            let mut options = MmapOptions::new();
            // SAFETY: only bytes are read, of which any value is valid; perf maps the same file.
            let map = unsafe { options.offset(start).len(usize::try_from(size).ok()?).map(&self.file) }.ok()?;
            self.map = Some((start, map));
        }
        let (start, map) = self.map.as_ref()?;
        let from = usize::try_from(at - start).ok()?;
        map.get(from..from + count)
    }
}

/// Counts to the end, or to what is no record, of which perf complains.
fn count(bytes: &mut impl Bytes, start: u64, end: u64) -> Lost {
    let (mut lost, mut at) = (Lost::default(), start);
    while at < end {
        let Some(length) = record(bytes, at, &mut lost) else { break };
        at = at.saturating_add(length);
    }
    lost
}

/// Reads a record. Bytes to the next one, or `None` where there is none.
fn record(bytes: &mut impl Bytes, at: u64, lost: &mut Lost) -> Option<u64> {
    let header = word(bytes.at(at, HEADER)?, 0);
    let (kind, misc, size) = (header as u32, (header >> 32) as u16, (header >> 48) as usize);
    let rest = size.checked_sub(HEADER)?;
    let mut start = [0; 16];
    if [LOST, LOST_SAMPLES, AUXTRACE].contains(&kind) {
        let read = rest.min(start.len());
        start[..read].copy_from_slice(bytes.at(at + HEADER as u64, read)?);
    }
    let [first, second] = [word(&start, 0), word(&start, 8)];
    let mut after = 0;
    match kind {
        LOST => lost.by_records = lost.by_records.saturating_add(second),
        LOST_SAMPLES if misc & BY_FILTER == 0 => lost.by_events = lost.by_events.saturating_add(first),
        AUXTRACE => after = first,
        _ => lost.unread |= COMPRESSED.contains(&kind),
    }
    Some((size as u64).saturating_add(after))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    impl Bytes for &[u8] {
        fn at(&mut self, at: u64, count: usize) -> Option<&[u8]> {
            self.get(usize::try_from(at).ok()?..)?.get(..count)
        }
    }

    fn record(kind: u32, misc: u16, body: &[u64]) -> Vec<u8> {
        let size = (HEADER + 8 * body.len()) as u16;
        let header = [&kind.to_le_bytes()[..], &misc.to_le_bytes(), &size.to_le_bytes()].concat();
        [header, body.iter().flat_map(|word| word.to_le_bytes()).collect()].concat()
    }

    fn count(mut bytes: &[u8]) -> Lost {
        let end = bytes.len() as u64;
        super::count(&mut bytes, 0, end)
    }

    #[test]
    fn files_are_read_window_by_window() {
        let mut file = tempfile::tempfile().unwrap();
        let filler = record(9, 0, &[0; 1021]);
        let mut bytes = vec![0; 24];
        // Records lie across the ends of windows.
        while bytes.len() < (2 * WINDOW + WINDOW / 2) as usize {
            bytes.extend(&filler);
            bytes.extend(record(LOST, 0, &[7, 1]));
        }
        file.write_all(&bytes).unwrap();
        let (length, wanted) = (bytes.len() as u64, count(&bytes[24..]));
        assert!(wanted.by_records > 5000);
        let mut windows = Windows { file, length, map: None };
        assert_eq!(super::count(&mut windows, 24, length), wanted);
        assert_eq!(super::count(&mut windows, 24, length), wanted);
        assert!(windows.at(length - 1, 1).is_some() && windows.at(length - 1, 2).is_none());
        assert!(windows.at(u64::MAX, 2).is_none());
    }

    #[test]
    fn losses_are_counted_once() {
        let mut bytes = record(9, 1, &[LOST.into(), 2, 3]);
        bytes.extend(record(LOST, 0, &[7, 5, 0]));
        bytes.extend([record(AUXTRACE, 0, &[16, 0, 0, 0, 0]), record(LOST, 0, &[7])].concat());
        bytes.extend([record(LOST, 0, &[7, 6]), record(LOST_SAMPLES, 0, &[10])].concat());
        bytes.extend(record(LOST_SAMPLES, BY_FILTER, &[100]));
        let lost = count(&bytes);
        assert_eq!(lost, Lost { by_records: 11, by_events: 10, unread: false });
        assert_eq!(lost.samples(), 11);
        bytes.extend(record(COMPRESSED[0], 0, &[1, 2, 3]));
        assert!(count(&bytes).unread);
    }

    #[test]
    fn no_bytes_panic_or_loop() {
        let bytes = [record(AUXTRACE, 0, &[u64::MAX, 0]), record(LOST, 0, &[7, u64::MAX]), vec![0; 40]].concat();
        for end in 0..bytes.len() {
            count(&bytes[..end]);
            count(&bytes[end..]);
        }
    }
}
