//! Arrays, plain and per-CPU, and the maps of data sections: kernel/bpf/arraymap.c.

use std::sync::Arc;

use super::cell::Cell;
use super::hash::check_sizes;
use super::planes::Planes;
use super::slab::GAP;
use super::{ArrayLayout, BPF_EXIST, BPF_F_LOCK, BPF_NOEXIST, Errno, MapFlags, MapOps, MapSpec};
use crate::mem::{Arena, Block, MemError, RegionKind, RegionSpec};

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Array {
    spec: MapSpec,
    planes: Planes,
    /// A frozen data section: updates are refused.
    frozen: bool,
    block: Block,
}

impl Array {
    /// `cpus` is 1 unless the map is per-CPU.
    pub(super) fn new(spec: MapSpec, arena: &Arc<Arena>, cpus: u32) -> Result<Array, MemError> {
        let gap = if spec.flags().contains(MapFlags::MMAPABLE) { 0 } else { GAP };
        let (label, kind) = match &spec.data {
            Some(_) => (Arc::clone(&spec.name), RegionKind::Data),
            None => (format!("value of map {}", spec.name).into(), RegionKind::Map),
        };
        let planes = Planes::new(spec.value_size, gap, cpus);
        let block = arena.alloc(RegionSpec {
            label,
            kind,
            element_size: spec.value_size,
            stride: planes.stride,
            count: planes.elements(spec.max_entries).saturating_mul(cpus),
            writable: spec.program_writable(),
            owner: 0,
        })?;
        if let Some(data) = &spec.data {
            let len = data.bytes.len().min(spec.value_size as usize);
            block.write(0, &data.bytes[..len]);
        }
        let frozen = spec.data.as_ref().is_some_and(|data| data.read_only);
        Ok(Array { spec, planes, frozen, block })
    }

    /// Number of the element that `key` and `cpu` mean.
    fn element(&self, key: &[u8], cpu: u32) -> Option<u32> {
        let index = array_index(key).filter(|index| *index < self.spec.max_entries)?;
        match self.planes.cpus {
            1 => Some(index),
            cpus if cpu < cpus => Some(cpu * self.planes.elements(self.spec.max_entries) + index),
            _ => None,
        }
    }

    fn cell(&self, element: u32) -> Cell<'_> {
        let off = element * self.planes.stride;
        Cell { block: &self.block, off, lock: self.spec.spin_lock }
    }
}

/// The key of an array.
pub(super) fn array_index(key: &[u8]) -> Option<u32> {
    key.try_into().ok().map(u32::from_le_bytes)
}

/// `BPF_MAP_GET_NEXT_KEY` of everything that is indexed: 0 after no key or one past the end.
pub(super) fn next_index(max_entries: u32, key: Option<&[u8]>, next: &mut [u8]) -> Result<(), Errno> {
    let index = match key {
        Some(key) => array_index(key).ok_or(Errno::EINVAL)?,
        None => u32::MAX,
    };
    let following = match index {
        last if last == max_entries - 1 => return Err(Errno::ENOENT),
        index if index >= max_entries => 0,
        index => index + 1,
    };
    *next.first_chunk_mut().ok_or(Errno::EINVAL)? = following.to_le_bytes();
    Ok(())
}

impl MapOps for Array {
    fn spec(&self) -> &MapSpec {
        &self.spec
    }

    fn lookup(&self, key: &[u8], cpu: u32) -> Option<u64> {
        self.element(key, cpu).map(|element| self.block.element(element))
    }

    fn lookup_copy(&self, key: &[u8], cpu: u32, value: &mut [u8]) -> Result<(), Errno> {
        check_sizes(&self.spec, key, value)?;
        let element = self.element(key, cpu).ok_or(Errno::ENOENT)?;
        self.cell(element).load(value);
        Ok(())
    }

    fn update(&self, key: &[u8], value: &[u8], flags: u64, cpu: u32) -> Result<(), Errno> {
        check_sizes(&self.spec, key, value)?;
        let known = if self.planes.cpus == 1 { flags & !BPF_F_LOCK } else { flags };
        if known > BPF_EXIST {
            return Err(Errno::EINVAL);
        }
        if self.frozen {
            return Err(Errno::EPERM);
        }
        let element = self.element(key, cpu).ok_or(Errno::E2BIG)?;
        if flags & BPF_NOEXIST != 0 {
            return Err(Errno::EEXIST);
        }
        if flags & BPF_F_LOCK != 0 {
            return self.cell(element).store_locked(value);
        }
        self.cell(element).store(value);
        Ok(())
    }

    fn delete(&self, _key: &[u8]) -> Result<(), Errno> {
        Err(Errno::EINVAL)
    }

    fn next_key(&self, key: Option<&[u8]>, next: &mut [u8]) -> Result<(), Errno> {
        next_index(self.spec.max_entries, key, next)
    }

    fn slots(&self) -> Option<u32> {
        Some(self.spec.max_entries)
    }

    fn element(&self, slot: u32, cpu: u32, key: &mut [u8]) -> Option<u64> {
        let index = slot.to_le_bytes();
        *key.first_chunk_mut()? = index;
        self.lookup(&index, cpu)
    }

    fn cpus(&self) -> u32 {
        self.planes.cpus
    }

    fn memory(&self) -> Option<&Block> {
        Some(&self.block)
    }

    fn layout(&self) -> Option<ArrayLayout> {
        let (Planes { cpus, stride }, count) = (self.planes, self.spec.max_entries);
        let cpu_stride = self.planes.elements(count) * stride;
        Some(ArrayLayout { addr: self.block.addr(), stride, count, cpus, cpu_stride })
    }

    fn arena(&self) -> Option<&Arc<Arena>> {
        Some(self.block.arena())
    }

    fn len(&self) -> u32 {
        self.spec.max_entries
    }
}
