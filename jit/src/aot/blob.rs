//! The bytes of [`SYMBOL`](super::SYMBOL): a head, a record per function, facts as text, a table per function.
//!
//! All numbers are little-endian. Head: magic, then 32 bits each: version, length of all, number of functions, length
//! of the text. Record of a function: 64 bits for its address, which the linker fills in, 32 bits for its size, 32 bits
//! for where its table begins. Tables are of variable-length numbers, most of them differences to the one before.
//!
//! Reading does not trust the bytes: damage ends in `None`.

use twinbpf_isa::{Reg, Size};
use twinbpf_vm::host::native::{Site, SiteKind};

use crate::positions::Positions;
use crate::trap_sites::TrapSites;

pub(super) const MAGIC: [u8; 8] = *b"twinbpf\0";
pub(super) const VERSION: u32 = 4;
/// Bytes of the head.
pub(super) const HEAD: usize = 24;
/// Bytes of a record.
pub(super) const RECORD: usize = 16;

/// Puts the blob together; addresses of functions are left out.
pub(super) fn write(text: &str, functions: &[TrapSites]) -> Vec<u8> {
    let tables: Vec<Vec<u8>> = functions.iter().map(table).collect();
    let mut at = HEAD + RECORD * functions.len() + text.len();
    let total = at + tables.iter().map(Vec::len).sum::<usize>();
    let mut bytes = MAGIC.to_vec();
    for number in [VERSION, total as u32, functions.len() as u32, text.len() as u32] {
        bytes.extend(number.to_le_bytes());
    }
    for (function, table) in functions.iter().zip(&tables) {
        bytes.extend(0_u64.to_le_bytes());
        bytes.extend(function.len.to_le_bytes());
        bytes.extend((at as u32).to_le_bytes());
        at += table.len();
    }
    bytes.extend(text.as_bytes());
    bytes.extend(tables.concat());
    bytes
}

/// What the head says: whether it is one, the version, and the length of all.
pub(super) fn head(bytes: &[u8]) -> Option<(u32, usize)> {
    let version = word(bytes.strip_prefix(&MAGIC)?, 0)?;
    Some((version, word(bytes, 12)? as usize))
}

/// What a record says.
pub(super) struct Record {
    pub(super) address: u64,
    pub(super) len: u32,
    /// Where the table begins.
    pub(super) table: u32,
}

/// Text and functions.
pub(super) fn read(bytes: &[u8]) -> Option<(&str, Vec<Record>)> {
    let (count, text) = (word(bytes, 16)? as usize, word(bytes, 20)? as usize);
    let records = bytes.get(HEAD..)?.get(..count.checked_mul(RECORD)?)?;
    let text = bytes.get(HEAD + records.len()..)?.get(..text)?;
    let record = |record: &[u8]| {
        let address = u64::from(word(record, 0)?) | u64::from(word(record, 4)?) << 32;
        Some(Record { address, len: word(record, 8)?, table: word(record, 12)? })
    };
    let functions = records.chunks_exact(RECORD).map(record).collect::<Option<Vec<_>>>()?;
    Some((std::str::from_utf8(text).ok()?, functions))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes)
}

/// A growing table.
#[derive(Default)]
struct Writer(Vec<u8>);

impl Writer {
    fn number(&mut self, mut number: u32) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    fn signed(&mut self, number: i32) {
        self.number((number << 1 ^ number >> 31) as u32);
    }

    fn kind(&mut self, kind: SiteKind) {
        match kind {
            SiteKind::Access { base, off, size, write, lead } => {
                self.0.push(0);
                self.0.push(base.index() as u8 | size_bits(size) << 4 | u8::from(write) << 6);
                self.signed(off.into());
                self.0.push(lead);
            }
            SiteKind::Misaligned { size } => self.0.extend([1, size_bits(size)]),
            SiteKind::Frame => self.0.push(2),
            SiteKind::Failed => self.0.push(3),
            SiteKind::Linked => self.0.push(4),
            SiteKind::Interrupted => self.0.push(5),
            SiteKind::BadJump => self.0.push(6),
            SiteKind::NoReturn => self.0.push(7),
            SiteKind::Call => self.0.push(8),
        }
    }
}

const SIZES: [Size; 4] = [Size::B, Size::H, Size::W, Size::Dw];

fn size_bits(size: Size) -> u8 {
    size.bytes().trailing_zeros() as u8
}

fn table(sites: &TrapSites) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.number(sites.sites.len() as u32);
    let mut last = 0;
    for site in &sites.sites {
        writer.signed(site.pc.wrapping_sub(last) as i32);
        writer.kind(site.kind);
        last = site.pc;
    }
    writer.number(sites.traps.len() as u32);
    let mut last = 0;
    for (off, code) in &sites.traps {
        writer.number(off.wrapping_sub(last));
        writer.0.push(*code);
        last = *off;
    }
    writer.number(sites.pcs.len() as u32);
    let mut last = (0, 0);
    for (off, pc) in &sites.pcs {
        writer.number(off.wrapping_sub(last.0));
        writer.signed(pc.wrapping_sub(last.1) as i32);
        last = (*off, *pc);
    }
    writer.0
}

/// The rest of a table.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn number(&mut self) -> Option<u32> {
        let mut number = 0;
        for shift in (0..35).step_by(7) {
            let byte = self.byte()?;
            number |= u32::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    fn signed(&mut self) -> Option<i32> {
        let number = self.number()?;
        Some((number >> 1) as i32 ^ -((number & 1) as i32))
    }

    fn kind(&mut self) -> Option<SiteKind> {
        let size = |bits: u8| SIZES.get(usize::from(bits)).copied();
        Some(match self.byte()? {
            0 => {
                let bits = self.byte()?;
                let (base, size) = (Reg::new(bits & 15)?, size(bits >> 4 & 3)?);
                let off = i16::try_from(self.signed()?).ok()?;
                SiteKind::Access { base, off, size, write: bits & 0x40 != 0, lead: self.byte()? }
            }
            1 => SiteKind::Misaligned { size: size(self.byte()?)? },
            2 => SiteKind::Frame,
            3 => SiteKind::Failed,
            4 => SiteKind::Linked,
            5 => SiteKind::Interrupted,
            6 => SiteKind::BadJump,
            7 => SiteKind::NoReturn,
            8 => SiteKind::Call,
            _ => return None,
        })
    }

    /// As many elements as the next number says.
    fn list<T>(&mut self, mut element: impl FnMut(&mut Self) -> Option<T>) -> Option<Box<[T]>> {
        let count = self.number()?;
        (0..count).map(|_| element(self)).collect()
    }
}

/// The table of a function of this size, from its start on.
pub(super) fn read_table(bytes: &[u8], len: u32) -> Option<TrapSites> {
    let mut reader = Reader(bytes);
    let mut last = 0_u32;
    let sites = reader.list(|reader| {
        last = last.wrapping_add(reader.signed()? as u32);
        Some(Site::new(last, reader.kind()?))
    })?;
    let mut last = 0_u32;
    let traps = reader.list(|reader| {
        last = last.wrapping_add(reader.number()?);
        Some((last, reader.byte()?))
    })?;
    let mut last = (0_u32, 0_u32);
    let pcs = reader.list(|reader| {
        last = (last.0.wrapping_add(reader.number()?), last.1.wrapping_add(reader.signed()? as u32));
        Some(last)
    })?;
    Some(TrapSites { len, sites, traps, pcs, positions: Positions::default() })
}
