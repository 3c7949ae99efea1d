//! The parts of an executable or library that say where its functions and static probes are. 64-bit files of this
//! machine's byte order; the bytes are not trusted.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use object::NativeEndian;
use object::elf::{self, ProgramHeader64};
use object::read::elf::{ElfFile64, FileHeader, ProgramHeader, SectionHeader, Sym, SymbolTable, VersionTable};
use twinbpf_loader::usdt;

pub(super) type Elf<'a> = ElfFile64<'a, NativeEndian>;
type Header = elf::FileHeader64<NativeEndian>;

pub(super) const ENDIAN: NativeEndian = NativeEndian;

/// A file that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ElfError {
    /// It cannot be read.
    #[error("{0}")]
    Read(String),
    /// It is something else.
    #[error("not a 64-bit ELF file of this machine's byte order")]
    Kind,
    /// A table of it lies outside the file, or is none.
    #[error("the file is damaged: {0}")]
    Damaged(object::read::Error),
    /// There is no such function.
    #[error("no function {name}{hint}")]
    NoFunction {
        /// Symbol name that was searched.
        name: String,
        /// Whether the file has symbols at all.
        hint: String,
    },
    /// There are several.
    #[error("function {name} is there more than once, at {offsets:#x?}: say which by BINARY:OFFSET")]
    Ambiguous {
        /// Symbol name that was searched.
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
    /// Its provider, the first argument of `DTRACE_PROBE`.
    pub provider: String,
    /// Name of the probe, without its provider.
    pub name: String,
    /// Where it is, in bytes from the start of the file.
    pub offset: u64,
    /// Its address, as the file says.
    pub address: u64,
    /// Where the counter of its users is in the file; 0 for none.
    pub semaphore: u64,
    /// Sizes and operands of its arguments, for example `8@%rdi -4@$5`.
    pub arguments: String,
}

/// A file that was read.
#[derive(Debug)]
pub struct Binary {
    bytes: Vec<u8>,
}

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
        let header = Header::parse(&bytes[..]).map_err(|_| ElfError::Kind)?;
        header.endian().map_err(|_| ElfError::Kind)?;
        Elf::parse(&bytes[..]).map_err(ElfError::Damaged)?;
        Ok(Binary { bytes })
    }

    pub(super) fn elf(&self) -> Elf<'_> {
        Elf::parse(&self.bytes[..]).expect("parsed when it was read")
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Where an address is in the file.
    ///
    /// # Errors
    /// No segment has it.
    pub fn offset_of(&self, address: u64) -> Result<u64, ElfError> {
        file_offset(&self.elf(), address, |_| true).ok_or(ElfError::Address(address))
    }

    /// The bytes of a section.
    pub fn section(&self, name: &str) -> Option<&[u8]> {
        let (_, section) = self.elf().elf_section_table().section_by_name(ENDIAN, name.as_bytes())?;
        section.data(ENDIAN, &self.bytes[..]).ok().filter(|bytes| !bytes.is_empty())
    }

    /// Every function, those of the dynamic symbols first.
    pub fn functions(&self) -> Vec<Function> {
        let elf = self.elf();
        let versions = elf.elf_section_table().versions(ENDIAN, &self.bytes[..]).ok().flatten().unwrap_or_default();
        let mut found = functions_of(&elf, elf.elf_dynamic_symbol_table(), &versions);
        found.extend(functions_of(&elf, elf.elf_symbol_table(), &VersionTable::default()));
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
        let offsets = best(all.iter().filter(same));
        match offsets[..] {
            [offset] => Ok(offset),
            [] => {
                let hint = match (all.is_empty(), self.elf().elf_symbol_table().is_empty()) {
                    (true, _) => ": the file has no symbols of functions",
                    (false, true) => ": the file has only dynamic symbols",
                    (false, false) => "",
                };
                Err(ElfError::NoFunction { name: name.to_owned(), hint: hint.to_owned() })
            }
            _ => Err(ElfError::Ambiguous { name: name.to_owned(), offsets }),
        }
    }

    /// Names of functions that [`Binary::function`] finds, and those of which there are several, in order.
    pub fn unique_functions(&self) -> (Vec<String>, Vec<String>) {
        let all = self.functions();
        let mut named: BTreeMap<&str, Vec<&Function>> = BTreeMap::new();
        all.iter().for_each(|function| named.entry(&function.name).or_default().push(function));
        let (unique, several): (Vec<_>, Vec<_>) =
            named.into_iter().partition(|(_, functions)| best(functions.iter().copied()).len() == 1);
        let names = |list: Vec<(&str, _)>| list.into_iter().map(|(name, _)| name.to_owned()).collect();
        (names(unique), names(several))
    }

    /// Every static probe.
    pub fn probes(&self) -> Vec<Sdt> {
        let elf = self.elf();
        let table = elf.elf_section_table();
        let base = table.section_by_name(ENDIAN, usdt::BASE.as_bytes()).map(|(_, section)| section.sh_addr.get(ENDIAN));
        let Some((_, section)) = table.section_by_name(ENDIAN, usdt::SECTION.as_bytes()) else { return Vec::new() };
        let Ok(bytes) = section.data(ENDIAN, &self.bytes[..]) else { return Vec::new() };
        usdt::notes(bytes, base).into_iter().filter_map(|note| probe(&elf, note)).collect()
    }
}

