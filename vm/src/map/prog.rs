//! Prog arrays: which program a tail call enters. kernel/bpf/arraymap.c, `prog_array_map_ops`.
//!
//! A program is its index in the image. Slots are sparse, so that a huge array costs nothing.

use std::collections::BTreeMap;
use std::sync::RwLock;

use super::array::{array_index, next_index};
use super::hash::check_sizes;
use super::{Errno, MapOps, MapSpec};

/// See the module documentation.
#[derive(Debug)]
pub(super) struct ProgArray {
    spec: MapSpec,
    slots: RwLock<BTreeMap<u32, u32>>,
}

impl ProgArray {
    pub(super) fn new(spec: MapSpec) -> ProgArray {
        ProgArray { spec, slots: RwLock::default() }
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
        let taken = self.slots.write().expect("no panic while held").remove(&index);
        taken.map(|_| ()).ok_or(Errno::ENOENT)
    }

    fn next_key(&self, key: Option<&[u8]>, next: &mut [u8]) -> Result<(), Errno> {
        next_index(self.spec.max_entries, key, next)
    }

    fn keys(&self) -> Vec<Vec<u8>> {
        let slots = self.slots.read().expect("no panic while held");
        slots.keys().map(|index| index.to_le_bytes().to_vec()).collect()
    }

    fn len(&self) -> u32 {
        self.spec.max_entries
    }

    fn program(&self, index: u32) -> Option<u32> {
        self.slots.read().expect("no panic while held").get(&index).copied()
    }

    fn set_program(&self, index: u32, program: u32) -> Result<(), Errno> {
        if index >= self.spec.max_entries {
            return Err(Errno::E2BIG);
        }
        self.slots.write().expect("no panic while held").insert(index, program);
        Ok(())
    }
}
