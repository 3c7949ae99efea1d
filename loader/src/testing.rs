//! Objects written by hand, for tests: whatever clang would not make.

use std::fs;
use std::path::PathBuf;

use twinbpf_isa::{Endian, Insn};

use crate::Object;

pub(crate) const PROGBITS: u32 = 1;
pub(crate) const NOBITS: u32 = 8;
pub(crate) const WRITE: u64 = 1;
pub(crate) const ALLOC: u64 = 2;
pub(crate) const EXEC: u64 = 4;
pub(crate) const NOTYPE: u8 = 0;
pub(crate) const OBJECT: u8 = 1;
pub(crate) const FUNC: u8 = 2;
pub(crate) const SECTION: u8 = 3;
pub(crate) const LOCAL: u8 = 0;
pub(crate) const GLOBAL: u8 = 1;
pub(crate) const WEAK: u8 = 2;
pub(crate) const R64_64: u32 = 1;
pub(crate) const ABS64: u32 = 2;
pub(crate) const R64_32: u32 = 10;

/// A section that is being written.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) name: String,
    pub(crate) kind: u32,
    pub(crate) flags: u64,
    pub(crate) data: Vec<u8>,
    pub(crate) size: u64,
    link: u32,
    info: u32,
}

/// An object file in the making. Section and symbol 0 are there from the start.
#[derive(Clone, Debug)]
pub(crate) struct Writer {
    pub(crate) endian: Endian,
    pub(crate) machine: u16,
    pub(crate) kind: u16,
    pub(crate) parts: Vec<Part>,
    symbols: Vec<u8>,
    strings: Vec<u8>,
}

impl Writer {
    pub(crate) fn new(endian: Endian) -> Writer {
        Writer { endian, machine: 247, kind: 1, parts: Vec::new(), symbols: vec![0; 24], strings: vec![0] }
    }

    fn put(&self, out: &mut Vec<u8>, value: u64, bytes: usize) {
        let little = value.to_le_bytes();
        let mut chosen = little[..bytes].to_vec();
        if self.endian == Endian::Big {
            chosen.reverse();
        }
        out.extend(chosen);
    }

    pub(crate) fn section(&mut self, name: &str, kind: u32, flags: u64, data: &[u8]) -> u16 {
        let (name, data, size) = (name.into(), data.to_vec(), data.len() as u64);
        self.parts.push(Part { name, kind, flags, data, size, link: 0, info: 0 });
        self.parts.len() as u16
    }

    pub(crate) fn bss(&mut self, name: &str, size: u64) -> u16 {
        let index = self.section(name, NOBITS, ALLOC | WRITE, &[]);
        self.parts[usize::from(index) - 1].size = size;
        index
    }

    pub(crate) fn code(&mut self, name: &str, insns: &[Insn]) -> u16 {
        self.section(name, PROGBITS, ALLOC | EXEC, &twinbpf_isa::encode_all(insns, self.endian))
    }

    /// A symbol with (type, binding), at (section, offset, size).
    pub(crate) fn symbol(
        &mut self,
        name: &str,
        (kind, bind): (u8, u8),
        (section, value, size): (u16, u64, u64),
    ) -> u64 {
        let index = self.symbols.len() as u64 / 24;
        let offset = if name.is_empty() { 0 } else { self.strings.len() as u64 };
        self.strings.extend(name.bytes().chain([0]));
        let mut out = std::mem::take(&mut self.symbols);
        self.put(&mut out, offset, 4);
        out.extend([bind << 4 | kind, 0]);
        self.put(&mut out, section.into(), 2);
        self.put(&mut out, value, 8);
        self.put(&mut out, size, 8);
        self.symbols = out;
        index
    }

    pub(crate) fn function(&mut self, name: &str, bind: u8, section: u16, slots: std::ops::Range<u64>) -> u64 {
        self.symbol(name, (FUNC, bind), (section, slots.start * 8, (slots.end - slots.start) * 8))
    }

    pub(crate) fn undefined(&mut self, name: &str, bind: u8) -> u64 {
        self.symbol(name, (NOTYPE, bind), (0, 0, 0))
    }

