//! A checksum, to notice that something is not what it was. Quick, the same in every process, and no match for
//! somebody who wants two things to have the same.

use std::hash::Hasher;

/// FNV-1a, 128 bits wide, eight bytes at a time.
#[derive(Clone, Copy, Debug)]
pub struct Sum(u128);

impl Sum {
    /// Of some bytes.
    pub fn of(bytes: &[u8]) -> u128 {
        let mut sum = Sum::default();
        sum.write(bytes);
        sum.value()
    }

    /// Of what was written so far.
    pub fn value(&self) -> u128 {
        self.0
    }

    fn word(&mut self, word: u64) {
        self.0 = (self.0 ^ u128::from(word)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
    }
}

impl Default for Sum {
    fn default() -> Sum {
        Sum(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d)
    }
}

impl Hasher for Sum {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        words.iter().for_each(|word| self.word(u64::from_le_bytes(*word)));
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        self.word(u64::from_le_bytes(last));
        self.word(bytes.len() as u64);
    }

    fn finish(&self) -> u64 {
        self.0 as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_counts() {
        let bytes: Vec<u8> = (0..100).collect();
        let sum = Sum::of(&bytes);
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut other = bytes.clone();
                other[at] ^= 1 << bit;
                assert_ne!(Sum::of(&other), sum, "byte {at}, bit {bit}");
            }
            assert_ne!(Sum::of(&bytes[..at]), sum);
        }
        assert_ne!(Sum::of(&[0]), Sum::of(&[0, 0]));
    }
}
