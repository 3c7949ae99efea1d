//! ELF records as small checked structures: the only place that knows goblin.
//!
//! Takes relocatable 64-bit BPF objects of either byte order and nothing else, and says exactly what is wrong
//! with anything else. It does not know what a section is for; that is `object`'s business.

pub(crate) mod names;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;

use goblin::container::{Container, Ctx, Endian as Order};
use goblin::elf::header::{EM_BPF, EM_NONE, ET_CORE, ET_DYN, ET_EXEC, ET_REL};
use goblin::elf::reloc::RelocSection;
use goblin::elf::section_header::{SHT_NOBITS, SHT_NULL, SHT_REL, SHT_RELA, SHT_SYMTAB, SectionHeader};
use goblin::elf::sym::Symtab;
use twinbpf_isa::Endian;

use crate::error::Cause;

/// Longest symbol name that is read: the kernel's `KSYM_NAME_LEN`.
const MAX_SYMBOL_NAME: usize = 512;
/// Longest section name that is read; the perf forms carry paths and argument lists.
const MAX_SECTION_NAME: usize = 4096;
/// All names together may have this many bytes, and as many as the file: names can overlap in the string table.
const MAX_NAMES: usize = 1 << 20;

const HEADER_BYTES: usize = 64;
const SECTION_BYTES: u64 = 64;
const SYMBOL_BYTES: u64 = 24;

/// Numbers in the byte order of an object.
pub(crate) trait Read {
    /// The two bytes as a number.
    fn u16(self, bytes: [u8; 2]) -> u16;
    /// The four bytes as a number.
    fn u32(self, bytes: [u8; 4]) -> u32;
    /// The eight bytes as a number.
    fn u64(self, bytes: [u8; 8]) -> u64;
}

impl Read for Endian {
    fn u16(self, bytes: [u8; 2]) -> u16 {
        match self {
            Endian::Little => u16::from_le_bytes(bytes),
            Endian::Big => u16::from_be_bytes(bytes),
        }
    }

    fn u32(self, bytes: [u8; 4]) -> u32 {
        match self {
            Endian::Little => u32::from_le_bytes(bytes),
            Endian::Big => u32::from_be_bytes(bytes),
        }
    }

    fn u64(self, bytes: [u8; 8]) -> u64 {
        match self {
            Endian::Little => u64::from_le_bytes(bytes),
            Endian::Big => u64::from_be_bytes(bytes),
        }
    }
}

/// A section: name, header and bytes.
#[derive(Clone, Debug)]
pub(crate) struct Section<'a> {
    pub(crate) name: Arc<str>,
    pub(crate) kind: SectionType,
    pub(crate) alloc: bool,
    pub(crate) exec: bool,
    /// Size in bytes; more than `data` holds for NOBITS.
    pub(crate) size: u64,
    /// Empty for NOBITS.
    pub(crate) data: &'a [u8],
}

/// What the header says a section holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SectionType {
    ProgBits,
    NoBits,
    /// Tables of the ELF format itself, and types this crate has no use for.
    Other,
}

/// A row of the symbol table.
#[derive(Clone, Debug)]
pub(crate) struct Symbol {
    pub(crate) name: Arc<str>,
    pub(crate) value: u64,
    pub(crate) size: u64,
    pub(crate) kind: SymbolKind,
    pub(crate) bind: Bind,
    /// `STV_HIDDEN` or `STV_INTERNAL`.
    pub(crate) hidden: bool,
    pub(crate) defined_in: DefinedIn,
}

/// `STT_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SymbolKind {
    NoType,
    Object,
    Func,
    Section,
    /// `STT_FILE` and whatever else there is.
    Other,
}

/// `STB_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bind {
    Local,
    Global,
    Weak,
}

/// Where a symbol is defined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DefinedIn {
    Undefined,
    Section(usize),
    /// `SHN_COMMON`: an uninitialised global compiled with `-fcommon`.
    Common,
    /// `SHN_ABS` and other reserved indices.
    Reserved,
}

