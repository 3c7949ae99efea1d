//! Numbers of up to 16 bytes in an object's byte order.

use twinbpf_isa::Endian;

/// Reading and writing by [`Endian`].
pub(super) trait Order {
    /// The unsigned number in up to 16 `bytes`.
    fn read(self, bytes: &[u8]) -> u128;

    /// Writes the low bytes of `value`, as many as `out` has (up to 16).
    fn write(self, value: u128, out: &mut [u8]);

    /// How far up a bitfield lies in the number read from the `bytes` bytes that hold it: BTF counts its first bit
    /// from the end of the number that comes first in memory.
    fn bit_shift(self, bytes: usize, first: u32, bits: u32) -> Option<u32>;
}

impl Order for Endian {
    fn read(self, bytes: &[u8]) -> u128 {
        let push = |value: u128, byte: &u8| value << 8 | u128::from(*byte);
        match self {
            Endian::Little => bytes.iter().rev().fold(0, push),
            Endian::Big => bytes.iter().fold(0, push),
        }
    }

    fn write(self, value: u128, out: &mut [u8]) {
        let bytes = value.to_le_bytes();
        let len = out.len();
        for (index, byte) in out.iter_mut().enumerate() {
            let from = match self {
                Endian::Little => index,
                Endian::Big => len - 1 - index,
            };
            *byte = bytes.get(from).copied().unwrap_or(0);
        }
    }

    fn bit_shift(self, bytes: usize, first: u32, bits: u32) -> Option<u32> {
        match self {
            Endian::Little => Some(first),
            Endian::Big => u32::try_from(bytes).ok()?.checked_mul(8)?.checked_sub(first.checked_add(bits)?),
        }
    }
}
