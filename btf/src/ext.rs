//! `.BTF.ext`: for each program section, where functions start, which source line an instruction comes from, and
//! which instructions depend on the layout of a kernel type (CO-RE).
//!
//! Offsets are bytes from the start of the *section*; the loader maps them to programs. CO-RE relocations are
//! only read here. Source: `include/uapi/linux/bpf.h` (`bpf_func_info`, `bpf_line_info`, `bpf_core_relo`) and libbpf's
//! `btf_ext_setup_info`.

use std::collections::HashMap;
use std::sync::Arc;

use twinbpf_isa::program::Line;

use super::parse::{check_start, part};
use super::raw::{self, EXT_HEADER_CORE_LEN, EXT_HEADER_LEN};
use super::{Btf, BtfError, TypeId};

/// A parsed `.BTF.ext` section.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BtfExt {
    /// One per program section that has records, in the order of the file.
    pub sections: Vec<ExtSection>,
}

/// The records of one program section, each list in the order of the file (clang: by offset).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtSection {
    /// Name of the ELF section.
    pub name: Arc<str>,
    /// `func_info` records of the section.
    pub funcs: Vec<FuncInfo>,
    /// `line_info` records of the section.
    pub lines: Vec<LineInfo>,
    /// CO-RE relocations of the section.
    pub relos: Vec<CoreRelo>,
}

/// A function's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FuncInfo {
    /// Byte offset in the section.
    pub insn_off: u32,
    /// Id of its type of kind `FUNC`.
    pub type_id: TypeId,
}

/// The source line of an instruction and those after it; see [`LineResolver`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineInfo {
    /// Byte offset in the section.
    pub insn_off: u32,
    /// File name, as an offset for [`Btf::str`].
    pub file_off: u32,
    /// Text of the line, as an offset for [`Btf::str`].
    pub text_off: u32,
    /// Line number, from 1.
    pub line: u32,
    /// Column, from 1; 0 if unknown.
    pub column: u32,
}

/// A field of an instruction that depends on a type of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoreRelo {
    /// Byte offset of the instruction in the section.
    pub insn_off: u32,
    /// Root type, in the object's own BTF.
    pub type_id: TypeId,
    /// Access string such as `0:1:2`, as an offset for [`Btf::str`].
    pub access_off: u32,
    /// Number of the kind; see [`CoreKind::new`].
    pub kind: u32,
}

macro_rules! core_kinds {
    ($($Name:ident = $number:literal $text:literal;)*) => {
        /// The kind of a CO-RE relocation (`enum bpf_core_relo_kind`).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u32)]
        pub enum CoreKind { $(#[doc = $text] $Name = $number),* }

        impl CoreKind {
            /// The kind with this number, if it is defined.
            pub fn new(number: u32) -> Option<CoreKind> {
                match number { $($number => Some(CoreKind::$Name),)* _ => None }
            }

            /// The name libbpf prints.
            pub const fn name(self) -> &'static str {
                match self { $(CoreKind::$Name => $text),* }
            }
        }
    };
}

core_kinds! {
    FieldByteOffset = 0 "byte_off";
    FieldByteSize = 1 "byte_sz";
    FieldExists = 2 "field_exists";
    FieldSigned = 3 "signed";
    FieldLshift = 4 "lshift_u64";
    FieldRshift = 5 "rshift_u64";
    TypeIdLocal = 6 "local_type_id";
    TypeIdTarget = 7 "target_type_id";
    TypeExists = 8 "type_exists";
    TypeSize = 9 "type_size";
    EnumvalExists = 10 "enumval_exists";
    EnumvalValue = 11 "enumval_value";
    TypeMatches = 12 "type_matches";
}

impl BtfExt {
    /// Reads a `.BTF.ext` section that belongs to `btf`.
    pub fn parse(btf: &Btf, bytes: &[u8]) -> Result<BtfExt, BtfError> {
        let endian = btf.endian();
        let header_len = check_start(bytes, endian, EXT_HEADER_LEN)?;
        let body = bytes.get(header_len..).unwrap_or(&[]);
        let table = |what: &'static str, at: usize| {
            let field = |at| raw::word(bytes, at, endian).unwrap_or(0) as usize;
            Ok::<_, BtfError>(raw::words(part(body, what, field(at), field(at + 4))?, endian))
        };
        let mut found = Collector { btf, sections: Vec::new(), by_name: HashMap::new(), names: 0 };
        found.table(&table("function records", 8)?, 2, |section, words| {
            section.funcs.push(FuncInfo { insn_off: words[0], type_id: TypeId(words[1]) });
        })?;
        found.table(&table("line records", 16)?, 4, |section, words| {
            let (line, column) = (words[3] >> 10, words[3] & 0x3ff);
            let [insn_off, file_off, text_off] = [words[0], words[1], words[2]];
            section.lines.push(LineInfo { insn_off, file_off, text_off, line, column });
        })?;
        if header_len >= EXT_HEADER_CORE_LEN {
            found.table(&table("CO-RE records", 24)?, 4, |section, words| {
                let [insn_off, access_off, kind] = [words[0], words[2], words[3]];
                section.relos.push(CoreRelo { insn_off, type_id: TypeId(words[1]), access_off, kind });
            })?;
        }
        Ok(BtfExt { sections: found.sections })
    }

    /// The records of a program section.
    pub fn section(&self, name: &str) -> Option<&ExtSection> {
        self.sections.iter().find(|section| &*section.name == name)
    }
}

