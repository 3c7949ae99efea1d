//! Ring buffers: kernel/bpf/ringbuf.c. A user ring buffer is the same with the host as producer.
//!
//! Space is counted as the kernel counts it: 8 bytes of header before each sample, multiples of 8, positions that
//! only grow. The headers themselves are kept outside the arena, where no program can break them. The kernel
//! maps its pages twice, so that a sample that wraps around is contiguous; here the block has twice the size,
//! and a sample that starts before the end of the ring continues after it.
//!
//! The open samples are the only elements of the region: an access past a sample, between samples or to one
//! that was submitted faults. (A submitted sample that a program still points to faults after its next call.)

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use super::{Errno, MapOps, MapSpec, Ring, Sent};
use crate::mem::{Arena, Block, Elements, MemError, RegionKind, RegionSpec};

/// `BPF_RINGBUF_HDR_SZ`.
const HEADER: u64 = 8;
/// `RINGBUF_MAX_RECORD_SZ`.
const RECORD_MAX: u64 = (u32::MAX / 4) as u64;

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
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    consumer: u64,
    producer: u64,
    /// From `consumer` to `producer`, without gaps.
    records: VecDeque<Record>,
}

#[derive(Debug)]
struct Record {
    /// Position of its header.
    pos: u64,
    /// Bytes of the sample.
    size: u32,
    status: Status,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Busy,
    Submitted,
    Discarded,
}

impl Record {
    fn end(&self) -> u64 {
        self.pos + (HEADER + u64::from(self.size)).next_multiple_of(8)
    }
}

impl Records {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic while held")
    }

    /// Offset of the sample of a record in the block.
    fn off(&self, record: &Record) -> u32 {
        (record.pos % self.size + HEADER) as u32
    }
}

impl Elements for Records {
    fn element(&self, off: u32) -> Option<(u32, u32)> {
        let state = self.lock();
        let first = state.consumer / self.size;
        // What is unread spans at most two laps of the ring.
        let last_in = |lap: u64| {
            let before = |record: &Record| {
                record.pos < (lap + 1) * self.size && record.pos + HEADER <= lap * self.size + u64::from(off)
            };
            let record = &state.records[state.records.partition_point(before).checked_sub(1)?];
            let open = record.status == Status::Busy && record.pos >= lap * self.size;
            open.then(|| (self.off(record), record.size))
        };
        [first, first + 1].into_iter().filter_map(last_in).max()
    }
}

impl RingBuffer {
    pub(super) fn new(spec: MapSpec, arena: &Arc<Arena>) -> Result<RingBuffer, MemError> {
        let label: Arc<str> = format!("record of map {}", spec.name).into();
        let half = RegionSpec::new(label, RegionKind::Map, spec.max_entries);
        let block = arena.alloc(RegionSpec { count: 2, ..half })?;
        let records = Arc::new(Records { size: u64::from(spec.max_entries), state: Mutex::default() });
        block.set_elements(Arc::clone(&records) as Arc<dyn Elements>);
        Ok(RingBuffer { spec, block, records })
    }

    /// Adds a record, and gives the offset of its sample.
    fn add(&self, state: &mut State, size: u64, status: Status) -> Option<u32> {
        if size > RECORD_MAX {
            return None;
        }
        let record = Record { pos: state.producer, size: size as u32, status };
        if record.end() - state.consumer > self.records.size - 1 {
            return None;
        }
        let off = self.records.off(&record);
        state.producer = record.end();
        state.records.push_back(record);
        Some(off)
    }

    fn commit_at(&self, off: u32, status: Status) -> Result<(), Errno> {
        let mut state = self.records.lock();
        let lap = state.consumer / self.records.size;
        let found = [lap, lap + 1].into_iter().find_map(|lap| {
            let pos = (lap * self.records.size + u64::from(off)).checked_sub(HEADER)?;
            state.records.binary_search_by_key(&pos, |record| record.pos).ok()
        });
        let record = found.map(|index| &mut state.records[index]).ok_or(Errno::EINVAL)?;
        if record.status != Status::Busy {
            return Err(Errno::EINVAL);
        }
        record.status = status;
        drop(state);
        self.block.touch();
        Ok(())
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

    /// Number of records that no consumer has taken.
    fn len(&self) -> u32 {
        self.records.lock().records.len() as u32
    }

    fn ring(&self) -> Option<&dyn Ring> {
        Some(self)
    }

    /// Consumes records in order, up to the first that is still open.
    fn take_sent(&self) -> Vec<Sent> {
        let mut state = self.records.lock();
        let mut sent = Vec::new();
        while let Some(record) = state.records.pop_front_if(|record| record.status != Status::Busy) {
            if record.status == Status::Submitted {
                let bytes = self.block.to_vec(self.records.off(&record), record.size as usize);
                sent.push(Sent { slot: 0, bytes });
            }
            state.consumer = record.end();
        }
        sent
    }
}

impl Ring for RingBuffer {
    fn reserve(&self, size: u64) -> Option<u64> {
        let off = self.add(&mut self.records.lock(), size, Status::Busy)?;
        Some(self.block.addr() + u64::from(off))
    }

    fn commit(&self, sample: u64, discard: bool) -> Result<(), Errno> {
        let off = self.block.offset_of(sample).ok_or(Errno::EINVAL)?;
        self.commit_at(off, if discard { Status::Discarded } else { Status::Submitted })
    }

    fn output(&self, bytes: &[u8]) -> Result<(), Errno> {
        // No program ever sees it open.
        let mut state = self.records.lock();
        let off = self.add(&mut state, bytes.len() as u64, Status::Submitted).ok_or(Errno::EAGAIN)?;
        self.block.write(off, bytes);
        Ok(())
    }

    fn query(&self, flags: u64) -> u64 {
        let state = self.records.lock();
        match flags {
            0 => state.producer - state.consumer,
            1 => self.records.size,
            2 => state.consumer,
            3 => state.producer,
            _ => 0,
        }
    }
}
