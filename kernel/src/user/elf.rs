//! The parts of an executable or library that say where its functions and static probes are. 64-bit files of this
//! machine's byte order; the bytes are not trusted.
//!
//! Sources: the ELF specification (gABI), `SystemTap`'s description of `.note.stapsdt`.

use std::fs;
use std::path::Path;

/// A file that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ElfError {
    /// It cannot be read.
    #[error("{0}")]
    Read(String),
    /// It is something else.
    #[error("not a 64-bit ELF file of this machine's byte order")]
    Kind,
    /// A table of it lies outside the file.
    #[error("its {0} lies outside the file")]
    Damaged(&'static str),
    /// There is no such function.
    #[error("no function {name}{hint}")]
    NoFunction {
        /// The name.
        name: String,
        /// Whether the file has symbols at all.
        hint: String,
    },
    /// There are several.
    #[error("function {name} is there more than once, at {offsets:#x?}: say which by BINARY:OFFSET")]
    Ambiguous {
        /// The name.
        name: String,
        /// Where in the file.
        offsets: Vec<u64>,
    },
    /// An address that no segment of the file has.
    #[error("address {0:#x} is in no segment of the file")]
    Address(u64),
}

/// A function of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its symbol, without a version.
    pub name: String,
    /// After `@` or `@@`, if the symbol has one.
    pub version: Option<String>,
    /// Where its code begins, in bytes from the start of the file.
    pub offset: u64,
    /// Bytes of code.
    pub size: u64,
    /// Its binding: 0 local, 1 global, 2 weak.
    pub binding: u8,
}

/// A static probe: a note that says where it is and where its arguments are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sdt {
    /// Who has it.
    pub provider: String,
    /// Its name.
    pub name: String,
    /// Where it is, in bytes from the start of the file.
    pub offset: u64,
    /// Its address, as the file says.
    pub address: u64,
    /// Where the counter of its users is in the file; 0 for none.
    pub semaphore: u64,
    /// `8@%rdi -4@$5`.
    pub arguments: String,
}

#[derive(Clone, Copy, Debug)]
struct Segment {
    offset: u64,
    address: u64,
    size: u64,
    executable: bool,
}

#[derive(Clone, Copy, Debug)]
struct Section {
    name: u32,
    kind: u32,
    address: u64,
    offset: u64,
    size: u64,
    link: u32,
    entry: u64,
}

/// A file that was read.
#[derive(Debug)]
pub struct Binary {
    bytes: Vec<u8>,
    segments: Vec<Segment>,
    sections: Vec<Section>,
    names: u32,
    /// `ET_DYN`: loaded anywhere.
    pub relocatable: bool,
}

const SYMTAB: u32 = 2;
const NOTE: u32 = 7;
const DYNSYM: u32 = 11;
const VERSYM: u32 = 0x6fff_ffff;
const VERDEF: u32 = 0x6fff_fffd;
const LOAD: u32 = 1;
const FUNC: u8 = 2;
const IFUNC: u8 = 10;

impl Binary {
    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read or is no such file.
    pub fn read(path: &Path) -> Result<Binary, ElfError> {
        let bytes = fs::read(path).map_err(|error| ElfError::Read(error.to_string()))?;
        Binary::parse(bytes)
    }

    /// Reads the bytes of a file.
    ///
    /// # Errors
    /// They are no such file.
    pub fn parse(bytes: Vec<u8>) -> Result<Binary, ElfError> {
        let order = if cfg!(target_endian = "little") { 1 } else { 2 };
        if bytes.get(..4) != Some(b"\x7fELF") || bytes.get(4..6) != Some(&[2, order]) {
            return Err(ElfError::Kind);
        }
        let header = Reader { bytes: &bytes };
        let damaged = || ElfError::Damaged("header");
        let kind = header.u16(16).ok_or_else(damaged)?;
        let (segments_at, sections_at) = (header.u64(32).ok_or_else(damaged)?, header.u64(40).ok_or_else(damaged)?);
        let segment_count = header.u16(56).ok_or_else(damaged)?;
        let section_count = header.u16(60).ok_or_else(damaged)?;
        let names = header.u16(62).ok_or_else(damaged)?;
        let segment = |index: u64| {
            let at = segments_at.checked_add(index * 56)?;
            let flags = header.u32(at + 4)?;
            let (offset, address, size) = (header.u64(at + 8)?, header.u64(at + 16)?, header.u64(at + 32)?);
            Some((header.u32(at)?, Segment { offset, address, size, executable: flags & 1 != 0 }))
        };
        let all: Option<Vec<(u32, Segment)>> = (0..u64::from(segment_count)).map(segment).collect();
        let all = all.ok_or(ElfError::Damaged("table of segments"))?;
        let section = |index: u64| {
            let at = sections_at.checked_add(index * 64)?;
            Some(Section {
                name: header.u32(at)?,
                kind: header.u32(at + 4)?,
                address: header.u64(at + 16)?,
                offset: header.u64(at + 24)?,
                size: header.u64(at + 32)?,
                link: header.u32(at + 40)?,
                entry: header.u64(at + 56)?,
            })
        };
        let sections: Option<Vec<Section>> = (0..u64::from(section_count)).map(section).collect();
        let sections = sections.ok_or(ElfError::Damaged("table of sections"))?;
        let segments = all.into_iter().filter(|(kind, _)| *kind == LOAD).map(|(_, segment)| segment).collect();
        Ok(Binary { segments, sections, names: names.into(), relocatable: kind == 3, bytes })
    }