    /// Relocations (offset, type, symbol).
    pub(crate) fn rel(&mut self, target: u16, relocs: &[(u64, u32, u64)]) {
        let mut data = Vec::new();
        for (offset, kind, symbol) in relocs {
            self.put(&mut data, *offset, 8);
            self.put(&mut data, symbol << 32 | u64::from(*kind), 8);
        }
        self.section(&format!(".rel{target}"), 9, 0, &data);
        self.parts.last_mut().expect("just added").info = target.into();
    }

    /// Relocations (offset, type, symbol, addend).
    pub(crate) fn rela(&mut self, target: u16, relocs: &[(u64, u32, u64, i64)]) {
        let mut data = Vec::new();
        for (offset, kind, symbol, addend) in relocs {
            self.put(&mut data, *offset, 8);
            self.put(&mut data, symbol << 32 | u64::from(*kind), 8);
            self.put(&mut data, addend.cast_unsigned(), 8);
        }
        self.section(&format!(".rela{target}"), 4, 0, &data);
        self.parts.last_mut().expect("just added").info = target.into();
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut this = self.clone();
        let count = this.parts.len() as u32;
        let (symbols, strings) = (this.symbols.clone(), this.strings.clone());
        let symtab = this.section(".symtab", 2, 0, &symbols);
        this.parts[usize::from(symtab) - 1].link = count + 2;
        this.section(".strtab", 3, 0, &strings);
        let mut names = vec![0];
        let offsets: Vec<u64> =
            this.parts.iter().map(|part| (names.len(), names.extend(part.name.bytes().chain([0]))).0 as u64).collect();
        let shstrtab = names.len() as u64;
        names.extend(b".shstrtab\0");
        this.section(".shstrtab", 3, 0, &names);
        let mut body = vec![0; 64];
        let mut headers = vec![0; 64];
        for (part, name) in this.parts.iter().zip(offsets.into_iter().chain([shstrtab])) {
            this.put(&mut headers, name, 4);
            this.put(&mut headers, part.kind.into(), 4);
            this.put(&mut headers, part.flags, 8);
            this.put(&mut headers, 0, 8);
            this.put(&mut headers, body.len() as u64, 8);
            this.put(&mut headers, part.size, 8);
            this.put(&mut headers, part.link.into(), 4);
            this.put(&mut headers, part.info.into(), 4);
            headers.extend([0; 16]);
            body.extend(&part.data);
            body.resize(body.len().next_multiple_of(8), 0);
        }
        let mut start = vec![0x7f, b'E', b'L', b'F', 2, if this.endian == Endian::Little { 1 } else { 2 }, 1];
        start.resize(16, 0);
        this.put(&mut start, this.kind.into(), 2);
        this.put(&mut start, this.machine.into(), 2);
        this.put(&mut start, 1, 4);
        this.put(&mut start, 0, 8);
        this.put(&mut start, 0, 8);
        this.put(&mut start, body.len() as u64, 8);
        for (value, bytes) in [(0, 4), (64, 2), (0, 2), (0, 2), (64, 2), (headers.len() as u64 / 64, 2)] {
            this.put(&mut start, value, bytes);
        }
        this.put(&mut start, this.parts.len() as u64, 2);
        body[..64].copy_from_slice(&start);
        body.extend(headers);
        body
    }

    pub(crate) fn open(&self) -> Object {
        Object::open("x.o", &self.bytes()).expect("a well-formed object")
    }
}

/// An object of the corpus.
pub(crate) fn corpus(path: &str) -> Vec<u8> {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../corpus").join(path);
    fs::read(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// An opened object of the corpus.
pub(crate) fn open_corpus(path: &str) -> Object {
    let name = path.rsplit('/').next().unwrap_or(path);
    Object::open(name, &corpus(path)).unwrap_or_else(|error| panic!("{error:#}"))
}

/// Every object of the corpus, by path.
pub(crate) fn corpus_objects() -> Vec<(String, Vec<u8>)> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../corpus");
    let mut found = Vec::new();
    for dir in fs::read_dir(root).expect("the corpus").filter_map(Result::ok).filter(|dir| dir.path().is_dir()) {
        for file in fs::read_dir(dir.path()).expect("a folder of the corpus").filter_map(Result::ok) {
            let path = file.path();
            if path.extension().is_some_and(|extension| extension == "o") {
                found.push((path.display().to_string(), fs::read(&path).expect("a file of the corpus")));
            }
        }
    }
    found.sort();
    found
}
