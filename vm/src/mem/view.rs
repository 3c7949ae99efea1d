//! One machine's view of the arena: loads and stores with exact bounds, cached by base register.
//!
//! A window is the region element that the last access through a register hit. A hit costs a subtraction and
//! a comparison; a miss reads the arena's table ([`View::refill`]) and the caller tries again. For one access of a
//! trusted program, a window may be the view's own copy of what is elsewhere ([`View::lend`]).
#![expect(unsafe_code, reason = "memory of programs is outside all Rust objects")]

use std::cell::RefCell;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::arena::{Arena, Found, Region};
use super::block::Block;
use super::cell::AtomicCell;
use super::fault::{Access, Fault, FaultReason};
use super::grid::Grid;
use twinbpf_isa::Size;

/// Which accesses a view permits.
///
/// ```
/// use twinbpf_vm::mem::Bounds;
///
/// assert_eq!(Bounds::default(), Bounds::Exact);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Bounds {
    /// Only bytes of a region element. Finds every overflow.
    #[default]
    Exact,
    /// Any page that was ever allocated, as code that only masks its pointers sees it.
    Arena,
}

#[derive(Clone, Copy, Debug)]
#[repr(C, align(32))]
struct Window {
    /// First address, spelled as the program spelled it (upper half zero or the arena's).
    lo: u64,
    /// The same byte for the host.
    host: *mut u8,
    /// Number of valid start offsets for an access of 1, 2, 4 and 8 bytes.
    starts: [u32; 4],
}

const EMPTY: Window = Window { lo: 0, host: ptr::null_mut(), starts: [0; 4] };

/// A table of more regions is not kept: each change makes a new one while views keep the last, and idle machines are many.
const KEPT: usize = 256;

/// Regions that a view remembers; the first is the one of [`View::set_window`], the stack.
const GRIDS: usize = 5;

/// Which of `Window::starts` an access of this many bytes uses.
const fn class(bytes: usize) -> usize {
    match bytes {
        1 => 0,
        2 => 1,
        4 => 2,
        8 => 3,
        _ => panic!("accesses have 1, 2, 4 or 8 bytes"),
    }
}

impl Window {
    fn new(lo: u64, host: *mut u8, size: u32) -> Window {
        let starts = [1u32, 2, 4, 8].map(|bytes| (size + 1).saturating_sub(bytes));
        Window { lo, host, starts }
    }

    /// Pointer to `N` bytes at `addr`, if all of them are inside.
    #[inline(always)]
    fn hit<const N: usize>(&self, addr: u64) -> Option<*mut u8> {
        let off = addr.wrapping_sub(self.lo);
        (off < u64::from(self.starts[const { class(N) }])).then(|| self.host.wrapping_add(off as usize))
    }

    /// Pointer to the aligned cell at `addr`, if it is inside.
    #[inline(always)]
    fn hit_cell<A: AtomicCell>(&self, addr: u64) -> Option<*mut u8> {
        let at = match A::SIZE {
            1 => self.hit::<1>(addr),
            2 => self.hit::<2>(addr),
            4 => self.hit::<4>(addr),
            _ => self.hit::<8>(addr),
        }?;
        (at as usize).is_multiple_of(A::SIZE).then_some(at)
    }
}

/// What a view knows of its arena's table, as of a version.
#[derive(Debug)]
struct Known {
    version: u64,
    /// The table, for searches without its lock, unless it is long.
    regions: Option<Arc<Vec<Region>>>,
    /// Regions hit last.
    grids: [Grid; GRIDS],
    next_grid: usize,
    /// The element that the host accessed last.
    last: Grid,
}

impl Known {
    fn new(arena: &Arena) -> Known {
        // Changes after this are of a later version, whether the table has them or not.
        let version = arena.table_version();
        let regions = Some(arena.regions()).filter(|regions| regions.len() <= KEPT);
        Known { version, regions, grids: [Grid::EMPTY; GRIDS], next_grid: 1, last: Grid::EMPTY }
    }

