//! The system calls behind a pool, and the only access to its bytes.

use std::io;
use std::ops::Range;
use std::ptr;

/// Granule of protection.
pub(super) const PAGE: usize = 4096;

/// Since Linux 6.3; libc does not have it everywhere.
const MFD_EXEC: libc::c_uint = 0x10;

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

/// A mapping of the kernel's choice.
fn map(len: usize, protection: libc::c_int, flags: libc::c_int, fd: libc::c_int) -> io::Result<*mut u8> {
    // SAFETY: without MAP_FIXED a new mapping touches no existing memory.
    let base = unsafe { libc::mmap(ptr::null_mut(), len, protection, flags | libc::MAP_NORESERVE, fd, 0) };
    if base == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(base.cast()) }
}

/// An anonymous file of this size.
fn file(len: usize) -> io::Result<std::os::fd::OwnedFd> {
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
    let create = |flags| {
        // SAFETY: the name is a C string; nothing else is handed over.
        match unsafe { libc::memfd_create(c"twinbpf-code".as_ptr(), flags) } {
            -1 => Err(io::Error::last_os_error()),
            // SAFETY: just opened, and nobody else knows of it.
            fd => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        }
    };
    // Kernels before 6.3 do not know the flag and need none.
    let fd = create(libc::MFD_CLOEXEC | MFD_EXEC).or_else(|_| create(libc::MFD_CLOEXEC))?;
    // SAFETY: changes the size of a file of ours.
    match unsafe { libc::ftruncate(fd.as_raw_fd(), len as libc::off_t) } {
        0 => Ok(fd),
        _ => Err(io::Error::last_os_error()),
    }
}

impl Region {
    /// Two views of the same pages, readable and executable the one, readable and writable the other.
    pub(super) fn dual(len: usize) -> io::Result<Region> {
        use std::os::fd::AsRawFd;
        let fd = file(len)?;
        let exec = map(len, libc::PROT_READ | libc::PROT_EXEC, libc::MAP_SHARED, fd.as_raw_fd())?;
        let write = map(len, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, fd.as_raw_fd());
        let write = write.inspect_err(|_| unmap(exec, len))?;
        // The file is reachable by nothing but the two mappings from here on.
        Ok(Region { exec, write, len })
    }

    /// One view without access, for systems that refuse the above.
    pub(super) fn single(len: usize) -> io::Result<Region> {
        let base = map(len, libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1)?;
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

    /// Changes the protection of whole pages of a region with one view.
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
