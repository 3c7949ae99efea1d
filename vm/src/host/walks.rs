//! Walks over the elements of a map that call back for each: `bpf_for_each_map_elem`.

use std::sync::Arc;

use crate::map::{Errno, MapOps, SeenKeys};
use crate::mem::{Block, RegionKind, RegionSpec, View};

/// A walk over the slots that a map has when it begins, which visits no key twice. An element that comes meanwhile is visited if it
/// comes into one of these slots before its turn; one that is deleted before its turn is not.
#[derive(Debug)]
pub(crate) struct Walk {
    map: Arc<dyn MapOps>,
    /// What programs see of the key, and its bytes.
    key: Block,
    bytes: Vec<u8>,
    slot: u32,
    slots: u32,
    /// What [`MapOps::additions`] was when it began.
    additions: Option<u32>,
    seen: SeenKeys,
}

impl Walk {
    /// A walk over a map that has slots, with memory for a key.
    ///
    /// # Errors
    /// `ENOMEM` when the arena is full.
    fn new(view: &View, map: &Arc<dyn MapOps>, slots: u32) -> Result<Walk, Errno> {
        let spec = map.spec();
        let key = read_only(view, &format!("key of map {}", spec.name), spec.key_size)?;
        let (map, bytes, seen) = (Arc::clone(map), vec![0; spec.key_size as usize], SeenKeys::default());
        Ok(Walk { additions: map.additions(), map, key, bytes, slot: 0, slots, seen })
    }

    /// The same from the start, over so many slots.
    fn again(mut self, slots: u32) -> Walk {
        self.seen.clear();
        Walk { slot: 0, slots, additions: self.map.additions(), ..self }
    }

    /// Address of the key of the element that was found last.
    pub(crate) fn key(&self) -> u64 {
        self.key.addr()
    }

    /// Address of the value of the next element.
    #[inline]
    pub(crate) fn next(&mut self, cpu: u32) -> Option<u64> {
        while self.slot < self.slots {
            let found = self.map.element(self.slot, cpu, &mut self.bytes);
            self.slot += 1;
            if found.is_some() && self.is_first() {
                self.key.store(0, &self.bytes);
                return found;
            }
        }
        None
    }

    /// Whether the key was not visited yet.
    #[inline]
    fn is_first(&mut self) -> bool {
        // Elements that are never added stay where they are.
        let Walk { map, bytes, additions, seen, .. } = self;
        additions.is_none() || seen.add(bytes, || map.additions() != *additions)
    }
}

/// Memory of a view's instance that its program can only read.
pub(crate) fn read_only(view: &View, label: &str, size: u32) -> Result<Block, Errno> {
    let spec = RegionSpec::new(label, RegionKind::Host, size);
    let spec = RegionSpec { writable: false, owner: view.owner(), ..spec };
    Arc::clone(view.arena()).alloc(spec).map_err(|_| Errno::ENOMEM)
}

/// The walks of a program that have not ended, each with the number of callbacks around it.
#[derive(Debug, Default)]
pub(crate) struct Walks {
    open: Vec<(u32, Walk)>,
    /// The last that ended, whose memory the next one over the same map takes. Until then it keeps that map.
    spare: Option<Walk>,
}

impl Walks {
    /// A walk over so many slots of a map.
    ///
    /// # Errors
    /// As for [`Walk::new`].
    pub(crate) fn make(&mut self, view: &View, map: &Arc<dyn MapOps>, slots: u32) -> Result<Walk, Errno> {
        match self.spare.take().filter(|spare| Arc::ptr_eq(&spare.map, map)) {
            Some(spare) => Ok(spare.again(slots)),
            None => Walk::new(view, map, slots),
        }
    }

    /// Takes a walk back that has ended.
    pub(crate) fn end(&mut self, walk: Walk) {
        self.spare = Some(walk);
    }

    /// Begins a walk inside so many callbacks. Those that were left without an end are over.
    pub(crate) fn begin(&mut self, walk: Walk, depth: u32) {
        while self.open.last().is_some_and(|(outer, _)| *outer >= depth) {
            self.open.pop();
        }
        self.open.push((depth, walk));
    }

    /// Address of the value of the next element of the walk inside so many callbacks. `None` ends the walk, as `stop` does.
    #[inline]
    pub(crate) fn advance(&mut self, depth: u32, cpu: u32, stop: bool) -> Option<u64> {
        while self.open.last().is_some_and(|(inner, _)| *inner > depth) {
            self.open.pop();
        }
        let (_, walk) = self.open.last_mut().filter(|(own, _)| *own == depth)?;
        let found = if stop { None } else { walk.next(cpu) };
        if found.is_none() {
            self.spare = self.open.pop().map(|(_, walk)| walk);
        }
        found
    }

    /// Ends all walks, and gives their memory back.
    pub(crate) fn clear(&mut self) {
        self.open.clear();
        self.spare = None;
    }
}
