//! A file to be probed, with everything that is known of it.

use std::path::Path;
use std::sync::OnceLock;

use gimli::constants as dw;
use gimli::{AttributeValue, DwTag};

use crate::cfi::Frames;
use crate::debug::{Debug, Die, Entry, Found, ReadFile, separate};
use crate::elf::{Elf, Symbol, SymbolKind};
use crate::error::{Error, Refusal, Tried};
use crate::extent::Extent;
use crate::index::Index;
use crate::lines::{Lines, Table};
use crate::machine::Machine;
use crate::store::Store;

/// A file to be probed.
pub struct Binary<'a> {
    elf: Elf<'a>,
    debug: Debug<'a>,
    frames: Frames<'a>,
    index: Index<'a>,
    lines: Lines,
    symbols: OnceLock<Vec<Symbol<'a>>>,
    /// Of symbols with mangled names, by index: the paths.
    demangled: OnceLock<Vec<(usize, String)>>,
    /// `.debug_loc` and `.debug_loclists`.
    locations: [&'a [u8]; 2],
    /// Why there is no debug information.
    no_debug: Option<String>,
}

impl<'a> Binary<'a> {
    /// Reads the bytes of an ELF file. Its debug information is in it or in other files, which `files` reads: `path` says
    /// where this one is. What is read is kept in `store`. As many as `threads` threads make the index of functions.
    ///
    /// # Errors
    /// The bytes are no ELF file of a known machine, or are damaged.
    pub fn open(
        store: &'a Store,
        path: &Path,
        bytes: &'a [u8],
        files: ReadFile<'a>,
        threads: usize,
    ) -> Result<Binary<'a>, Error> {
        let elf = Elf::parse(bytes)?;
        let mut no_debug = None;
        let mut other = None;
        if elf.is_relocatable() {
            no_debug = Some("this is an object file; probes are for linked ones".to_owned());
        } else if !elf.has_section(".debug_info") {
            match separate(store, path, &elf, files) {
                Ok((path, elf)) if elf.has_section(".debug_info") => other = Some((path, elf)),
                Ok((path, _)) => no_debug = Some(format!("{} has none either", path.display())),
                Err(tried) => no_debug = Some(missing(&elf, &tried)),
            }
        }
        let source = other.as_ref().map_or(&elf, |(_, elf)| elf);
        let found = Found { elf: source, path: other.as_ref().map(|(path, _)| path.clone()) };
        let debug = if elf.is_relocatable() {
            Debug::none(store, path, files)
        } else {
            Debug::open(store, path, found, files, threads)?
        };
        let frames = Frames::new(store, &elf, other.as_ref().map(|(_, elf)| elf))?;
        let locations = [source.section(store, ".debug_loc")?, source.section(store, ".debug_loclists")?];
        let mut symbols = OnceLock::new();
        if let Some((_, other)) = &other {
            let all = merged(elf.symbols(), other.symbols());
            symbols = OnceLock::from(all);
        }
        let (index, lines) = (Index::new(debug.len(), threads), Lines::new(debug.len()));
        Ok(Binary { elf, debug, frames, index, lines, symbols, demangled: OnceLock::new(), locations, no_debug })
    }

    /// The machine that the file is for.
    pub fn machine(&self) -> Machine {
        self.elf.machine
    }

    /// Whether it is loaded at the addresses that it has, as executables are that are not position-independent.
    pub fn is_fixed(&self) -> bool {
        self.elf.is_fixed()
    }

    /// The file with the debug information, if it is another one.
    pub fn debug_path(&self) -> Option<&Path> {
        self.debug.path.as_deref()
    }

    /// Files with parts of the debug information that are not there or do not fit.
    pub fn missing(&self) -> Vec<Tried> {
        let mut all = self.debug.missing_splits();
        all.extend(self.debug.shared_missing.clone());
        all
    }

    /// Why there is no debug information, if there is none.
    pub fn no_debug(&self) -> Option<&str> {
        self.no_debug.as_deref()
    }

    pub(crate) fn elf(&self) -> &Elf<'a> {
        &self.elf
    }

    pub(crate) fn debug(&self) -> &Debug<'a> {
        &self.debug
    }

    pub(crate) fn frames(&self) -> &Frames<'a> {
        &self.frames
    }

    pub(crate) fn index(&self) -> &Index<'a> {
        &self.index
    }

    pub(crate) fn lines(&self, unit: usize) -> &Table {
        self.lines.table(&self.debug, unit)
    }

    /// The section of location lists in that version of DWARF.
    pub(crate) fn locations(&self, version: u16) -> &'a [u8] {
        self.locations[usize::from(version >= 5)]
    }

    pub(crate) fn symbols(&self) -> &[Symbol<'a>] {
        self.symbols.get_or_init(|| self.elf.symbols())
    }

    /// Symbols with mangled names, and the paths that these stand for.
    pub(crate) fn demangled(&self) -> impl Iterator<Item = (&Symbol<'a>, &str)> {
        let symbols = self.symbols();
        let all = self.demangled.get_or_init(|| {
            symbols.iter().enumerate().filter_map(|(at, symbol)| Some((at, symbol.demangled()?))).collect()
        });
        all.iter().map(|(at, path)| (&symbols[*at], path.as_str()))
    }

    /// Symbols of functions at an address.
    pub(crate) fn symbols_at(&self, address: u64) -> impl Iterator<Item = &Symbol<'a>> {
        let all = self.symbols();
        let from = all.partition_point(|symbol| symbol.address < address);
        all[from..]
            .iter()
            .take_while(move |symbol| symbol.address == address)
            .filter(|symbol| symbol.kind != SymbolKind::Data)
    }

    /// The function's symbol that covers an address.
    pub(crate) fn symbol_over(&self, address: u64) -> Option<&Symbol<'a>> {
        let all = self.symbols();
        let to = all.partition_point(|symbol| symbol.address <= address);
        let near = all[..to].iter().rev().take(64).filter(|symbol| symbol.kind != SymbolKind::Data);
        let begin = near.clone().find(|symbol| address - symbol.address < symbol.size.max(1))?.address;
        self.symbols_at(begin).next()
    }

    /// The concrete function that begins at an address.
    pub(crate) fn function_at(&self, address: u64) -> Option<Die> {
        self.index.function_at(&self.debug, address).filter(|_| self.elf.is_code(address))
    }

    /// Ranges of a DIE's code that are not empty.
    pub(crate) fn ranges(&self, die: Die) -> Result<Vec<(u64, u64)>, Refusal> {
        let unit = self.debug.unit(die.unit)?;
        Extent::of(&unit.unit.entry(die.offset)?).ranges(unit)
    }

    /// Where a function or inlined copy is entered, and the end of the range that begins there or has it. `None` where
    /// the linker has dropped the code.
    pub(crate) fn entry_of(&self, die: Die) -> Result<Option<(u64, u64)>, Refusal> {
        let unit = self.debug.unit(die.unit)?;
        let extent = Extent::of(&unit.unit.entry(die.offset)?);
        let Some(begin) = extent.begin(unit)?.filter(|begin| self.elf.is_code(*begin)) else { return Ok(None) };
        let ranges = extent.ranges(unit)?;
        let end = ranges.iter().find(|(from, to)| *from <= begin && begin < *to).map_or(begin, |(_, to)| *to);
        Ok(Some((begin, end)))
    }

    pub(crate) fn definitions(&self, tag: DwTag, name: &[u8]) -> Vec<Die> {
        self.index.definitions(&self.debug, tag, name)
    }

    fn language(&self, unit: usize) -> Option<gimli::DwLang> {
        match self.root(unit)?.attr_value(dw::DW_AT_language)? {
            AttributeValue::Language(language) => Some(language),
            _ => None,
        }
    }

    fn root(&self, unit: usize) -> Option<Entry<'a>> {
        let unit = &self.debug.unit(unit).ok()?.unit;
        unit.entry(unit.header.root_offset()).ok()
    }

    /// Whether the language has scopes and types without `struct`.
    pub(crate) fn is_scoped(&self, unit: usize) -> bool {
        let c = [
            dw::DW_LANG_C,
            dw::DW_LANG_C89,
            dw::DW_LANG_C99,
            dw::DW_LANG_C11,
            dw::DW_LANG_C17,
            dw::DW_LANG_Mips_Assembler,
        ];
        self.language(unit).is_some_and(|language| !c.contains(&language))
    }

    /// Whether a unit is Rust, whose calling convention is its own.
    pub(crate) fn is_rust(&self, unit: usize) -> bool {
        self.language(unit) == Some(dw::DW_LANG_Rust)
    }

    fn producer(&self, unit: usize) -> Option<String> {
        let value = self.root(unit)?.attr_value(dw::DW_AT_producer)?;
        Some(String::from_utf8_lossy(self.debug.unit(unit).ok()?.string(value)?).into_owned())
    }

    /// Whether LLVM made a unit: clang or rustc.
    pub(crate) fn is_llvm(&self, unit: usize) -> bool {
        let made = |text: String| ["clang", "rustc", "LLVM"].iter().any(|name| text.contains(name));
        self.producer(unit).is_some_and(made)
    }

    /// Whether LLVM may have passed members in place of pointers, unless clang's command line is there and says that it did
    /// not (`-grecord-command-line`).
    pub(crate) fn may_promote(&self, unit: usize) -> bool {
        self.producer(unit).is_none_or(|text| may_promote(&text))
    }

    /// Whether a function was optimised: compilers that optimise say so of its calls.
    pub(crate) fn is_optimised(&self, function: Die) -> bool {
        let of_calls = [
            dw::DW_AT_call_all_calls,
            dw::DW_AT_GNU_all_call_sites,
            dw::DW_AT_call_all_tail_calls,
            dw::DW_AT_GNU_all_tail_call_sites,
        ];
        self.debug.entry(function).is_ok_and(|entry| of_calls.iter().any(|name| entry.has_attr(*name)))
    }
}

