//! The arena: address space, the table of regions, and its page allocator.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, RwLock};

use super::fault::{Access, Fault, FaultReason, MemError, Near};
use super::free::Space;
use super::grid::Grid;
use super::handle::HandleTable;
use super::page_colouring::{SLACK, apart};
use super::sys::{Alias, HUGE_PAGE, Reservation};
use super::{ARENA_SIZE, MARGIN, NULL_GUARD};

/// Allocation granule: one page, so that protection can differ between regions.
pub(super) const PAGE: u64 = 4096;
/// Bytes after a region that belong to no other, so that running over its end is noticed.
const GAP: u64 = 64;
/// Bytes at the bottom of a sandbox that hold read-only regions. Pages there are never writable where programs see
/// them, pages above always are, so no page changes protection when it is reused. Blocks write to read-only pages
/// at a second address, outside the arena. Both halves begin below 2 GiB, in the reach of a displacement.
const READ_ONLY_SPACE: u64 = 1 << 30;
/// Fewer bytes than that are no arena for trusted programs.
const LEAST_TRUSTED: u64 = 16 << 20;
/// The part of such an arena that is for read-only regions.
const READ_ONLY_PART: u64 = 4;

/// Bytes between the addresses of functions; there is room for a jump.
const FUNCTION_STRIDE: u64 = 32;

/// What a region holds, for messages only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RegionKind {
    /// Argument of an entry function.
    Context,
    /// Frames of one instance.
    Stack,
    /// Packet bytes after an XDP or TC context.
    Packet,
    /// Values (or keys and values) of a map.
    Map,
    /// A data section.
    Data,
    /// Memory an embedder shares.
    Host,
}

/// Specification of a region for [`Arena::alloc`].
#[derive(Clone, Debug)]
pub struct RegionSpec {
    /// How messages call it: `value of map counts`, `stack`, `context`.
    pub label: Arc<str>,
    /// What it holds.
    pub kind: RegionKind,
    /// Bytes of one element that programs may touch.
    pub element_size: u32,
    /// Bytes from one element to the next, at least `element_size`. What lies between faults.
    pub stride: u32,
    /// Number of elements.
    pub count: u32,
    /// Whether programs may store to it.
    pub writable: bool,
    /// The only owner whose views see it; 0 if all views do.
    pub owner: u32,
}

impl RegionSpec {
    /// One element of `size` bytes, writable, which all views see.
    pub fn new(label: impl Into<Arc<str>>, kind: RegionKind, size: u32) -> RegionSpec {
        let label = label.into();
        RegionSpec { label, kind, element_size: size, stride: size, count: 1, writable: true, owner: 0 }
    }
}

/// Elements of different sizes in one region, decided while programs run: the open records of a ring buffer.
pub trait Elements: std::fmt::Debug + Send + Sync {
    /// Offset (from the region's start) and size of the last element that starts at or before `off`. It must lie
    /// inside the region; the arena panics at one that does not.
    fn element(&self, off: u32) -> Option<(u32, u32)>;
}

/// A region in the table of its arena. Offsets count from the arena's base.
#[derive(Clone, Debug)]
pub struct Region {
    /// The specification that it was allocated by.
    pub spec: RegionSpec,
    /// Offset of its first byte.
    pub start: u32,
    /// Bytes in use, `stride * count`.
    pub len: u32,
    /// Set by [`Block::set_elements`](super::Block::set_elements).
    pub(super) elements: Option<Arc<dyn Elements>>,
    /// Its pages are those of a file.
    mapped: bool,
}

/// What an access hit.
pub(super) struct Found {
    /// Offset of the element.
    pub(super) element: u32,
    /// Bytes of it.
    pub(super) size: u32,
    /// Its region, if the elements of that lie at equal distances.
    pub(super) grid: Option<Grid>,
}

