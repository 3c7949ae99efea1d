//! An ELF image of published code, as debuggers read it: symbols, frames and C lines at absolute addresses. The
//! code itself is not in it.

use std::ops::Range;

use cranelift_codegen::isa::TargetIsa;

use super::jitdump::MACHINE;
use super::{Symbol, lines, unwind};

const HEADER: usize = 64;
const SECTION_HEADER: usize = 64;

const SHT_PROGBITS: u32 = 1;
const SHT_SYMTAB: u32 = 2;
const SHT_STRTAB: u32 = 3;
const SHT_NOBITS: u32 = 8;
const SHF_ALLOC: u64 = 2;
const SHF_EXECINSTR: u64 = 4;
/// Global symbol, function.
const FUNCTION: u8 = 1 << 4 | 2;

struct Section {
    name: &'static str,
    kind: u32,
    flags: u64,
    address: u64,
    /// Bytes of one that has none in the image.
    size: u64,
    data: Vec<u8>,
    link: u32,
    info: u32,
    entry_size: u64,
}

impl Section {
    fn new(name: &'static str, kind: u32, data: Vec<u8>) -> Section {
        let size = data.len() as u64;
        Section { name, kind, flags: 0, address: 0, size, data, link: 0, info: 0, entry_size: 0 }
    }
}

/// A string table: strings, each closed by a NUL, and where they begin.
#[derive(Default)]
struct Strings(Vec<u8>);

impl Strings {
    fn add(&mut self, text: &str) -> u32 {
        if self.0.is_empty() {
            self.0.push(0);
        }
        let at = self.0.len() as u32;
        self.0.extend(text.bytes().filter(|byte| *byte != 0));
        self.0.push(0);
        at
    }
}

fn symbol_table(symbols: &[Symbol], strings: &mut Strings) -> Vec<u8> {
    let mut table = vec![0; 24];
    for symbol in symbols {
        table.extend(strings.add(&symbol.name).to_ne_bytes());
        table.extend([FUNCTION, 0]);
        // In section 1, the text.
        table.extend(1u16.to_ne_bytes());
        table.extend(symbol.range.start.to_ne_bytes());
        table.extend((symbol.range.end - symbol.range.start).to_ne_bytes());
    }
    table
}

fn file_header(sections: u16, table: u64) -> Vec<u8> {
    let endian = if cfg!(target_endian = "little") { 1 } else { 2 };
    let mut out = vec![0x7f, b'E', b'L', b'F', 2, endian, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    // An executable: its symbols have absolute addresses.
    out.extend(2u16.to_ne_bytes());
    out.extend(MACHINE.to_ne_bytes());
    out.extend(1u32.to_ne_bytes());
    out.extend([0; 16]);
    out.extend(table.to_ne_bytes());
    out.extend(0u32.to_ne_bytes());
    for half in [HEADER as u16, 0, 0, SECTION_HEADER as u16, sections, sections - 1] {
        out.extend(half.to_ne_bytes());
    }
    out
}

/// The image. Its last section has the section names.
pub(super) fn image(isa: &dyn TargetIsa, code: Range<u64>, symbols: &[Symbol]) -> Vec<u8> {
    let mut strings = Strings::default();
    let table = symbol_table(symbols, &mut strings);
    let text = Section {
        flags: SHF_ALLOC | SHF_EXECINSTR,
        address: code.start,
        size: code.end - code.start,
        ..Section::new(".text", SHT_NOBITS, Vec::new())
    };
    let table = Section { link: 3, info: 1, entry_size: 24, ..Section::new(".symtab", SHT_SYMTAB, table) };
    let strings = Section::new(".strtab", SHT_STRTAB, strings.0);
    let mut sections = vec![Section::new("", 0, Vec::new()), text, table, strings];
    let frames = unwind::eh_frame(isa, symbols);
    if !frames.is_empty() {
        sections.push(Section { flags: SHF_ALLOC, ..Section::new(".eh_frame", SHT_PROGBITS, frames) });
    }
    sections
        .extend(lines::sections(code, symbols).into_iter().map(|(name, data)| Section::new(name, SHT_PROGBITS, data)));
    sections.push(Section::new(".shstrtab", SHT_STRTAB, Vec::new()));
    layout(sections)
}

/// Header, section headers, contents.
fn layout(mut sections: Vec<Section>) -> Vec<u8> {
    let mut names = Strings::default();
    let offsets: Vec<u32> = sections.iter().map(|section| names.add(section.name)).collect();
    let last = sections.last_mut().expect("made with a section of names");
    (last.size, last.data) = (names.0.len() as u64, names.0);
    let mut out = file_header(sections.len() as u16, HEADER as u64);
    let mut at = HEADER + sections.len() * SECTION_HEADER;
    for (section, name) in sections.iter().zip(offsets) {
        out.extend(name.to_ne_bytes());
        out.extend(section.kind.to_ne_bytes());
        for word in [section.flags, section.address, at as u64, section.size] {
            out.extend(word.to_ne_bytes());
        }
        out.extend(section.link.to_ne_bytes());
        out.extend(section.info.to_ne_bytes());
        out.extend(8u64.to_ne_bytes());
        out.extend(section.entry_size.to_ne_bytes());
        at += section.data.len().next_multiple_of(8);
    }
    for section in &sections {
        out.extend(&section.data);
        out.resize(out.len().next_multiple_of(8), 0);
    }
    out
}
