//! The consumer of a ring buffer: kernel/bpf/ringbuf.c.

use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;

use crate::error::Error;
use crate::map::{Map, MapKind};
use crate::sys::memory::{Mapping, page_size};

/// `BPF_RINGBUF_BUSY_BIT`: its program has not submitted it.
const BUSY: u32 = 1 << 31;
/// `BPF_RINGBUF_DISCARD_BIT`: its program took it back.
const DISCARDED: u32 = 1 << 30;
/// `BPF_RINGBUF_HDR_SZ`.
pub(super) const HEADER: usize = 8;

/// Who we are at a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Consumer,
    Producer,
}

/// The page with the consumer's position, and the producer's with all data after it. We write our own only.
pub(super) fn mapped(map: &Map, ours: Side) -> Result<[Mapping; 2], Error> {
    let (page, size) = (page_size(), map.info().max_entries as usize);
    let part = |from: usize, len: usize, side: Side| Mapping::part(map.as_fd(), 0, from as u64, len, side == ours);
    let consumer = part(0, page, Side::Consumer).map_err(|cause| map.failed("mmap", cause))?;
    let producer = part(page, page + 2 * size, Side::Producer).map_err(|cause| map.failed("mmap", cause))?;
    Ok([consumer, producer])
}

/// Reads records in the order in which they were reserved. There is to be one reader for a map.
#[derive(Debug)]
pub struct RingReader {
    fd: OwnedFd,
    /// A page that we write: our position.
    consumer: Mapping,
    /// A page with the kernel's position, then the data twice, so that no record is in two pieces.
    producer: Mapping,
    mask: u64,
    buffer: Vec<u8>,
}

impl RingReader {
    /// Of a map of kind `ringbuf`.
    ///
    /// # Errors
    /// The kernel does not let it be mapped.
    ///
    /// # Panics
    /// For maps of other kinds.
    pub fn new(map: &Map) -> Result<RingReader, Error> {
        assert_eq!(map.info().kind, MapKind::Ringbuf, "map {}", map.info().name);
        let [consumer, producer] = mapped(map, Side::Consumer)?;
        let fd = map.as_fd().try_clone_to_owned().map_err(|cause| map.failed("dup", cause))?;
        Ok(RingReader { fd, consumer, producer, mask: u64::from(map.info().max_entries) - 1, buffer: Vec::new() })
    }

    /// Bytes that are reserved, submitted or not, and not consumed.
    pub fn pending(&self) -> u64 {
        self.producer.load64(0).saturating_sub(self.consumer.load64(0))
    }

    /// Gives each record that was reserved before the call to `each`, until that breaks off or a record is not submitted yet.
    /// Returns the number of records. Later ones stay for the next call: a program may produce a record for each thing that
    /// `each` does, and the loop would not end.
    pub fn consume(&mut self, mut each: impl FnMut(&[u8]) -> ControlFlow<()>) -> usize {
        let data = page_size();
        let (mut position, mut count) = (self.consumer.load64(0), 0);
        let end = self.producer.load64(0);
        while position < end {
            let at = data + (position & self.mask) as usize;
            let header = self.producer.load32(at);
            if header & BUSY != 0 {
                break;
            }
            let len = ((header & !DISCARDED) as usize).min(self.mask as usize);
            let mut flow = ControlFlow::Continue(());
            if header & DISCARDED == 0 {
                self.buffer.resize(len, 0);
                self.producer.read(at + HEADER, &mut self.buffer);
                flow = each(&self.buffer);
                count += 1;
            }
            position += (len + HEADER).next_multiple_of(8) as u64;
            self.consumer.word64(0).store(position, Ordering::Release);
            if flow.is_break() {
                break;
            }
        }
        count
    }
}

impl AsFd for RingReader {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
