//! From bytes to [`Btf`]: header, byte order, the position of every type, and a check of every reference.
//!
//! As strict as libbpf's `btf_parse_hdr` and `btf_validate_type`; the kernel's further rules (names that are
//! identifiers, members inside their struct) are left to the kernel.

use std::sync::atomic::AtomicU32;
use std::sync::{Arc, OnceLock};

use super::order::Order;
use super::raw::{
    self, HEADER_LEN, MAGIC, RawEnum, RawEnum64, RawMember, RawParam, RawSecinfo, RawType, TYPE_WORDS, kind,
};
use super::types::Linkage;
use super::{Btf, BtfError, Endian, TypeId};

impl Btf {
    /// Reads a `.BTF` section (or `/sys/kernel/btf/vmlinux`) of byte order `endian`.
    pub fn parse(bytes: &[u8], endian: Endian) -> Result<Btf, BtfError> {
        Btf::read(bytes, endian, None)
    }

    /// Reads the BTF of a kernel module (`/sys/kernel/btf/MODULE`), which continues where `base`, the kernel's, ends.
    pub fn parse_split(bytes: &[u8], base: &Arc<Btf>) -> Result<Btf, BtfError> {
        Btf::read(bytes, base.endian, Some(Arc::clone(base)))
    }

    fn read(bytes: &[u8], endian: Endian, base: Option<Arc<Btf>>) -> Result<Btf, BtfError> {
        let header_len = check_start(bytes, endian, HEADER_LEN)?;
        let body = bytes.get(header_len..).unwrap_or(&[]);
        let field = |at| raw::word(bytes, at, endian).unwrap_or(0) as usize;
        let (type_off, type_len, str_off, str_len) = (field(8), field(12), field(16), field(20));
        if type_off % 4 != 0 {
            return Err(BtfError::Header { what: "offset of types", value: type_off });
        }
        if type_len % 4 != 0 {
            return Err(BtfError::Header { what: "length of types", value: type_len });
        }
        let types = part(body, "type section", type_off, type_len)?;
        let strings = part(body, "string section", str_off, str_len)?;
        if type_off < str_off + str_len && str_off < type_off + type_len {
            return Err(BtfError::Header { what: "offset of strings, inside the types,", value: str_off });
        }
        let empty = base.is_some() && strings.is_empty();
        if !empty && (base.is_none() && strings.first() != Some(&0) || strings.last() != Some(&0)) {
            return Err(BtfError::Strings);
        }
        let (first_id, first_str) = match &base {
            Some(base) => (base.last_id().saturating_add(1), base.strings_end()),
            None => (1, 0),
        };
        let words = raw::words(types, endian);
        let starts = starts(&words)?;
        let strings = utf8(strings);
        let btf = Btf {
            endian,
            base,
            first_id,
            first_str,
            words,
            starts,
            strings,
            names: OnceLock::new(),
            queries: AtomicU32::new(0),
        };
        btf.validate()?;
        Ok(btf)
    }

    /// Byte order of BTF bytes by their magic.
    pub fn detect_endian(bytes: &[u8]) -> Option<Endian> {
        match bytes.get(..2)? {
            [0x9f, 0xeb] => Some(Endian::Little),
            [0xeb, 0x9f] => Some(Endian::Big),
            _ => None,
        }
    }

    fn validate(&self) -> Result<(), BtfError> {
        for (index, &start) in self.starts.iter().enumerate() {
            let id = TypeId(self.first_id + index as u32);
            let (head, extra) = self.record(start as usize);
            self.check_name(id, head.name_off)?;
            self.validate_type(id, head, extra)?;
        }
        Ok(())
    }

