//! The wire form of a slot: four fields, not yet known to mean anything.

/// Byte order of an object's instructions.
///
/// ```
/// use twinbpf_isa::{Endian, decode_all};
///
/// let exit = [0x95, 0, 0, 0, 0, 0, 0, 0];
/// assert_eq!(decode_all(&exit, Endian::Little)?, decode_all(&exit, Endian::Big)?);
/// # Ok::<(), (usize, twinbpf_isa::DecodeError)>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Endian {
    /// `bpfel`, what clang makes by default.
    Little,
    /// Most significant byte first (clang's target `bpfeb`).
    Big,
}

/// One 8-byte slot as RFC 9669 section 3.1 lays it out. Any eight bytes are a `Raw`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Raw {
    /// Class, operation or mode, source bit or size.
    pub opcode: u8,
    /// `src << 4 | dst`. In a big-endian object the two nibbles are exchanged in memory, not here.
    pub regs: u8,
    /// Signed offset: slots for a jump, bytes for a memory access.
    pub off: i16,
    /// Signed 32-bit immediate value.
    pub imm: i32,
}

impl Raw {
    /// From the bytes of an object with this byte order.
    pub const fn from_bytes(bytes: [u8; 8], order: Endian) -> Raw {
        let [opcode, regs, o0, o1, i0, i1, i2, i3] = bytes;
        match order {
            Endian::Little => {
                Raw { opcode, regs, off: i16::from_le_bytes([o0, o1]), imm: i32::from_le_bytes([i0, i1, i2, i3]) }
            }
            Endian::Big => Raw {
                opcode,
                regs: regs.rotate_left(4),
                off: i16::from_be_bytes([o0, o1]),
                imm: i32::from_be_bytes([i0, i1, i2, i3]),
            },
        }
    }

    /// Inverse of [`Raw::from_bytes`].
    pub const fn to_bytes(self, order: Endian) -> [u8; 8] {
        let (regs, off, imm) = match order {
            Endian::Little => (self.regs, self.off.to_le_bytes(), self.imm.to_le_bytes()),
            Endian::Big => (self.regs.rotate_left(4), self.off.to_be_bytes(), self.imm.to_be_bytes()),
        };
        [self.opcode, regs, off[0], off[1], imm[0], imm[1], imm[2], imm[3]]
    }

    /// Number in the destination field, 0 to 15.
    pub const fn dst(self) -> u8 {
        self.regs & 0xf
    }

    /// Number in the source field, 0 to 15.
    pub const fn src(self) -> u8 {
        self.regs >> 4
    }
}
