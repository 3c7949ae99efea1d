//! Allocator of chunks in a region of code memory.

use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use twinbpf_vm::mem::FreeList;
use twinbpf_vm::process::refused_addresses;
use twinbpf_vm::recover::CodeRange;

use super::region::{PAGE, Region, part};
use super::{GRANULE, MemoryError};

/// Bytes of the pool of [`CodePool::shared`].
const SHARED: usize = 1 << 30;
/// Pools of a kind that a process has, at most: for its own code, for the C library, and for what else is far from both.
const POOLS: usize = 4;
/// Pages without code are given back to the system when there are about this many bytes of them. Until then
/// the next program finds them warm.
const IDLE: usize = 1 << 20;

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct CodePool {
    /// Registers the range with the signal handlers: faults in it are those of programs; gone before the pages are.
    _faults: CodeRange,
    region: Region,
    space: Mutex<Space>,
    capacity: usize,
    /// Bytes of which every chunk has a multiple.
    granule: usize,
    /// The process that owns the pages.
    process: u32,
}

#[derive(Debug)]
struct Space {
    free: FreeList,
    used: usize,
    /// Nothing at or above was ever allocated.
    frontier: usize,
    /// Free bytes whose pages the system may still hold, at most.
    idle: usize,
}

/// A pool for code that calls functions in a [`part`].
struct Near {
    part: u64,
    pool: Arc<CodePool>,
}

/// Part of a pool, given back on drop.
#[derive(Debug)]
pub(super) struct Chunk {
    pub(super) pool: Arc<CodePool>,
    pub(super) start: usize,
    pub(super) len: usize,
}

fn refused(bytes: usize, error: &std::io::Error) -> MemoryError {
    MemoryError::Reserve(refused_addresses("generated code", bytes, error))
}

impl CodePool {
    /// Reserves a pool close to an address, if there is room. Memory is taken only as code is written.
    pub(crate) fn new(capacity: usize, near: u64) -> Result<Arc<CodePool>, MemoryError> {
        let capacity = capacity.next_multiple_of(PAGE);
        let region = Region::dual(capacity, near).or_else(|error| {
            log::debug!("code pool without a second view: {error}");
            Region::single(capacity, near)
        });
        region.map(|region| CodePool::over(region, capacity)).map_err(|error| refused(capacity, &error))
    }

    #[expect(unsafe_code, reason = "says where generated code is")]
    pub(super) fn over(region: Region, capacity: usize) -> Arc<CodePool> {
        let granule = if region.is_dual() { GRANULE } else { PAGE };
        let free = FreeList::new(0, capacity as u64);
        let space = Mutex::new(Space { free, used: 0, frontier: 0, idle: 0 });
        let range = region.range();
        // SAFETY: what the pool will have in it is generated code, and nothing runs there before.
        let faults = unsafe { CodeRange::new(range.start, range.end - range.start) };
        Arc::new(CodePool { _faults: faults, region, space, capacity, granule, process: std::process::id() })
    }

    /// The pool of this process for code that calls functions at such addresses, 1 GiB. It is made at the first call and
    /// stays.
    pub(crate) fn shared(near: u64) -> Result<Arc<CodePool>, MemoryError> {
        static POOLS: Mutex<Vec<Near>> = Mutex::new(Vec::new());
        CodePool::of_process(&POOLS, near, || CodePool::new(SHARED, near))
    }

    /// The same for code in which debuggers set breakpoints: with one view, since the kernel lets them write only to pages
    /// of which there is no other.
    pub(crate) fn breakable(near: u64) -> Result<Arc<CodePool>, MemoryError> {
        static POOLS: Mutex<Vec<Near>> = Mutex::new(Vec::new());
        let single = || Region::single(SHARED, near).map(|region| CodePool::over(region, SHARED));
        CodePool::of_process(&POOLS, near, || single().map_err(|error| refused(SHARED, &error)))
    }

    /// An address inside this library, which generated code calls and is called by.
    // One copy has one address.
    #[inline(never)]
    pub(crate) fn own_address() -> u64 {
        CodePool::own_address as *const () as u64
    }

    /// The address near which most of these lie, within reach of a shared pool; [`CodePool::own_address`] in case of a tie.
    pub(crate) fn nearest(addresses: impl Iterator<Item = u64>) -> u64 {
        let mut counts = vec![(CodePool::own_address(), 0)];
        for address in addresses {
            match counts.iter_mut().find(|(known, _)| part(*known) == part(address)) {
                Some((_, count)) => *count += 1,
                None => counts.push((address, 1)),
            }
        }
        counts.iter().rev().max_by_key(|(_, count)| *count).expect("there is at least one").0
    }

    fn of_process(
        pools: &Mutex<Vec<Near>>,
        near: u64,
        make: impl FnOnce() -> Result<Arc<CodePool>, MemoryError>,
    ) -> Result<Arc<CodePool>, MemoryError> {
        let mut pools = pools.lock().expect("no panic while held");
        pools.retain(|near| near.pool.is_ours());
        let part = part(near);
        let known = pools.iter().find(|near| near.part == part);
        // Far from here is better than no code at all.
        let known = known.or_else(|| pools.last().filter(|_| pools.len() == POOLS));
        if let Some(near) = known {
            return Ok(Arc::clone(&near.pool));
        }
        let pool = match make() {
            Ok(pool) => pool,
            Err(error) => return pools.first().map(|near| Arc::clone(&near.pool)).ok_or(error),
        };
        pools.push(Near { part, pool: Arc::clone(&pool) });
        Ok(pool)
    }

    /// Whether this process made the pool, and not one that forked it.
    fn is_ours(&self) -> bool {
        self.process == std::process::id()
    }

