//! Checked copy-in and copy-out: how the host reads and writes a program's memory.
#![expect(unsafe_code, reason = "memory of programs is outside all Rust objects")]

use std::ffi::CStr;
use std::hint::black_box;
use std::ptr;

use smallvec::SmallVec;
use zerocopy::FromBytes;

use super::bytes::equal;
use super::fault::{Access, Fault, FaultReason};
use super::view::View;

/// Bytes of a [`Text`] that need no allocation.
const SHORT: usize = 64;

/// A string that was read from a program's memory, without its NUL.
pub type Text = SmallVec<[u8; SHORT]>;

/// 64-bit words that were read from a program's memory, few of them without an allocation.
pub(crate) type Words = SmallVec<[u64; 8]>;

/// Where the first NUL is; the length if there is none.
fn nul(bytes: &[u8; SHORT]) -> usize {
    let (words, _) = bytes.as_chunks();
    let at = words.iter().enumerate().find_map(|(at, word)| {
        let word = u64::from_le_bytes(*word);
        // The lowest of these bits is that of the first byte which is zero.
        let zeros = word.wrapping_sub(0x0101_0101_0101_0101) & !word & 0x8080_8080_8080_8080;
        (zeros != 0).then(|| at * 8 + zeros.trailing_zeros() as usize / 8)
    });
    at.unwrap_or(SHORT)
}

impl View {
    /// Checks a range for the host, and returns a pointer that is valid while the arena lives.
    pub(super) fn range(&self, addr: u64, len: u64, access: Access) -> Result<*mut u8, Fault> {
        if len == 0 {
            return Ok(ptr::NonNull::dangling().as_ptr());
        }
        self.element(addr, len, access)?;
        Ok(self.arena().at(addr as u32))
    }

    /// Checks that `len` bytes at `addr` can be accessed.
    pub fn check(&self, addr: u64, len: u64, access: Access) -> Result<(), Fault> {
        match self.range(addr, len, access) {
            Err(fault) if self.is_out_of_arena(&fault) => self.check_out_of_arena(addr, len, access),
            result => result.map(|_| ()),
        }
    }

    /// Copies out of the program's memory.
    pub fn read(&self, addr: u64, out: &mut [u8]) -> Result<(), Fault> {
        let from = match self.range(addr, out.len() as u64, Access::Read) {
            Err(fault) if self.is_out_of_arena(&fault) => return self.read_out_of_arena(addr, out),
            result => result?,
        };
        // SAFETY: `range` checked all bytes of the source; `out` is a Rust buffer, which is in no arena.
        unsafe { ptr::copy_nonoverlapping(from, out.as_mut_ptr(), out.len()) };
        Ok(())
    }

    /// A copy of a value in the program's memory, which need not be aligned.
    pub fn value<V: FromBytes>(&self, addr: u64) -> Result<V, Fault> {
        let from = match self.range(addr, size_of::<V>() as u64, Access::Read) {
            Err(fault) if self.is_out_of_arena(&fault) => {
                let bytes = self.bytes_out_of_arena(addr, size_of::<V>() as u64)?;
                return Ok(V::read_from_bytes(&bytes).expect("as many bytes as a value has"));
            }
            result => result?,
        };
        // SAFETY: `range` checked all bytes of the source, and `FromBytes` says that whatever they are is a `V`.
        Ok(unsafe { from.cast::<V>().read_unaligned() })
    }

    /// Copies into the program's memory.
    pub fn write(&self, addr: u64, bytes: &[u8]) -> Result<(), Fault> {
        let to = match self.range(addr, bytes.len() as u64, Access::Write) {
            Err(fault) if self.is_out_of_arena(&fault) => return self.write_out_of_arena(addr, bytes),
            result => result?,
        };
        // SAFETY: as in `read`, in the other direction; `range` checked for a writable region.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
        Ok(())
    }

    /// Sets bytes of the program's memory.
    pub fn fill(&self, addr: u64, len: u64, byte: u8) -> Result<(), Fault> {
        let to = match self.range(addr, len, Access::Write) {
            Err(fault) if self.is_out_of_arena(&fault) => return self.fill_out_of_arena(addr, len, byte),
            result => result?,
        };
        // SAFETY: `range` checked all bytes.
        unsafe { ptr::write_bytes(to, byte, len as usize) };
        Ok(())
    }

    /// Copies inside the program's memory; the ranges may overlap.
    pub fn copy(&self, to: u64, from: u64, len: u64) -> Result<(), Fault> {
        let ranges =
            self.range(from, len, Access::Read).and_then(|from| Ok((from, self.range(to, len, Access::Write)?)));
        let (from, to) = match ranges {
            Err(fault) if self.is_out_of_arena(&fault) => return self.write(to, &self.bytes(from, len)?),
            result => result?,
        };
        // SAFETY: `range` checked all bytes of both; `copy` allows overlap.
        unsafe { ptr::copy(from, to, len as usize) };
        Ok(())
    }

