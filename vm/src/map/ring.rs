//! Ring buffers: kernel/bpf/ringbuf.c. A user ring buffer is the same with the host as producer.
//!
//! Space is counted as the kernel counts it: 8 bytes of header before each sample, multiples of 8, positions that
//! only grow. Headers and positions are words of hidden memory, where no program can break them: producers add records under a
//! lock, commit by one change of a header, and never wait for a consumer. The kernel maps its pages twice, so that a sample that
//! wraps around is contiguous; here the block has twice the size, and a sample that starts before the end of the ring continues
//! after it.
//!
//! The open samples are the only elements of the region: an access past a sample, between samples or to one
//! that was submitted faults. (A submitted sample that a program still points to faults after its next call.)

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use super::lock::lock;
use super::{Errno, MapOps, MapSpec, Ring, Sent};
use crate::mem::{Arena, Block, Elements, MemError, Record as Cells, RegionKind, RegionSpec};

/// `BPF_RINGBUF_HDR_SZ`.
const HEADER: u64 = 8;
/// `RINGBUF_MAX_RECORD_SZ`.
const RECORD_MAX: u64 = (u32::MAX / 4) as u64;

/// Offsets in the hidden memory: what producers write, what consumers write, and a word for each 8 bytes of the ring.
const PRODUCER: usize = 0;
const CONSUMER: usize = 64;
const HEADERS: usize = 128;
/// After a position, its lock.
const LOCK: usize = 8;

/// See the module documentation.
#[derive(Debug)]
pub(super) struct RingBuffer {
    spec: MapSpec,
    block: Block,
    records: Arc<Records>,
}

/// What lies in the ring, shared with the arena's region table.
#[derive(Debug)]
struct Records {
    size: u64,
    words: Block,
    /// Whether a view of this process may remember an open sample. Native code remembers none.
    seen: AtomicBool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
enum Status {
    Submitted = 0,
    Discarded = 1,
    Busy = 2,
}

/// A record's header: status, and bytes of the sample. Its word is that plus 1, with 0 where no record begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Record {
    status: Status,
    size: u32,
}

impl Record {
    fn word(self) -> u32 {
        ((self.status as u32) << 30 | self.size) + 1
    }

    fn of(word: u32) -> Option<Record> {
        let header = word.checked_sub(1)?;
        let status = match header >> 30 {
            0 => Status::Submitted,
            1 => Status::Discarded,
            _ => Status::Busy,
        };
        Some(Record { status, size: header & ((1 << 30) - 1) })
    }

    /// Bytes in the ring.
    fn len(self) -> u64 {
        (HEADER + u64::from(self.size)).next_multiple_of(8)
    }
}

impl Records {
    /// Positions and locks.
    #[inline(always)]
    fn positions(&self) -> Cells<'_, HEADERS> {
        self.words.record(0)
    }

    /// Where the next record begins.
    fn producer(&self) -> &AtomicU64 {
        self.positions().atomic::<_, PRODUCER>()
    }

    /// Where the oldest record begins that no consumer has taken.
    fn consumer(&self) -> &AtomicU64 {
        self.positions().atomic::<_, CONSUMER>()
    }

    /// The header at an offset in the ring.
    fn header(&self, off: u32) -> &AtomicU32 {
        self.words.atomic(HEADERS as u32 + off / 2)
    }

    fn off(&self, pos: u64) -> u32 {
        // The size is a power of two.
        (pos & (self.size - 1)) as u32
    }

    /// Adds a record, and gives the offset of its header.
    fn add(&self, size: u64) -> Option<u32> {
        if size > RECORD_MAX {
            return None;
        }
        let record = Record { status: Status::Busy, size: size as u32 };
        let _locked = lock(self.positions().atomic::<_, { PRODUCER + LOCK }>());
        let pos = self.producer().load(Ordering::Relaxed);
        let end = pos + record.len();
        if end - self.consumer().load(Ordering::Acquire) > self.size - 1 {
            return None;
        }
        let off = self.off(pos);
        self.header(off).store(record.word(), Ordering::Relaxed);
        // Shows the header.
        self.producer().store(end, Ordering::Release);
        Some(off)
    }

    /// Ends a record that is open. Only the thread that does so writes its header meanwhile.
    fn commit(&self, off: u32, status: Status) -> Result<(), Errno> {
        let header = self.header(off);
        let record = Record::of(header.load(Ordering::Relaxed)).filter(|record| record.status == Status::Busy);
        let ended = Record { status, ..record.ok_or(Errno::EINVAL)? };
        header.store(ended.word(), Ordering::Release);
        Ok(())
    }

    /// Takes records up to the first that is open; `take` gets the offset of each sample.
    fn take(&self, mut take: impl FnMut(u32, Record)) {
        let _locked = lock(self.positions().atomic::<_, { CONSUMER + LOCK }>());
        let mut pos = self.consumer().load(Ordering::Relaxed);
        while pos != self.producer().load(Ordering::Acquire) {
            let off = self.off(pos);
            let header = self.header(off);
            let record = Record::of(header.load(Ordering::Acquire)).expect("a record at each position");
            if record.status == Status::Busy {
                return;
            }
            take(off + HEADER as u32, record);
            header.store(0, Ordering::Relaxed);
            pos += record.len();
            self.consumer().store(pos, Ordering::Release);
        }
    }

    /// Records that no consumer has taken.
    fn count(&self) -> u32 {
        let _locked = lock(self.positions().atomic::<_, { CONSUMER + LOCK }>());
        let (mut pos, end) = (self.consumer().load(Ordering::Relaxed), self.producer().load(Ordering::Acquire));
        let mut count = 0;
        while pos != end {
            let header = self.header(self.off(pos)).load(Ordering::Acquire);
            pos += Record::of(header).expect("a record at each position").len();
            count += 1;
        }
        count
    }
}

