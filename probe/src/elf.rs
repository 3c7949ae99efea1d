//! ELF files: sections, symbols of functions, where addresses are in the file, and the names of debug files.

use std::borrow::Cow;

use gimli::{EndianSlice, LittleEndian, SectionId};
use object::elf::{self, ProgramHeader64};
use object::read::elf::{ElfFile64, FileHeader, ProgramHeader, Sym};
use object::{Endianness, Object, ObjectSection, RelocationTarget};

use crate::error::Error;
use crate::machine::Machine;
use crate::store::Store;

/// What gimli reads from.
pub(crate) type Slice<'a> = EndianSlice<'a, LittleEndian>;

pub(crate) fn slice(bytes: &[u8]) -> Slice<'_> {
    EndianSlice::new(bytes, LittleEndian)
}

const LITTLE: Endianness = Endianness::Little;
/// Most bytes that a compressed section may claim to become, for each of its own: deflate reaches 1032.
const MOST_EXPANSION: u64 = 2048;

/// A file.
#[derive(Debug)]
pub(crate) struct Elf<'a> {
    file: ElfFile64<'a, Endianness>,
    pub(crate) bytes: &'a [u8],
    pub(crate) machine: Machine,
    segments: Vec<Segment>,
}

/// A loaded part of the file.
#[derive(Clone, Copy, Debug)]
struct Segment {
    address: u64,
    offset: u64,
    size: u64,
    executable: bool,
}

/// A symbol of a function or variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Symbol<'a> {
    pub(crate) name: &'a str,
    pub(crate) address: u64,
    pub(crate) size: u64,
    pub(crate) kind: SymbolKind,
    /// Sorts global symbols before weak ones before local ones.
    pub(crate) rank: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SymbolKind {
    Function,
    Indirect,
    Data,
}

impl Symbol<'_> {
    /// The path of a mangled name, without parameters.
    pub(crate) fn demangled(&self) -> Option<String> {
        if !self.name.starts_with("_Z") && !self.name.starts_with("_R") {
            return None;
        }
        if let Ok(name) = rustc_demangle::try_demangle(self.name) {
            return Some(format!("{name:#}"));
        }
        let options = cpp_demangle::DemangleOptions::new().no_params().no_return_type();
        cpp_demangle::Symbol::new(self.name).ok()?.demangle_with_options(&options).ok()
    }

    pub(crate) fn is_local(&self) -> bool {
        self.rank == LOCAL
    }
}

/// Rank of local symbols.
const LOCAL: u8 = 2;

