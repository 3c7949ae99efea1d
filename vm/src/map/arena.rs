//! Arenas: pages that programs allocate, kernel/bpf/arena.c.
//!
//! The map is a range of the engine's arena. Addresses differ from the kernel's only in their upper half, of which
//! neither `addr_space_cast` nor an access takes notice. A page that is not allocated reads as zero, as in the kernel;
//! a store to it, which the kernel drops, stays until the page is allocated.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use super::{Errno, MapOps, MapSpec, Pages};
use crate::mem::{Arena, Block, MemError, RegionKind, RegionSpec};

/// Bytes of a page.
pub const ARENA_PAGE: u32 = 4096;

/// See the module documentation.
#[derive(Debug)]
pub(super) struct ArenaMap {
    spec: MapSpec,
    block: Block,
    /// A bit for each page that is allocated.
    used: Mutex<Vec<u64>>,
}

impl ArenaMap {
    pub(super) fn new(spec: MapSpec, arena: &Arc<Arena>) -> Result<ArenaMap, MemError> {
        let label = format!("arena {}", spec.name);
        let page = RegionSpec { count: spec.max_entries, ..RegionSpec::new(label, RegionKind::Map, ARENA_PAGE) };
        let block = match spec.max_entries.checked_mul(ARENA_PAGE) {
            // One element, so that an access may lie across pages.
            Some(bytes) => arena.alloc(RegionSpec { count: 1, element_size: bytes, stride: bytes, ..page })?,
            // 4 GiB, for which no arena has room.
            None => arena.alloc(page)?,
        };
        let mut used = vec![0; spec.max_entries.div_ceil(64) as usize];
        if let Some(data) = &spec.data {
            let len = data.bytes.len().min(data.size as usize);
            block.write(data.start, &data.bytes[..len]);
            let pages = data.start / ARENA_PAGE..(data.start + data.size).div_ceil(ARENA_PAGE);
            pages.for_each(|page| set(&mut used, page, true));
        }
        Ok(ArenaMap { spec, block, used: Mutex::new(used) })
    }

    /// The pages from an address on, if it is a page's and all of them are in the arena.
    fn pages(&self, addr: u64, count: u32) -> Option<Range<u32>> {
        let off = self.block.offset_of(addr).filter(|off| off.is_multiple_of(ARENA_PAGE))?;
        let first = off / ARENA_PAGE;
        let end = first.checked_add(count).filter(|end| *end <= self.spec.max_entries)?;
        Some(first..end)
    }

    fn clear(&self, pages: &Range<u32>) {
        let len = (pages.end - pages.start) as usize * ARENA_PAGE as usize;
        self.block.fill(pages.start * ARENA_PAGE, len, 0);
    }
}

fn is_set(used: &[u64], page: u32) -> bool {
    used[page as usize / 64] >> (page % 64) & 1 != 0
}

fn set(used: &mut [u64], page: u32, value: bool) {
    let (word, bit) = (&mut used[page as usize / 64], 1 << (page % 64));
    *word = if value { *word | bit } else { *word & !bit };
}

/// The first `count` free pages that lie side by side.
fn find(used: &[u64], count: u32, pages: u32) -> Option<Range<u32>> {
    let mut start = 0;
    let mut page = 0;
    while page < pages {
        if page.is_multiple_of(64) && used[page as usize / 64] == u64::MAX {
            page += 64;
            start = page;
            continue;
        }
        page += 1;
        if is_set(used, page - 1) {
            start = page;
        } else if page - start == count {
            return Some(start..page);
        }
    }
    None
}

impl Pages for ArenaMap {
    fn alloc(&self, addr: u64, count: u32) -> Option<u64> {
        let mut used = self.used.lock().expect("no panic while held");
        let free = |pages: &Range<u32>| pages.clone().all(|page| !is_set(&used, page));
        let pages = match addr {
            0 => find(&used, count, self.spec.max_entries)?,
            addr => self.pages(addr, count).filter(free)?,
        };
        pages.clone().for_each(|page| set(&mut used, page, true));
        self.clear(&pages);
        Some(self.block.addr() + u64::from(pages.start * ARENA_PAGE))
    }

    fn free(&self, addr: u64, count: u32) {
        // As in the kernel: the page that holds the address, and what lies after the arena does not count.
        let Some(off) = self.block.offset_of(addr) else { return };
        let first = off / ARENA_PAGE;
        let pages = first..first.saturating_add(count).min(self.spec.max_entries);
        let mut used = self.used.lock().expect("no panic while held");
        pages.clone().for_each(|page| set(&mut used, page, false));
        self.clear(&pages);
    }

    fn reserve(&self, addr: u64, count: u32) -> Result<(), Errno> {
        let pages = self.pages(addr, count).ok_or(Errno::EINVAL)?;
        let mut used = self.used.lock().expect("no panic while held");
        if pages.clone().any(|page| is_set(&used, page)) {
            return Err(Errno::EBUSY);
        }
        pages.for_each(|page| set(&mut used, page, true));
        Ok(())
    }
}

impl MapOps for ArenaMap {
    fn spec(&self) -> &MapSpec {
        &self.spec
    }

    fn lookup(&self, _key: &[u8], _cpu: u32) -> Option<u64> {
        None
    }

    fn lookup_copy(&self, _key: &[u8], _cpu: u32, _value: &mut [u8]) -> Result<(), Errno> {
        Err(Errno::EINVAL)
    }

    fn update(&self, _key: &[u8], _value: &[u8], _flags: u64, _cpu: u32) -> Result<(), Errno> {
        Err(Errno::EOPNOTSUPP)
    }

    fn delete(&self, _key: &[u8]) -> Result<(), Errno> {
        Err(Errno::EOPNOTSUPP)
    }

    fn next_key(&self, _key: Option<&[u8]>, _next: &mut [u8]) -> Result<(), Errno> {
        Err(Errno::EOPNOTSUPP)
    }

    fn memory(&self) -> Option<&Block> {
        Some(&self.block)
    }

    fn pages(&self) -> Option<&dyn Pages> {
        Some(self)
    }

    fn arena(&self) -> Option<&Arc<Arena>> {
        Some(self.block.arena())
    }

    fn len(&self) -> u32 {
        let used = self.used.lock().expect("no panic while held");
        used.iter().map(|word| word.count_ones()).sum()
    }
}
