//! Ownership of a region, and access to it for the code that manages it (maps, contexts, packets).
#![expect(unsafe_code, reason = "memory of programs is outside all Rust objects")]

use std::marker::PhantomData;
use std::os::fd::BorrowedFd;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use super::arena::{Arena, Elements, Region, RegionSpec};
use super::bytes::{common_bits, equal, load, store};
use super::cell::AtomicCell;
use super::fault::MemError;
use super::hidden::Hidden;

/// A region of an arena, given back on drop. All offsets count from its first byte.
///
/// ```
/// use twinbpf_vm::mem::{Arena, RegionKind, RegionSpec};
///
/// let block = Arena::new(1 << 20)?.alloc(RegionSpec::new("a request", RegionKind::Context, 16))?;
/// block.write(4, &[1, 2]);
/// assert_eq!(block.to_vec(4, 3), [1, 2, 0]);
/// # Ok::<(), twinbpf_vm::mem::MemError>(())
/// ```
#[derive(Debug)]
pub struct Block {
    arena: Arc<Arena>,
    region: Region,
    /// Its first byte, where the host can write it.
    host: *mut u8,
    /// Its first byte, as programs see it.
    addr: u64,
    /// The pages of one that is outside of the arena.
    hidden: Option<Hidden>,
}

// SAFETY: `host` points to pages of `arena` or of `hidden`, which the block keeps alive and which any thread may access.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

/// Regions with an owner.
impl Arena {
    /// Makes a zeroed region. A read-only one can still be filled through its [`Block`].
    pub fn alloc(self: &Arc<Self>, spec: RegionSpec) -> Result<Block, MemError> {
        let region = self.take(spec)?;
        let (host, addr) = (self.write_at(region.start), self.base() + u64::from(region.start));
        Ok(Block { arena: Arc::clone(self), host, addr, region, hidden: None })
    }

    /// Makes zeroed memory that no program reaches whatever runs it, for what the host has to rely on. It counts for the
    /// limit of the arena, and has no address there.
    pub(crate) fn alloc_hidden(self: &Arc<Self>, spec: RegionSpec) -> Result<Block, MemError> {
        let wanted = u64::from(spec.stride) * u64::from(spec.count);
        let block = self.reserve_hidden(spec)?;
        block.grow(wanted)?;
        Ok(block)
    }

    /// The same, of which nothing counts before [`Block::grow`]. Where the arena's limit is lower, it is as long as that.
    pub(crate) fn reserve_hidden(self: &Arc<Self>, spec: RegionSpec) -> Result<Block, MemError> {
        let wanted = u64::from(spec.stride) * u64::from(spec.count);
        let hidden = Hidden::new(self, &spec.label, wanted)?;
        let len = u32::try_from(wanted.min(hidden.len())).expect("fits, since hidden memory does");
        let region = Region::nowhere(spec, len);
        Ok(Block { arena: Arc::clone(self), host: hidden.at(), addr: 0, region, hidden: Some(hidden) })
    }

    /// Makes a writable region of the first pages of a file that others share: a map of the kernel.
    ///
    /// # Errors
    /// There is no room, or the file cannot be mapped.
    ///
    /// # Panics
    /// For a read-only region: those have a second address, which would lead elsewhere.
    ///
    /// # Safety
    /// The file has the region's bytes, in whole pages, as long as the block lives; its other writers count as programs.
    pub unsafe fn alloc_shared(self: &Arc<Self>, spec: RegionSpec, file: BorrowedFd<'_>) -> Result<Block, MemError> {
        assert!(spec.writable, "a shared region is writable");
        let mut block = self.alloc(spec)?;
        self.map_file(&block.region, file)?;
        block.region.set_mapped();
        Ok(block)
    }
}

impl Block {
    /// The arena it is in.
    pub fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    /// What it was made for, and where.
    #[inline]
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// Length of the block in bytes.
    pub fn len(&self) -> u32 {
        self.region.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.region.len == 0
    }

    /// Counts the bytes before `end` of hidden memory for the arena's limit; others count from the start.
    pub(crate) fn grow(&self, end: u64) -> Result<(), MemError> {
        self.hidden.as_ref().map_or(Ok(()), |hidden| hidden.grow(end))
    }

    /// Whether they count.
    #[inline(always)]
    pub(crate) fn has(&self, end: u64) -> bool {
        self.hidden.as_ref().is_none_or(|hidden| hidden.has(end))
    }

    /// Address of its first byte, as programs see it.
    #[inline]
    pub fn addr(&self) -> u64 {
        self.addr
    }

    /// Address of an element.
    pub fn element(&self, index: u32) -> u64 {
        assert!(index < self.region.spec.count, "element inside the block");
        self.addr() + u64::from(index) * u64::from(self.region.spec.stride)
    }

    /// Lets `elements` say which bytes programs may touch, instead of equal elements side by side.
    pub fn set_elements(&self, elements: Arc<dyn Elements>) {
        self.arena.set_elements(&self.region, elements);
    }

    /// To be called after elements set by [`Block::set_elements`] have gone: views forget them at their next
    /// [`super::View::sync`].
    pub fn touch(&self) {
        self.arena.touch();
    }

    /// Offset in the block of an address that a program passed.
    pub fn offset_of(&self, addr: u64) -> Option<u32> {
        self.arena.offset(addr)?.checked_sub(self.region.start).filter(|off| *off < self.region.len)
    }

    /// Which element an address that a program gave points to the start of.
    pub fn index_of(&self, addr: u64) -> Option<u32> {
        let off = self.offset_of(addr)?;
        let stride = self.region.spec.stride;
        off.is_multiple_of(stride).then(|| off / stride)
    }