    fn remember(&mut self, grid: Grid) {
        self.grids[self.next_grid] = grid;
        self.next_grid = if self.next_grid + 1 == GRIDS { 1 } else { self.next_grid + 1 };
    }
}

/// See the module documentation. Registers are numbered 0 to 15.
#[derive(Debug)]
pub struct View {
    loads: [Window; 16],
    stores: [Window; 16],
    arena: Arc<Arena>,
    owner: u32,
    bounds: Bounds,
    trusted: bool,
    generation: u64,
    /// A bit for each register that [`View::point_at_element`] was called for.
    pointed: u16,
    known: RefCell<Known>,
    /// Copy of what a trusted program accesses outside the arena, see [`View::lend`].
    copy: Box<AtomicU64>,
}

// SAFETY: the pointers inside windows point into `arena`, which the view keeps alive and whose pages may be
// accessed from any thread, or to the view's own copy.
unsafe impl Send for View {}

impl View {
    /// A view for `owner`, which sees its own regions and those without an owner.
    pub fn new(arena: Arc<Arena>, owner: u32, bounds: Bounds) -> View {
        let generation = arena.generation();
        View {
            loads: [EMPTY; 16],
            stores: [EMPTY; 16],
            owner,
            bounds,
            trusted: false,
            generation,
            pointed: 0,
            known: RefCell::new(Known::new(&arena)),
            arena,
            copy: Box::default(),
        }
    }

    /// A view of any address that the process can access: raw pointers. Read-only regions stay read-only.
    ///
    /// # Panics
    /// If the arena is not one of [`Arena::trusted`].
    pub fn trusted(arena: Arc<Arena>, owner: u32) -> View {
        assert!(arena.is_trusted(), "only a trusted arena has raw pointers");
        View { trusted: true, ..View::new(arena, owner, Bounds::Exact) }
    }

    /// The arena that it gives access to.
    pub fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    /// Its owner number.
    pub fn owner(&self) -> u32 {
        self.owner
    }

    /// Its policy for addresses in the arena.
    pub fn bounds(&self) -> Bounds {
        self.bounds
    }

    /// Whether it is one of [`View::trusted`].
    #[inline]
    pub fn is_trusted(&self) -> bool {
        self.trusted
    }

    /// `N` (1, 2, 4 or 8) bytes at `addr`, or `None` on a miss of the window of `reg`.
    #[inline(always)]
    pub fn load<const N: usize>(&self, reg: usize, addr: u64) -> Option<[u8; N]> {
        let at = self.loads[reg & 15].hit::<N>(addr)?;
        // SAFETY: a window lies inside one region element of `arena`, whose pages stay mapped and readable as
        // long as `self.arena` lives, or is `self.copy`; `hit` checked that all `N` bytes are inside. Any bytes are a `[u8; N]`.
        Some(unsafe { at.cast::<[u8; N]>().read_unaligned() })
    }

    /// Stores `N` (1, 2, 4 or 8) bytes at `addr`, or does nothing on a miss of the window of `reg`.
    #[inline(always)]
    pub fn store<const N: usize>(&self, reg: usize, addr: u64, bytes: [u8; N]) -> Option<()> {
        let at = self.stores[reg & 15].hit::<N>(addr)?;
        // SAFETY: as in `load`; windows for stores are only made of writable pages.
        unsafe { at.cast::<[u8; N]>().write_unaligned(bytes) };
        Some(())
    }

    /// The atomic cell at `addr`, or `None` on a miss of the window of `reg` or a misaligned address.
    #[inline(always)]
    pub fn atomic<A: AtomicCell>(&self, reg: usize, addr: u64) -> Option<&A> {
        let at = self.stores[reg & 15].hit_cell::<A>(addr)?;
        // SAFETY: inside a writable region element (see `load`), aligned as `hit_cell` checked, and mapped as
        // long as `self.arena`, which the returned reference borrows through `self`.
        Some(unsafe { A::from_ptr(at) })
    }

