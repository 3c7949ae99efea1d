//! The frame of the function that calls a host function: what lies there is found without a search for its region.
#![expect(unsafe_code, reason = "memory of programs is outside all Rust objects")]

use super::bytes::{load, store};

/// See the module documentation. Addresses count in full: of those that leave out the upper half the view knows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallerFrame {
    /// Value of r10.
    top: u64,
    /// Bytes below that.
    bytes: u64,
}

impl CallerFrame {
    /// # Safety
    /// The program can read and write all of these bytes below `top`, for the host at the same address, until the host function
    /// returns.
    pub(crate) unsafe fn new(top: u64, bytes: u64) -> CallerFrame {
        CallerFrame { top, bytes }
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
