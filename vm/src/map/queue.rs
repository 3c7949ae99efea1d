//! Queues and stacks: kernel/bpf/queue_stack_maps.c. From the host side, an update pushes and a lookup peeks,
//! as in bpf(2).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::hidden_slab::HiddenSlab;
use super::lock::{Locked, lock};
use super::store::no_memory;
use super::{BPF_EXIST, BPF_NOEXIST, Errno, MapKind, MapOps, MapSpec};
use crate::mem::{Arena, Block, MemError, RegionKind, RegionSpec};

/// Bytes of the words that are no value's.
const HEADER: u32 = 16;

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Queue {
    spec: MapSpec,
    header: Block,
    /// Programs get copies, so no program sees it.
    values: HiddenSlab,
}

/// What values there are, while no other thread changes that.
struct State<'a> {
    /// Slot of the oldest value.
    tail: &'a AtomicU32,
    len: &'a AtomicU32,
    _locked: Locked<'a>,
}

impl State<'_> {
    fn tail(&self) -> u32 {
        self.tail.load(Ordering::Relaxed)
    }

    fn len(&self) -> u32 {
        self.len.load(Ordering::Relaxed)
    }

    fn set(&self, tail: u32, len: u32) {
        self.tail.store(tail, Ordering::Relaxed);
        self.len.store(len, Ordering::Relaxed);
    }
}

impl Queue {
    pub(super) fn new(spec: MapSpec, arena: &Arc<Arena>) -> Result<Queue, MemError> {
        let label = format!("value of map {}", spec.name);
        let values = HiddenSlab::new(arena, label, spec.value_size, spec.max_entries)?;
        let header = RegionSpec::new(format!("header of map {}", spec.name), RegionKind::Map, HEADER);
        let header = arena.alloc_hidden(header)?;
        Ok(Queue { header, values, spec })
    }

    fn words(&self) -> [&AtomicU32; 3] {
        self.header.words(0)
    }

    fn state(&self) -> State<'_> {
        let [locked, tail, len] = self.words();
        State { tail, len, _locked: lock(locked) }
    }

    /// The slot so many slots after another one. Both are less than the number of slots.
    fn slot(&self, from: u32, by: u32) -> u32 {
        let left = self.spec.max_entries - from;
        if by < left { from + by } else { by - left }
    }

    fn get(&self, value: &mut [u8], take: bool) -> Result<(), Errno> {
        if value.len() != self.spec.value_size as usize {
            return Err(Errno::EINVAL);
        }
        let state = self.state();
        let Some(last) = state.len().checked_sub(1) else {
            value.fill(0);
            return Err(Errno::ENOENT);
        };
        let (stack, tail) = (self.spec.kind == MapKind::Stack, state.tail());
        let slot = if stack { self.slot(tail, last) } else { tail };
        let (block, off) = self.values.at(slot);
        block.load(off, value);
        if take {
            state.set(if stack { tail } else { self.slot(tail, 1) }, last);
        }
        Ok(())
    }
}

impl MapOps for Queue {
    fn spec(&self) -> &MapSpec {
        &self.spec
    }

    fn lookup(&self, _key: &[u8], _cpu: u32) -> Option<u64> {
        None
    }

    fn lookup_copy(&self, _key: &[u8], _cpu: u32, value: &mut [u8]) -> Result<(), Errno> {
        self.peek(value)
    }

    fn update(&self, _key: &[u8], value: &[u8], flags: u64, _cpu: u32) -> Result<(), Errno> {
        self.push(value, flags)
    }

    fn delete(&self, _key: &[u8]) -> Result<(), Errno> {
        Err(Errno::EINVAL)
    }

    fn next_key(&self, _key: Option<&[u8]>, _next: &mut [u8]) -> Result<(), Errno> {
        Err(Errno::EINVAL)
    }

    fn keys(&self) -> Vec<Vec<u8>> {
        Vec::new()
    }

    fn arena(&self) -> Option<&Arc<Arena>> {
        Some(self.header.arena())
    }

    fn len(&self) -> u32 {
        self.words()[2].load(Ordering::Relaxed)
    }

    fn push(&self, value: &[u8], flags: u64) -> Result<(), Errno> {
        if flags & BPF_NOEXIST != 0 || flags > BPF_EXIST || value.len() != self.spec.value_size as usize {
            return Err(Errno::EINVAL);
        }
        let state = self.state();
        let (mut tail, mut len) = (state.tail(), state.len());
        if len == self.spec.max_entries {
            if flags != BPF_EXIST {
                return Err(Errno::E2BIG);
            }
            (tail, len) = (self.slot(tail, 1), len - 1);
        }
        let slot = self.slot(tail, len);
        self.values.grow(slot).map_err(|error| no_memory(&self.spec.name, &error))?;
        let (block, off) = self.values.at(slot);
        block.store(off, value);
        state.set(tail, len + 1);
        Ok(())
    }

    fn pop(&self, value: &mut [u8]) -> Result<(), Errno> {
        self.get(value, true)
    }

    fn peek(&self, value: &mut [u8]) -> Result<(), Errno> {
        self.get(value, false)
    }
}
