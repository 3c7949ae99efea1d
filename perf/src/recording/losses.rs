//! What `perf record` could not write, by the records that say so.

use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::thread::JoinHandle;

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
/// Bytes that are read at once.
const BUFFER: usize = 1 << 18;

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
            let Recording { mut file, data, length, .. } = recording;
            // A recorder that was killed has not written the size.
            let size = if data.size == 0 { length.saturating_sub(data.start) } else { data.size };
            match file.seek(SeekFrom::Start(data.start)) {
                Ok(_) => count(BufReader::with_capacity(BUFFER, file), size),
                Err(_) => Lost::default(),
            }
        };
        let thread = std::thread::Builder::new().name("losses".to_owned()).spawn(search);
        thread.map(Losses).map_err(|error| format!("cannot start a thread: {error}"))
    }

    /// What it found.
    pub(crate) fn found(self) -> Lost {
        self.0.join().unwrap_or_default()
    }
}

/// Counts to the end, or to what is no record, of which perf complains.
fn count(mut file: BufReader<impl Read + Seek>, size: u64) -> Lost {
    let (mut lost, mut at) = (Lost::default(), 0_u64);
    while at < size {
        let Ok(Some(length)) = record(&mut file, &mut lost) else { break };
        at = at.saturating_add(length);
    }
    lost
}

/// Reads a record and goes to the next one. Bytes between the two, or `None` where there is none.
fn record(file: &mut BufReader<impl Read + Seek>, lost: &mut Lost) -> io::Result<Option<u64>> {
    let mut header = [0; HEADER];
    file.read_exact(&mut header)?;
    let [kind, kind_high, misc, size] = [0, 2, 4, 6].map(|at| u16::from_le_bytes([header[at], header[at + 1]]));
    let (kind, size) = (u32::from(kind) | u32::from(kind_high) << 16, usize::from(size));
    let Some(rest) = size.checked_sub(HEADER) else { return Ok(None) };
    let mut start = [0; 16];
    let read = if [LOST, LOST_SAMPLES, AUXTRACE].contains(&kind) { rest.min(start.len()) } else { 0 };
    file.read_exact(&mut start[..read])?;
    let [first, second] = [word(&start, 0), word(&start, 8)];
    let mut after = 0;
    match kind {
        LOST => lost.by_records = lost.by_records.saturating_add(second),
        LOST_SAMPLES if misc & BY_FILTER == 0 => lost.by_events = lost.by_events.saturating_add(first),
        AUXTRACE => after = first,
        _ => lost.unread |= COMPRESSED.contains(&kind),
    }
    let skipped = ((rest - read) as u64).saturating_add(after);
    file.seek_relative(i64::try_from(skipped).map_err(io::Error::other)?)?;
    Ok(Some((size as u64).saturating_add(after)))
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    fn record(kind: u32, misc: u16, body: &[u64]) -> Vec<u8> {
        let size = (HEADER + 8 * body.len()) as u16;
        let header = [&kind.to_le_bytes()[..], &misc.to_le_bytes(), &size.to_le_bytes()].concat();
        [header, body.iter().flat_map(|word| word.to_le_bytes()).collect()].concat()
    }

    fn count(bytes: &[u8]) -> Lost {
        super::count(BufReader::with_capacity(16, Cursor::new(bytes)), bytes.len() as u64)
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