/// See the module documentation.
#[derive(Debug)]
pub struct Arena {
    reservation: Reservation,
    /// What to add to an offset for where it is in the reservation, wrapping.
    origin: usize,
    base: u64,
    /// Offset of the first byte for read-only regions.
    start: u32,
    /// Offset of the first byte for writable regions.
    split: u32,
    /// Where the host writes to the read-only pages, once there are any.
    alias: OnceLock<Alias>,
    /// Sorted by start. Views keep the one that they found last, so that they search without the lock.
    table: RwLock<Arc<Vec<Region>>>,
    pub(super) pages: Mutex<Pages>,
    /// Counts every change of what programs can access.
    generation: AtomicU64,
    /// Counts every change of the region table but those of what is open in a region with [`Elements`].
    table_version: AtomicU64,
    owners: AtomicU32,
    poisoned: Arc<AtomicBool>,
    pub(super) limit: u64,
    functions: Arc<HandleTable>,
    maps: Arc<HandleTable>,
}

/// Page bookkeeping: one frontier and one free list for each half.
#[derive(Debug)]
pub(super) struct Pages {
    pub(super) used: u64,
    writable: Space,
    read_only: Space,
}

impl Region {
    /// Its elements, if none are set.
    pub(super) fn grid(&self) -> Grid {
        let RegionSpec { stride, element_size, writable, .. } = self.spec;
        Grid::new(self.start, self.len, element_size, stride, writable)
    }

    /// What stands for memory that no program sees: at offset 0, where nothing is.
    pub(super) fn nowhere(spec: RegionSpec, len: u32) -> Region {
        Region { spec, start: 0, len, elements: None, mapped: false }
    }

    /// Its pages are those of a file from now on.
    pub(super) fn set_mapped(&mut self) {
        self.mapped = true;
    }
}

impl Arena {
    /// Reserves an arena in which at most `limit` bytes can be in use at a time.
    ///
    /// # Errors
    /// The system has no room.
    pub fn new(limit: u64) -> Result<Arc<Arena>, MemError> {
        let size = ARENA_SIZE as usize;
        let (reservation, origin) = Reservation::new(size, size, MARGIN as usize)?;
        let base = reservation.at(origin) as u64;
        let split = apart(MARGIN, READ_ONLY_SPACE);
        let functions = HandleTable::new("functions", FUNCTION_STRIDE, 1 << 20)?;
        Arena::over(reservation, origin, base, [MARGIN, split, ARENA_SIZE - MARGIN], limit, functions)
    }