/// The relocations of one section.
#[derive(Clone, Debug)]
pub(crate) struct RelocTable {
    /// Index of the section they apply to.
    pub(crate) target: usize,
    /// Name of the relocation section.
    pub(crate) name: Arc<str>,
    /// `SHT_RELA`, which libbpf passes over in silence.
    pub(crate) explicit_addend: bool,
    pub(crate) relocs: Vec<Reloc>,
}

/// One relocation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reloc {
    pub(crate) offset: u64,
    pub(crate) kind: u32,
    pub(crate) symbol: usize,
    /// Present in `SHT_RELA` only; otherwise it is in the place itself.
    pub(crate) addend: Option<i64>,
}

/// An object file taken apart.
#[derive(Clone, Debug)]
pub(crate) struct Elf<'a> {
    pub(crate) endian: Endian,
    pub(crate) sections: Vec<Section<'a>>,
    pub(crate) symbols: Vec<Symbol>,
    pub(crate) relocs: Vec<RelocTable>,
    /// Target section to positions in `relocs`.
    by_target: HashMap<usize, Vec<usize>>,
    /// Section to positions in `symbols`.
    by_section: HashMap<usize, Vec<usize>>,
}

impl<'a> Elf<'a> {
    /// Takes `bytes` apart. Memory is bounded by a small multiple of their number.
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Elf<'a>, Cause> {
        let header = check_ident(bytes)?;
        let order = if header.endian == Endian::Little { Order::Little } else { Order::Big };
        let ctx = Ctx::new(Container::Big, order);
        let headers = section_headers(bytes, &header, ctx)?;
        let names = match headers.get(header.name_table) {
            Some(table) => range(bytes, table.sh_offset, table.sh_size, || "the section name table".into())?,
            None => return Err(Cause::Malformed { what: "the header names no section name table".into() }),
        };
        let mut names = Names { strings: names, limit: MAX_SECTION_NAME, left: MAX_NAMES + bytes.len() };
        let sections = headers.iter().enumerate().map(|(index, header)| section(bytes, index, header, &mut names));
        let sections = sections.collect::<Result<Vec<_>, Cause>>()?;
        let symbols = symbols(bytes, &headers, ctx)?;
        let relocs = relocs(bytes, &headers, &sections, ctx)?;
        Ok(Elf::of_parts(header.endian, sections, symbols, relocs))
    }

    /// As if a file had said all this.
    pub(crate) fn of_parts(
        endian: Endian,
        sections: Vec<Section<'a>>,
        symbols: Vec<Symbol>,
        relocs: Vec<RelocTable>,
    ) -> Elf<'a> {
        let mut by_target: HashMap<usize, Vec<usize>> = HashMap::new();
        for (index, table) in relocs.iter().enumerate() {
            by_target.entry(table.target).or_default().push(index);
        }
        let mut by_section: HashMap<usize, Vec<usize>> = HashMap::new();
        for (index, symbol) in symbols.iter().enumerate() {
            if let DefinedIn::Section(section_index) = symbol.defined_in {
                by_section.entry(section_index).or_default().push(index);
            }
        }
        Elf { endian, sections, symbols, relocs, by_target, by_section }
    }

    /// The section with exactly this name.
    pub(crate) fn section(&self, name: &str) -> Option<&Section<'a>> {
        self.sections.iter().find(|section| &*section.name == name)
    }

    /// The symbols that are defined in a section.
    pub(crate) fn symbols_in(&self, section: usize) -> impl Iterator<Item = &Symbol> {
        self.by_section.get(&section).into_iter().flatten().filter_map(|index| self.symbols.get(*index))
    }

    /// The relocations that apply to a section.
    pub(crate) fn relocs_of(&self, section: usize) -> impl Iterator<Item = &RelocTable> {
        self.by_target.get(&section).into_iter().flatten().filter_map(|index| self.relocs.get(*index))
    }
}

struct Header {
    endian: Endian,
    table: u64,
    count: usize,
    name_table: usize,
}

