//! System calls of an arena, with their only unsafe blocks.
#![expect(unsafe_code, reason = "memory of programs is outside all Rust objects")]

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd};
use std::ptr;

use crate::process::refused_addresses;

/// Bytes of a huge page on x86-64 and, with pages of 4 KiB, on aarch64.
pub(super) const HUGE_PAGE: u64 = 2 << 20;

/// A range of reserved address space, unmapped on drop.
#[derive(Debug)]
pub(super) struct Reservation {
    base: *mut u8,
    len: usize,
}

// SAFETY: the pointer is an address range that this value owns; all access goes through methods below or
// through raw copies whose callers state their own bounds. Nothing is tied to a thread.
unsafe impl Send for Reservation {}
// SAFETY: as above; the methods only change page protection and are safe to call from several threads.
unsafe impl Sync for Reservation {}

impl Reservation {
    /// Reserves `len` bytes without access, aligned to `align` (a power of two), with `guard` more
    /// inaccessible bytes before and after.
    pub(super) fn new(len: usize, align: usize, guard: usize) -> io::Result<(Reservation, usize)> {
        if let Some(reservation) = Reservation::exact(len, align, guard) {
            return Ok((reservation, guard));
        }
        let total = len + align + 2 * guard;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice touches no existing memory.
        let base = unsafe { libc::mmap(ptr::null_mut(), total, libc::PROT_NONE, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            // The same without room for the alignment would do.
            return Err(refused_addresses("an arena", len + 2 * guard, &io::Error::last_os_error()));
        }
        let reservation = Reservation { base: base.cast(), len: total };
        let start = (base as usize + guard).next_multiple_of(align);
        Ok((reservation, start - base as usize))
    }

    /// The same without room for the alignment, in a place that the kernel chooses, or the aligned one below it. Most
    /// processes have room there, and some may have no more addresses than this.
    fn exact(len: usize, align: usize, guard: usize) -> Option<Reservation> {
        let total = len + 2 * guard;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let map = |hint: usize, fixed| {
            let hint = ptr::without_provenance_mut(hint);
            // SAFETY: a fresh mapping at an address of the kernel's choice, or where nothing is, touches no existing memory.
            let base = unsafe { libc::mmap(hint, total, libc::PROT_NONE, flags | fixed, -1, 0) };
            (base != libc::MAP_FAILED).then(|| Reservation { base: base.cast(), len: total })
        };
        let anywhere = map(0, 0)?;
        let start = (anywhere.base as usize + guard) & !(align - 1);
        if start == anywhere.base as usize + guard {
            return Some(anywhere);
        }
        let hint = start.checked_sub(guard)?;
        drop(anywhere);
        // An old kernel takes the address for a wish.
        map(hint, libc::MAP_FIXED_NOREPLACE).filter(|reservation| reservation.base as usize == hint)
    }

    /// Reserves `len` bytes without access in the lower 4 GiB.
    pub(super) fn low(len: usize) -> io::Result<Reservation> {
        const STEP: usize = 32 << 20;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
        let mut at = STEP;
        while at + len <= u32::MAX as usize {
            let hint = ptr::without_provenance_mut(at);
            // SAFETY: MAP_FIXED_NOREPLACE touches no existing memory.
            let base = unsafe { libc::mmap(hint, len, libc::PROT_NONE, flags, -1, 0) };
            if base != libc::MAP_FAILED {
                // An old kernel takes the address for a hint.
                let reservation = Reservation { base: base.cast(), len };
                if base == hint {
                    return Ok(reservation);
                }
            }
            at += STEP;
        }
        let error = io::Error::new(io::ErrorKind::OutOfMemory, "no room in the lower 4 GiB of the address space");
        Err(refused_addresses("the arena of trusted programs", len, &error))
    }

    /// So many zeroed bytes, for reading and writing.
    pub(super) fn open(len: usize) -> io::Result<Reservation> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice touches no existing memory.
        let base = unsafe { libc::mmap(ptr::null_mut(), len, protection, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(refused_addresses("what no program sees", len, &io::Error::last_os_error()));
        }
        Ok(Reservation { base: base.cast(), len })
    }

    /// Its length in bytes.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Puts the first pages of a file under a range, to be executed.
    pub(super) fn place_code(&self, offset: usize, len: usize, file: &File) -> io::Result<()> {
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.len), "range inside the reservation");
        let (protection, flags) = (libc::PROT_READ | libc::PROT_EXEC, libc::MAP_PRIVATE | libc::MAP_FIXED);
        // SAFETY: replaces a part of our own mapping, which nothing accesses.
        match unsafe { libc::mmap(self.at(offset).cast(), len, protection, flags, file.as_raw_fd(), 0) } {
            libc::MAP_FAILED => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }

