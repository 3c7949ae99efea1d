//! Memory of maps and perf events that this process shares with the kernel.
#![expect(unsafe_code, reason = "system calls")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// Pages shared with the kernel; unmapped on drop.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    len: usize,
    writable: bool,
}

// SAFETY: the mapping belongs to this value alone and is no thread's; access is by copying bytes in and out and through
// atomics.
unsafe impl Send for Mapping {}
// SAFETY: as above; what several threads may do at once goes through `read`, which copies, and atomics.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes at `at`, or anywhere when it is 0. What is mapped at `at` already is an error.
    pub(crate) fn new(fd: BorrowedFd<'_>, at: usize, len: usize) -> io::Result<Self> {
        Self::part(fd, at, 0, len, true)
    }

    /// Maps `len` bytes from `offset` of a file on.
    pub(crate) fn part(fd: BorrowedFd<'_>, at: usize, offset: u64, len: usize, writable: bool) -> io::Result<Self> {
        let flags = libc::MAP_SHARED | if at == 0 { 0 } else { libc::MAP_FIXED_NOREPLACE };
        let access = libc::PROT_READ | if writable { libc::PROT_WRITE } else { 0 };
        // SAFETY: a new mapping; MAP_FIXED_NOREPLACE never takes the place of another.
        let start = unsafe { libc::mmap(at as *mut _, len, access, flags, fd.as_raw_fd(), offset as i64) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).expect("no kernel maps page zero unasked");
        Ok(Self { start, len, writable })
    }

    /// Where it is.
    pub(crate) fn addr(&self) -> usize {
        self.start.as_ptr() as usize
    }

    /// Copies bytes to `offset`.
    ///
    /// # Panics
    ///
    /// When they do not fit, or the mapping is for reading.
    pub(crate) fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(self.writable && self.holds(offset, bytes.len()), "inside the mapping");
        // SAFETY: `offset..offset + bytes.len()` is inside the mapping (checked above), which lives as long as
        // `self`; a slice of ours cannot overlap it, because no reference into the mapping is ever made.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.start.as_ptr().add(offset), bytes.len()) };
    }

    /// Copies bytes from `offset`.
    ///
    /// # Panics
    ///
    /// When there are fewer.
    pub(crate) fn read(&self, offset: usize, bytes: &mut [u8]) {
        assert!(self.holds(offset, bytes.len()), "inside the mapping");
        // SAFETY: as in `write`, with source and destination swapped.
        unsafe { std::ptr::copy_nonoverlapping(self.start.as_ptr().add(offset), bytes.as_mut_ptr(), bytes.len()) };
    }

    /// The 64 bits at `offset`, as something that the kernel reads and writes at the same time.
    ///
    /// # Panics
    ///
    /// When they are not inside, not aligned, or the mapping is for reading.
    pub(crate) fn word64(&self, offset: usize) -> &AtomicU64 {
        assert!(self.writable && offset.is_multiple_of(8) && self.holds(offset, 8), "a word of the mapping");
        // SAFETY: aligned (the mapping starts at a page), inside, and mapped for as long as `self` lives.
        unsafe { AtomicU64::from_ptr(self.start.as_ptr().add(offset).cast()) }
    }

    /// The 64 bits at `offset` of a mapping that may be for reading.
    pub(crate) fn load64(&self, offset: usize) -> u64 {
        assert!(offset.is_multiple_of(8) && self.holds(offset, 8), "a word of the mapping");
        // SAFETY: as in `word64`; only loaded from, which a mapping for reading allows.
        let word = unsafe { &*self.start.as_ptr().add(offset).cast::<AtomicU64>() };
        word.load(std::sync::atomic::Ordering::Acquire)
    }

    /// The 32 bits at `offset`, likewise.
    pub(crate) fn load32(&self, offset: usize) -> u32 {
        assert!(offset.is_multiple_of(4) && self.holds(offset, 4), "a word of the mapping");
        // SAFETY: as in `load64`.
        let word = unsafe { &*self.start.as_ptr().add(offset).cast::<AtomicU32>() };
        word.load(std::sync::atomic::Ordering::Acquire)
    }

    fn holds(&self, offset: usize, len: usize) -> bool {
        offset.checked_add(len).is_some_and(|end| end <= self.len)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: these pages were mapped by `part` and are still; nothing refers to them afterwards.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// Bytes of a page.
pub(crate) fn page_size() -> usize {
    // SAFETY: takes and returns a number.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).expect("every Linux has pages")
}

/// Copies memory of a process; how many bytes, which are fewer where it ends.
pub(crate) fn read_process(pid: u32, address: u64, bytes: &mut [u8]) -> io::Result<usize> {
    let local = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: bytes.len() };
    // SAFETY: the kernel writes at most `bytes.len()` bytes to `bytes`, which is live for the call; the other address is
    // of the other process.
    let count = unsafe { libc::process_vm_readv(pid as libc::pid_t, &raw const local, 1, &raw const remote, 1, 0) };
    usize::try_from(count).map_err(|_| io::Error::last_os_error())
}