impl Elements for Records {
    fn element(&self, off: u32) -> Option<(u32, u32)> {
        self.seen.store(true, Ordering::Release);
        let last = off.checked_sub(HEADER as u32)?.min(self.size as u32 - HEADER as u32) & !7;
        let begins = |off: &u32| self.header(*off).load(Ordering::Acquire) != 0;
        let header = (0..=last).rev().step_by(8).find(begins)?;
        let record = Record::of(self.header(header).load(Ordering::Acquire))?;
        (record.status == Status::Busy).then_some((header + HEADER as u32, record.size))
    }
}

impl RingBuffer {
    pub(super) fn new(spec: MapSpec, arena: &Arc<Arena>) -> Result<RingBuffer, MemError> {
        let label: Arc<str> = format!("record of map {}", spec.name).into();
        let half = RegionSpec::new(Arc::clone(&label), RegionKind::Map, spec.max_entries);
        let block = arena.alloc(RegionSpec { count: 2, ..half })?;
        let words =
            arena.alloc_hidden(RegionSpec::new(label, RegionKind::Map, HEADERS as u32 + spec.max_entries / 2))?;
        let records = Arc::new(Records { size: u64::from(spec.max_entries), words, seen: AtomicBool::default() });
        block.set_elements(Arc::clone(&records) as Arc<dyn Elements>);
        Ok(RingBuffer { spec, block, records })
    }
}

impl MapOps for RingBuffer {
    fn spec(&self) -> &MapSpec {
        &self.spec
    }

    fn lookup(&self, _key: &[u8], _cpu: u32) -> Option<u64> {
        None
    }

    fn lookup_copy(&self, _key: &[u8], _cpu: u32, _value: &mut [u8]) -> Result<(), Errno> {
        Err(Errno::ENOTSUPP)
    }

    fn update(&self, _key: &[u8], _value: &[u8], _flags: u64, _cpu: u32) -> Result<(), Errno> {
        Err(Errno::ENOTSUPP)
    }

    fn delete(&self, _key: &[u8]) -> Result<(), Errno> {
        Err(Errno::ENOTSUPP)
    }

    fn next_key(&self, _key: Option<&[u8]>, _next: &mut [u8]) -> Result<(), Errno> {
        Err(Errno::ENOTSUPP)
    }

    fn keys(&self) -> Vec<Vec<u8>> {
        Vec::new()
    }

    fn arena(&self) -> Option<&Arc<Arena>> {
        Some(self.block.arena())
    }

    /// Number of records that no consumer has taken.
    fn len(&self) -> u32 {
        self.records.count()
    }

    fn ring(&self) -> Option<&dyn Ring> {
        Some(self)
    }

    /// Consumes records in order, up to the first that is still open.
    fn take_sent(&self) -> Vec<Sent> {
        let mut sent = Vec::new();
        self.records.take(|off, Record { status, size }| {
            if status == Status::Submitted {
                sent.push(Sent { slot: 0, bytes: self.block.to_vec(off, size as usize) });
            }
        });
        sent
    }
}

impl Ring for RingBuffer {
    fn reserve(&self, size: u64) -> Option<u64> {
        self.records.add(size).map(|off| self.block.addr() + u64::from(off) + HEADER)
    }

    fn commit(&self, sample: u64, discard: bool) -> Result<(), Errno> {
        let off = self.block.offset_of(sample).and_then(|off| off.checked_sub(HEADER as u32));
        let off = off.filter(|off| off.is_multiple_of(8) && *off < self.spec.max_entries).ok_or(Errno::EINVAL)?;
        self.records.commit(off, if discard { Status::Discarded } else { Status::Submitted })?;
        if self.records.seen.load(Ordering::Acquire) {
            self.records.seen.store(false, Ordering::Relaxed);
            self.block.touch();
        }
        Ok(())
    }

    fn output(&self, bytes: &[u8]) -> Result<(), Errno> {
        let off = self.records.add(bytes.len() as u64).ok_or(Errno::EAGAIN)?;
        self.block.write(off + HEADER as u32, bytes);
        self.records.commit(off, Status::Submitted)
    }

    fn query(&self, flags: u64) -> u64 {
        let (consumer, producer) =
            (self.records.consumer().load(Ordering::Acquire), self.records.producer().load(Ordering::Acquire));
        match flags {
            0 => producer - consumer,
            1 => self.records.size,
            2 => consumer,
            3 => producer,
            _ => 0,
        }
    }
}