    /// Pointer for the host. Programs have another one to read-only pages.
    #[inline(always)]
    fn at(&self, off: u32, len: usize) -> *mut u8 {
        let end = u64::from(off) + len as u64;
        assert!(end <= u64::from(self.region.len), "range {off}+{len} inside the block of {} bytes", self.region.len);
        self.host.wrapping_add(off as usize)
    }

    /// Copies bytes from this offset into a buffer.
    ///
    /// # Panics
    /// If they are not all inside the block.
    #[inline]
    pub fn read(&self, off: u32, out: &mut [u8]) {
        let from = self.at(off, out.len());
        // SAFETY: `at` checked that the source lies inside this block, whose pages stay mapped while `self`
        // lives; `out` is a Rust buffer, and no Rust buffer overlaps an arena.
        unsafe { ptr::copy_nonoverlapping(from, out.as_mut_ptr(), out.len()) };
    }

    /// Copies bytes to this offset.
    ///
    /// # Panics
    /// If they are not all inside the block.
    #[inline]
    pub fn write(&self, off: u32, bytes: &[u8]) {
        let to = self.at(off, bytes.len());
        // SAFETY: as in `read`, in the other direction; `at` is writable for the host.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    }

    /// As [`Block::read`], where others may write: each aligned number comes in one piece.
    #[inline]
    pub(crate) fn load(&self, off: u32, out: &mut [u8]) {
        let from = self.at(off, out.len());
        // SAFETY: `at` checked that the source lies inside this block, whose pages stay mapped while `self` lives.
        unsafe { load(from, out) };
    }

    /// As [`Block::write`], where others may read: each aligned number goes in one piece.
    #[inline]
    pub(crate) fn store(&self, off: u32, bytes: &[u8]) {
        let to = self.at(off, bytes.len());
        // SAFETY: as in `load`; `at` is writable for the host.
        unsafe { store(to, bytes) };
    }

    /// Copies a range to another offset; both may overlap.
    ///
    /// # Panics
    /// If they are not both inside the block.
    #[inline]
    pub(crate) fn copy_within(&self, from: u32, to: u32, len: usize) {
        let (from, to) = (self.at(from, len), self.at(to, len));
        // SAFETY: as in `read` and `write`; `copy` allows overlap.
        unsafe { ptr::copy(from, to, len) };
    }

    /// Sets every byte of a range.
    #[inline]
    pub fn fill(&self, off: u32, len: usize, byte: u8) {
        let to = self.at(off, len);
        // SAFETY: as in `write`.
        unsafe { ptr::write_bytes(to, byte, len) };
    }

    /// Compares a range with `bytes`.
    #[inline]
    pub fn equals(&self, off: u32, bytes: &[u8]) -> bool {
        let at = self.at(off, bytes.len());
        // SAFETY: `at` checked that as many bytes as there are lie inside this block, whose pages stay mapped.
        unsafe { equal(at, bytes) }
    }

    /// Leading bits, from the most significant of the first byte on, in which a range is these bytes.
    #[inline]
    pub(crate) fn common_bits(&self, off: u32, bytes: &[u8]) -> u32 {
        let at = self.at(off, bytes.len());
        // SAFETY: as in `equals`.
        unsafe { common_bits(at, bytes) }
    }

    /// Words side by side, at an offset that is a multiple of 4.
    #[inline(always)]
    pub(crate) fn words<const N: usize>(&self, off: u32) -> [&AtomicU32; N] {
        let first = self.at(off, 4 * N);
        assert!((first as usize).is_multiple_of(4), "aligned words");
        // SAFETY: as in `atomic`, for each of them.
        std::array::from_fn(|index| unsafe { AtomicU32::from_ptr(first.wrapping_add(4 * index).cast()) })
    }

    /// So many bytes at an offset that is a multiple of 8, for access to several cells after one check.
    #[inline(always)]
    pub(crate) fn record<const BYTES: usize>(&self, off: u32) -> Record<'_, BYTES> {
        let at = self.at(off, BYTES);
        assert!((at as usize).is_multiple_of(8), "aligned record");
        Record { at, block: PhantomData }
    }

    /// A copy of a range.
    pub fn to_vec(&self, off: u32, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.read(off, &mut bytes);
        bytes
    }

    /// An atomic cell at an offset that must be aligned to its size.
    pub fn atomic<A: AtomicCell>(&self, off: u32) -> &A {
        let cell = self.at(off, A::SIZE);
        assert!((cell as usize).is_multiple_of(A::SIZE), "aligned atomic");
        // SAFETY: inside this block, aligned, mapped and writable while `self` lives; arena bytes are in no
        // Rust object, so all references to them are to atomic cells like this one.
        unsafe { A::from_ptr(cell) }
    }
}

/// Bytes of a block that are checked once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record<'a, const BYTES: usize> {
    at: *mut u8,
    block: PhantomData<&'a Block>,
}

impl<'a, const BYTES: usize> Record<'a, BYTES> {
    /// An atomic cell in it.
    #[inline(always)]
    pub(crate) fn atomic<A: AtomicCell, const OFF: usize>(self) -> &'a A {
        const { assert!(OFF + A::SIZE <= BYTES && OFF.is_multiple_of(A::SIZE)) };
        // SAFETY: as `Block::atomic`: `record` checked these bytes and their alignment.
        unsafe { A::from_ptr(self.at.wrapping_add(OFF)) }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if self.hidden.is_none() {
            self.arena.free(&self.region);
        }
    }
}
