//! Page colouring: where the writable half of an arena starts, so that the first data cache of the processor holds lines of both
//! halves.
//!
//! AMD's cores look for a line in their first data cache by a hash of bits 12 to 27 of its address: 12^27, 13^26, 14^25,
//! and from 15^20 to 19^24 (Lipp et al., "Take A Way", 2020). Of two lines with the same hash and the same bits 6 to 11
//! only one can be there at a time, and a program that accesses both in turn misses it each time. Frames lie at the
//! start of the writable half and constants at the start of the read-only one, so that halves at round addresses often
//! do that.

/// Pages so far from the start of either half share the highest bit of the hash.
const REACH: u64 = 512 << 10;

/// Highest bit of the hash of an address.
fn high_bit(address: u64) -> u64 {
    (address >> 19 ^ address >> 24) & 1
}

/// Bytes that [`apart`] needs at most.
pub(super) const SLACK: u64 = 2 * REACH;

/// The first address, at or after a wanted one, for a half whose first pages share no hash with those of the half at
/// `start`. It is less than [`SLACK`] above.
pub(super) fn apart(start: u64, wanted: u64) -> u64 {
    let split = wanted.next_multiple_of(REACH);
    if high_bit(split) == high_bit(start) { split + REACH } else { split }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::super::{Arena, MARGIN, RegionKind, RegionSpec};
    use super::*;

    fn hash(address: u64) -> u64 {
        let bit = |low: u64, high: u64| (address >> low ^ address >> high) & 1;
        let pairs = [(12, 27), (13, 26), (14, 25), (15, 20), (16, 21), (17, 22), (18, 23), (19, 24)];
        pairs.iter().enumerate().map(|(at, (low, high))| bit(*low, *high) << at).sum()
    }

    fn hashes(from: u64, pages: u64) -> HashSet<u64> {
        (0..pages).map(|page| hash(from + page * 4096)).collect()
    }

    #[test]
    fn no_page_of_one_half_shares_its_hash_with_one_of_the_other() {
        for (start, wanted) in [(MARGIN, 1 << 30), (32 << 20, 48 << 20), (32 << 20, 45 << 20), (64 << 20, 0x5fc_d000)] {
            let split = apart(start, wanted);
            assert!((wanted..wanted + SLACK).contains(&split), "{split:#x} for {wanted:#x}");
            assert!(hashes(start, 128).is_disjoint(&hashes(split, 128)), "{start:#x} {split:#x}");
        }
    }

    #[test]
    #[expect(unsafe_code, reason = "an arena for trusted programs")]
    fn a_trusted_arena_holds_what_it_may() {
        // The least there is, so that it is not smaller where other arenas have taken the room.
        let limit = 16 << 20;
        // SAFETY: nothing runs in it.
        let Ok(arena) = (unsafe { Arena::trusted(limit) }) else { return };
        arena.alloc(RegionSpec::new("all", RegionKind::Map, limit as u32 - 4096)).expect("nearly all that is allowed");
    }

    #[test]
    #[expect(unsafe_code, reason = "an arena for trusted programs")]
    fn arenas_put_their_halves_apart() {
        let sandbox = Arena::new(64 << 20).expect("a sandbox");
        // SAFETY: nothing runs in it.
        let trusted = unsafe { Arena::trusted(64 << 20) };
        for arena in [Some(sandbox), trusted.ok()].into_iter().flatten() {
            let [writable, read_only] = [true, false].map(|writable| {
                let spec = RegionSpec { writable, ..RegionSpec::new("half", RegionKind::Map, 64 << 12) };
                hashes(arena.alloc(spec).expect("a block").addr(), 64)
            });
            assert_eq!(writable.len(), 64, "pages of one half differ");
            assert!(writable.is_disjoint(&read_only));
        }
    }
}
