//! Atomic integers at addresses of programs.
#![expect(unsafe_code, reason = "memory of programs is outside all Rust objects")]

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

/// An atomic integer that can stand at an address.
pub trait AtomicCell: sealed::Sealed {
    /// Bytes, and alignment.
    const SIZE: usize;

    /// # Safety
    /// `at` must be aligned to `SIZE`, and valid for reads and writes for `'a`.
    unsafe fn from_ptr<'a>(at: *mut u8) -> &'a Self;

    /// Loads with acquire ordering, zero-extended.
    fn acquire(&self) -> u64;

    /// Stores the low bytes of `value` with release ordering.
    fn release(&self, value: u64);
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! atomic_cells {
    ($($Atomic:ident $Int:ident $size:literal),*) => {$(
        impl sealed::Sealed for $Atomic {}
        impl AtomicCell for $Atomic {
            const SIZE: usize = $size;
            unsafe fn from_ptr<'a>(at: *mut u8) -> &'a Self {
                // SAFETY: the caller promises alignment and validity; concurrent plain accesses come from
                // programs, whose races are the machine's, not Rust's.
                unsafe { $Atomic::from_ptr(at.cast()) }
            }
            #[inline(always)]
            fn acquire(&self) -> u64 {
                // A relaxed load is the one that Rust promises to work on pages that cannot be written.
                let value = u64::from(self.load(Ordering::Relaxed));
                fence(Ordering::Acquire);
                value
            }
            #[inline(always)]
            fn release(&self, value: u64) {
                self.store(value as $Int, Ordering::Release);
            }
        }
    )*};
}
atomic_cells!(AtomicU8 u8 1, AtomicU16 u16 2, AtomicU32 u32 4, AtomicU64 u64 8);