    /// Where an address is in the file.
    ///
    /// # Errors
    /// No segment has it.
    pub fn offset_of(&self, address: u64) -> Result<u64, ElfError> {
        self.place(address, |_| true).ok_or(ElfError::Address(address))
    }

    fn place(&self, address: u64, want: impl Fn(&Segment) -> bool) -> Option<u64> {
        let inside = |segment: &&Segment| want(segment) && address.wrapping_sub(segment.address) < segment.size;
        let segment = self.segments.iter().find(inside)?;
        address.wrapping_sub(segment.address).checked_add(segment.offset)
    }

    fn part(&self, section: &Section) -> &[u8] {
        let end = section.offset.checked_add(section.size);
        let range = end.and_then(|end| Some(usize::try_from(section.offset).ok()?..usize::try_from(end).ok()?));
        range.and_then(|range| self.bytes.get(range)).unwrap_or_default()
    }

    fn linked(&self, section: &Section) -> &[u8] {
        self.sections.get(section.link as usize).map_or(&[], |section| self.part(section))
    }

    fn name_of(&self, section: &Section) -> &str {
        let names = self.sections.get(self.names as usize).map_or(&[][..], |names| self.part(names));
        string(names, section.name.into())
    }

    /// The bytes of a section.
    pub fn section(&self, name: &str) -> Option<&[u8]> {
        let section = self.sections.iter().find(|section| self.name_of(section) == name)?;
        Some(self.part(section)).filter(|bytes| !bytes.is_empty())
    }

    /// Every function, those of the dynamic symbols first.
    pub fn functions(&self) -> Vec<Function> {
        let tables = [DYNSYM, SYMTAB];
        let tables = tables.iter().flat_map(|kind| self.sections.iter().filter(move |section| section.kind == *kind));
        tables.flat_map(|table| self.functions_of(table)).collect()
    }

    fn functions_of(&self, table: &Section) -> Vec<Function> {
        let (symbols, names) = (Reader { bytes: self.part(table) }, self.linked(table));
        let versions = if table.kind == DYNSYM { self.versions() } else { Versions::default() };
        let mut found = Vec::new();
        for index in 0..table.size / table.entry.max(24) {
            let at = index * table.entry.max(24);
            let (Some(name), Some(info), Some(home)) = (symbols.u32(at), symbols.u8(at + 4), symbols.u16(at + 6))
            else {
                break;
            };
            let (Some(address), Some(size)) = (symbols.u64(at + 8), symbols.u64(at + 16)) else { break };
            if !matches!(info & 0xf, FUNC | IFUNC) || home == 0 {
                continue;
            }
            let Some(offset) = self.place(address, |segment| segment.executable) else { continue };
            let full = string(names, name.into());
            // A symbol table may spell the version out.
            let (name, spelled) = full.split_once('@').unwrap_or((full, ""));
            let version = match spelled.trim_start_matches('@') {
                "" => versions.of(index),
                version => Some(version.to_owned()),
            };
            found.push(Function { name: name.to_owned(), version, offset, size, binding: info >> 4 });
        }
        found
    }

    fn versions(&self) -> Versions {
        let numbers = self.sections.iter().find(|section| section.kind == VERSYM);
        let definitions = self.sections.iter().find(|section| section.kind == VERDEF);
        let (Some(numbers), Some(definitions)) = (numbers, definitions) else { return Versions::default() };
        let (records, names) = (Reader { bytes: self.part(definitions) }, self.linked(definitions));
        let mut found = Versions { numbers: self.part(numbers).to_vec(), names: Vec::new() };
        let mut at = 0;
        // Each definition says how far the next one is.
        for _ in 0..definitions.size / 20 {
            let (Some(number), Some(aux), Some(next)) =
                (records.u16(at + 4), records.u32(at + 12), records.u32(at + 16))
            else {
                break;
            };
            let name = records.u32(at + u64::from(aux)).map(|name| string(names, name.into()).to_owned());
            found.names.extend(name.map(|name| (number, name)));
            if next == 0 {
                break;
            }
            at += u64::from(next);
        }
        found
    }

