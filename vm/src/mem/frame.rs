//! The frame of the function that calls a host function: what lies there is found without a search for its region.
#![expect(unsafe_code, reason = "memory of programs is outside all Rust objects")]

use std::marker::PhantomData;

use super::block::Block;
use super::bytes::{load, store};

/// See the module documentation. Addresses count in full: of those that leave out the upper half the view knows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallerFrame<'a> {
    /// Value of r10.
    top: u64,
    /// Bytes below that.
    bytes: u64,
    stack: PhantomData<&'a Block>,
}

impl<'a> CallerFrame<'a> {
    /// The frame below `top` in a stack of equal ones.
    ///
    /// # Panics
    /// If there is none.
    #[inline(always)]
    pub(crate) fn of(stack: &'a Block, top: u64) -> CallerFrame<'a> {
        let (spec, off) = (&stack.region().spec, top.wrapping_sub(stack.addr()));
        let size = u64::from(spec.element_size);
        assert!(spec.writable && off >= size && off <= u64::from(stack.len()), "a frame of this stack");
        // SAFETY: the bytes are inside the block, whose pages stay mapped and writable.
        unsafe { CallerFrame::new(top, size) }
    }

    /// # Safety
    /// The program can read and write all of these bytes below `top`, for the host at the same address, as long as there is the
    /// result.
    #[inline(always)]
    pub(crate) unsafe fn new(top: u64, bytes: u64) -> CallerFrame<'a> {
        CallerFrame { top, bytes, stack: PhantomData }
    }

    /// Whether bytes are all in the frame.
    #[inline(always)]
    pub(crate) fn contains(&self, addr: u64, len: usize) -> bool {
        let below = self.top.wrapping_sub(addr);
        below >= len as u64 && below <= self.bytes
    }

    #[inline(always)]
    fn at(&self, addr: u64, len: usize) -> Option<*mut u8> {
        self.contains(addr, len).then_some(addr as *mut u8)
    }

    /// Copies bytes out; `None` if they are not all in the frame.
    #[inline(always)]
    pub(crate) fn read(&self, addr: u64, out: &mut [u8]) -> Option<()> {
        let from = self.at(addr, out.len())?;
        // SAFETY: the bytes are inside the frame, which `new` was promised of.
        unsafe { load(from, out) };
        Some(())
    }

    /// Copies bytes in; `None`, and nothing written, if they are not all in the frame.
    #[inline(always)]
    pub(crate) fn write(&self, addr: u64, bytes: &[u8]) -> Option<()> {
        let to = self.at(addr, bytes.len())?;
        // SAFETY: as in `read`.
        unsafe { store(to, bytes) };
        Some(())
    }
}
