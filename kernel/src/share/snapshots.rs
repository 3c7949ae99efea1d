//! Snapshots of map values, in memory of the arena that programs can only read.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use twinbpf_vm::map::MapSpec;
use twinbpf_vm::mem::{Arena, Block, RegionKind, RegionSpec};

/// Slots of the first block; each further one has twice as many.
const FIRST: u32 = 16;
/// Slots that there are at most; then the oldest is used again.
const MOST: usize = 1 << 16;

/// Key, and the CPU for maps that have values of each.
type SlotKey = (Vec<u8>, u32);

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Snapshots {
    arena: Arc<Arena>,
    label: Arc<str>,
    value_size: u32,
    blocks: Vec<Block>,
    /// Block and slot.
    slots: HashMap<SlotKey, (usize, u32)>,
    /// In the order in which they were taken.
    order: VecDeque<SlotKey>,
    /// Slots of the last block that are taken.
    used: u32,
}

impl Snapshots {
    pub(super) fn new(spec: &MapSpec, arena: &Arc<Arena>) -> Snapshots {
        let label = format!("copy of a value of kernel map {}, which bpf_map_update_elem changes", spec.name);
        Snapshots {
            arena: Arc::clone(arena),
            label: label.into(),
            value_size: spec.value_size,
            blocks: Vec::new(),
            slots: HashMap::new(),
            order: VecDeque::new(),
            used: 0,
        }
    }

    /// The address of a key's copy, with this value in it; `None` where the arena has no room.
    pub(super) fn put(&mut self, key: &[u8], cpu: u32, value: &[u8]) -> Option<u64> {
        let place = (key.to_vec(), cpu);
        let (block, slot) = match self.slots.get(&place) {
            Some(found) => *found,
            None => {
                let found = self.take()?;
                self.slots.insert(place.clone(), found);
                self.order.push_back(place);
                found
            }
        };
        let block = &self.blocks[block];
        block.write(slot * block.region().spec.stride, value);
        Some(block.element(slot))
    }

    fn take(&mut self) -> Option<(usize, u32)> {
        if self.slots.len() >= MOST {
            let oldest = self.order.pop_front()?;
            return self.slots.remove(&oldest);
        }
        if self.blocks.last().is_none_or(|block| self.used == block.region().spec.count) {
            let count = FIRST << self.blocks.len().min(12);
            let spec = RegionSpec {
                stride: self.value_size.next_multiple_of(8) + 8,
                count,
                writable: false,
                ..RegionSpec::new(Arc::clone(&self.label), RegionKind::Map, self.value_size)
            };
            self.blocks.push(self.arena.alloc(spec).ok()?);
            self.used = 0;
        }
        self.used += 1;
        Some((self.blocks.len() - 1, self.used - 1))
    }
}