    fn validate_type(&self, id: TypeId, head: RawType, extra: &[u32]) -> Result<(), BtfError> {
        match head.kind() {
            kind::PTR | kind::TYPEDEF | kind::VOLATILE | kind::CONST | kind::RESTRICT | kind::TYPE_TAG => {
                self.check_id(id, head.size_or_type)
            }
            kind::DECL_TAG => self.check_id(id, head.size_or_type),
            kind::FUNC | kind::VAR => {
                let linkage = if head.kind() == kind::FUNC { Some(head.vlen() as u32) } else { extra.first().copied() };
                let linkage = linkage.unwrap_or(u32::MAX);
                if Linkage::new(linkage).is_none() {
                    return Err(BtfError::Field { id, what: "linkage", value: linkage });
                }
                self.check_id(id, head.size_or_type)
            }
            kind::ARRAY => extra.iter().take(2).try_for_each(|&target| self.check_id(id, target)),
            kind::STRUCT | kind::UNION => {
                self.check_all(id, raw::records::<RawMember>(extra).iter().map(|raw| (raw.name_off, raw.type_id)))
            }
            kind::FUNC_PROTO => {
                self.check_id(id, head.size_or_type)?;
                self.check_all(id, raw::records::<RawParam>(extra).iter().map(|raw| (raw.name_off, raw.type_id)))
            }
            kind::DATASEC => self.check_all(id, raw::records::<RawSecinfo>(extra).iter().map(|raw| (0, raw.type_id))),
            kind::ENUM => self.check_all(id, raw::records::<RawEnum>(extra).iter().map(|raw| (raw.name_off, 0))),
            kind::ENUM64 => self.check_all(id, raw::records::<RawEnum64>(extra).iter().map(|raw| (raw.name_off, 0))),
            // INT, FWD and FLOAT refer to nothing; there are no other kinds, `starts` saw to it.
            _ => Ok(()),
        }
    }

    fn check_all(&self, id: TypeId, mut refs: impl Iterator<Item = (u32, u32)>) -> Result<(), BtfError> {
        refs.try_for_each(|(name, target)| {
            self.check_name(id, name)?;
            self.check_id(id, target)
        })
    }

    fn check_id(&self, id: TypeId, target: u32) -> Result<(), BtfError> {
        let last = self.last_id();
        if target > last { Err(BtfError::Dangling { id, target: TypeId(target), last }) } else { Ok(()) }
    }

    fn check_name(&self, id: TypeId, offset: u32) -> Result<(), BtfError> {
        let len = self.strings_end();
        if offset >= len { Err(BtfError::Name { id, offset, len: len as usize }) } else { Ok(()) }
    }

    /// The `btf_type` at word `start` and the words that follow it.
    pub(super) fn record(&self, start: usize) -> (RawType, &[u32]) {
        let (head, rest) = self.words[start..].split_at(TYPE_WORDS);
        let head = *raw::record::<RawType>(head);
        (head, &rest[..head.extra_words().expect("unknown kinds were refused")])
    }
}

/// Checks magic, version and header length, which `.BTF` and `.BTF.ext` share; returns the last.
pub(super) fn check_start(bytes: &[u8], endian: Endian, min: usize) -> Result<usize, BtfError> {
    let truncated = |need| BtfError::Truncated { what: "header", need, have: bytes.len() };
    let start = bytes.get(..8).ok_or(truncated(min))?;
    let magic = endian.read(&start[..2]) as u16;
    if magic == MAGIC.swap_bytes() {
        return Err(BtfError::ByteOrder);
    }
    if magic != MAGIC {
        return Err(BtfError::Magic { magic });
    }
    if start[2] != 1 {
        return Err(BtfError::Version { version: start[2] });
    }
    let len = raw::word(bytes, 4, endian).unwrap_or(0) as usize;
    if len < min {
        return Err(BtfError::Header { what: "header length", value: len });
    }
    if len > bytes.len() {
        return Err(truncated(len));
    }
    Ok(len)
}

/// The `len` bytes at `off` of a section without its header.
pub(super) fn part<'a>(body: &'a [u8], what: &'static str, off: usize, len: usize) -> Result<&'a [u8], BtfError> {
    let end = off.saturating_add(len);
    body.get(off..end).ok_or(BtfError::Truncated { what, need: end, have: body.len() })
}

/// Where each type starts.
fn starts(words: &[u32]) -> Result<Vec<u32>, BtfError> {
    // Most types of a kernel have some five words.
    let mut starts = Vec::with_capacity(words.len() / 5);
    let mut at = 0;
    while at < words.len() {
        let id = TypeId(starts.len() as u32 + 1);
        let head = words.get(at..at + TYPE_WORDS).ok_or(BtfError::TypeTruncated { id })?;
        let head = raw::record::<RawType>(head);
        let extra = head.extra_words().ok_or(BtfError::Kind { id, kind: head.kind() })?;
        starts.push(at as u32);
        at += TYPE_WORDS + extra;
        if at > words.len() {
            return Err(BtfError::TypeTruncated { id });
        }
    }
    starts.shrink_to_fit();
    Ok(starts)
}

/// The string table as UTF-8 of the same length: each byte that is not becomes `?`, so that offsets stay right.
/// Source lines may be in any encoding.
fn utf8(bytes: &[u8]) -> String {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return text.to_owned();
    }
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|_| '?'));
    }
    text
}
