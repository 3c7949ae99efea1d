//! Comparing and copying memory that programs and other threads may write meanwhile.
#![expect(unsafe_code, reason = "memory of programs is outside all Rust objects")]

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

const WORD: usize = size_of::<u64>();

/// Whole words at an address, if they are aligned.
#[inline(always)]
fn words(at: *const u8, len: usize) -> usize {
    if at.addr().is_multiple_of(WORD) { len / WORD } else { 0 }
}

/// Size of the largest aligned number at an address, of so many bytes that are left.
#[inline(always)]
fn piece(at: *const u8, left: usize) -> usize {
    (1 << at.addr().trailing_zeros().min(3)).min(1 << left.ilog2())
}

/// Copies bytes out, each aligned number in one piece.
///
/// # Safety
/// There are as many bytes at `from`, in an arena that is mapped.
#[inline(always)]
pub(super) unsafe fn load(from: *mut u8, out: &mut [u8]) {
    // SAFETY: the caller promises all bytes, and numbers are aligned.
    unsafe {
        match out.len() {
            8 if from.addr().is_multiple_of(8) => {
                out.copy_from_slice(&AtomicU64::from_ptr(from.cast()).load(Relaxed).to_ne_bytes());
            }
            4 if from.addr().is_multiple_of(4) => {
                out.copy_from_slice(&AtomicU32::from_ptr(from.cast()).load(Relaxed).to_ne_bytes());
            }
            _ => load_pieces(from, out),
        }
    }
}

/// # Safety
/// As [`load`].
unsafe fn load_pieces(from: *mut u8, out: &mut [u8]) {
    let whole = words(from, out.len());
    let mut off = whole * WORD;
    // SAFETY: the caller promises all bytes; words are aligned, and so are pieces.
    unsafe {
        for (index, word) in out.as_chunks_mut().0[..whole].iter_mut().enumerate() {
            *word = AtomicU64::from_ptr(from.add(index * WORD).cast()).load(Relaxed).to_ne_bytes();
        }
        while off < out.len() {
            let at = from.add(off);
            let size = piece(at, out.len() - off);
            let to = &mut out[off..off + size];
            match size {
                8 => to.copy_from_slice(&AtomicU64::from_ptr(at.cast()).load(Relaxed).to_ne_bytes()),
                4 => to.copy_from_slice(&AtomicU32::from_ptr(at.cast()).load(Relaxed).to_ne_bytes()),
                2 => to.copy_from_slice(&AtomicU16::from_ptr(at.cast()).load(Relaxed).to_ne_bytes()),
                _ => to[0] = AtomicU8::from_ptr(at).load(Relaxed),
            }
            off += size;
        }
    }
}

/// Copies bytes in, each aligned number in one piece.
///
/// # Safety
/// There is room for them at `to`, in an arena that is mapped.
#[inline(always)]
pub(super) unsafe fn store(to: *mut u8, bytes: &[u8]) {
    // SAFETY: as in `load`.
    unsafe {
        match (bytes.first_chunk(), bytes.first_chunk(), bytes.len()) {
            (Some(eight), _, 8) if to.addr().is_multiple_of(8) => {
                AtomicU64::from_ptr(to.cast()).store(u64::from_ne_bytes(*eight), Relaxed);
            }
            (_, Some(four), 4) if to.addr().is_multiple_of(4) => {
                AtomicU32::from_ptr(to.cast()).store(u32::from_ne_bytes(*four), Relaxed);
            }
            _ => store_pieces(to, bytes),
        }
    }
}

/// # Safety
/// As [`store`].
unsafe fn store_pieces(to: *mut u8, bytes: &[u8]) {
    let whole = words(to, bytes.len());
    let mut off = whole * WORD;
    // SAFETY: as in `load`.
    unsafe {
        for (index, word) in bytes.as_chunks().0[..whole].iter().enumerate() {
            AtomicU64::from_ptr(to.add(index * WORD).cast()).store(u64::from_ne_bytes(*word), Relaxed);
        }
        while let left @ [first, ..] = &bytes[off..] {
            let at = to.add(off);
            let size = piece(at, left.len());
            match (size, left.first_chunk(), left.first_chunk(), left.first_chunk()) {
                (8, Some(eight), ..) => AtomicU64::from_ptr(at.cast()).store(u64::from_ne_bytes(*eight), Relaxed),
                (4, _, Some(four), _) => AtomicU32::from_ptr(at.cast()).store(u32::from_ne_bytes(*four), Relaxed),
                (2, _, _, Some(two)) => AtomicU16::from_ptr(at.cast()).store(u16::from_ne_bytes(*two), Relaxed),
                _ => AtomicU8::from_ptr(at).store(*first, Relaxed),
            }
            off += size;
        }
    }
}

