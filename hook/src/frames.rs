//! Bounds of functions by what a file has for unwinders.

use std::ops::Range;

use gimli::{BaseAddresses, CieOrFde, EhFrame, EndianSlice, NativeEndian, UnwindSection};

/// A file's `.eh_frame`, which has the bounds of functions also where symbols were stripped.
#[derive(Default)]
pub(crate) struct Frames {
    pub(crate) address: u64,
    pub(crate) bytes: Vec<u8>,
}

impl Frames {
    /// Where functions begin and end, as addresses of the file, sorted. What is damaged has none.
    pub(crate) fn ranges(&self) -> Vec<Range<u64>> {
        let section: EhFrame<EndianSlice<'_, NativeEndian>> = EhFrame::new(&self.bytes, NativeEndian);
        let bases = BaseAddresses::default().set_eh_frame(self.address);
        let mut entries = section.entries(&bases);
        let mut ranges = Vec::new();
        while let Ok(Some(entry)) = entries.next() {
            let CieOrFde::Fde(entry) = entry else { continue };
            let Ok(frame) = entry.parse(EhFrame::cie_from_offset) else { continue };
            let start = frame.initial_address();
            ranges.extend(start.checked_add(frame.len()).map(|end| start..end));
        }
        ranges.sort_unstable_by_key(|range| range.start);
        ranges
    }
}
