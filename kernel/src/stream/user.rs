//! The producer of a user ring buffer, which programs drain with `bpf_user_ringbuf_drain`.

use std::sync::atomic::Ordering;

use super::ring::{HEADER, Side, mapped};
use crate::error::Error;
use crate::map::{Map, MapKind};
use crate::sys::memory::{Mapping, page_size};

/// Writes records. There is to be one writer for a map.
#[derive(Debug)]
pub struct RingWriter {
    consumer: Mapping,
    producer: Mapping,
    size: usize,
}

impl RingWriter {
    /// Of a map of kind `user_ringbuf`.
    ///
    /// # Errors
    /// The kernel does not let it be mapped.
    ///
    /// # Panics
    /// For maps of other kinds.
    pub fn new(map: &Map) -> Result<RingWriter, Error> {
        assert_eq!(map.info().kind, MapKind::UserRingbuf, "map {}", map.info().name);
        let [consumer, producer] = mapped(map, Side::Producer)?;
        Ok(RingWriter { consumer, producer, size: map.info().max_entries as usize })
    }

    /// Bytes of the ring.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Positions of consumer and producer.
    pub fn positions(&self) -> [u64; 2] {
        [self.consumer.load64(0), self.producer.load64(0)]
    }

    /// Sends a record; `false` where there is no room until programs drain some.
    pub fn send(&mut self, bytes: &[u8]) -> bool {
        let whole = (bytes.len() + HEADER).next_multiple_of(8);
        let position = self.producer.load64(0);
        let used = position.saturating_sub(self.consumer.load64(0)) as usize;
        if whole > self.size.saturating_sub(used) {
            return false;
        }
        let at = page_size() + (position as usize & (self.size - 1));
        self.producer.write(at, &(bytes.len() as u64).to_ne_bytes());
        self.producer.write(at + HEADER, bytes);
        // The kernel does not see the record before the position moves.
        self.producer.word64(0).store(position + whole as u64, Ordering::Release);
        true
    }
}