impl<'a> Elf<'a> {
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Elf<'a>, Error> {
        let file = ElfFile64::<Endianness>::parse(bytes).map_err(|error| match object::FileKind::parse(bytes) {
            Ok(object::FileKind::Elf64) => Error::Damaged(error.to_string()),
            _ => Error::Kind,
        })?;
        if file.endian() != LITTLE {
            return Err(Error::Kind);
        }
        let machine = Machine::of(file.elf_header().e_machine(LITTLE)).ok_or(Error::Kind)?;
        let load = |header: &&ProgramHeader64<Endianness>| header.p_type(LITTLE) == elf::PT_LOAD;
        let segment = |header: &ProgramHeader64<Endianness>| Segment {
            address: header.p_vaddr(LITTLE),
            offset: header.p_offset(LITTLE),
            size: header.p_filesz(LITTLE),
            executable: header.p_flags(LITTLE) & elf::PF_X != 0,
        };
        let segments = file.elf_program_headers().iter().filter(load).map(segment).collect();
        Ok(Elf { file, bytes, machine, segments })
    }

    fn segment(&self, address: u64) -> Option<&Segment> {
        let covers = |segment: &&Segment| address.checked_sub(segment.address).is_some_and(|at| at < segment.size);
        self.segments.iter().find(covers)
    }

    /// Whether code is there.
    pub(crate) fn is_code(&self, address: u64) -> bool {
        self.segment(address).is_some_and(|segment| segment.executable)
    }

    /// Ranges of addresses that have code.
    pub(crate) fn code_ranges(&self) -> Vec<(u64, u64)> {
        let code = self.segments.iter().filter(|segment| segment.executable);
        code.map(|segment| (segment.address, segment.address.saturating_add(segment.size))).collect()
    }

    pub(crate) fn is_relocatable(&self) -> bool {
        self.file.elf_header().e_type(LITTLE) == elf::ET_REL
    }

    /// Whether it is loaded at the addresses that it has.
    pub(crate) fn is_fixed(&self) -> bool {
        self.file.elf_header().e_type(LITTLE) == elf::ET_EXEC
    }

    /// Where an address is in the file.
    pub(crate) fn file_offset(&self, address: u64) -> Option<u64> {
        let segment = self.segment(address)?;
        (address - segment.address).checked_add(segment.offset)
    }

    /// Code from an address on, to the end of its segment.
    pub(crate) fn code(&self, address: u64) -> Option<&'a [u8]> {
        let segment = self.segment(address).filter(|segment| segment.executable)?;
        let begin = usize::try_from(self.file_offset(address)?).ok()?;
        let end = usize::try_from(segment.offset.checked_add(segment.size)?).ok()?;
        self.bytes.get(begin..end.min(self.bytes.len()))
    }

    /// The bytes of a section, decompressed; empty where there is none.
    pub(crate) fn section(&self, store: &'a Store, name: &str) -> Result<&'a [u8], Error> {
        let damaged = |error: object::Error| Error::Damaged(format!("section {name}: {error}"));
        let Some(section) = self.file.section_by_name(name) else { return Ok(&[]) };
        let compressed = section.compressed_data().map_err(damaged)?;
        let claimed = compressed.uncompressed_size;
        if claimed / MOST_EXPANSION > compressed.data.len() as u64 {
            return Err(Error::Damaged(format!("section {name} claims to have {claimed} bytes")));
        }
        Ok(match compressed.decompress().map_err(damaged)? {
            Cow::Borrowed(bytes) => bytes,
            Cow::Owned(bytes) => store.keep(Box::new(bytes)),
        })
    }

    /// A section of DWARF; those that nothing here reads are empty.
    pub(crate) fn dwarf_section(&self, store: &'a Store, id: SectionId, dwo: bool) -> Result<Slice<'a>, Error> {
        let skipped = [SectionId::DebugMacro, SectionId::DebugMacinfo, SectionId::DebugNames];
        let name = if dwo { id.dwo_name() } else { Some(id.name()) };
        match name {
            Some(name) if !skipped.contains(&id) => Ok(slice(self.section(store, name)?)),
            _ => Ok(slice(&[])),
        }
    }

    pub(crate) fn section_address(&self, name: &str) -> Option<u64> {
        self.file.section_by_name(name).map(|section| section.address())
    }

    pub(crate) fn has_section(&self, name: &str) -> bool {
        self.file.section_by_name(name).is_some()
    }

    pub(crate) fn build_id(&self) -> Option<&'a [u8]> {
        self.file.build_id().ok().flatten()
    }

    /// Name and checksum of the debug file.
    pub(crate) fn debug_link(&self) -> Option<(&'a [u8], u32)> {
        self.file.gnu_debuglink().ok().flatten()
    }

    /// Path and build id of the file that several debug files share.
    pub(crate) fn alt_link(&self) -> Option<(&'a [u8], &'a [u8])> {
        self.file.gnu_debugaltlink().ok().flatten()
    }

    /// The function of another file that the pointer at an address of this one is filled with.
    pub(crate) fn imported(&self, slot: u64) -> Option<&'a str> {
        let (_, relocation) = self.file.dynamic_relocations()?.find(|(at, _)| *at == slot)?;
        let RelocationTarget::Symbol(index) = relocation.target() else { return None };
        let table = self.file.elf_dynamic_symbol_table();
        let name = table.symbol_name(LITTLE, table.symbol(index).ok()?).ok()?;
        std::str::from_utf8(name).ok()
    }

    /// Symbols of functions and variables, of both tables.
    pub(crate) fn symbols(&self) -> Vec<Symbol<'a>> {
        let tables = [self.file.elf_symbol_table(), self.file.elf_dynamic_symbol_table()];
        let mut found = Vec::new();
        for table in tables {
            for symbol in table.iter() {
                let kind = match symbol.st_type() {
                    elf::STT_FUNC => SymbolKind::Function,
                    elf::STT_GNU_IFUNC => SymbolKind::Indirect,
                    elf::STT_OBJECT => SymbolKind::Data,
                    // Assembly without types.
                    elf::STT_NOTYPE if self.is_code(symbol.st_value(LITTLE)) => SymbolKind::Function,
                    _ => continue,
                };
                let name = table.symbol_name(LITTLE, symbol).ok().and_then(|name| std::str::from_utf8(name).ok());
                let Some(name) = name.filter(|name| !name.is_empty()) else { continue };
                if symbol.is_undefined(LITTLE) {
                    continue;
                }
                let rank = match symbol.st_bind() {
                    elf::STB_GLOBAL => 0,
                    elf::STB_WEAK => 1,
                    _ => LOCAL,
                };
                // A symbol table may spell a version out.
                let name = name.split_once('@').map_or(name, |(name, _)| name);
                let (address, size) = (symbol.st_value(LITTLE), symbol.st_size(LITTLE));
                found.push(Symbol { name, address, size, kind, rank });
            }
        }
        found.sort_unstable_by_key(|symbol| (symbol.address, symbol.rank, symbol.name));
        found.dedup_by_key(|symbol| (symbol.address, symbol.name));
        found
    }
}
