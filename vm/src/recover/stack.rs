//! Native stacks for generated code.
#![expect(unsafe_code, reason = "calls native code, and handles its signals")]

use std::io;
use std::num::NonZeroU64;
use std::ptr;

use crate::process::refused_addresses;

/// Addresses of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackRange {
    /// The lowest one.
    pub low: u64,
    /// The one after the highest.
    pub high: u64,
}

impl StackRange {
    /// A range without addresses.
    pub const EMPTY: StackRange = StackRange { low: 0, high: 0 };

    /// Whether an address is one of them.
    #[inline]
    pub const fn contains(self, address: u64) -> bool {
        address.wrapping_sub(self.low) < self.high - self.low
    }

    /// Bytes of the stack below an address in it.
    #[inline]
    pub fn below(self, address: u64) -> Option<usize> {
        self.contains(address).then(|| (address - self.low) as usize)
    }

    /// Number of addresses, all of them bytes.
    pub const fn size(self) -> usize {
        (self.high - self.low) as usize
    }
}

/// Memory for a native stack, with inaccessible bytes below. The kernel gives pages as they are used.
#[derive(Debug)]
pub struct NativeStack {
    low: *mut u8,
    len: usize,
}

// SAFETY: an address range that this value owns, not tied to a thread; it gives out numbers only.
unsafe impl Send for NativeStack {}
// SAFETY: as above.
unsafe impl Sync for NativeStack {}

impl NativeStack {
    /// Bytes below a stack that no access may touch. More than a page, for frames that are not written from the top.
    pub const GUARD: usize = 64 << 10;

    /// A stack of at least `size` bytes.
    ///
    /// # Errors
    /// The system's.
    pub fn new(size: usize) -> io::Result<NativeStack> {
        let len = Self::GUARD + size.next_multiple_of(4096);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_STACK;
        // SAFETY: a fresh mapping at an address of the kernel's choice touches no existing memory.
        let low = unsafe { libc::mmap(ptr::null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        if low == libc::MAP_FAILED {
            return Err(refused_addresses("a native stack", len, &io::Error::last_os_error()));
        }
        let stack = NativeStack { low: low.cast(), len };
        // SAFETY: the first pages of our own mapping, which is not in use yet.
        if unsafe { libc::mprotect(low, Self::GUARD, libc::PROT_NONE) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: our own mapping. Huge pages would commit megabytes for the first word; where they cannot be
        // switched off there are none.
        unsafe { libc::madvise(low, len, libc::MADV_NOHUGEPAGE) };
        Ok(stack)
    }

    /// Where a stack pointer starts; a multiple of 4096.
    #[inline]
    pub fn top(&self) -> NonZeroU64 {
        NonZeroU64::new(self.low as u64 + self.len as u64).expect("not at the end of the address space")
    }

    /// Whether an address is in the guard below: a fault there is an overflow of this stack.
    pub fn is_guard(&self, address: u64) -> bool {
        address.wrapping_sub(self.low as u64) < Self::GUARD as u64
    }

    /// The usable addresses.
    #[inline]
    pub fn range(&self) -> StackRange {
        StackRange { low: self.low as u64 + Self::GUARD as u64, high: self.low as u64 + self.len as u64 }
    }
}

impl Drop for NativeStack {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new`, and only this unmaps it.
        unsafe { libc::munmap(self.low.cast(), self.len) };
    }
}