/// Where an address is in the file, if it is in a loaded segment that is wanted.
fn file_offset(elf: &Elf<'_>, address: u64, want: impl Fn(&ProgramHeader64<NativeEndian>) -> bool) -> Option<u64> {
    let inside = |segment: &&ProgramHeader64<NativeEndian>| {
        let into = address.wrapping_sub(segment.p_vaddr(ENDIAN));
        segment.p_type(ENDIAN) == elf::PT_LOAD && want(segment) && into < segment.p_filesz(ENDIAN)
    };
    let segment = elf.elf_program_headers().iter().find(inside)?;
    address.wrapping_sub(segment.p_vaddr(ENDIAN)).checked_add(segment.p_offset(ENDIAN))
}

pub(super) fn executable(segment: &ProgramHeader64<NativeEndian>) -> bool {
    segment.p_flags(ENDIAN) & elf::PF_X != 0
}

fn functions_of(elf: &Elf<'_>, table: &SymbolTable<'_, Header>, versions: &VersionTable<'_, Header>) -> Vec<Function> {
    let function = |(index, symbol): (_, &elf::Sym64<NativeEndian>)| {
        if !matches!(symbol.st_type(), elf::STT_FUNC | elf::STT_GNU_IFUNC) || symbol.is_undefined(ENDIAN) {
            return None;
        }
        let offset = file_offset(elf, symbol.st_value(ENDIAN), executable)?;
        let full = std::str::from_utf8(table.symbol_name(ENDIAN, symbol).ok()?).ok()?;
        // A symbol table may spell the version out.
        let (name, spelled) = full.split_once('@').unwrap_or((full, ""));
        let version = match spelled.trim_start_matches('@') {
            "" => {
                let version = versions.version(versions.version_index(ENDIAN, index)).ok().flatten();
                version.map(|version| String::from_utf8_lossy(version.name()).into_owned())
            }
            version => Some(version.to_owned()),
        };
        let (size, binding) = (symbol.st_size(ENDIAN), symbol.st_bind());
        Some(Function { name: name.to_owned(), version, offset, size, binding })
    };
    table.enumerate().filter_map(function).collect()
}

/// A static probe by its offsets in the file.
fn probe(elf: &Elf<'_>, note: usdt::Note) -> Option<Sdt> {
    let usdt::Note { provider, name, address, semaphore, arguments } = note;
    let semaphore = match semaphore {
        0 => 0,
        semaphore => file_offset(elf, semaphore, |segment| !executable(segment))?,
    };
    Some(Sdt { provider, name, offset: file_offset(elf, address, executable)?, address, semaphore, arguments })
}

/// Where functions of one name are; only the global ones, if there are any.
fn best<'a>(found: impl Iterator<Item = &'a Function>) -> Vec<u64> {
    let found: Vec<&Function> = found.collect();
    let any_global = found.iter().any(|function| function.binding == elf::STB_GLOBAL);
    let best = found.into_iter().filter(|function| !any_global || function.binding == elf::STB_GLOBAL);
    let mut offsets: Vec<u64> = best.map(|function| function.offset).collect();
    offsets.sort_unstable();
    offsets.dedup();
    offsets
}
