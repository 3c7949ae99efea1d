//! Stubs: what the patched entry of a function jumps to.
//!
//! A region is 64 KiB of code near the functions it serves and 64 KiB of data after it. A function has 128 bytes of each: the
//! stub, then its first instructions if they were moved; and its [`Site`]. Code is written through a second mapping of the
//! same pages. A stub is written once, and stays: a thread may be anywhere in it.
//!
//! ```text
//! push r11
//! lea  r11, [site]
//! call [r11]          one of the trampolines
//! pop  r11
//! jmp  [site.resume]
//! ```
//!
//! Inside a function, a stub begins with `lea rsp, [rsp - 128]` and takes that back: there may be values in the red zone.
#![expect(unsafe_code, reason = "executable memory")]

use std::fs;
use std::io;
use std::mem::offset_of;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;

use super::layout::{HALF, RED_ZONE, SLOT};
use super::site::Site;
use super::{sys, unwind};
use crate::maps::Mapped;

/// In a slot, where moved instructions begin.
const MOVED: u64 = 40;
/// Most bytes of moved instructions.
pub(super) const MOVED_BYTES: usize = (SLOT - MOVED) as usize;
/// In `/proc/PID/maps`; the number changes with the layout of [`Site`] and its summary.
pub(super) const NAME: &str = "twinbpf-hooks-3";
/// How far a region may be from what jumps to it, with room for what moved instructions refer to.
const REACH: u64 = 0x7000_0000;

/// A region with slots left.
pub(super) struct Region {
    base: u64,
    /// Of the second mapping.
    alias: *mut u8,
    used: u64,
    /// Whether its stubs leave out a red zone.
    inside: bool,
    /// The process that made it. After `fork` the code is shared, and a child writes to regions of its own.
    pid: u32,
}

// SAFETY: the pointer is to a mapping that stays, written under the registry's lock.
unsafe impl Send for Region {}

/// A function's stub and site.
#[derive(Clone, Copy)]
pub(super) struct Stub {
    pub(super) address: u64,
    pub(super) site: &'static Site,
}

impl Stub {
    /// Where moved instructions begin.
    pub(super) fn moved(self) -> u64 {
        self.address + MOVED
    }
}

impl Region {
    /// A region that `address` reaches, for stubs of entries or of places inside functions.
    pub(super) fn near(address: u64, inside: bool) -> io::Result<Region> {
        // SAFETY: a name, and flags.
        let fd = unsafe { libc::memfd_create(c"twinbpf-hooks-3".as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel just made it.
        let file = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: as before.
        if unsafe { libc::ftruncate(file.as_raw_fd(), HALF as libc::off_t) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let base = gap(address)?;
        let map = |at: u64, protection, flags, fd| {
            let at = ptr::with_exposed_provenance_mut(at as usize);
            // SAFETY: new mappings, where nothing is mapped.
            let got = unsafe { libc::mmap(at, HALF as usize, protection, flags, fd, 0) };
            if got == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(got) }
        };
        let writable = libc::PROT_READ | libc::PROT_WRITE;
        let shared = libc::MAP_SHARED;
        let code = map(base, libc::PROT_READ | libc::PROT_EXEC, shared | libc::MAP_FIXED_NOREPLACE, file.as_raw_fd())?;
        let private = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        let data = map(base + HALF, writable, private, -1).inspect_err(|_| sys::release(code, HALF as usize))?;
        let _ = (code.expose_provenance(), data.expose_provenance());
        let alias =
            map(0, writable, shared, file.as_raw_fd()).inspect_err(|_| sys::release(code, 2 * HALF as usize))?;
        let of = if inside { unwind::of_insides } else { unwind::of_entries };
        unwind::register(of(base, HALF));
        Ok(Region { base, alias: alias.cast(), used: 0, inside, pid: std::process::id() })
    }

    /// Whether it has room for one more of this kind, near `address`.
    pub(super) fn serves(&self, address: u64, inside: bool) -> bool {
        let has_room = self.used < HALF / SLOT && self.pid == std::process::id();
        has_room && self.inside == inside && self.base.abs_diff(address) < REACH
    }

    /// The addresses of the next stub's moved instructions.
    pub(super) fn next_moved(&self) -> u64 {
        self.base + self.used * SLOT + MOVED
    }

    /// Makes a stub, with instructions that were moved to [`Region::next_moved`].
    pub(super) fn add(&mut self, moved: &[u8]) -> Stub {
        assert!(moved.len() <= MOVED_BYTES && self.used < HALF / SLOT);
        let offset = self.used * SLOT;
        self.used += 1;
        let address = self.base + offset;
        let mut code = code(self.inside);
        const { assert!(offset_of!(Site, target) == 0) };
        code.resize(MOVED as usize, 0xcc);
        code.extend_from_slice(moved);
        // SAFETY: the slot is ours, in both mappings; the data is zeroed, which is a valid site, and stays.
        let site = unsafe {
            ptr::copy_nonoverlapping(code.as_ptr(), self.alias.add(offset as usize), code.len());
            &*ptr::with_exposed_provenance::<Site>((address + HALF) as usize)
        };
        Stub { address, site }
    }
}

/// A stub, the same for each function.
fn code(inside: bool) -> Vec<u8> {
    let mut code = Vec::new();
    let to = |code: &mut Vec<u8>, target: usize| {
        let distance = HALF as i32 + target as i32 - (code.len() as i32 + 4);
        code.extend_from_slice(&distance.to_le_bytes());
    };
    if inside {
        const { assert!(RED_ZONE == 0x80) };
        code.extend_from_slice(&[0x48, 0x8d, 0x64, 0x24, 0x80]);
    }
    code.extend_from_slice(&[0x41, 0x53, 0x4c, 0x8d, 0x1d]);
    to(&mut code, 0);
    code.extend_from_slice(&[0x41, 0xff, 0x13, 0x41, 0x5b]);
    if inside {
        code.extend_from_slice(&[0x48, 0x8d, 0xa4, 0x24, 0x80, 0, 0, 0]);
    }
    code.extend_from_slice(&[0xff, 0x25]);
    to(&mut code, offset_of!(Site, resume));
    code
}

/// Addresses for a region where nothing is mapped, as close to `address` as there are.
fn gap(address: u64) -> io::Result<u64> {
    let maps = fs::read_to_string("/proc/self/maps")?;
    let mut free = Vec::new();
    // The lowest addresses are not for mapping (vm.mmap_min_addr); the stack grows towards what is below it.
    let mut end = 0x10_0000;
    for Mapped { range, path, .. } in maps.lines().filter_map(Mapped::parse) {
        let margin = if path == "[stack]" { 1 << 30 } else { 0 };
        free.push(end..range.start.saturating_sub(margin).max(end));
        end = end.max(range.end);
    }
    let place = |gap: &Range<u64>| {
        let first = gap.start.next_multiple_of(HALF);
        let last = gap.end.checked_sub(2 * HALF)? / HALF * HALF;
        (first <= last).then(|| address.clamp(first, last) / HALF * HALF).map(|at| at.max(first))
    };
    free.iter()
        .filter_map(place)
        .min_by_key(|at| at.abs_diff(address))
        .filter(|at| at.abs_diff(address) < REACH)
        .ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::OutOfMemory,
                format!("no addresses are free within {} MiB of {address:#x}", REACH >> 20),
            )
        })
}
