//! The system calls themselves, and the memory a map shares with us. All unsafe code of the crate is here.
//!
//! Layouts are those of `union bpf_attr` in `linux/bpf.h`; the kernel takes a shorter union than its own and reads the
//! rest as zero.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Once;

/// A member of `union bpf_attr`: plain numbers without padding, addresses among them.
///
/// # Safety
///
/// The type is `repr(C)`, has no padding and no invalid bit pattern, and its layout is that of the command it goes with.
pub(crate) unsafe trait Attr {
    /// Number of the command in `enum bpf_cmd`.
    const COMMAND: u32;
}

macro_rules! attrs {
    ($($(#[$doc:meta])* $name:ident = $command:literal [$size:literal] { $($field:ident: $kind:ty,)* })*) => { $(
        $(#[$doc])*
        #[repr(C)]
        #[derive(Default)]
        pub(crate) struct $name { $(pub(crate) $field: $kind,)* }

        // The sum of the fields is the size: no padding.
        const _: () = assert!(size_of::<$name>() == $size && $size == 0 $(+ size_of::<$kind>())*);

        // SAFETY: all fields are integers or arrays of them, the assertion above rules out padding, and the order is
        // that of the header.
        unsafe impl Attr for $name { const COMMAND: u32 = $command; }
    )* };
}

attrs! {
    /// `BPF_MAP_CREATE`.
    MapCreateAttr = 0 [72] {
        map_type: u32, key_size: u32, value_size: u32, max_entries: u32, map_flags: u32, inner_map_fd: u32,
        numa_node: u32, map_name: [u8; 16], map_ifindex: u32, btf_fd: u32, btf_key_type_id: u32,
        btf_value_type_id: u32, btf_vmlinux_value_type_id: u32, map_extra: u64,
    }
    /// `BPF_MAP_LOOKUP_ELEM`.
    LookupAttr = 1 [32] { map_fd: u32, unused: u32, key: u64, value: u64, flags: u64, }
    /// `BPF_MAP_UPDATE_ELEM`.
    UpdateAttr = 2 [32] { map_fd: u32, unused: u32, key: u64, value: u64, flags: u64, }
    /// `BPF_PROG_LOAD`.
    ProgLoadAttr = 5 [72] {
        prog_type: u32, insn_cnt: u32, insns: u64, license: u64, log_level: u32, log_size: u32, log_buf: u64,
        kern_version: u32, prog_flags: u32, prog_name: [u8; 16], prog_ifindex: u32, expected_attach_type: u32,
    }
    /// `BPF_PROG_TEST_RUN`.
    TestRunAttr = 10 [80] {
        prog_fd: u32, retval: u32, data_size_in: u32, data_size_out: u32, data_in: u64, data_out: u64, repeat: u32,
        duration: u32, ctx_size_in: u32, ctx_size_out: u32, ctx_in: u64, ctx_out: u64, flags: u32, cpu: u32,
        batch_size: u32, unused: u32,
    }
    /// `BPF_MAP_FREEZE`.
    FreezeAttr = 22 [4] { map_fd: u32, }
}

/// One `bpf(2)`; what it returns is a number, for some commands a file descriptor.
///
/// Every address inside `attr` must be valid for what the command does with it, and is checked by the kernel: a wrong
/// one is `EFAULT`, except that a buffer to write to must not be anything else's memory. The callers in this crate
/// fill it from slices that outlive the call.
fn bpf<A: Attr>(attr: &mut A) -> io::Result<i32> {
    raise_memlock();
    // SAFETY: `attr` is a live, exclusive value of the given size, whose layout `Attr` vouches for.
    let result = unsafe { libc::syscall(libc::SYS_bpf, A::COMMAND, std::ptr::from_mut(attr), size_of::<A>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as i32) }
}

/// A command that answers with zero.
pub(crate) fn run<A: Attr>(attr: &mut A) -> io::Result<()> {
    bpf(attr).map(drop)
}

/// A command that makes something.
pub(crate) fn make<A: Attr>(attr: &mut A) -> io::Result<OwnedFd> {
    let fd = bpf(attr)?;
    // SAFETY: the kernel opened this descriptor for us in the call above; nothing else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Kernels before 5.11 charge maps and programs to RLIMIT_MEMLOCK. Failing is no error: newer ones do not care.
fn raise_memlock() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
        // SAFETY: `limit` is a valid rlimit for the duration of the call.
        if unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &limit) } != 0 {
            log::debug!("RLIMIT_MEMLOCK stays as it is: {}", io::Error::last_os_error());
        }
    });
}

/// Pages of a map, shared with the kernel; unmapped on drop.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to this value alone and is no thread's; access is by copying bytes in and out.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps `len` bytes of a map at `at`, or anywhere when it is 0. What is mapped at `at` already is an error.
    pub(crate) fn new(fd: BorrowedFd<'_>, at: usize, len: usize) -> io::Result<Self> {
        let flags = libc::MAP_SHARED | if at == 0 { 0 } else { libc::MAP_FIXED_NOREPLACE };
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping; MAP_FIXED_NOREPLACE never takes the place of another.
        let start = unsafe { libc::mmap(at as *mut _, len, access, flags, fd.as_raw_fd(), 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).expect("no kernel maps page zero unasked");
        Ok(Self { start, len })
    }

    /// Where it is.
    pub(crate) fn addr(&self) -> usize {
        self.start.as_ptr() as usize
    }

    /// Copies bytes to `offset`.
    ///
    /// # Panics
    ///
    /// When they do not fit.
    pub(crate) fn write(&mut self, offset: usize, bytes: &[u8]) {
        assert!(offset.checked_add(bytes.len()).is_some_and(|end| end <= self.len), "inside the mapping");
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
        assert!(offset.checked_add(bytes.len()).is_some_and(|end| end <= self.len), "inside the mapping");
        // SAFETY: as in `write`, the other way round.
        unsafe { std::ptr::copy_nonoverlapping(self.start.as_ptr().add(offset), bytes.as_mut_ptr(), bytes.len()) };
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: these pages were mapped by `new` and are still; nothing refers to them afterwards.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}
