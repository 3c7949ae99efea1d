//! Bloom filters: kernel/bpf/bloom_filter.c, with as many bits and hash functions. The hash itself is ours and
//! has no seed, so that a run can be repeated; which other values are taken for members differs from the kernel.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{BPF_ANY, Errno, MapOps, MapSpec};
use crate::mem::{Arena, Block, MemError, RegionKind, RegionSpec};

/// Hash functions when `map_extra` does not say.
const DEFAULT_HASHES: u64 = 5;

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Bloom {
    spec: MapSpec,
    hashes: u64,
    mask: u64,
    bits: Block,
}

impl Bloom {
    pub(super) fn new(spec: MapSpec, arena: &Arc<Arena>) -> Result<Bloom, MemError> {
        let hashes = if spec.extra == 0 { DEFAULT_HASHES } else { spec.extra };
        // n * k / ln 2 bits are best; the kernel takes 7/5 for 1/ln 2 and at most 2^32 bits.
        let wanted = u64::from(spec.max_entries) * hashes / 5 * 7;
        let bits = wanted.clamp(64, 1 << 32).next_power_of_two();
        let bytes = (bits / 8) as u32;
        let label: Arc<str> = format!("bits of map {}", spec.name).into();
        let owner = arena.new_owner();
        let bits_of = arena.alloc(RegionSpec { owner, ..RegionSpec::new(label, RegionKind::Map, bytes) })?;
        Ok(Bloom { spec, hashes, mask: bits - 1, bits: bits_of })
    }

    /// The words and bits of a value.
    fn bits_of(&self, value: &[u8]) -> impl Iterator<Item = (&AtomicU64, u64)> {
        let first = hash(value, 0x9e37_79b9_7f4a_7c15);
        let step = hash(value, 0xc2b2_ae3d_27d4_eb4f) | 1;
        (0..self.hashes).map(move |index| {
            let bit = first.wrapping_add(step.wrapping_mul(index)) & self.mask;
            (self.bits.atomic((bit / 64 * 8) as u32), 1 << (bit % 64))
        })
    }
}

/// A 64-bit hash: words folded by a full multiplication.
fn hash(value: &[u8], seed: u64) -> u64 {
    let mix = |state: u64, word: u64| {
        let product = u128::from(state ^ word) * u128::from(0xd6e8_feb8_6659_fd93_u64 ^ seed);
        product as u64 ^ (product >> 64) as u64
    };
    let words = value.chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    });
    mix(words.fold(seed, mix), value.len() as u64)
}

impl MapOps for Bloom {
    fn spec(&self) -> &MapSpec {
        &self.spec
    }

    fn lookup(&self, _key: &[u8], _cpu: u32) -> Option<u64> {
        None
    }

    /// As in bpf(2): queries the value that is in the buffer.
    fn lookup_copy(&self, _key: &[u8], _cpu: u32, value: &mut [u8]) -> Result<(), Errno> {
        self.peek(value)
    }

    fn update(&self, _key: &[u8], value: &[u8], flags: u64, _cpu: u32) -> Result<(), Errno> {
        self.push(value, flags)
    }

    fn delete(&self, _key: &[u8]) -> Result<(), Errno> {
        Err(Errno::EOPNOTSUPP)
    }

    fn next_key(&self, _key: Option<&[u8]>, _next: &mut [u8]) -> Result<(), Errno> {
        Err(Errno::EOPNOTSUPP)
    }

    fn keys(&self) -> Vec<Vec<u8>> {
        Vec::new()
    }

    fn arena(&self) -> Option<&Arc<Arena>> {
        Some(self.bits.arena())
    }

    /// A filter does not know; 0.
    fn len(&self) -> u32 {
        0
    }

    fn push(&self, value: &[u8], flags: u64) -> Result<(), Errno> {
        if flags != BPF_ANY || value.len() != self.spec.value_size as usize {
            return Err(Errno::EINVAL);
        }
        for (word, bit) in self.bits_of(value) {
            word.fetch_or(bit, Ordering::Relaxed);
        }
        Ok(())
    }

    fn pop(&self, _value: &mut [u8]) -> Result<(), Errno> {
        Err(Errno::EOPNOTSUPP)
    }

    fn peek(&self, value: &mut [u8]) -> Result<(), Errno> {
        if value.len() != self.spec.value_size as usize {
            return Err(Errno::EINVAL);
        }
        let member = self.bits_of(value).all(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0);
        if member { Ok(()) } else { Err(Errno::ENOENT) }
    }
}