/// LLVM's argument promotion runs at -O3, and in link-time optimisation (`PassBuilderPipelines.cpp`).
fn may_promote(producer: &str) -> bool {
    let is_other = |word: &str| {
        ["-flto", "-mllvm", "-Xclang", "-fplugin", "-fpass-plugin"].iter().any(|option| word.starts_with(option))
    };
    // A backslash is before what does not divide words.
    let words = || producer.split(' ').skip(1);
    if !words().any(|word| word == "-grecord-command-line") || producer.contains('\\') || words().any(is_other) {
        return true;
    }
    let level = words().filter(|word| word.starts_with("-O")).last();
    !matches!(level, None | Some("-O" | "-O0" | "-O1" | "-O2" | "-Og" | "-Os" | "-Oz"))
}

/// What was tried, and what would help.
fn missing(elf: &Elf<'_>, tried: &[Tried]) -> String {
    let mut text = "the file has none".to_owned();
    for tried in tried {
        text.push_str(&format!("; {tried}"));
    }
    match elf.build_id() {
        Some(id) => {
            let id: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
            text.push_str(&format!(". Compile with -g, or install the debug package of build id {id}"));
        }
        None => text.push_str(". Compile with -g"),
    }
    text
}

fn merged<'a>(mut symbols: Vec<Symbol<'a>>, others: Vec<Symbol<'a>>) -> Vec<Symbol<'a>> {
    symbols.extend(others);
    symbols.sort_unstable_by_key(|symbol| (symbol.address, symbol.rank, symbol.name));
    symbols.dedup_by_key(|symbol| (symbol.address, symbol.name));
    symbols
}

#[cfg(test)]
mod tests {
    use super::may_promote;

    #[test]
    fn the_last_level_of_a_command_line_decides() {
        let with =
            |options: &str| may_promote(&format!("clang version 19 /usr/bin/clang -g -grecord-command-line {options}"));
        for options in ["-O2 -c a.c", "-O3 -O1 -c a.c", "-Og a.c", "a.c", "-Os -DX=-O3 a.c"] {
            assert!(!with(options), "{options}");
        }
        for options in
            ["-O3 a.c", "-O2 -Ofast a.c", "-O2 -flto=thin a.c", "-O2 -O4 a.c", "-O2 -mllvm -x a.c", "a\\ -O2 a.c"]
        {
            assert!(with(options), "{options}");
        }
        // Without the option there is no command line, which else may be a part of something.
        assert!(
            may_promote("clang version 19 -O2") && may_promote("clang LLVM (rustc version 1.95.0)") && may_promote("")
        );
    }
}
