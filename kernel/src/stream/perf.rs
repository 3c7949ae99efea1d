//! The consumer of a perf event array: a ring for each CPU, whose records have times.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering;

use twinbpf_vm::os::monotonic_ns;

use crate::cpu;
use crate::error::Error;
use crate::map::{Map, MapKind};
use crate::sys::memory::{Mapping, page_size};
use crate::sys::perf::{self, PerfAttr};

/// `PERF_TYPE_SOFTWARE` and `PERF_COUNT_SW_BPF_OUTPUT`.
const SOFTWARE: u32 = 1;
const OUTPUT: u64 = 10;
/// `PERF_SAMPLE_TIME` and `PERF_SAMPLE_RAW`.
const TIME: u64 = 1 << 2;
const RAW: u64 = 1 << 10;
/// `PERF_FORMAT_LOST`: reading the event gives its count, and how many samples were lost (Linux 6.0).
const COUNTS_LOST: u64 = 1 << 4;
/// `PERF_RECORD_LOST` and `PERF_RECORD_SAMPLE`.
const LOST: u32 = 2;
const SAMPLE: u32 = 9;
/// Where the first page has the positions of kernel and reader (`struct perf_event_mmap_page`).
const HEAD: usize = 1024;
const TAIL: usize = 1032;

/// Something that a program sent.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sample {
    /// When, in nanoseconds of `CLOCK_MONOTONIC`.
    pub time: u64,
    /// On which CPU.
    pub cpu: u32,
    /// What; the kernel pads it to eight bytes with its length of four.
    pub bytes: Vec<u8>,
}

#[derive(Debug)]
struct Ring {
    cpu: u32,
    event: File,
    /// Whether the event itself counts what is lost. Records report it only before the next sample.
    counts_lost: bool,
    memory: Mapping,
    size: usize,
}

/// Reads what programs send on any CPU, in the order of time.
#[derive(Debug)]
pub struct PerfReader {
    rings: Vec<Ring>,
    /// Read, but younger than what other CPUs may still have had.
    held: Vec<Sample>,
    /// Number of lost samples that records report.
    lost: u64,
}

impl PerfReader {
    /// Of a map of kind `perf_event_array`, with `pages` (a power of two) pages for each CPU. The map's slots of all
    /// CPUs that run are set.
    ///
    /// # Errors
    /// The kernel's.
    ///
    /// # Panics
    /// For maps of other kinds, and numbers of pages that are no power of two.
    pub fn new(map: &Map, pages: usize) -> Result<PerfReader, Error> {
        assert_eq!(map.info().kind, MapKind::PerfEventArray, "map {}", map.info().name);
        assert!(pages.is_power_of_two(), "{pages} pages");
        let mut rings = Vec::new();
        for cpu in cpu::online().into_iter().filter(|cpu| *cpu < map.info().max_entries) {
            let ring = Ring::open(cpu, pages).map_err(|(command, cause)| map.failed(command, cause))?;
            map.update_fd(cpu, ring.event.as_fd())?;
            perf::enable(ring.event.as_fd()).map_err(|cause| map.failed("PERF_EVENT_IOC_ENABLE", cause))?;
            rings.push(ring);
        }
        Ok(PerfReader { rings, held: Vec::new(), lost: 0 })
    }

    /// The descriptors to wait for.
    pub fn sources(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.rings.iter().map(|ring| ring.event.as_fd())
    }

    /// Samples that found no room, so far.
    pub fn lost(&self) -> u64 {
        self.lost + self.rings.iter().filter_map(Ring::lost).sum::<u64>()
    }

    /// What can be given without the fear of something older from another CPU, in order.
    pub fn read(&mut self) -> Vec<Sample> {
        // What was sent before this moment is in the rings when they are read, except for a record that is being
        // written, which takes far less than this.
        const GRACE: u64 = 1_000_000;
        let settled = monotonic_ns().saturating_sub(GRACE);
        self.collect();
        let (ready, held) = std::mem::take(&mut self.held).into_iter().partition(|sample| sample.time <= settled);
        self.held = held;
        ready
    }

    /// Everything that is left, in order. For the end, when no program sends any more.
    pub fn drain(&mut self) -> Vec<Sample> {
        self.collect();
        std::mem::take(&mut self.held)
    }

    fn collect(&mut self) {
        for ring in &self.rings {
            self.lost += ring.read(&mut self.held);
        }
        self.held.sort_by_key(|sample| sample.time);
    }
}

impl Ring {
    fn open(cpu: u32, pages: usize) -> Result<Ring, (&'static str, io::Error)> {
        let mut attr = PerfAttr {
            kind: SOFTWARE,
            config: OUTPUT,
            sample: 1,
            sample_type: TIME | RAW,
            flags: perf::DISABLED | perf::CLOCK_GIVEN,
            wakeup: 1,
            ..PerfAttr::default()
        };
        attr.rest[perf::CLOCK_WORD] = perf::CLOCK_IS_MONOTONIC;
        attr.read_format = COUNTS_LOST;
        let mut opened = perf::open(&mut attr, -1, cpu as i32);
        let counts_lost = opened.is_ok();
        if !counts_lost {
            attr.read_format = 0;
            opened = perf::open(&mut attr, -1, cpu as i32);
        }
        let event = File::from(opened.map_err(|cause| ("perf_event_open", cause))?);
        let size = pages * page_size();
        let memory = Mapping::new(event.as_fd(), 0, page_size() + size).map_err(|cause| ("mmap", cause))?;
        Ok(Ring { cpu, event, counts_lost, memory, size })
    }

    /// What the event counted, if it does.
    fn lost(&self) -> Option<u64> {
        let mut counts = [0; 16];
        let got = (&self.event).read(&mut counts).ok().filter(|_| self.counts_lost)?;
        word(&counts, 8).filter(|_| got == counts.len())
    }

    /// Copies from the ring at a position, around its end.
    fn copy(&self, position: u64, out: &mut [u8]) {
        let start = position as usize & (self.size - 1);
        let first = out.len().min(self.size - start);
        let (head, rest) = out.split_at_mut(first);
        self.memory.read(page_size() + start, head);
        if !rest.is_empty() {
            self.memory.read(page_size(), rest);
        }
    }

    /// Takes all records; how many were lost.
    fn read(&self, samples: &mut Vec<Sample>) -> u64 {
        let (head, mut tail, mut lost) = (self.memory.load64(HEAD), self.memory.load64(TAIL), 0);
        while tail < head {
            let mut header = [0; 8];
            self.copy(tail, &mut header);
            let kind = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]);
            let size = usize::from(u16::from_ne_bytes([header[6], header[7]]));
            if size < header.len() {
                break;
            }
            let mut body = vec![0; size - header.len()];
            self.copy(tail + header.len() as u64, &mut body);
            match kind {
                SAMPLE => samples.extend(self.sample(&body)),
                LOST if !self.counts_lost => lost += word(&body, 8).unwrap_or(0),
                _ => {}
            }
            tail += size as u64;
        }
        self.memory.word64(TAIL).store(tail, Ordering::Release);
        lost
    }

    /// Time, length, bytes.
    fn sample(&self, body: &[u8]) -> Option<Sample> {
        let time = word(body, 0)?;
        let len = u32::from_ne_bytes(*body.get(8..)?.first_chunk()?) as usize;
        Some(Sample { time, cpu: self.cpu, bytes: body.get(12..12 + len)?.to_vec() })
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}