    /// Loads from `addr` with acquire ordering, or `None` as [`View::atomic`] has it. Read-only memory will do.
    #[inline(always)]
    pub fn load_acquire<A: AtomicCell>(&self, reg: usize, addr: u64) -> Option<u64> {
        let at = self.loads[reg & 15].hit_cell::<A>(addr)?;
        // SAFETY: inside a region element, aligned as `hit_cell` checked, and mapped as long as `self.arena`
        // lives; the reference is only loaded from, with an instruction that works on read-only pages.
        Some(unsafe { A::from_ptr(at) }.acquire())
    }

    /// Looks up `addr` and points the window of `reg` at what it finds. After `Ok`, the same access hits.
    #[cold]
    pub fn refill(&mut self, reg: usize, addr: u64, len: u64, access: Access) -> Result<(), Fault> {
        let (start, size) = self.element(addr, len, access)?;
        let lo = addr.wrapping_sub(u64::from(addr as u32 - start));
        let window = Window::new(lo, self.arena.at(start), size);
        match access {
            Access::Read => self.loads[reg & 15] = window,
            Access::Write => self.stores[reg & 15] = window,
        }
        Ok(())
    }

    /// The element that holds these bytes: its offset and size.
    #[inline]
    pub(super) fn element(&self, addr: u64, len: u64, access: Access) -> Result<(u32, u32), Fault> {
        if let Some(found) = self.recent(addr, len, access) {
            return Ok(found);
        }
        let found = self.find(addr, len, access)?;
        if let Some(grid) = found.grid {
            self.known.borrow_mut().remember(grid);
        }
        Ok((found.element, found.size))
    }

    /// The element in one of the regions that were hit last, found without the arena's table. Whatever does not
    /// fit is left to the table, which knows the words for it.
    #[inline]
    fn recent(&self, addr: u64, len: u64, access: Access) -> Option<(u32, u32)> {
        let mut known = self.known.borrow_mut();
        if self.arena.table_version() != known.version {
            return None;
        }
        let off = self.arena.offset(addr)?;
        let fits = |element: u32, grid: &Grid| {
            let inside = u64::from(off - element).saturating_add(len) <= u64::from(grid.size);
            inside && (grid.writable || access == Access::Read)
        };
        if off.wrapping_sub(known.last.start) < known.last.len && fits(known.last.start, &known.last) {
            return Some((known.last.start, known.last.size));
        }
        let grid = *known.grids.iter().find(|grid| off.wrapping_sub(grid.start) < grid.len)?;
        let element = grid.element(off);
        if !fits(element, &grid) {
            return None;
        }
        known.last = Grid { start: element, len: grid.size, ..grid };
        Some((element, grid.size))
    }

    pub(super) fn find(&self, addr: u64, len: u64, access: Access) -> Result<Found, Fault> {
        match self.bounds {
            Bounds::Exact => {
                let mut known = self.known.borrow_mut();
                if known.version != self.arena.table_version() {
                    *known = Known::new(&self.arena);
                }
                match &known.regions {
                    Some(regions) => self.arena.find(regions, addr, len, access, self.owner),
                    None => self.arena.find(&self.arena.regions(), addr, len, access, self.owner),
                }
            }
            Bounds::Arena => {
                let off = addr as u32;
                match self.arena.extent(off) {
                    Some((element, end, writable))
                        if u64::from(end - off) >= len && (writable || access == Access::Read) =>
                    {
                        Ok(Found { element, size: end - element, grid: None })
                    }
                    _ => Err(Fault { addr, len, access, reason: FaultReason::NoRegion(None) }),
                }
            }
        }
    }

    #[cfg(test)]
    pub(super) fn kept(&self) -> Option<Arc<Vec<Region>>> {
        self.known.borrow().regions.clone()
    }