    /// An arena for programs that work with raw pointers: its base is zero, and it takes as much of the lower 4 GiB
    /// of the address space as the limit needs, so that a 32-bit field can hold a pointer there too. Addresses of
    /// functions can be called by C code. Where there is not so much room, it is smaller.
    ///
    /// # Errors
    /// No address space is left, or faults cannot be recovered from on this target.
    ///
    /// # Safety
    /// What runs in it (machines with [`View::trusted`](super::View::trusted), and code compiled for it) reads, writes
    /// and calls any address of the process. The caller answers for every program that runs there, and for what safe
    /// code does with views of it, as for `unsafe` code of its own.
    #[expect(unsafe_code, reason = "trust, and files of others, are the caller's word")]
    pub unsafe fn trusted(limit: u64) -> Result<Arc<Arena>, MemError> {
        if !crate::recover::AVAILABLE {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "trusted programs need x86-64 Linux").into());
        }
        let limit = limit.clamp(LEAST_TRUSTED, ARENA_SIZE / 2).next_multiple_of(PAGE);
        let mut size = limit + limit / READ_ONLY_PART + SLACK;
        let reservation = loop {
            match Reservation::low(size as usize) {
                Ok(reservation) => break reservation,
                Err(_) if size / 2 >= LEAST_TRUSTED => size = (size / 2).next_multiple_of(PAGE),
                Err(error) => return Err(error.into()),
            }
        };
        let start = reservation.at(0) as u64;
        let split = apart(start, start + size / (READ_ONLY_PART + 1));
        let functions = HandleTable::callable("functions", FUNCTION_STRIDE, 1 << 20)?;
        let origin = 0usize.wrapping_sub(start as usize);
        Arena::over(reservation, origin, 0, [start + PAGE, split, start + size - PAGE], limit, functions)
    }

    /// An arena of read-only memory from the first to the second offset, and writable memory to the third.
    fn over(
        reservation: Reservation,
        origin: usize,
        base: u64,
        [start, split, end]: [u64; 3],
        limit: u64,
        functions: Arc<HandleTable>,
    ) -> Result<Arc<Arena>, MemError> {
        Ok(Arc::new(Arena {
            reservation,
            origin,
            base,
            start: start as u32,
            split: split as u32,
            alias: OnceLock::new(),
            table: RwLock::default(),
            pages: Mutex::new(Pages { used: 0, writable: Space::new(split, end), read_only: Space::new(start, split) }),
            generation: AtomicU64::new(0),
            table_version: AtomicU64::new(0),
            owners: AtomicU32::new(0),
            poisoned: Arc::new(AtomicBool::new(false)),
            limit,
            functions,
            maps: HandleTable::new("maps", 16, 1 << 16)?,
        }))
    }

    /// Address of offset 0; its low 32 bits are zero.
    pub fn base(&self) -> u64 {
        self.base
    }

    /// Whether it is one of [`Arena::trusted`].
    pub fn is_trusted(&self) -> bool {
        self.base == 0
    }

    /// From now on nothing is to run in this arena: a C function was left in the middle of what it did, perhaps with
    /// locks held.
    pub fn poison(&self) {
        self.poisoned.store(true, Ordering::Relaxed);
    }

    /// Whether it is.
    pub(crate) fn poisoned(&self) -> &Arc<AtomicBool> {
        &self.poisoned
    }

    /// Addresses of functions.
    pub fn functions(&self) -> &Arc<HandleTable> {
        &self.functions
    }

    /// Handles of maps.
    pub fn maps(&self) -> &Arc<HandleTable> {
        &self.maps
    }

    /// A fresh owner number for [`RegionSpec::owner`].
    pub fn new_owner(&self) -> u32 {
        self.owners.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Changes whenever a region appears or goes.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Changes whenever the region table does.
    #[inline]
    pub(super) fn table_version(&self) -> u64 {
        self.table_version.load(Ordering::Acquire)
    }

    fn table_changed(&self) {
        self.table_version.fetch_add(1, Ordering::Release);
        self.touch();
    }

    /// Bytes in use.
    pub fn used(&self) -> u64 {
        self.pages.lock().expect("no panic while held").used
    }

    /// Takes a zeroed region.
    pub(super) fn take(&self, spec: RegionSpec) -> Result<Region, MemError> {
        assert!(spec.stride >= spec.element_size, "elements do not overlap");
        let wanted = u64::from(spec.stride) * u64::from(spec.count);
        let bytes = (wanted + GAP).next_multiple_of(PAGE);
        let start = self.take_pages(&spec, bytes)?;
        let len = u32::try_from(wanted).expect("fits, since the pages fit into the arena");
        let region = Region { spec, start, len, elements: None, mapped: false };
        let mut table = self.table.write().expect("no panic while held");
        let index = table.partition_point(|other| other.start < start);
        Arc::make_mut(&mut table).insert(index, region.clone());
        drop(table);
        self.table_changed();
        Ok(region)
    }

    /// Maps the first pages of a file that others share in place of a region's.
    pub(super) fn map_file(&self, region: &Region, file: BorrowedFd<'_>) -> io::Result<()> {
        let len = u64::from(region.len).next_multiple_of(PAGE) as usize;
        self.reservation.place_shared(self.in_mapping(region.start.into()), len, file)
    }

    fn take_pages(&self, spec: &RegionSpec, bytes: u64) -> Result<u32, MemError> {
        let mut pages = self.pages.lock().expect("no panic while held");
        let free = self.limit.saturating_sub(pages.used);
        let wanted = u64::from(spec.stride) * u64::from(spec.count);
        let refused = || MemError::Limit { name: Arc::clone(&spec.label), wanted, free, limit: self.limit };
        if bytes > free {
            return Err(refused());
        }
        let space = if spec.writable { &mut pages.writable } else { &mut pages.read_only };
        let start = space.free.take(bytes).ok_or_else(refused)?;
        if let Some(fresh) = (start + bytes).checked_sub(space.frontier).filter(|fresh| *fresh > 0) {
            if let Err(error) = self.open(space.frontier, fresh, spec.writable) {
                space.free.give(start, bytes);
                return Err(error.into());
            }
            space.frontier = start + bytes;
        }
        pages.used += bytes;
        // Of a range that ends before the region does, so that no neighbour is in a huge page of it.
        if let Some(huge) = bytes.checked_sub(HUGE_PAGE) {
            self.reservation.prefer_huge(self.in_mapping(start), self.in_mapping(start + huge));
        }
        Ok(start as u32)
    }

    /// Gives programs access to pages that were never allocated. Called with the lock of the pages held.
    fn open(&self, start: u64, len: u64, writable: bool) -> io::Result<()> {
        if !writable && self.alias.get().is_none() {
            let len = (self.split - self.start) as usize;
            let alias = self.reservation.share(self.in_mapping(self.start.into()), len)?;
            self.alias.set(alias).expect("made once, since the pages are locked");
        }
        self.reservation.protect(self.in_mapping(start), len as usize, writable)
    }

    /// Invalidates the cached regions of every view.
    pub(super) fn touch(&self) {
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// Called by [`Block::set_elements`](super::Block::set_elements).
    pub(super) fn set_elements(&self, region: &Region, elements: Arc<dyn Elements>) {
        let mut table = self.table.write().expect("no panic while held");
        let found = Arc::make_mut(&mut table).iter_mut().find(|other| other.start == region.start);
        found.expect("a block's region is in the table").elements = Some(elements);
        drop(table);
        self.table_changed();
    }

    /// Called by the block's drop.
    pub(super) fn free(&self, region: &Region) {
        let mut table = self.table.write().expect("no panic while held");
        if let Ok(index) = table.binary_search_by_key(&region.start, |other| other.start) {
            Arc::make_mut(&mut table).remove(index);
        }
        drop(table);
        self.table_changed();
        let bytes = (u64::from(region.len) + GAP).next_multiple_of(PAGE);
        let mut pages = self.pages.lock().expect("no panic while held");
        match self.aliased(region.start) {
            Some((alias, off)) => alias.discard(off, bytes as usize),
            None if region.mapped => self.reservation.place_fresh(self.in_mapping(region.start.into()), bytes as usize),
            None => self.reservation.discard(self.in_mapping(region.start.into()), bytes as usize),
        }
        pages.used -= bytes;
        let space = if region.spec.writable { &mut pages.writable } else { &mut pages.read_only };
        space.free.give(u64::from(region.start), bytes);
    }

    /// Pointer to an offset, as programs have it.
    pub(super) fn at(&self, off: u32) -> *mut u8 {
        self.reservation.at(self.in_mapping(off.into()))
    }

    /// Where an offset is in the reservation.
    fn in_mapping(&self, off: u64) -> usize {
        self.origin.wrapping_add(off as usize)
    }

    /// Pointer to an offset for the host to write, inside a region.
    pub(super) fn write_at(&self, off: u32) -> *mut u8 {
        self.aliased(off).map_or_else(|| self.at(off), |(alias, off)| alias.at(off))
    }

    /// The second address of a byte that programs can only read.
    fn aliased(&self, off: u32) -> Option<(&Alias, usize)> {
        (off < self.split).then(|| {
            let alias = self.alias.get().expect("there is a read-only region");
            (alias, (off - self.start) as usize)
        })
    }

    /// Extent of the pages that were ever allocated, writable half or read-only half, by offset.
    pub(super) fn extent(&self, off: u32) -> Option<(u32, u32, bool)> {
        let pages = self.pages.lock().expect("no panic while held");
        let (start, end, writable) = if off < self.split {
            (self.start, pages.read_only.frontier as u32, false)
        } else {
            (self.split, pages.writable.frontier as u32, true)
        };
        (off >= start && off < end).then_some((start, end, writable))
    }

    /// Addresses of the writable half.
    #[cfg(test)]
    pub(crate) fn writable_half(&self) -> std::ops::Range<u64> {
        self.base + u64::from(self.split)..self.base + ARENA_SIZE - MARGIN
    }

    /// All regions as they are now.
    pub(super) fn regions(&self) -> Arc<Vec<Region>> {
        Arc::clone(&self.table.read().expect("no panic while held"))
    }

    /// The element that holds `len` bytes at `addr`, in a table of this arena. `owner` is the view's.
    pub(super) fn find(
        &self,
        table: &[Region],
        addr: u64,
        len: u64,
        access: Access,
        owner: u32,
    ) -> Result<Found, Fault> {
        let fault = |reason| Fault { addr, len, access, reason };
        if addr < u64::from(NULL_GUARD) {
            return Err(fault(FaultReason::Null));
        }
        let visible = |region: &&Region| region.spec.owner == 0 || region.spec.owner == owner;
        let Some(off) = self.offset(addr) else {
            let edge = if addr < self.base() { table.iter().find(visible) } else { table.iter().rev().find(visible) };
            return Err(fault(FaultReason::Foreign(edge.map(|region| self.near(addr, region)))));
        };
        let index = table.partition_point(|region| region.start <= off);
        let found = index.checked_sub(1).map(|index| &table[index]).filter(visible);
        let Some(region) = found.filter(|region| off - region.start < region.len) else {
            let below = table[..index].iter().rev().find(visible);
            let above = table[index..].iter().find(visible);
            let near =
                [below, above].into_iter().flatten().map(|region| self.near(self.base() + u64::from(off), region));
            return Err(fault(FaultReason::NoRegion(near.min_by_key(|near| near.distance))));
        };
        let (element, size) = match &region.elements {
            None => (region.grid().element(off), region.spec.element_size),
            Some(elements) => match elements.element(off - region.start) {
                Some((start, size)) => {
                    let inside =
                        start <= off - region.start && start.checked_add(size).is_some_and(|end| end <= region.len);
                    assert!(inside, "element {start}+{size} at or before {off:#x} and inside {}", region.spec.label);
                    (region.start + start, size)
                }
                None => return Err(fault(FaultReason::Closed(Arc::clone(&region.spec.label)))),
            },
        };
        if u64::from(off - element).saturating_add(len) > u64::from(size) {
            let region = Arc::clone(&region.spec.label);
            return Err(fault(FaultReason::Overflow { region, size, off: off - element }));
        }
        if access == Access::Write && !region.spec.writable {
            return Err(fault(FaultReason::ReadOnly(Arc::clone(&region.spec.label))));
        }
        let grid = region.elements.is_none().then(|| region.grid());
        Ok(Found { element, size, grid })
    }

    /// A region as the one next to an address outside it.
    fn near(&self, addr: u64, region: &Region) -> Near {
        let start = self.base() + u64::from(region.start);
        let below = addr < start;
        let distance = if below { start - addr } else { addr - start - u64::from(region.len) };
        let (label, count, size) = (Arc::clone(&region.spec.label), region.spec.count, region.spec.element_size);
        Near { label, count, size, distance, below }
    }

    /// The address rule: an upper half that is zero or the arena's is fine, anything else is not ours.
    pub(super) fn offset(&self, addr: u64) -> Option<u32> {
        let upper = addr & !0xffff_ffff;
        (upper == 0 || upper == self.base()).then_some(addr as u32)
    }
}
