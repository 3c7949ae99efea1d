//! Queues and stacks: kernel/bpf/queue_stack_maps.c. From the host side, an update pushes and a lookup peeks,
//! as in bpf(2).

use std::sync::{Arc, Mutex};

use super::slab::{Layout, Slab};
use super::store::no_memory;
use super::{BPF_EXIST, BPF_NOEXIST, Errno, MapKind, MapOps, MapSpec};
use crate::mem::Arena;

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Queue {
    spec: MapSpec,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Programs get copies, so no program sees it.
    values: Slab,
    /// Slot of the oldest value.
    tail: u32,
    len: u32,
}

impl Queue {
    pub(super) fn new(spec: MapSpec, arena: &Arc<Arena>) -> Queue {
        let layout = Layout {
            label: format!("value of map {}", spec.name).into(),
            size: spec.value_size,
            cpus: 1,
            capacity: spec.max_entries,
            writable: true,
            hidden: true,
        };
        Queue { state: Mutex::new(State { values: Slab::new(arena, layout), tail: 0, len: 0 }), spec }
    }

    /// Slot of the `index`th value from the oldest on.
    fn slot(&self, state: &State, index: u32) -> u32 {
        let slot = (u64::from(state.tail) + u64::from(index)) % u64::from(self.spec.max_entries);
        slot as u32
    }

    fn get(&self, value: &mut [u8], take: bool) -> Result<(), Errno> {
        if value.len() != self.spec.value_size as usize {
            return Err(Errno::EINVAL);
        }
        let mut state = self.state.lock().expect("no panic while held");
        let Some(last) = state.len.checked_sub(1) else {
            value.fill(0);
            return Err(Errno::ENOENT);
        };
        let stack = self.spec.kind == MapKind::Stack;
        let slot = self.slot(&state, if stack { last } else { 0 });
        state.values.cell(slot, 0, None).load(value);
        if take {
            state.len = last;
            if !stack {
                state.tail = self.slot(&state, 1);
            }
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

    fn len(&self) -> u32 {
        self.state.lock().expect("no panic while held").len
    }

    fn push(&self, value: &[u8], flags: u64) -> Result<(), Errno> {
        if flags & BPF_NOEXIST != 0 || flags > BPF_EXIST || value.len() != self.spec.value_size as usize {
            return Err(Errno::EINVAL);
        }
        let mut state = self.state.lock().expect("no panic while held");
        if state.len == self.spec.max_entries {
            if flags != BPF_EXIST {
                return Err(Errno::E2BIG);
            }
            state.tail = self.slot(&state, 1);
            state.len -= 1;
        }
        let slot = self.slot(&state, state.len);
        state.values.grow(slot).map_err(|error| no_memory(&self.spec.name, &error))?;
        state.values.cell(slot, 0, None).store(value);
        state.len += 1;
        Ok(())
    }

    fn pop(&self, value: &mut [u8]) -> Result<(), Errno> {
        self.get(value, true)
    }

    fn peek(&self, value: &mut [u8]) -> Result<(), Errno> {
        self.get(value, false)
    }
}
