//! The system calls behind a pool, and the only access to its bytes.

use std::io;
use std::ops::Range;
use std::ptr;

/// Granule of protection.
pub(super) const PAGE: usize = 4096;

/// Address space for code, unmapped on drop.
#[derive(Debug)]
pub(super) struct Region {
    /// What is executed.
    exec: *mut u8,
    /// What is written: the same pages elsewhere, or the same address.
    write: *mut u8,
    len: usize,
}

// SAFETY: the pointers are address ranges that this value owns, not tied to a thread. Bytes are only touched by
// `read`, and by compilers through addresses from `write_at` in a part that they alone have.
unsafe impl Send for Region {}
// SAFETY: as above; the methods change no field.
unsafe impl Sync for Region {}

/// An anonymous mapping of the kernel's choice.
fn map(len: usize, protection: libc::c_int, sharing: libc::c_int) -> io::Result<*mut u8> {
    let flags = sharing | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: without MAP_FIXED a new mapping touches no existing memory.
    let base = unsafe { libc::mmap(ptr::null_mut(), len, protection, flags, -1, 0) };
    if base == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(base.cast()) }
}

impl Region {
    /// Two views of the same pages, readable and executable the one, readable and writable the other.
    ///
    /// They are shared anonymous memory and not a memfd, because perf looks into its map only for code that is in no
    /// named file.
    pub(super) fn dual(len: usize) -> io::Result<Region> {
        let write = map(len, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED)?;
        // SAFETY: an old size of 0 maps the pages of a shared mapping a second time and leaves the first alone.
        let exec = unsafe { libc::mremap(write.cast(), 0, len, libc::MREMAP_MAYMOVE) };
        if exec == libc::MAP_FAILED {
            let error = io::Error::last_os_error();
            unmap(write, len);
            return Err(error);
        }
        let region = Region { exec: exec.cast(), write, len };
        region.protect(0, len, libc::PROT_READ | libc::PROT_EXEC)?;
        Ok(region)
    }

    /// One view without access, for systems that refuse the above.
    pub(super) fn single(len: usize) -> io::Result<Region> {
        let base = map(len, libc::PROT_NONE, libc::MAP_PRIVATE)?;
        Ok(Region { exec: base, write: base, len })
    }

    /// Whether written bytes are in another place than executed ones.
    pub(super) fn is_dual(&self) -> bool {
        self.exec != self.write
    }

    /// Addresses of the executable view.
    pub(super) fn range(&self) -> Range<u64> {
        self.exec as u64..self.exec as u64 + self.len as u64
    }

    fn check(&self, off: usize, len: usize) {
        assert!(off.checked_add(len).is_some_and(|end| end <= self.len), "range inside the pool");
    }

    /// Where byte `off` is written.
    pub(super) fn write_at(&self, off: usize) -> *mut u8 {
        self.check(off, 0);
        self.write.wrapping_add(off)
    }

    /// Copies published bytes out.
    pub(super) fn read(&self, off: usize, out: &mut [u8]) {
        self.check(off, out.len());
        // SAFETY: inside the mapping; the caller's chunk is published, so its pages are readable and nobody writes.
        unsafe { ptr::copy_nonoverlapping(self.exec.add(off), out.as_mut_ptr(), out.len()) };
    }

    /// Changes the protection of whole pages where they are executed.
    fn protect(&self, off: usize, len: usize, protection: libc::c_int) -> io::Result<()> {
        self.check(off, len);
        // SAFETY: the range lies inside our own mapping, which holds no Rust object.
        match unsafe { libc::mprotect(self.exec.add(off).cast(), len, protection) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Lets pages be written that nobody uses.
    pub(super) fn open(&self, off: usize, len: usize) -> io::Result<()> {
        if self.is_dual() { Ok(()) } else { self.protect(off, len, libc::PROT_READ | libc::PROT_WRITE) }
    }

    /// Lets written bytes be executed.
    pub(super) fn publish(&self, off: usize, len: usize) -> io::Result<()> {
        if self.is_dual() { Ok(()) } else { self.protect(off, len, libc::PROT_READ | libc::PROT_EXEC) }
    }

    /// Gives whole pages back to the system.
    pub(super) fn discard(&self, off: usize, len: usize) {
        self.check(off, len);
        let advice = if self.is_dual() { libc::MADV_REMOVE } else { libc::MADV_DONTNEED };
        // SAFETY: the range lies inside our own mapping and no chunk overlaps it.
        let result = unsafe { libc::madvise(self.write.add(off).cast(), len, advice) };
        if result != 0 {
            log::debug!("code pool keeps {len} bytes that nobody uses: {}", io::Error::last_os_error());
        }
        if !self.is_dual()
            && let Err(error) = self.protect(off, len, libc::PROT_NONE)
        {
            log::debug!("code pool leaves {len} bytes executable that nobody uses: {error}");
        }
    }
}

fn unmap(base: *mut u8, len: usize) {
    // SAFETY: callers own this mapping and use it no longer.
    unsafe { libc::munmap(base.cast(), len) };
}

impl Drop for Region {
    fn drop(&mut self) {
        if self.is_dual() {
            unmap(self.write, self.len);
        }
        unmap(self.exec, self.len);
    }
}
