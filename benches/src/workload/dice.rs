//! Choices for the shapes of inputs: the same on every run, taken from the random bytes that a shape replaces.

/// A supply of random 32-bit words.
pub struct Dice {
    words: std::iter::Cycle<std::vec::IntoIter<u32>>,
}

impl Dice {
    /// Takes them from the words of `bytes`; after the last comes the first again.
    pub fn new(bytes: &[u8]) -> Self {
        let words = bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]));
        Self { words: words.collect::<Vec<_>>().into_iter().cycle() }
    }

    /// A pseudo-random number of 32 bits.
    pub fn word(&mut self) -> u32 {
        self.words.next().expect("the input is not empty")
    }

    /// One below `bound`.
    pub fn below(&mut self, bound: u32) -> u32 {
        ((u64::from(self.word()) * u64::from(bound)) >> 32) as u32
    }
}
