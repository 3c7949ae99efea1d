//! The checksum of everything in an image that code depends on.

use std::hash::{Hash as _, Hasher};

use twinbpf_vm::image::{Image, Link};

use super::Values;

/// FNV-1a, 128 bits wide, eight bytes at a time.
pub(super) struct Sum(u128);

impl Default for Sum {
    fn default() -> Sum {
        Sum(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d)
    }
}

impl Sum {
    fn word(&mut self, word: u64) {
        self.0 = (self.0 ^ u128::from(word)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
    }

    pub(super) fn value(&self) -> u128 {
        self.0
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

/// Instructions, what they refer to, and how functions lie; not the addresses of this process.
pub(super) fn sum(image: &Image, values: &Values) -> u128 {
    let mut sum = Sum::default();
    image.insns().hash(&mut sum);
    for (pc, link) in image.links().iter().enumerate() {
        let (kind, number) = match *link {
            Link::None => (0, 0),
            Link::Value(value) => match values.index(pc as u32) {
                Some(index) => (1, u64::from(index)),
                None => (2, value),
            },
            Link::Function(function) => (3, function.into()),
            Link::Host(host) => (4, host.into()),
            Link::TailCall => (5, 0),
            Link::Trap(trap) => (6, trap.into()),
        };
        sum.write_u8(kind);
        sum.write_u64(number);
    }
    for function in image.functions() {
        [function.program, function.start, function.end, function.stack_size].hash(&mut sum);
    }
    for host in image.hosts() {
        (host.signature().params.len(), host.signature().variadic).hash(&mut sum);
    }
    image.labels().for_each(|label| label.hash(&mut sum));
    sum.value()
}