fn check_ident(bytes: &[u8]) -> Result<Header, Cause> {
    if !bytes.starts_with(b"\x7fELF") {
        return Err(Cause::NotElf { start: bytes.iter().take(4).copied().collect() });
    }
    let Some(start) = bytes.first_chunk::<HEADER_BYTES>() else {
        return Err(truncated("the ELF header", HEADER_BYTES as u64, bytes.len()));
    };
    let endian = match start[5] {
        1 => Endian::Little,
        2 => Endian::Big,
        other => return Err(Cause::Malformed { what: format!("byte order {other} in the ELF header") }),
    };
    let kind = endian.u16([start[16], start[17]]);
    let machine = endian.u16([start[18], start[19]]);
    if machine != EM_BPF && machine != EM_NONE {
        return Err(Cause::Machine { machine });
    }
    if start[4] != 2 {
        return Err(Cause::Class { class: start[4] });
    }
    match kind {
        ET_REL => {}
        ET_EXEC | ET_DYN | ET_CORE => return Err(Cause::NotRelocatable { kind }),
        other => return Err(Cause::Malformed { what: format!("file type {other} in the ELF header") }),
    }
    let entry_size = endian.u16([start[58], start[59]]);
    if u64::from(entry_size) != SECTION_BYTES {
        let what = format!("section headers of {entry_size} bytes, where ELF64 has {SECTION_BYTES}");
        return Err(Cause::Malformed { what });
    }
    let table = <[u8; 8]>::try_from(&start[40..48]).expect("eight bytes of a 64-byte array");
    Ok(Header {
        endian,
        table: endian.u64(table),
        count: usize::from(endian.u16([start[60], start[61]])),
        name_table: usize::from(endian.u16([start[62], start[63]])),
    })
}

fn section_headers(bytes: &[u8], header: &Header, ctx: Ctx) -> Result<Vec<SectionHeader>, Cause> {
    if header.count == 0 {
        return Err(Cause::Malformed { what: "no section headers".into() });
    }
    let size = header.count as u64 * SECTION_BYTES;
    range(bytes, header.table, size, || "the section header table".into())?;
    SectionHeader::parse_from(bytes, header.table as usize, header.count, ctx).map_err(malformed)
}

fn section<'a>(bytes: &'a [u8], index: usize, header: &SectionHeader, names: &mut Names) -> Result<Section<'a>, Cause> {
    let name = names.at(header.sh_name, || format!("section {index}"))?;
    let kind = match header.sh_type {
        goblin::elf::section_header::SHT_PROGBITS => SectionType::ProgBits,
        SHT_NOBITS => SectionType::NoBits,
        _ => SectionType::Other,
    };
    let data = match header.sh_type {
        SHT_NOBITS | SHT_NULL => &[],
        _ => range(bytes, header.sh_offset, header.sh_size, || format!("section '{name}'"))?,
    };
    let flag = |bit: u32| header.sh_flags & u64::from(bit) != 0;
    Ok(Section {
        name,
        kind,
        alloc: flag(goblin::elf::section_header::SHF_ALLOC),
        exec: flag(goblin::elf::section_header::SHF_EXECINSTR),
        size: header.sh_size,
        data,
    })
}

fn symbols(bytes: &[u8], headers: &[SectionHeader], ctx: Ctx) -> Result<Vec<Symbol>, Cause> {
    let mut tables = headers.iter().filter(|header| header.sh_type == SHT_SYMTAB);
    let Some(table) = tables.next() else { return Err(Cause::Stripped) };
    if tables.next().is_some() {
        return Err(Cause::Malformed { what: "more than one symbol table".into() });
    }
    range(bytes, table.sh_offset, table.sh_size, || "the symbol table".into())?;
    let Some(strings) = headers.get(table.sh_link as usize) else {
        return Err(Cause::Malformed { what: "the symbol table names no string table".into() });
    };
    let strings = range(bytes, strings.sh_offset, strings.sh_size, || "the symbol string table".into())?;
    let count = (table.sh_size / SYMBOL_BYTES) as usize;
    if count == 0 {
        return Err(Cause::Stripped);
    }
    let table = Symtab::parse(bytes, table.sh_offset as usize, count, ctx).map_err(malformed)?;
    let mut names = Names { strings, limit: MAX_SYMBOL_NAME, left: MAX_NAMES + bytes.len() };
    table.iter().enumerate().map(|(index, sym)| symbol(index, &sym, &mut names)).collect()
}