    /// Points the windows of `reg` at an element of a block of the same arena, without a lookup. Used for r10.
    #[inline]
    pub fn set_window(&mut self, reg: usize, block: &Block, element: u32) {
        assert!(Arc::ptr_eq(block.arena(), &self.arena), "block of this arena");
        let spec = &block.region().spec;
        assert!(spec.writable && element < spec.count, "a writable element");
        let known = self.known.get_mut();
        if known.version != self.arena.table_version() {
            *known = Known::new(&self.arena);
        }
        known.grids[0] = block.region().grid();
        let off = block.region().start + element * spec.stride;
        let window = Window::new(self.arena.base() + u64::from(off), self.arena.at(off), spec.element_size);
        self.loads[reg & 15] = window;
        self.stores[reg & 15] = window;
    }

    /// Forgets windows of the element that begins at an address, of which the lower half counts.
    pub(crate) fn forget_element(&mut self, addr: u64) {
        let mut pointed = self.pointed;
        while pointed != 0 {
            let reg = pointed.trailing_zeros() as usize & 15;
            for window in [&mut self.loads[reg], &mut self.stores[reg]] {
                if window.lo as u32 == addr as u32 {
                    *window = EMPTY;
                }
            }
            pointed &= pointed - 1;
        }
    }

    /// Points the windows of `reg` at an element of a map's region, without a lookup.
    ///
    /// # Safety
    /// These bytes are an element of a region of the arena, which programs may write if `writable`.
    #[inline]
    pub(crate) unsafe fn point_at_element(&mut self, reg: usize, addr: u64, size: u64, writable: bool) {
        let size = u32::try_from(size).expect("an element is smaller than the arena");
        self.pointed |= 1 << (reg & 15);
        let window = Window::new(addr, addr as *mut u8, size);
        self.loads[reg & 15] = window;
        self.stores[reg & 15] = if writable { window } else { EMPTY };
    }

    pub(super) fn copy_cell(&self) -> &AtomicU64 {
        &self.copy
    }

    /// Points the window of `reg` for `access` at the copy, as what is at `addr`. The copy lives as long as `self`.
    pub(super) fn point_at_copy(&mut self, reg: usize, addr: u64, size: Size, access: Access) {
        let window = Window::new(addr, self.copy.as_ptr().cast(), size.bytes() as u32);
        match access {
            Access::Read => self.loads[reg & 15] = window,
            Access::Write => self.stores[reg & 15] = window,
        }
    }

    pub(super) fn point_at_nothing(&mut self, reg: usize, access: Access) {
        match access {
            Access::Read => self.loads[reg & 15] = EMPTY,
            Access::Write => self.stores[reg & 15] = EMPTY,
        }
    }

    /// Forgets every window if regions came or went since the last call. To be called after host functions.
    #[inline]
    pub fn sync(&mut self) {
        let generation = self.arena.generation();
        if generation != self.generation {
            self.generation = generation;
            self.forget();
        }
    }

    /// Forgets every window at the next [`View::sync`]: what is open in a region that only this view sees has changed.
    #[inline]
    pub fn invalidate(&mut self) {
        self.generation = u64::MAX;
    }

    /// Forgets every window.
    #[cold]
    pub fn forget(&mut self) {
        self.loads = [EMPTY; 16];
        self.stores = [EMPTY; 16];
    }

    /// The atomic cell at an address that a host function was given; `None` if misaligned.
    pub fn atomic_at<A: AtomicCell>(&self, addr: u64) -> Result<Option<&A>, Fault> {
        let at = self.range(addr, A::SIZE as u64, Access::Write)?;
        if !(at as usize).is_multiple_of(A::SIZE) {
            return Ok(None);
        }
        // SAFETY: `range` checked all bytes, the alignment was just checked, and the arena outlives `self`.
        Ok(Some(unsafe { A::from_ptr(at) }))
    }
}