    /// Where the function `name`, or `name@VERSION`, begins. Of several, a global one.
    ///
    /// # Errors
    /// There is none, or several at different places.
    pub fn function(&self, name: &str) -> Result<u64, ElfError> {
        let (plain, version) = match name.split_once('@') {
            Some((plain, version)) => (plain, Some(version.trim_start_matches('@'))),
            None => (name, None),
        };
        let all = self.functions();
        let same = |function: &&Function| {
            function.name == plain && version.is_none_or(|version| function.version.as_deref() == Some(version))
        };
        let found: Vec<&Function> = all.iter().filter(same).collect();
        let global: Vec<&&Function> = found.iter().filter(|function| function.binding == 1).collect();
        let best: Vec<u64> = if global.is_empty() {
            found.iter().map(|function| function.offset).collect()
        } else {
            global.iter().map(|function| function.offset).collect()
        };
        let mut offsets = best;
        offsets.sort_unstable();
        offsets.dedup();
        match offsets[..] {
            [offset] => Ok(offset),
            [] => {
                let stripped = self.sections.iter().all(|section| section.kind != SYMTAB);
                let hint = match (all.is_empty(), stripped) {
                    (true, _) => ": the file has no symbols of functions",
                    (false, true) => ": the file has only dynamic symbols",
                    (false, false) => "",
                };
                Err(ElfError::NoFunction { name: name.to_owned(), hint: hint.to_owned() })
            }
            _ => Err(ElfError::Ambiguous { name: name.to_owned(), offsets }),
        }
    }

    /// Every static probe.
    pub fn probes(&self) -> Vec<Sdt> {
        let base = self.sections.iter().find(|section| self.name_of(section) == ".stapsdt.base");
        let base = base.map(|section| section.address);
        let notes = self.sections.iter().filter(|section| section.kind == NOTE);
        let notes = notes.filter(|section| self.name_of(section) == ".note.stapsdt");
        notes.flat_map(|section| self.probes_of(self.part(section), base)).collect()
    }

    fn probes_of(&self, bytes: &[u8], base: Option<u64>) -> Vec<Sdt> {
        let reader = Reader { bytes };
        let (mut found, mut at) = (Vec::new(), 0_u64);
        while let (Some(owner), Some(size), Some(kind)) = (reader.u32(at), reader.u32(at + 4), reader.u32(at + 8)) {
            let body = at + 12 + u64::from(owner).next_multiple_of(4);
            if kind == 3 && string(bytes, at + 12) == "stapsdt" {
                found.extend(self.probe(bytes, body, u64::from(size), base));
            }
            at = body + u64::from(size).next_multiple_of(4);
        }
        found
    }

    fn probe(&self, bytes: &[u8], at: u64, size: u64, base: Option<u64>) -> Option<Sdt> {
        let reader = Reader { bytes: bytes.get(..usize::try_from(at.checked_add(size)?).ok()?)? };
        let (address, linked_at, semaphore) = (reader.u64(at)?, reader.u64(at + 8)?, reader.u64(at + 16)?);
        // Prelinking moves the section `.stapsdt.base` and all addresses with it.
        let moved = base.map_or(0, |base| base.wrapping_sub(linked_at));
        let address = address.wrapping_add(moved);
        let provider = string(reader.bytes, at + 24);
        let name_at = at + 24 + provider.len() as u64 + 1;
        let name = string(reader.bytes, name_at);
        let arguments = string(reader.bytes, name_at + name.len() as u64 + 1);
        let semaphore = match semaphore {
            0 => 0,
            semaphore => self.place(semaphore.wrapping_add(moved), |segment| !segment.executable)?,
        };
        Some(Sdt {
            provider: provider.to_owned(),
            name: name.to_owned(),
            offset: self.place(address, |segment| segment.executable)?,
            address,
            semaphore,
            arguments: arguments.to_owned(),
        })
    }
}

/// Versions of dynamic symbols.
#[derive(Debug, Default)]
struct Versions {
    numbers: Vec<u8>,
    names: Vec<(u16, String)>,
}

impl Versions {
    fn of(&self, symbol: u64) -> Option<String> {
        let number = Reader { bytes: &self.numbers }.u16(symbol * 2)? & 0x7fff;
        self.names.iter().find(|(other, _)| *other == number && number > 1).map(|(_, name)| name.clone())
    }
}

/// The C string at an offset; empty where there is none.
fn string(bytes: &[u8], at: u64) -> &str {
    let rest = usize::try_from(at).ok().and_then(|at| bytes.get(at..)).unwrap_or_default();
    let end = rest.iter().position(|byte| *byte == 0).unwrap_or(rest.len());
    std::str::from_utf8(&rest[..end]).unwrap_or_default()
}

struct Reader<'a> {
    bytes: &'a [u8],
}

impl Reader<'_> {
    fn array<const N: usize>(&self, at: u64) -> Option<[u8; N]> {
        let rest = self.bytes.get(usize::try_from(at).ok()?..)?;
        rest.first_chunk().copied()
    }

    fn u8(&self, at: u64) -> Option<u8> {
        self.array::<1>(at).map(|bytes| bytes[0])
    }

    fn u16(&self, at: u64) -> Option<u16> {
        self.array(at).map(u16::from_ne_bytes)
    }

    fn u32(&self, at: u64) -> Option<u32> {
        self.array(at).map(u32::from_ne_bytes)
    }

    fn u64(&self, at: u64) -> Option<u64> {
        self.array(at).map(u64::from_ne_bytes)
    }
}
