//! A sample as scripts get it: `struct sample` of `<twinbpf/perf_script.h>`, followed by what its pointers lead to.

use std::ops::Range;

use zerocopy::{Immutable, IntoBytes};

use crate::abi::{self, PerfSample};

/// From here on an entry of a call chain is a mark (`PERF_CONTEXT_MAX`).
const CONTEXT_MAX: u64 = -4095_i64 as u64;

/// `struct sample`.
#[repr(C)]
#[derive(IntoBytes, Immutable)]
struct Record {
    event: u64,
    raw: u64,
    callchain: u64,
    branches: u64,
    raw_size: u32,
    callchain_nr: u32,
    branch_nr: u32,
    cpu: i32,
    pid: i32,
    tid: i32,
    comm: [u8; 16],
    time: u64,
    ip: u64,
    addr: u64,
    id: u64,
    stream_id: u64,
    period: u64,
    weight: u64,
    transaction: u64,
    insn_cnt: u64,
    cyc_cnt: u64,
    data_src: u64,
    phys_addr: u64,
    data_page_size: u64,
    code_page_size: u64,
    cgroup: u64,
    flags: u32,
    machine_pid: i32,
    vcpu: i32,
    ins_lat: u16,
    p_stage_cyc: u16,
    misc: u16,
    cpumode: u8,
    addr_correlates_sym: u8,
    pad: u32,
}

/// Bytes of `struct sample`.
pub(crate) const SIZE: usize = size_of::<Record>();

/// The members of `struct sample` that cost something: those that scripts read (`needs.rs`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Needs {
    /// The text to which `event` points.
    pub(crate) event: bool,
    /// The bytes to which `raw` points.
    pub(crate) raw: bool,
    /// The call chain.
    pub(crate) chain: bool,
    pub(crate) branches: bool,
    pub(crate) comm: bool,
    /// Any of the others: numbers, which are copied.
    pub(crate) numbers: bool,
}

/// Places of members.
pub(crate) mod members {
    use std::mem::offset_of;
    use std::ops::Range;

    use super::Record;

    pub(crate) const EVENT: Range<usize> = 0..8;
    pub(crate) const RAW: Range<usize> = at(offset_of!(Record, raw), 8);
    pub(crate) const CALLCHAIN: Range<usize> = at(offset_of!(Record, callchain), 8);
    pub(crate) const CALLCHAIN_NR: Range<usize> = at(offset_of!(Record, callchain_nr), 4);
    pub(crate) const BRANCHES: Range<usize> = at(offset_of!(Record, branches), 8);
    pub(crate) const COMM: Range<usize> = at(offset_of!(Record, comm), 16);
    /// Those that are not copied.
    pub(crate) const MADE: [Range<usize>; 6] = [EVENT, RAW, CALLCHAIN, CALLCHAIN_NR, BRANCHES, COMM];

    const fn at(start: usize, size: usize) -> Range<usize> {
        start..start + size
    }
}

/// Addresses of a call chain, without the marks between its parts.
fn addresses(chain: &[u64]) -> impl Iterator<Item = u64> {
    chain.iter().copied().filter(|address| *address < CONTEXT_MAX)
}

/// Buffers for the bytes of samples.
#[derive(Debug, Default)]
pub(crate) struct Builder {
    pub(crate) bytes: Vec<u8>,
    pub(crate) pointers: Vec<(u32, u32)>,
}

impl Builder {
    /// Writes a sample, with what scripts need of it. What they do not read is null or 0.
    pub(crate) fn write(&mut self, sample: &PerfSample, event: &str, needs: Needs) {
        self.pointers.clear();
        // What no sample has is 0 from the first one on.
        self.bytes.resize(SIZE, 0);
        if needs.numbers {
            self.bytes.copy_from_slice(record(sample).as_bytes());
        }
        if needs.comm {
            self.bytes[members::COMM].copy_from_slice(&abi::comm());
        }
        if needs.chain {
            self.point(members::CALLCHAIN);
            addresses(sample.chain()).for_each(|address| self.bytes.extend_from_slice(&address.to_ne_bytes()));
            let count = (self.bytes.len() - SIZE) / size_of::<u64>();
            self.bytes[members::CALLCHAIN_NR].copy_from_slice(&(count as u32).to_ne_bytes());
        }
        if needs.branches {
            self.point(members::BRANCHES);
            sample.branches().iter().flatten().for_each(|word| self.bytes.extend_from_slice(&word.to_ne_bytes()));
        }
        if needs.raw {
            self.point(members::RAW);
            self.bytes.extend_from_slice(sample.raw());
        }
        if needs.event {
            self.point(members::EVENT);
            self.bytes.extend_from_slice(event.as_bytes());
            self.bytes.push(0);
        }
    }

    /// What the pointer in a member leads to; nothing where scripts do not read it.
    fn part(&self, member: Range<usize>) -> &[u8] {
        let Some(nth) = self.pointers.iter().position(|(at, _)| *at as usize == member.start) else { return &[] };
        let start = |nth: usize| self.pointers.get(nth).map_or(self.bytes.len(), |(_, to)| *to as usize);
        &self.bytes[start(nth)..start(nth + 1)]
    }

    /// Addresses of the call chain.
    pub(crate) fn chain(&self) -> impl DoubleEndedIterator<Item = u64> {
        self.part(members::CALLCHAIN).as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word))
    }

    /// The raw record of a tracepoint.
    pub(crate) fn raw(&self) -> &[u8] {
        self.part(members::RAW)
    }

    /// Lets a member point to what comes next.
    fn point(&mut self, member: Range<usize>) {
        self.pointers.push((member.start as u32, self.bytes.len() as u32));
    }
}

/// The numbers of a sample.
fn record(sample: &PerfSample) -> Record {
    Record {
        event: 0,
        raw: 0,
        callchain: 0,
        branches: 0,
        raw_size: sample.raw().len() as u32,
        callchain_nr: 0,
        branch_nr: sample.branches().len() as u32,
        cpu: sample.cpu,
        pid: sample.pid,
        tid: sample.tid,
        comm: [0; 16],
        time: sample.time,
        ip: sample.ip,
        addr: sample.addr,
        id: sample.id,
        stream_id: sample.stream_id,
        period: sample.period,
        weight: sample.weight,
        transaction: sample.transaction,
        insn_cnt: sample.insn_cnt,
        cyc_cnt: sample.cyc_cnt,
        data_src: sample.data_src,
        phys_addr: sample.phys_addr,
        data_page_size: sample.data_page_size,
        code_page_size: sample.code_page_size,
        cgroup: sample.cgroup,
        flags: sample.flags,
        machine_pid: sample.machine_pid,
        vcpu: sample.vcpu,
        ins_lat: sample.ins_lat,
        p_stage_cyc: sample.p_stage_cyc,
        misc: sample.misc,
        cpumode: sample.cpumode,
        addr_correlates_sym: sample.addr_correlates_sym,
        pad: 0,
    }
}
