//! The half of a hash that hash tables use.

/// Half of a hash, never 0. Of keys that follow each other the hasher's own bits are multiples of one number: for one seed in ten
/// these lie in few buckets, which another multiplication spreads.
#[inline(always)]
pub(super) fn spread(hash: u64) -> u32 {
    /// 2^64 by the golden ratio (Knuth, The Art of Computer Programming 3, 6.4).
    const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
    (hash.wrapping_mul(GOLDEN) >> 32) as u32 | 1
}

#[cfg(test)]
mod tests {
    use super::spread;

    /// The hasher's multiplication (foldhash), whose factor is the process's seed.
    fn folded(key: u64, factor: u64) -> u64 {
        let product = u128::from(key) * u128::from(factor);
        product as u64 ^ (product >> 64) as u64
    }

    /// Records that a search passes on average, of as many keys as there are buckets.
    fn passed(hashes: impl Iterator<Item = u64>) -> f64 {
        const KEYS: usize = 1024;
        let mut chains = [0_u32; KEYS];
        hashes.take(KEYS).for_each(|hash| chains[spread(hash) as usize >> 1 & (KEYS - 1)] += 1);
        f64::from(chains.iter().map(|length| length * (length + 1) / 2).sum::<u32>()) / KEYS as f64
    }

    /// Numbers, addresses and halves that follow each other, whatever the seeds are.
    #[test]
    fn chains_are_as_short_as_by_chance() {
        let mut seed = 1_u64;
        let mut next = || {
            seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            (seed ^ seed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
        };
        for _ in 0..300 {
            let (factor, own) = (next(), next());
            for shift in [0, 4, 6, 12, 32, 48] {
                let passed = passed((0_u64..).map(|key| folded(key << shift ^ own, factor)));
                assert!(passed < 1.7, "{passed} for keys {} apart, {factor:#x}", 1_u64 << shift);
            }
        }
    }
}