    /// Addresses at which its code is executed, used or not.
    pub(crate) fn range(&self) -> Range<u64> {
        self.region.range()
    }

    /// Bytes in use.
    #[cfg(test)]
    pub(crate) fn used(&self) -> usize {
        self.space.lock().expect("no panic while held").used
    }

    /// Address space for so many bytes of code.
    pub(super) fn take(self: &Arc<Self>, bytes: usize) -> Result<Chunk, MemoryError> {
        let len = bytes.next_multiple_of(self.granule);
        if !self.is_ours() {
            return Err(MemoryError::Forked { owner: self.process });
        }
        let mut space = self.space.lock().expect("no panic while held");
        let full = MemoryError::Full { wanted: len, used: space.used, capacity: self.capacity };
        let start = space.free.take(len as u64).ok_or(full)? as usize;
        space.add(start, len);
        drop(space);
        let chunk = Chunk { pool: Arc::clone(self), start, len };
        self.region.open(start, len).map_err(|source| MemoryError::Protect { bytes: len, source })?;
        Ok(chunk)
    }

    /// Gives pages without code back to the system now.
    #[cfg(test)]
    pub(crate) fn trim(&self) {
        if self.is_ours() {
            self.space.lock().expect("no panic while held").trim(&self.region);
        }
    }
}

impl Space {
    fn add(&mut self, start: usize, len: usize) {
        self.used += len;
        self.frontier = self.frontier.max(start + len);
    }

    fn trim(&mut self, region: &Region) {
        for (start, len) in self.free.ranges() {
            let first = (*start as usize).next_multiple_of(PAGE);
            let end = ((start + len) as usize).min(self.frontier.next_multiple_of(PAGE)) / PAGE * PAGE;
            if first < end {
                region.discard(first, end - first);
            }
        }
        self.idle = 0;
    }
}

impl Chunk {
    /// Bytes from the start of the pool at which `used` bytes of this chunk lead to, a multiple of `align`.
    pub(super) fn align(&self, used: usize, align: usize) -> usize {
        (self.start + used).next_multiple_of(align) - self.start
    }

    /// Makes it `len` bytes long in place, if the space after it is free.
    pub(super) fn grow(&mut self, len: usize) -> io::Result<()> {
        let pool = Arc::clone(&self.pool);
        let exact = len.next_multiple_of(pool.granule);
        let mut space = pool.space.lock().expect("no panic while held");
        let end = self.start + self.len;
        // A module that grows once grows again.
        let ample = (exact + exact / 2).next_multiple_of(pool.granule);
        let more = [ample, exact].map(|len| len - self.len);
        let Some(more) = more.into_iter().find(|more| space.free.take_at(end as u64, *more as u64)) else {
            let full = MemoryError::Full { wanted: exact, used: space.used, capacity: pool.capacity };
            return Err(io::Error::new(io::ErrorKind::OutOfMemory, full));
        };
        space.add(end, more);
        self.len += more;
        drop(space);
        pool.region.open(end, more)
    }

    /// Keeps the first `len` bytes.
    pub(super) fn shrink(&mut self, len: usize) {
        let keep = len.next_multiple_of(self.pool.granule);
        let mut space = self.pool.space.lock().expect("no panic while held");
        if keep < self.len {
            if !self.pool.region.is_dual() {
                self.pool.region.discard(self.start + keep, self.len - keep);
            }
            space.free.give((self.start + keep) as u64, (self.len - keep) as u64);
            space.used -= self.len - keep;
            self.len = keep;
        }
    }

    pub(super) fn publish(&self) -> io::Result<()> {
        self.pool.region.publish(self.start, self.len)
    }

    pub(super) fn write_at(&self, off: usize) -> *mut u8 {
        self.pool.region.write_at(self.start + off)
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        let pool = &self.pool;
        if !pool.is_ours() || self.len == 0 {
            return;
        }
        let mut space = pool.space.lock().expect("no panic while held");
        if !pool.region.is_dual() {
            // Pages without an owner must not stay executable; they are whole pages of this chunk alone.
            pool.region.discard(self.start, self.len);
        } else {
            space.idle += self.len;
        }
        space.free.give(self.start as u64, self.len as u64);
        space.used -= self.len;
        if space.idle > IDLE {
            space.trim(&pool.region);
        }
    }
}

/// Published code of one module, given back on drop. Callers that execute it must own it, or borrow it from an owner.
#[derive(Debug)]
pub(crate) struct CodeMemory {
    chunk: Chunk,
    /// Bytes from the chunk's start that hold code.
    len: usize,
}

impl CodeMemory {
    pub(super) fn new(chunk: Chunk, len: usize) -> CodeMemory {
        CodeMemory { chunk, len }
    }

    /// The pool it is in.
    pub(crate) fn pool(&self) -> &Arc<CodePool> {
        &self.chunk.pool
    }

    /// Addresses at which it is executed.
    pub(crate) fn range(&self) -> Range<u64> {
        let start = self.pool().range().start + self.chunk.start as u64;
        start..start + self.len as u64
    }

    /// Where the function is executed that cranelift-jit's `get_finalized_function` says is at `written`.
    ///
    /// # Panics
    /// If `written` is not in this module.
    pub(crate) fn address_of(&self, written: *const u8) -> u64 {
        let off = (written as usize).checked_sub(self.chunk.write_at(0) as usize);
        let off = off.filter(|off| *off < self.len).expect("a function of this module");
        self.range().start + off as u64
    }

    /// A copy of the code.
    pub(crate) fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len];
        self.pool().region.read(self.chunk.start, &mut bytes);
        bytes
    }
}