    /// A copy of `len` bytes. `len` is checked before memory is allocated.
    pub fn bytes(&self, addr: u64, len: u64) -> Result<Vec<u8>, Fault> {
        let from = match self.range(addr, len, Access::Read) {
            Err(fault) if self.is_out_of_arena(&fault) => return self.bytes_out_of_arena(addr, len),
            result => result?,
        };
        let mut bytes = vec![0; len as usize];
        // SAFETY: as in `read`; the pages of the source stay mapped whatever happens to its region meanwhile.
        unsafe { ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), bytes.len()) };
        Ok(bytes)
    }

    /// The bytes of a C string without its NUL, at most `max`. A string that runs to the end of its region
    /// without a NUL is a fault at the first byte past it.
    pub fn c_str(&self, addr: u64, max: u64) -> Result<Text, Fault> {
        self.with_c_str(addr, max, Text::from_slice)
    }

    /// As [`View::c_str`], but passes the bytes to `with`.
    #[inline]
    pub fn with_c_str<R>(&self, addr: u64, max: u64, with: impl FnOnce(&[u8]) -> R) -> Result<R, Fault> {
        if max == 0 {
            return Ok(with(&[]));
        }
        let (element, size) = match self.element(addr, 1, Access::Read) {
            Err(fault) if self.is_out_of_arena(&fault) => {
                return self.c_str_out_of_arena(addr, max).map(|text| with(&text));
            }
            result => result?,
        };
        let available = u64::from(size - (addr as u32 - element));
        let limit = available.min(max) as usize;
        // In growing steps: a short string in a large region costs a short copy.
        let (mut first, step) = ([0; SHORT], limit.min(SHORT));
        // SAFETY: the element has `available` bytes from `addr` on, no fewer than `step`; `first` is in no arena.
        unsafe { ptr::copy_nonoverlapping(self.arena().at(addr as u32), first.as_mut_ptr(), step) };
        let end = nul(&first);
        if end < step {
            return Ok(with(&first[..end]));
        }
        self.c_str_after(Text::from_slice(&first[..step]), addr, available, max).map(|text| with(&text))
    }

    /// Continues after the first bytes of a C string, none of them NUL; `available` are in its region.
    fn c_str_after(&self, mut bytes: Text, addr: u64, available: u64, max: u64) -> Result<Text, Fault> {
        let limit = available.min(max) as usize;
        while bytes.len() < limit {
            let from = bytes.len();
            bytes.resize(limit.min(from * 2), 0);
            self.read(addr + from as u64, &mut bytes[from..])?;
            if let Ok(text) = CStr::from_bytes_until_nul(&bytes[from..]) {
                let end = text.count_bytes();
                bytes.truncate(from + end);
                return Ok(bytes);
            }
        }
        match available < max {
            // Even if the region has grown meanwhile, the part that was searched has no NUL.
            true => match self.find(addr, available + 1, Access::Read) {
                Err(fault) if self.is_out_of_arena(&fault) => self.c_str_out_of_arena(addr, max),
                Err(fault) => Err(fault),
                Ok(_) => {
                    Err(Fault { addr, len: available + 1, access: Access::Read, reason: FaultReason::NoRegion(None) })
                }
            },
            false => Ok(bytes),
        }
    }

    /// Whether there are just these bytes at an address, all of them readable.
    pub(crate) fn holds(&self, addr: u64, bytes: &[u8]) -> bool {
        let Ok(at) = self.range(addr, bytes.len() as u64, Access::Read) else { return false };
        // SAFETY: `range` checked all bytes.
        unsafe { equal(at, bytes) }
    }

    /// 64-bit words. Each is read by itself: the program has just stored them so, and a processor waits where one load
    /// takes what several stores left.
    pub(crate) fn words(&self, addr: u64, count: usize) -> Result<Words, Fault> {
        let from = match self.range(addr, count as u64 * 8, Access::Read) {
            Err(fault) if self.is_out_of_arena(&fault) => {
                let word = |index: usize| {
                    let mut bytes = [0; 8];
                    self.read_out_of_arena(addr.wrapping_add(index as u64 * 8), &mut bytes)?;
                    Ok(u64::from_le_bytes(bytes))
                };
                return (0..count).map(word).collect();
            }
            result => result?.cast::<u64>(),
        };
        // SAFETY: `range` checked all bytes; a program's memory need not be aligned.
        let word = |index: usize| u64::from_le(black_box(unsafe { from.add(index).read_unaligned() }));
        Ok((0..count).map(word).collect())
    }
}
