//! What `perf record` could not write, by the records that say so.
#![expect(unsafe_code, reason = "the recording is mapped, as perf itself maps it")]

use std::fs::File;

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
/// Records that say something of losses, or of where the next one is.
const COUNTED: [u32; 3] = [LOST, LOST_SAMPLES, AUXTRACE];
/// Bytes that are mapped at once, a multiple of every page size.
const WINDOW: u64 = 1 << 20;
/// Bytes of a record at most.
const MOST: u64 = 1 << 16;

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

/// The search for such records, in steps while perf reads the same part of the recording.
#[derive(Debug)]
pub(crate) struct Losses<B = Windows> {
    bytes: B,
    at: u64,
    end: u64,
    lost: Lost,
}

impl Losses {
    /// Of a recording, from its first record on.
    pub(crate) fn of(recording: Recording) -> Losses {
        let Recording { file, data, length, .. } = recording;
        // A recorder that was killed has not written the size.
        let size = if data.size == 0 { length.saturating_sub(data.start) } else { data.size };
        let end = data.start.saturating_add(size).min(length);
        Losses { bytes: Windows { file, length, map: None }, at: data.start, end, lost: Lost::default() }
    }
}

impl<B: Bytes> Losses<B> {
    /// Reads on for [`WINDOW`]; false at the end, or at what is no record, of which perf complains.
    pub(crate) fn step(&mut self) -> bool {
        let length = match self.end.checked_sub(self.at) {
            None | Some(0) => 0,
            Some(rest) => records(self.bytes.from(self.at), rest, &mut self.lost),
        };
        self.at = if length == 0 { self.end } else { self.at.saturating_add(length) };
        length != 0
    }

    /// What it finds to the end.
    pub(crate) fn found(mut self) -> Lost {
        while self.step() {}
        self.lost
    }
}

/// Bytes of a recording.
pub(crate) trait Bytes {
    /// Some from there on: a record at least, unless the recording ends in it.
    fn from(&mut self, at: u64) -> &[u8];
}

/// A file of which one part at a time is mapped.
#[derive(Debug)]
pub(crate) struct Windows {
    file: File,
    length: u64,
    map: Option<Mmap>,
}

impl Bytes for Windows {
    fn from(&mut self, at: u64) -> &[u8] {
        let start = at - at % WINDOW;
        // What begins close to its end is in it, too.
        let size = self.length.saturating_sub(start).min(WINDOW + MOST) as usize;
        // The old one goes first.
        self.map = None;
        // SAFETY: only bytes are read, of which any value is valid; perf maps the same file.
        self.map = unsafe { MmapOptions::new().offset(start).len(size).map(&self.file) }.ok();
        self.map.as_ref().and_then(|map| map.get((at - start) as usize..)).unwrap_or_default()
    }
}

/// Reads the records of some bytes. Where the first is that is not in them.
fn records(bytes: &[u8], end: u64, lost: &mut Lost) -> u64 {
    let mut at = 0u64;
    while at < end
        && let Some(length) = bytes.get(at as usize..).and_then(|rest| record(rest, lost))
    {
        at = at.saturating_add(length);
    }
    at
}

/// Reads a record. Bytes to the next one, or `None` where there is none.
fn record(bytes: &[u8], lost: &mut Lost) -> Option<u64> {
    let header = word(bytes.get(..HEADER)?, 0);
    let (kind, misc, size) = (header as u32, (header >> 32) as u16, (header >> 48) as usize);
    let rest = size.checked_sub(HEADER)?;
    let mut after = 0;
    if COUNTED.contains(&kind) {
        let mut start = [0; 16];
        let read = rest.min(start.len());
        start[..read].copy_from_slice(bytes.get(HEADER..HEADER + read)?);
        let [first, second] = [word(&start, 0), word(&start, 8)];
        match kind {
            LOST => lost.by_records = lost.by_records.saturating_add(second),
            LOST_SAMPLES if misc & BY_FILTER == 0 => lost.by_events = lost.by_events.saturating_add(first),
            AUXTRACE => after = first,
            _ => {}
        }
    } else {
        lost.unread |= COMPRESSED.contains(&kind);
    }
    Some((size as u64).saturating_add(after))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    impl Bytes for &[u8] {
        fn from(&mut self, at: u64) -> &[u8] {
            self.get(at as usize..).unwrap_or_default()
        }
    }

    fn record(kind: u32, misc: u16, body: &[u64]) -> Vec<u8> {
        let size = (HEADER + 8 * body.len()) as u16;
        let header = [&kind.to_le_bytes()[..], &misc.to_le_bytes(), &size.to_le_bytes()].concat();
        [header, body.iter().flat_map(|word| word.to_le_bytes()).collect()].concat()
    }

    fn count(bytes: &[u8]) -> Lost {
        Losses { bytes, at: 0, end: bytes.len() as u64, lost: Lost::default() }.found()
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
        assert!(wanted.by_records > 300);
        let mut windows = Windows { file, length, map: None };
        assert_eq!(
            (windows.from(length - 1).len(), windows.from(length).len(), windows.from(u64::MAX).len()),
            (1, 0, 0)
        );
        let mut losses = Losses { bytes: windows, at: 24, end: length, lost: Lost::default() };
        assert!(losses.step() && losses.lost.by_records < wanted.by_records);
        assert_eq!(losses.found(), wanted);
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
