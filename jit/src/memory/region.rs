//! System calls of a code pool, and the only access to its bytes.
#![expect(unsafe_code, reason = "calls of the C library")]

use std::io;
use std::ops::Range;
use std::ptr;

/// Granule of protection.
pub(super) const PAGE: usize = 4096;
/// Bytes of a [`part`].
const PART: u64 = 1 << 32;
/// Bytes from one place that is tried to the next.
const STEP: u64 = 64 << 20;

/// The part of the address space that an address is in. Calls and returns that stay in their part take a cycle less each
/// on CPUs that remember targets by their low 32 bits.
pub(crate) fn part(address: u64) -> u64 {
    address / PART
}

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

/// An anonymous mapping: at `hint` or not at all, or where the kernel likes.
fn map(hint: Option<u64>, len: usize, protection: libc::c_int, sharing: libc::c_int) -> io::Result<*mut u8> {
    let fixed = if hint.is_some() { libc::MAP_FIXED_NOREPLACE } else { 0 };
    let flags = sharing | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | fixed;
    let at = ptr::without_provenance_mut(hint.unwrap_or(0) as usize);
    // SAFETY: a new mapping that replaces none touches no existing memory.
    let base = unsafe { libc::mmap(at, len, protection, flags, -1, 0) };
    if base == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    if hint.is_some() && base != at {
        // Kernels before 4.17 take the address for a wish.
        unmap(base.cast(), len);
        return Err(io::Error::from_raw_os_error(libc::EEXIST));
    }
    Ok(base.cast())
}

/// An anonymous mapping in the [`part`] of an address: below it if there is room, because above it the heap grows, or
/// else at the end of the part, unless the stack may grow there. Where neither is free, anywhere.
fn map_near(near: u64, len: usize, protection: libc::c_int, sharing: libc::c_int) -> io::Result<*mut u8> {
    let begin = part(near) * PART;
    let below = (begin + STEP..=near.saturating_sub(len as u64) / STEP * STEP).rev().step_by(STEP as usize);
    let above = (near..=begin.saturating_add(PART).saturating_sub(len as u64)).rev().step_by(STEP as usize);
    // SAFETY: the system returns an address in the first stack of the process, or 0.
    let stack = unsafe { libc::getauxval(libc::AT_RANDOM) };
    let above = above.filter(|at| part(stack).abs_diff(part(*at)) > 1);
    let map = |at| map(at, len, protection, sharing);
    below.chain(above).find_map(|at| map(Some(at)).ok()).map_or_else(|| map(None), Ok)
}

impl Region {
    /// Two views of the same pages, readable and executable the one, readable and writable the other.
    ///
    /// They are shared anonymous memory and not a memfd, because perf reads its map only for code that is in no
    /// named file.
    pub(super) fn dual(len: usize, near: u64) -> io::Result<Region> {
        let exec = map_near(near, len, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED)?;
        // SAFETY: an old size of 0 maps the pages of a shared mapping a second time and leaves the first alone.
        let write = unsafe { libc::mremap(exec.cast(), 0, len, libc::MREMAP_MAYMOVE) };
        if write == libc::MAP_FAILED {
            let error = io::Error::last_os_error();
            unmap(exec, len);
            return Err(error);
        }
        let region = Region { exec, write: write.cast(), len };
        region.protect(0, len, libc::PROT_READ | libc::PROT_EXEC)?;
        Ok(region)
    }

    /// One view without access, for systems that refuse the above.
    pub(super) fn single(len: usize, near: u64) -> io::Result<Region> {
        let base = map_near(near, len, libc::PROT_NONE, libc::MAP_PRIVATE)?;
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
        // SAFETY: inside the mapping; the caller's chunk is published, so its pages are readable and not written.
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

    /// Makes unused pages writable.
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
            log::debug!("code pool keeps {len} free bytes: {}", io::Error::last_os_error());
        }
        if !self.is_dual()
            && let Err(error) = self.protect(off, len, libc::PROT_NONE)
        {
            log::debug!("code pool leaves {len} free bytes executable: {error}");
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
