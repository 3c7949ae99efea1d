//! The records of `.BTF` and `.BTF.ext` as they lie in memory, and the sizes that follow from them.
//!
//! Apart from the first eight header bytes, both sections consist of 32-bit words. They are brought to host byte
//! order once, into `Vec<u32>`; afterwards every record is a view of some words, without a copy and without
//! asking for the byte order again. Source: `include/uapi/linux/btf.h`, and libbpf's `btf_ext_header`.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::Endian;

/// First two bytes of both sections.
pub(super) const MAGIC: u16 = 0xeb9f;
/// Bytes of the `.BTF` header that we know; a longer one is accepted.
pub(super) const HEADER_LEN: usize = 24;
/// Bytes of the shortest `.BTF.ext` header: function and line records.
pub(super) const EXT_HEADER_LEN: usize = 24;
/// Bytes of the `.BTF.ext` header with CO-RE relocations.
pub(super) const EXT_HEADER_CORE_LEN: usize = 32;

/// Words of `struct btf_type`.
pub(super) const TYPE_WORDS: usize = 3;

#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct RawType {
    pub(super) name_off: u32,
    pub(super) info: u32,
    pub(super) size_or_type: u32,
}

impl RawType {
    pub(super) fn kind(self) -> u32 {
        (self.info >> 24) & 0x1f
    }

    pub(super) fn vlen(self) -> usize {
        (self.info & 0xffff) as usize
    }

    pub(super) fn kflag(self) -> bool {
        self.info >> 31 != 0
    }

    /// Words after the record that belong to the type; `None` for an undefined kind.
    pub(super) fn extra_words(self) -> Option<usize> {
        let vlen = self.vlen();
        Some(match self.kind() {
            kind::INT | kind::VAR | kind::DECL_TAG => 1,
            kind::ARRAY => 3,
            kind::STRUCT | kind::UNION | kind::DATASEC | kind::ENUM64 => 3 * vlen,
            kind::ENUM | kind::FUNC_PROTO => 2 * vlen,
            kind::PTR | kind::FWD | kind::FUNC | kind::FLOAT | kind::TYPE_TAG => 0,
            kind::TYPEDEF | kind::VOLATILE | kind::CONST | kind::RESTRICT => 0,
            _ => return None,
        })
    }
}

/// The numbers of `BTF_KIND_*` in `include/uapi/linux/btf.h`.
#[allow(missing_docs, reason = "each has the name that the kernel gives it")]
pub mod kind {
    pub const INT: u32 = 1;
    pub const PTR: u32 = 2;
    pub const ARRAY: u32 = 3;
    pub const STRUCT: u32 = 4;
    pub const UNION: u32 = 5;
    pub const ENUM: u32 = 6;
    pub const FWD: u32 = 7;
    pub const TYPEDEF: u32 = 8;
    pub const VOLATILE: u32 = 9;
    pub const CONST: u32 = 10;
    pub const RESTRICT: u32 = 11;
    pub const FUNC: u32 = 12;
    pub const FUNC_PROTO: u32 = 13;
    pub const VAR: u32 = 14;
    pub const DATASEC: u32 = 15;
    pub const FLOAT: u32 = 16;
    pub const DECL_TAG: u32 = 17;
    pub const TYPE_TAG: u32 = 18;
    pub const ENUM64: u32 = 19;
}

#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct RawArray {
    pub(super) elem: u32,
    pub(super) index: u32,
    pub(super) len: u32,
}

#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct RawMember {
    pub(super) name_off: u32,
    pub(super) type_id: u32,
    pub(super) offset: u32,
}

#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct RawParam {
    pub(super) name_off: u32,
    pub(super) type_id: u32,
}

#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct RawSecinfo {
    pub(super) type_id: u32,
    pub(super) offset: u32,
    pub(super) size: u32,
}

#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct RawEnum {
    pub(super) name_off: u32,
    pub(super) value: u32,
}

#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct RawEnum64 {
    pub(super) name_off: u32,
    pub(super) low: u32,
    pub(super) high: u32,
}

/// The words of `bytes` in host order; a last partial word is dropped.
pub(super) fn words(bytes: &[u8], endian: Endian) -> Vec<u32> {
    let (chunks, _) = bytes.as_chunks::<4>();
    match endian {
        Endian::Little => chunks.iter().map(|chunk| u32::from_le_bytes(*chunk)).collect(),
        Endian::Big => chunks.iter().map(|chunk| u32::from_be_bytes(*chunk)).collect(),
    }
}

/// The 32-bit word at byte `at`.
pub(super) fn word(bytes: &[u8], at: usize, endian: Endian) -> Option<u32> {
    let chunk: [u8; 4] = bytes.get(at..at.checked_add(4)?)?.try_into().ok()?;
    Some(match endian {
        Endian::Little => u32::from_le_bytes(chunk),
        Endian::Big => u32::from_be_bytes(chunk),
    })
}

/// `words` as records of type `T`; their number must come out even.
pub(super) fn records<T: FromBytes + Immutable + KnownLayout>(words: &[u32]) -> &[T] {
    <[T]>::ref_from_bytes(words.as_bytes()).expect("records are whole words, and the caller counted them")
}

/// `words` as one record.
pub(super) fn record<T: FromBytes + Immutable + KnownLayout>(words: &[u32]) -> &T {
    T::ref_from_bytes(words.as_bytes()).expect("the caller took exactly the words of one record")
}