    /// Puts the first pages of a file under a range, for reading and writing, shared with other mappings of the file.
    pub(super) fn place_shared(&self, offset: usize, len: usize, file: BorrowedFd<'_>) -> io::Result<()> {
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.len), "range inside the reservation");
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_FIXED);
        // SAFETY: replaces a part of our own mapping, which holds no Rust object.
        match unsafe { libc::mmap(self.at(offset).cast(), len, protection, flags, file.as_raw_fd(), 0) } {
            libc::MAP_FAILED => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }

    /// Takes such pages away again; there is zeroed memory in their place.
    pub(super) fn place_fresh(&self, offset: usize, len: usize) {
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.len), "range inside the reservation");
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
        // SAFETY: replaces a part of our own mapping, which holds no Rust object.
        let result = unsafe { libc::mmap(self.at(offset).cast(), len, protection, flags, -1, 0) };
        assert_ne!(result, libc::MAP_FAILED, "our own pages back");
    }

    /// Address of byte `offset`, which must lie inside.
    pub(super) fn at(&self, offset: usize) -> *mut u8 {
        assert!(offset < self.len, "offset inside the reservation");
        // SAFETY: just checked to stay inside the one mapping that `base` points to.
        unsafe { self.base.add(offset) }
    }

    /// Puts fresh zero pages under a range, and gives a second mapping of the same pages. The range stays without access;
    /// what is written through the other mapping shows in it. A child made by `fork` shares these pages.
    pub(super) fn share(&self, offset: usize, len: usize) -> io::Result<Alias> {
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.len), "range inside the reservation");
        let fd = memory_file(c"twinbpf-read-only")?;
        fd.set_len(len as u64)?;
        let flags = libc::MAP_SHARED | libc::MAP_NORESERVE;
        let (fd, protection) = (fd.as_raw_fd(), libc::PROT_READ | libc::PROT_WRITE);
        // SAFETY: without MAP_FIXED a new mapping touches no existing memory.
        let base = unsafe { libc::mmap(ptr::null_mut(), len, protection, flags, fd, 0) };
        if base == libc::MAP_FAILED {
            return Err(refused_addresses("the second view of read-only memory", len, &io::Error::last_os_error()));
        }
        let alias = Alias(Reservation { base: base.cast(), len });
        let (at, flags) = (self.at(offset).cast(), flags | libc::MAP_FIXED);
        // SAFETY: replaces a part of our own mapping, which nothing accesses yet.
        match unsafe { libc::mmap(at, len, libc::PROT_NONE, flags, fd, 0) } {
            libc::MAP_FAILED => Err(io::Error::last_os_error()),
            _ => Ok(alias),
        }
    }

    /// Makes whole pages readable, and writable too on request.
    pub(super) fn protect(&self, offset: usize, len: usize, writable: bool) -> io::Result<()> {
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.len), "range inside the reservation");
        let protection = if writable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
        // SAFETY: the range lies inside our own mapping, which holds no Rust object.
        match unsafe { libc::mprotect(self.at(offset).cast(), len, protection) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Asks for huge pages for bytes that begin to be used, where others before them are: random access to tables of many
    /// megabytes misses the TLB otherwise. A kernel that has none goes on with small ones.
    pub(super) fn prefer_huge(&self, from: usize, to: usize) {
        let (base, huge) = (self.base.addr(), HUGE_PAGE as usize);
        let [start, end] = [from, to].map(|off| (base + off).next_multiple_of(huge) - base);
        let end = end.min(self.len);
        if to >= huge && start < end {
            // SAFETY: the range lies inside our own mapping, whose contents stay.
            let _ = unsafe { libc::madvise(self.at(start).cast(), end - start, libc::MADV_HUGEPAGE) };
        }
    }

    /// Gives the pages back to the kernel; they read as zero afterwards.
    pub(super) fn discard(&self, offset: usize, len: usize) {
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.len), "range inside the reservation");
        // SAFETY: the range lies inside our own private anonymous mapping, which holds no Rust object.
        let result = unsafe { libc::madvise(self.at(offset).cast(), len, libc::MADV_DONTNEED) };
        assert_eq!(result, 0, "madvise on our own pages");
    }
}

/// An empty file that is nowhere but in memory.
pub(super) fn memory_file(name: &CStr) -> io::Result<File> {
    // SAFETY: the name is a C string; no other pointer is passed.
    match unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) } {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: just opened, and nothing else owns it.
        fd => Ok(unsafe { File::from_raw_fd(fd) }),
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new`, and only this unmaps it.
        unsafe { libc::munmap(self.base.cast(), self.len) };
    }
}

/// The writable mapping of pages that are read-only elsewhere.
#[derive(Debug)]
pub(super) struct Alias(Reservation);

impl Alias {
    /// Address of byte `offset`, which must lie inside.
    pub(super) fn at(&self, offset: usize) -> *mut u8 {
        self.0.at(offset)
    }

    /// Gives the pages back to the kernel; they read as zero afterwards, in both mappings.
    pub(super) fn discard(&self, offset: usize, len: usize) {
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.0.len), "range inside the mapping");
        // SAFETY: the range lies inside our own writable shared mapping, which holds no Rust object.
        let result = unsafe { libc::madvise(self.at(offset).cast(), len, libc::MADV_REMOVE) };
        assert_eq!(result, 0, "madvise on our own pages");
    }
}
