//! Event and redirect maps, through which programs send data out: perf event arrays, and the targets of `bpf_redirect_map`
//! (devmap, devmap_hash, cpumap, xskmap). A slot has no device or CPU here: what is sent is
//! recorded, for the host to read.
//!
//! Slots follow kernel/bpf/devmap.c, cpumap.c and net/xdp/xskmap.c, except that every interface, CPU and
//! socket that the host names exists.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::array::{array_index, next_index};
use super::cell::Cell;
use super::hash::check_sizes;
use super::lock::pause;
use super::slab::GAP;
use super::store::{Extra, Store};
use super::words::Words;
use super::{BPF_EXIST, BPF_NOEXIST, Errno, MapKind, MapOps, MapSpec, Sent};
use crate::mem::{Arena, Block, MemError, RegionKind, RegionSpec};

/// Most bytes that one map records until the host takes them.
const LOG_MAX: usize = 16 << 20;
/// Counted for each thing sent, besides its bytes.
const SENT_BYTES: usize = 64;

/// What was sent, oldest first.
#[derive(Debug, Default)]
struct Log(Mutex<(Vec<Sent>, usize)>);

impl Log {
    /// `ENOSPC` when the log is full, as for a perf buffer that is not read.
    fn push(&self, slot: u32, bytes: &[u8]) -> Result<(), Errno> {
        let (sent, used) = &mut *self.0.lock().expect("no panic while held");
        let total = used.saturating_add(bytes.len()).saturating_add(SENT_BYTES);
        if total > LOG_MAX {
            return Err(Errno::ENOSPC);
        }
        *used = total;
        sent.push(Sent { slot, bytes: bytes.to_vec() });
        Ok(())
    }

    fn take(&self) -> Vec<Sent> {
        std::mem::take(&mut *self.0.lock().expect("no panic while held")).0
    }
}

/// A perf event array. Every slot has an event.
#[derive(Debug)]
pub(super) struct PerfEvents {
    spec: MapSpec,
    log: Log,
}

impl PerfEvents {
    pub(super) fn new(spec: MapSpec) -> PerfEvents {
        PerfEvents { spec, log: Log::default() }
    }
}

impl MapOps for PerfEvents {
    fn spec(&self) -> &MapSpec {
        &self.spec
    }

    fn lookup(&self, _key: &[u8], _cpu: u32) -> Option<u64> {
        None
    }

    fn lookup_copy(&self, _key: &[u8], _cpu: u32, _value: &mut [u8]) -> Result<(), Errno> {
        Err(Errno::ENOTSUPP)
    }

    /// A value would be a file descriptor.
    fn update(&self, _key: &[u8], _value: &[u8], _flags: u64, _cpu: u32) -> Result<(), Errno> {
        Err(Errno::EINVAL)
    }

    fn delete(&self, _key: &[u8]) -> Result<(), Errno> {
        Err(Errno::EINVAL)
    }

    fn next_key(&self, key: Option<&[u8]>, next: &mut [u8]) -> Result<(), Errno> {
        next_index(self.spec.max_entries, key, next)
    }

    /// `None`: programs cannot read a slot.
    fn keys(&self) -> Vec<Vec<u8>> {
        Vec::new()
    }

    fn len(&self) -> u32 {
        self.spec.max_entries
    }

    /// `bpf_perf_event_output` to a CPU.
    fn send(&self, slot: u32, bytes: &[u8]) -> Result<(), Errno> {
        if slot >= self.spec.max_entries {
            return Err(Errno::E2BIG);
        }
        self.log.push(slot, bytes)
    }

    fn take_sent(&self) -> Vec<Sent> {
        self.log.take()
    }
}

/// Devmap, cpumap and xskmap: targets by index.
#[derive(Debug)]
pub(super) struct Targets {
    spec: MapSpec,
    block: Block,
    /// Bits of each slot: [`SET`], [`LOCKED`].
    states: Words,
    log: Log,
}

/// The slot has a target.
const SET: u64 = 1;
/// A thread changes the slot.
const LOCKED: u64 = 2;

/// Takes the lock of a slot: its other bits.
fn hold(state: &AtomicU64) -> u64 {
    let mut spins = 0;
    loop {
        let open = state.load(Ordering::Relaxed) & !LOCKED;
        if state.compare_exchange_weak(open, open | LOCKED, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            return open;
        }
        pause(&mut spins);
    }
}

impl Targets {
    pub(super) fn new(spec: MapSpec, arena: &Arc<Arena>) -> Result<Targets, MemError> {
        let block = arena.alloc(RegionSpec {
            stride: spec.value_size.next_multiple_of(8) + GAP,
            count: spec.max_entries,
            writable: false,
            ..RegionSpec::new(format!("value of map {}", spec.name), RegionKind::Map, spec.value_size)
        })?;
        let states = Words::new(arena, format!("slots of map {}", spec.name), spec.max_entries)?;
        Ok(Targets { spec, block, states, log: Log::default() })
    }

    #[inline(always)]
    fn is_set(&self, index: u32) -> bool {
        self.states.get(index) & SET != 0
    }

    fn cell(&self, index: u32) -> Cell<'_> {
        Cell { block: &self.block, off: index * self.block.region().spec.stride, lock: None }
    }
}

/// The first word of a value: interface index, queue size or socket.
fn target(value: &[u8]) -> u32 {
    value.first_chunk().map_or(0, |word| u32::from_le_bytes(*word))
}

impl MapOps for Targets {
    fn spec(&self) -> &MapSpec {
        &self.spec
    }

