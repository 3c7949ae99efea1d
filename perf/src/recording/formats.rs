//! Formats of tracepoints in a recording: the feature `HEADER_TRACING_DATA`, which holds what
//! `tools/perf/util/trace-event-read.c` reads.

/// Start of the tracing data.
const TRACING_MAGIC: &[u8] = b"\x17\x08\x44tracing";

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

/// The texts of formats; `None` where the data is cut off or something else.
pub(super) fn parse(bytes: &[u8]) -> Option<Vec<String>> {
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