fn symbol(index: usize, sym: &goblin::elf::Sym, names: &mut Names) -> Result<Symbol, Cause> {
    use goblin::elf::sym;
    Ok(Symbol {
        name: names.at(sym.st_name, || format!("symbol {index}"))?,
        value: sym.st_value,
        size: sym.st_size,
        kind: match sym.st_type() {
            sym::STT_NOTYPE => SymbolKind::NoType,
            sym::STT_OBJECT => SymbolKind::Object,
            sym::STT_FUNC => SymbolKind::Func,
            sym::STT_SECTION => SymbolKind::Section,
            _ => SymbolKind::Other,
        },
        bind: match sym.st_bind() {
            sym::STB_LOCAL => Bind::Local,
            sym::STB_WEAK => Bind::Weak,
            _ => Bind::Global,
        },
        hidden: matches!(sym.st_other & 3, 1 | 2),
        defined_in: match sym.st_shndx {
            0 => DefinedIn::Undefined,
            0xfff2 => DefinedIn::Common,
            index if index >= 0xff00 => DefinedIn::Reserved,
            index => DefinedIn::Section(index),
        },
    })
}

fn relocs(bytes: &[u8], headers: &[SectionHeader], sections: &[Section], ctx: Ctx) -> Result<Vec<RelocTable>, Cause> {
    let mut tables = Vec::new();
    let mut left = bytes.len();
    for (header, section) in headers.iter().zip(sections) {
        let explicit_addend = match header.sh_type {
            SHT_REL => false,
            SHT_RELA => true,
            _ => continue,
        };
        let size = section.data.len();
        let overlap = || Cause::Malformed { what: "relocation sections overlap".into() };
        left = left.checked_sub(size).ok_or_else(overlap)?;
        let table = RelocSection::parse(bytes, header.sh_offset as usize, size, explicit_addend, ctx);
        let relocs = table.map_err(malformed)?.iter().map(|reloc| Reloc {
            offset: reloc.r_offset,
            kind: reloc.r_type,
            symbol: reloc.r_sym,
            addend: reloc.r_addend,
        });
        tables.push(RelocTable {
            target: header.sh_info as usize,
            name: section.name.clone(),
            explicit_addend,
            relocs: relocs.collect(),
        });
    }
    Ok(tables)
}

/// The bytes of a table or section, or what is missing.
fn range(bytes: &[u8], offset: u64, size: u64, what: impl Fn() -> String) -> Result<&[u8], Cause> {
    let end = offset.checked_add(size);
    let found = end.and_then(|end| bytes.get(usize::try_from(offset).ok()?..usize::try_from(end).ok()?));
    found.ok_or_else(|| truncated(&what(), end.unwrap_or(u64::MAX), bytes.len()))
}

fn truncated(what: &str, needed: u64, have: usize) -> Cause {
    Cause::Truncated { what: what.into(), needed, have: have as u64 }
}

/// The NUL-terminated names of a string table, within limits of time and memory.
struct Names<'a> {
    strings: &'a [u8],
    /// Most bytes of a name.
    limit: usize,
    /// Bytes that may still be copied.
    left: usize,
}

impl Names<'_> {
    fn at(&mut self, offset: usize, whose: impl Fn() -> String) -> Result<Arc<str>, Cause> {
        if offset == 0 {
            return Ok("".into());
        }
        let limit = self.limit;
        let bad = |why: &str| Cause::Malformed { what: format!("the name of {} {why}", whose()) };
        let rest = self.strings.get(offset..).ok_or_else(|| bad("lies outside the string table"))?;
        let length = rest.iter().take(limit + 1).position(|byte| *byte == 0);
        let name = length.and_then(|length| rest.get(..length));
        let name = name.ok_or_else(|| bad(&format!("has no end within {limit} bytes")))?;
        let left = self.left.checked_sub(name.len());
        self.left = left.ok_or_else(|| bad("and those before it overlap in the string table"))?;
        Ok(String::from_utf8_lossy(name).into())
    }
}

fn malformed(error: goblin::error::Error) -> Cause {
    Cause::Malformed { what: error.to_string() }
}
