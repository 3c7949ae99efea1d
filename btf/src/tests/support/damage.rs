//! Damaged copies of bytes.

/// xorshift64*; the same damage in every run.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % limit.max(1)
    }

    /// Some bytes changed, a word made extreme, a piece cut or doubled.
    pub(crate) fn damage(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        for _ in 0..=self.below(4) {
            let at = self.below(bytes.len());
            match self.below(8) {
                0 => bytes.truncate(at),
                1 => drop(bytes.drain(at..(at + 4 * self.below(8)).min(bytes.len()))),
                2 => {
                    let piece = bytes[at..(at + 4 * self.below(16)).min(bytes.len())].to_vec();
                    bytes.splice(at..at, piece);
                }
                3 => {
                    let at = at & !3;
                    let word = [0, u32::MAX, 0x7fff_ffff, 1, 0xffff, 1 << 24][self.below(6)];
                    if let Some(target) = bytes.get_mut(at..at + 4) {
                        target.copy_from_slice(&word.to_le_bytes());
                    }
                }
                4 => {
                    // A small id or size, where it is likeliest to mean something.
                    let at = at & !3;
                    let word = self.below(130) as u32;
                    if let Some(target) = bytes.get_mut(at..at + 4) {
                        target.copy_from_slice(&word.to_le_bytes());
                    }
                }
                _ => {
                    let bit = 1 << self.below(8);
                    if let Some(target) = bytes.get_mut(at) {
                        *target ^= bit;
                    }
                }
            }
        }
        bytes
    }
}
