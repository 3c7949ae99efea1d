//! The memory of a workload for machines that take any address.
#![expect(unsafe_code, reason = "calls of the C library and of generated code")]

/// A cache line, so that the block begins at one on every machine.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
struct Line([u8; 64]);

/// Bytes that begin at a cache line.
pub struct Block(Vec<Line>);

impl Block {
    /// A copy of `bytes`, followed by up to 63 zero bytes.
    pub fn new(bytes: &[u8]) -> Self {
        let line = |chunk: &[u8]| {
            let mut line = Line([0; 64]);
            line.0[..chunk.len()].copy_from_slice(chunk);
            line
        };
        Self(bytes.chunks(64).map(line).collect())
    }

    /// All of them.
    pub fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: a line is 64 plain bytes without padding, and the slice borrows the vector.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), self.0.len() * size_of::<Line>()) }
    }
}
