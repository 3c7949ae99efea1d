//! A digest that detects accidental changes. It is fast and the same in every process; it is not cryptographic, so that
//! collisions can be made on purpose.

use std::hash::Hasher;

/// FNV-1a, 128 bits wide, eight bytes at a time.
#[derive(Clone, Copy, Debug)]
pub struct Digest(u128);

impl Digest {
    /// Of some bytes.
    pub fn of(bytes: &[u8]) -> u128 {
        let mut digest = Digest::default();
        digest.write(bytes);
        digest.value()
    }

    /// Of what was written so far.
    pub fn value(&self) -> u128 {
        self.0
    }

    fn word(&mut self, word: u64) {
        self.0 = (self.0 ^ u128::from(word)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
    }
}

impl Default for Digest {
    fn default() -> Digest {
        Digest(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d)
    }
}

impl Hasher for Digest {
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
        let digest = Digest::of(&bytes);
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut other = bytes.clone();
                other[at] ^= 1 << bit;
                assert_ne!(Digest::of(&other), digest, "byte {at}, bit {bit}");
            }
            assert_ne!(Digest::of(&bytes[..at]), digest);
        }
        assert_ne!(Digest::of(&[0]), Digest::of(&[0, 0]));
    }
}
