//! Prog arrays: which program a tail call enters. kernel/bpf/arraymap.c, `prog_array_map_ops`.
//!
//! A program is its index in the image.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::array::{array_index, next_index};
use super::hash::check_sizes;
use super::slot_words::SlotWords;
use super::words::Words;
use super::{Errno, MapOps, MapSpec};
use crate::mem::{Arena, MemError};

/// See the module documentation.
#[derive(Debug)]
pub(super) struct ProgArray {
    spec: MapSpec,
    /// The program of each slot, one added; 0 where there is none.
    slots: Words,
}

impl ProgArray {
    pub(super) fn new(spec: MapSpec, arena: &Arc<Arena>) -> Result<ProgArray, MemError> {
        let slots = Words::new(arena, format!("programs of map {}", spec.name), spec.max_entries)?;
        Ok(ProgArray { spec, slots })
    }
}

impl MapOps for ProgArray {
    fn spec(&self) -> &MapSpec {
        &self.spec
    }

    fn lookup(&self, _key: &[u8], _cpu: u32) -> Option<u64> {
        None
    }

    /// Gives the program's index, where the kernel gives its id.
    fn lookup_copy(&self, key: &[u8], _cpu: u32, value: &mut [u8]) -> Result<(), Errno> {
        check_sizes(&self.spec, key, value)?;
        let program = array_index(key).and_then(|index| self.program(index)).ok_or(Errno::ENOENT)?;
        value.copy_from_slice(&program.to_le_bytes());
        Ok(())
    }

    /// A value would be a file descriptor; see [`MapOps::set_program`].
    fn update(&self, _key: &[u8], _value: &[u8], _flags: u64, _cpu: u32) -> Result<(), Errno> {
        Err(Errno::EINVAL)
    }

    fn delete(&self, key: &[u8]) -> Result<(), Errno> {
        let index = array_index(key).filter(|index| *index < self.spec.max_entries).ok_or(Errno::E2BIG)?;
        if self.slots.clear(index) == 0 { Err(Errno::ENOENT) } else { Ok(()) }
    }

    fn next_key(&self, key: Option<&[u8]>, next: &mut [u8]) -> Result<(), Errno> {
        next_index(self.spec.max_entries, key, next)
    }

    fn keys(&self) -> Vec<Vec<u8>> {
        self.slots.indices().map(|index| index.to_le_bytes().to_vec()).collect()
    }

    fn arena(&self) -> Option<&Arc<Arena>> {
        Some(self.slots.arena())
    }

    fn len(&self) -> u32 {
        self.spec.max_entries
    }

    fn program(&self, index: u32) -> Option<u32> {
        (self.slots.get(index) as u32).checked_sub(1)
    }

    fn slot_words(&self) -> Option<SlotWords> {
        Some(self.slots.shared())
    }

    fn set_program(&self, index: u32, program: u32) -> Result<(), Errno> {
        if index >= self.spec.max_entries {
            return Err(Errno::E2BIG);
        }
        self.slots.make(&self.spec.name, index)?.store(u64::from(program) + 1, Ordering::Release);
        Ok(())
    }
}