    fn lookup(&self, key: &[u8], _cpu: u32) -> Option<u64> {
        let index = array_index(key).filter(|index| self.is_set(*index))?;
        Some(self.block.element(index))
    }

    fn lookup_copy(&self, key: &[u8], _cpu: u32, value: &mut [u8]) -> Result<(), Errno> {
        check_sizes(&self.spec, key, value)?;
        let index = array_index(key).filter(|index| self.is_set(*index)).ok_or(Errno::ENOENT)?;
        self.cell(index).load(value);
        Ok(())
    }

    /// A devmap or cpumap slot with a target of 0 becomes empty.
    fn update(&self, key: &[u8], value: &[u8], flags: u64, _cpu: u32) -> Result<(), Errno> {
        check_sizes(&self.spec, key, value)?;
        if flags > BPF_EXIST {
            return Err(Errno::EINVAL);
        }
        let index = array_index(key).filter(|index| *index < self.spec.max_entries).ok_or(Errno::E2BIG)?;
        let state = self.states.make(&self.spec.name, index)?;
        let before = hold(state);
        let socket = self.spec.kind == MapKind::Xskmap;
        let refused = match flags {
            BPF_NOEXIST if !socket || before & SET != 0 => Some(Errno::EEXIST),
            BPF_EXIST if socket && before & SET == 0 => Some(Errno::ENOENT),
            _ => None,
        };
        let after = match refused {
            Some(_) => before,
            None => {
                self.cell(index).store(value);
                if socket || target(value) != 0 { SET } else { 0 }
            }
        };
        state.store(after, Ordering::Release);
        refused.map_or(Ok(()), Err)
    }

    fn delete(&self, key: &[u8]) -> Result<(), Errno> {
        let index = array_index(key).filter(|index| *index < self.spec.max_entries).ok_or(Errno::EINVAL)?;
        if let Some(state) = self.states.word(index) {
            hold(state);
            state.store(0, Ordering::Release);
        }
        Ok(())
    }

    fn next_key(&self, key: Option<&[u8]>, next: &mut [u8]) -> Result<(), Errno> {
        next_index(self.spec.max_entries, key, next)
    }

    fn keys(&self) -> Vec<Vec<u8>> {
        let indices = self.states.indices().filter(|index| self.is_set(*index));
        indices.map(|index| index.to_le_bytes().to_vec()).collect()
    }

    fn arena(&self) -> Option<&Arc<Arena>> {
        Some(self.block.arena())
    }

    fn len(&self) -> u32 {
        self.spec.max_entries
    }

    /// A frame redirected to a slot; `ENOENT` if it has no target.
    fn send(&self, slot: u32, bytes: &[u8]) -> Result<(), Errno> {
        if !self.is_set(slot) {
            return Err(Errno::ENOENT);
        }
        self.log.push(slot, bytes)
    }

    fn take_sent(&self) -> Vec<Sent> {
        self.log.take()
    }
}

/// A devmap with arbitrary indices.
#[derive(Debug)]
pub(super) struct TargetHash {
    spec: MapSpec,
    store: Store,
    log: Log,
}

impl TargetHash {
    pub(super) fn new(spec: MapSpec, arena: &Arc<Arena>) -> Result<TargetHash, MemError> {
        let store = Store::new(&spec, arena, 1, Extra::default())?;
        Ok(TargetHash { spec, store, log: Log::default() })
    }
}

impl MapOps for TargetHash {
    fn spec(&self) -> &MapSpec {
        &self.spec
    }

    fn lookup(&self, key: &[u8], _cpu: u32) -> Option<u64> {
        self.store.slot_of(key).map(|slot| self.store.addr(slot, 0))
    }

    fn lookup_copy(&self, key: &[u8], _cpu: u32, value: &mut [u8]) -> Result<(), Errno> {
        check_sizes(&self.spec, key, value)?;
        self.store.load(key, 0, value)
    }

    fn update(&self, key: &[u8], value: &[u8], flags: u64, _cpu: u32) -> Result<(), Errno> {
        check_sizes(&self.spec, key, value)?;
        if flags > BPF_EXIST || target(value) == 0 {
            return Err(Errno::EINVAL);
        }
        let mut entry = self.store.entry(key)?;
        match entry.slot() {
            Some(_) if flags == BPF_NOEXIST => Err(Errno::EEXIST),
            Some(slot) => {
                entry.change();
                self.store.value(slot, 0).store(value);
                Ok(())
            }
            None => {
                let slot = self.store.take_any()?;
                self.store.init(slot, 0, value);
                entry.insert(key, slot, || ());
                Ok(())
            }
        }
    }

    fn delete(&self, key: &[u8]) -> Result<(), Errno> {
        self.store.delete(key)
    }

    fn next_key(&self, key: Option<&[u8]>, next: &mut [u8]) -> Result<(), Errno> {
        self.store.next_key(key, next)
    }

    fn keys(&self) -> Vec<Vec<u8>> {
        self.store.keys()
    }

    fn arena(&self) -> Option<&Arc<Arena>> {
        Some(self.store.arena())
    }

    fn len(&self) -> u32 {
        self.store.len()
    }

    /// A frame redirected to a key; `ENOENT` if it has no target.
    fn send(&self, slot: u32, bytes: &[u8]) -> Result<(), Errno> {
        self.store.slot_of(&slot.to_le_bytes()).ok_or(Errno::ENOENT)?;
        self.log.push(slot, bytes)
    }

    fn take_sent(&self) -> Vec<Sent> {
        self.log.take()
    }
}