/// Whether memory of a program holds these bytes. Words are compared as such: keys are short.
///
/// # Safety
/// There are as many bytes at `at`, in an arena that is mapped.
#[inline(always)]
pub(super) unsafe fn equal(at: *const u8, bytes: &[u8]) -> bool {
    let at = at.cast_mut();
    let whole = words(at, bytes.len());
    // SAFETY: the caller promises all bytes; words are aligned, and so is what follows them.
    let same = bytes.as_chunks().0[..whole].iter().enumerate().all(|(index, word)| unsafe {
        AtomicU64::from_ptr(at.add(index * WORD).cast()).load(Relaxed) == u64::from_ne_bytes(*word)
    });
    let rest = &bytes[whole * WORD..];
    // SAFETY: as above.
    let after = unsafe { at.add(whole * WORD) };
    same && match <[u8; 4]>::try_from(rest) {
        // SAFETY: as above.
        Ok(half) if after.addr().is_multiple_of(4) => unsafe {
            AtomicU32::from_ptr(after.cast()).load(Relaxed) == u32::from_ne_bytes(half)
        },
        _ => rest.iter().enumerate().all(|(index, byte)| {
            // SAFETY: as above; bytes have no alignment.
            unsafe { AtomicU8::from_ptr(after.add(index)).load(Relaxed) == *byte }
        }),
    }
}

/// Eight bytes, in one piece if they are aligned.
///
/// # Safety
/// As [`equal`].
#[inline(always)]
unsafe fn word_at(at: *const u8) -> [u8; 8] {
    // SAFETY: the caller promises all bytes.
    unsafe {
        match at.addr().is_multiple_of(8) {
            true => AtomicU64::from_ptr(at.cast_mut().cast()).load(Relaxed).to_ne_bytes(),
            false => at.cast::<[u8; 8]>().read(),
        }
    }
}

/// Four bytes, as [`word_at`].
///
/// # Safety
/// As [`equal`].
#[inline(always)]
unsafe fn half_at(at: *const u8) -> [u8; 4] {
    // SAFETY: the caller promises all bytes.
    unsafe {
        match at.addr().is_multiple_of(4) {
            true => AtomicU32::from_ptr(at.cast_mut().cast()).load(Relaxed).to_ne_bytes(),
            false => at.cast::<[u8; 4]>().read(),
        }
    }
}

/// Leading bits, from the most significant of the first byte on, in which memory of a program is these bytes.
///
/// # Safety
/// As [`equal`].
#[inline(always)]
pub(super) unsafe fn common_bits(at: *const u8, bytes: &[u8]) -> u32 {
    if let Ok(word) = bytes.try_into() {
        // SAFETY: passed on to the caller.
        let own = unsafe { half_at(at) };
        return (u32::from_be_bytes(own) ^ u32::from_be_bytes(word)).leading_zeros();
    }
    let (words, rest) = bytes.as_chunks::<8>();
    let (half, tail) = rest.as_chunks::<4>();
    let differ = |bits: u32, differ: u64| (differ != 0).then(|| bits + differ.leading_zeros());
    let from = [words.len() * 8, bytes.len() - tail.len()];
    // SAFETY: the caller promises all bytes.
    let found = unsafe {
        let mut words = words.iter().enumerate().map(|(index, word)| {
            let own = word_at(at.add(index * WORD));
            differ(index as u32 * 64, u64::from_be_bytes(own) ^ u64::from_be_bytes(*word))
        });
        let half = || {
            let [half] = half else { return None };
            let own = half_at(at.add(from[0]));
            differ(from[0] as u32 * 8, u64::from(u32::from_be_bytes(own) ^ u32::from_be_bytes(*half)) << 32)
        };
        let tail = || {
            let mut tail = tail.iter().enumerate();
            tail.find_map(|(index, byte)| {
                let index = from[1] + index;
                differ(
                    index as u32 * 8,
                    u64::from(AtomicU8::from_ptr(at.add(index).cast_mut()).load(Relaxed) ^ byte) << 56,
                )
            })
        };
        words.find_map(|found| found).or_else(half).or_else(tail)
    };
    found.unwrap_or(bytes.len() as u32 * 8)
}
