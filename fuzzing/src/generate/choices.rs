//! Source of random choices: a seed, or the bytes of a coverage-guided fuzzer.

/// A source of choices. Bytes that run out continue as zeroes, which choose what is simplest.
#[derive(Clone, Debug)]
pub struct Choices<'a> {
    state: u64,
    bytes: Option<&'a [u8]>,
}

/// Numbers at which something changes: signs, widths, shift counts, alignments.
const EDGES: [u64; 24] = [
    0,
    1,
    2,
    7,
    8,
    15,
    16,
    31,
    32,
    33,
    63,
    64,
    65,
    0x7f,
    0x80,
    0xff,
    0x7fff,
    0x8000,
    0xffff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    1 << 32,
    1 << 63,
];

impl Choices<'static> {
    /// Choices that follow from a number: xorshift64*, stirred so that neighbours have nothing in common.
    pub fn from_seed(seed: u64) -> Choices<'static> {
        let mut state = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        state = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        state = (state ^ state >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        Choices { state: (state ^ state >> 31) | 1, bytes: None }
    }
}

impl<'a> Choices<'a> {
    /// Choices that bytes spell out.
    pub fn from_bytes(bytes: &'a [u8]) -> Choices<'a> {
        Choices { state: 0, bytes: Some(bytes) }
    }

    fn take(&mut self, count: usize) -> u64 {
        let bytes = self.bytes.unwrap_or_default();
        let (head, rest) = bytes.split_at(count.min(bytes.len()));
        self.bytes = Some(rest);
        let mut word = [0; 8];
        word[..head.len()].copy_from_slice(head);
        u64::from_le_bytes(word)
    }

    /// A number of 64 bits, each value possible.
    pub fn word(&mut self) -> u64 {
        if self.bytes.is_some() {
            return self.take(8);
        }
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        self.state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `bound`, which is not 0.
    pub fn below(&mut self, bound: usize) -> usize {
        match self.bytes {
            Some(_) => self.take(if bound <= 256 { 1 } else { 4 }) as usize % bound,
            None => (((self.word() >> 32) * bound as u64) >> 32) as usize,
        }
    }

    /// A number below each of these bounds, which are small and not 0.
    #[inline]
    pub fn below_each(&mut self, bounds: [u16; 4]) -> [usize; 4] {
        if self.bytes.is_some() {
            return bounds.map(|bound| self.below(bound.into()));
        }
        let word = self.word();
        std::array::from_fn(|part| ((word >> (part * 16) & 0xffff) as usize * usize::from(bounds[part])) >> 16)
    }

    /// True once in `of` times.
    pub fn once_in(&mut self, of: usize) -> bool {
        self.below(of) == of - 1
    }

    /// One of these.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// A number of 64 bits, edges well represented.
    pub fn number(&mut self) -> u64 {
        const COUNT: u16 = EDGES.len() as u16;
        let [kind, edge, other, shift] = self.below_each([5, COUNT, COUNT, 64]);
        let (edge, other) = (EDGES[edge], EDGES[other]);
        let random = if kind == 4 { self.word() >> shift } else { 0 };
        // The fourth: a different edge in each half. By index, since a branch here is unpredictable.
        [edge, edge.wrapping_neg(), edge.wrapping_sub(1), edge << 32 ^ other, random][kind]
    }

    /// An immediate, likewise.
    pub fn imm(&mut self) -> i32 {
        self.number() as i32
    }
}