struct Collector<'a> {
    btf: &'a Btf,
    sections: Vec<ExtSection>,
    by_name: HashMap<&'a str, usize>,
    /// Length of all section names together.
    names: usize,
}

impl<'a> Collector<'a> {
    /// Walks one table: record size, then for each section its name, a count, and that many records, each given to
    /// `add` with at least `min` words.
    fn table(
        &mut self,
        words: &[u32],
        min: usize,
        mut add: impl FnMut(&mut ExtSection, &[u32]),
    ) -> Result<(), BtfError> {
        let Some((&record_size, mut rest)) = words.split_first() else { return Ok(()) };
        let record = (record_size / 4) as usize;
        if record_size % 4 != 0 || record < min {
            return Err(BtfError::Ext { what: "record size", value: record_size });
        }
        while let Some((&[name_off, count], after)) = rest.split_first_chunk() {
            let need = (count as usize).saturating_mul(record);
            let Some((records, after)) = after.split_at_checked(need) else {
                return Err(BtfError::Ext { what: "number of records, more than the table holds,", value: count });
            };
            let section = self.section(name_off)?;
            for words in records.chunks_exact(record) {
                add(section, words);
            }
            rest = after;
        }
        match rest.first() {
            Some(&value) => Err(BtfError::Ext { what: "a last lone word", value }),
            None => Ok(()),
        }
    }

    fn section(&mut self, name_off: u32) -> Result<&mut ExtSection, BtfError> {
        let name = self.btf.str(name_off);
        let index = match self.by_name.get(name) {
            Some(&index) => index,
            None => {
                // Names may be suffixes of each other, but not of one string without end.
                self.names += name.len();
                if self.names > 4 * self.btf.strings_len() {
                    return Err(BtfError::Ext { what: "section name, one of too many,", value: name_off });
                }
                let (funcs, lines, relos) = (Vec::new(), Vec::new(), Vec::new());
                self.sections.push(ExtSection { name: name.into(), funcs, lines, relos });
                self.by_name.insert(name, self.sections.len() - 1);
                self.sections.len() - 1
            }
        };
        Ok(&mut self.sections[index])
    }
}

/// Makes [`Line`]s of [`LineInfo`]s, each string once.
///
/// Hostile records can refer to every suffix of one long string. So the strings returned together are at most
/// twice as long as the string section; past that they are empty.
#[derive(Debug)]
pub struct LineResolver<'a> {
    btf: &'a Btf,
    cache: HashMap<u32, Arc<str>>,
    budget: usize,
}

impl<'a> LineResolver<'a> {
    /// For the records that belong to `btf`.
    pub fn new(btf: &'a Btf) -> LineResolver<'a> {
        LineResolver { btf, cache: HashMap::new(), budget: 2 * btf.strings_len() }
    }

    /// The line of `info`, at `pc`; blanks around the text and a `./` before the file are left out.
    pub fn line(&mut self, info: &LineInfo, pc: usize) -> Line {
        let (file, text) = (self.text(info.file_off), self.text(info.text_off));
        Line { pc, file, line: info.line, column: info.column, text }
    }

    fn text(&mut self, offset: u32) -> Arc<str> {
        if let Some(found) = self.cache.get(&offset) {
            return found.clone();
        }
        let text = self.btf.str(offset).trim();
        let text = text.strip_prefix("./").unwrap_or(text);
        let text: Arc<str> = match self.budget.checked_sub(text.len()) {
            Some(left) => {
                self.budget = left;
                text.into()
            }
            None => "".into(),
        };
        self.cache.insert(offset, text.clone());
        text
    }
}
