//! Functions: one per symbol, with its slots, in the order of sections and offsets.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;

use twinbpf_isa::{Endian, Raw};

use super::spec::{Notes, ProgramSpec, Role};
use crate::elf::{Bind, Elf, Section, SectionType, Symbol, SymbolKind};
use crate::error::Cause;
use crate::section::{Attach, Script, SectionKind};

/// Function symbols may overlap; together they may be this many times as long as the file.
const MAX_OVERLAP: usize = 4;

/// The functions, and where they are.
#[derive(Debug, Default)]
pub(super) struct Functions {
    pub(super) specs: Vec<ProgramSpec>,
    /// Section of each.
    pub(super) homes: Vec<usize>,
    /// For each code section, (first slot, slot after the last, index), by rising first slot. Of several that
    /// start together the longest is first, and of those a global one.
    ranges: BTreeMap<usize, Vec<(usize, usize, usize)>>,
    /// (section, slot) of each function that begins inside the symbol of another.
    inner: BTreeMap<(usize, usize), usize>,
    /// Instructions that overlapping functions may still have.
    budget: usize,
}

impl Functions {
    /// Finds the functions of every code section.
    pub(super) fn collect(elf: &Elf, file_size: usize, notes: &mut Notes) -> Functions {
        let typed = elf.symbols.iter().any(|symbol| symbol.kind == SymbolKind::Func);
        let budget = (file_size / 8).saturating_mul(MAX_OVERLAP);
        let mut functions = Functions { budget, ..Functions::default() };
        for (index, section) in elf.sections.iter().enumerate().filter(|(_, section)| is_code(section)) {
            let symbols: Vec<&Symbol> = elf.symbols_in(index).filter(|symbol| is_function(symbol, typed)).collect();
            // Every object of clang has a `.text`.
            if section.size == 0 && symbols.is_empty() {
                continue;
            }
            functions.add_section(index, section, symbols, elf.endian, notes);
        }
        functions
    }

    fn add_section(
        &mut self,
        index: usize,
        section: &Section,
        mut symbols: Vec<&Symbol>,
        endian: Endian,
        notes: &mut Notes,
    ) {
        if symbols.is_empty() {
            notes.skipped(&section.name, "it holds code but no function symbol");
            return;
        }
        symbols.sort_by_key(|symbol| (symbol.value, symbol.bind == Bind::Local));
        let attach = attach(section, notes);
        if let Some(symbol) = symbols.iter().find(|symbol| symbol.kind == SymbolKind::NoType) {
            notes.accepted(&section.name, format!("'{}' is a function without the type of one", symbol.name));
        }
        let ends = natural_ends(&symbols, section.size);
        for (symbol, end) in symbols.iter().zip(ends) {
            let slots = match is_empty(symbol, &symbols, section.size) {
                true => Err(Cause::EmptyFunction),
                false => extent(symbol, end, section.size),
            };
            let range = slots.as_ref().map_or((0, 0), |slots| (slots.start, slots.end));
            let mut spec = spec(symbol, section, &attach);
            match slots.and_then(|slots| read(section, slots, endian, &mut self.budget)) {
                Ok(insns) => {
                    spec.start = range.0;
                    spec.insns = insns;
                    self.ranges.entry(index).or_default().push((range.0, range.1, self.specs.len()));
                }
                Err(fault) => spec.fault = Some(fault),
            }
            self.specs.push(spec);
            self.homes.push(index);
        }
        if let Some(ranges) = self.ranges.get_mut(&index) {
            ranges.sort_by_key(|(start, end, _)| (*start, Reverse(*end)));
        }
    }

    /// The function that contains a slot of a section.
    pub(super) fn containing(&self, section: usize, slot: usize) -> Option<usize> {
        self.all_containing(section, slot).next()
    }

    /// Makes every function of a section unusable.
    pub(super) fn fail_section(&mut self, section: usize, cause: &Cause) {
        for (.., index) in self.ranges.get(&section).into_iter().flatten() {
            if let Some(spec) = self.specs.get_mut(*index) {
                spec.fault = Some(cause.clone());
            }
        }
    }

    /// The function that a call of a slot of a section means. Where that is inside a symbol it is one of its own: the
    /// instructions from there to the symbol's end. [`Functions::finish_inner`] completes it.
    pub(super) fn called(&mut self, section: usize, slot: usize) -> Option<usize> {
        let outer = self.containing(section, slot)?;
        if let Some(found) = self.inner.get(&(section, slot)) {
            return Some(*found);
        }
        let spec = self.specs.get(outer)?;
        let skipped = slot - spec.start;
        if skipped == 0 {
            return Some(outer);
        }
        let rest = spec.insns.get(skipped..).unwrap_or_default();
        let (insns, fault) = match self.budget.checked_sub(rest.len()) {
            Some(left) => {
                self.budget = left;
                (rest.to_vec(), spec.fault.clone())
            }
            None => {
                let what = "the functions that begin inside others".into();
                let (size, limit) = (rest.len() as u64 * 8, self.budget as u64 * 8);
                (Vec::new(), Some(Cause::TooLarge { what, size, limit }))
            }
        };
        let inner = ProgramSpec {
            name: format!("{}+{skipped}", spec.name).into(),
            section: spec.section.clone(),
            attach: spec.attach.clone(),
            role: Role::Function,
            global: false,
            weak: false,
            hidden: false,
            start: slot,
            insns,
            refs: BTreeMap::new(),
            signature: None,
            inside: Some(outer),
            fault,
        };
        let index = self.specs.len();
        self.inner.insert((section, slot), index);
        self.specs.push(inner);
        self.homes.push(section);
        Some(index)
    }

    /// Functions inside others refer to what those refer to, once all of that is known.
    pub(super) fn finish_inner(&mut self) {
        for index in self.inner.values() {
            let whole = self.specs.get(*index).filter(|spec| !spec.insns.is_empty());
            let Some((outer, start)) = whole.and_then(|spec| Some((spec.inside?, spec.start))) else { continue };
            let Some(outer) = self.specs.get(outer) else { continue };
            let skipped = start - outer.start;
            let refs = outer.refs.range(skipped..).map(|(pc, target)| (pc - skipped, target.clone())).collect();
            if let Some(spec) = self.specs.get_mut(*index) {
                spec.refs = refs;
            }
        }
    }

    /// The function that starts at a slot of a section.
    pub(super) fn starting(&self, section: usize, slot: usize) -> Option<usize> {
        let index = self.containing(section, slot)?;
        self.specs.get(index).filter(|spec| spec.start == slot).map(|_| index)
    }

    /// Every function of a section that contains a slot: several if a function has several names.
    pub(super) fn all_containing(&self, section: usize, slot: usize) -> impl Iterator<Item = usize> + '_ {
        let ranges = self.ranges.get(&section).map(Vec::as_slice).unwrap_or_default();
        let after = ranges.partition_point(|(start, ..)| *start <= slot);
        let start = after.checked_sub(1).and_then(|last| ranges.get(last)).map_or(0, |range| range.0);
        let first = ranges.partition_point(|range| range.0 < start);
        let rest = ranges.get(first..).unwrap_or_default().iter();
        rest.take_while(move |range| range.0 == start && slot < range.1).map(|range| range.2)
    }
}

/// Whether a section holds instructions.
pub(super) fn is_code(section: &Section) -> bool {
    section.kind == SectionType::ProgBits && section.exec
}

/// LLVM before 9 gives its functions no type. Labels have none either: they are local, and LLVM calls them
/// `LBB0_1` or `.Ltmp0`. `typed` says whether any function of the object has its type.
fn is_function(symbol: &Symbol, typed: bool) -> bool {
    let label = symbol.name.is_empty() || symbol.name.starts_with("LBB") || symbol.name.starts_with(".L");
    match symbol.kind {
        SymbolKind::Func => true,
        SymbolKind::NoType => !label && (!typed || symbol.bind != Bind::Local),
        SymbolKind::Object | SymbolKind::Section | SymbolKind::Other => false,
    }
}

fn attach(section: &Section, notes: &mut Notes) -> Attach {
    if section.name.starts_with(".text.") {
        notes.accepted(&section.name, "it holds functions as .text does");
        return Attach { autoload: true, kind: SectionKind::Text };
    }
    let attach = Attach::parse(&section.name);
    match &attach.kind {
        SectionKind::Known { row, loose: true, .. } => {
            notes.accepted(&section.name, format!("the name is read as '{}', of which it is a variant", row.pattern));
        }
        SectionKind::Unknown => notes.accepted(&section.name, "the name gives no program type"),
        SectionKind::Malformed(error) => notes.accepted(&section.name, format!("the name says nothing: {error}")),
        SectionKind::PerfTracepoint(_) | SectionKind::PerfProbe(_) => {
            notes.accepted(&section.name, "the name is one of perf's");
        }
        SectionKind::TailCall { .. } => notes.accepted(&section.name, "the name is one of iproute2's"),
        SectionKind::Text | SectionKind::Script(_) | SectionKind::Known { .. } => {}
    }
    attach
}

fn spec(symbol: &Symbol, section: &Section, attach: &Attach) -> ProgramSpec {
    let global = symbol.bind != Bind::Local;
    let mut attach = attach.clone();
    let script = Script::of_function(&symbol.name).filter(|_| global);
    let role = if attach.kind != SectionKind::Text {
        if global { Role::Entry } else { Role::Function }
    } else if let Some(script) = script {
        attach.kind = SectionKind::Script(script);
        Role::Entry
    } else {
        Role::Function
    };
    ProgramSpec {
        name: symbol.name.clone(),
        section: section.name.clone(),
        attach,
        role,
        global,
        weak: symbol.bind == Bind::Weak,
        hidden: symbol.hidden,
        start: 0,
        insns: Vec::new(),
        refs: BTreeMap::new(),
        signature: None,
        inside: None,
        fault: None,
    }
}

/// For each of the sorted symbols, where the next place begins.
fn natural_ends(symbols: &[&Symbol], size: u64) -> Vec<u64> {
    let mut ends = Vec::with_capacity(symbols.len());
    let (mut next, mut last) = (size, None);
    for symbol in symbols.iter().rev() {
        if let Some(last) = last.filter(|last| *last != symbol.value) {
            next = last;
        }
        last = Some(symbol.value);
        ends.push(next);
    }
    ends.reverse();
    ends
}

/// Whether a function has no instructions of its own: it says so, and what begins there is another, or nothing.
fn is_empty(symbol: &Symbol, symbols: &[&Symbol], size: u64) -> bool {
    let another = || symbols.iter().any(|other| other.value == symbol.value && other.size > 0);
    symbol.kind == SymbolKind::Func && symbol.size == 0 && (symbol.value == size || another())
}

/// The slots a function symbol covers. A symbol without size reaches to the next one.
fn extent(symbol: &Symbol, natural_end: u64, size: u64) -> Result<Range<usize>, Cause> {
    let end = match symbol.size {
        0 => natural_end,
        given => symbol.value.saturating_add(given),
    };
    let whole = symbol.value.is_multiple_of(8) && end.is_multiple_of(8) && symbol.value < end && end <= size;
    let slot = |byte: u64| usize::try_from(byte / 8).ok().filter(|_| whole);
    match (slot(symbol.value), slot(end)) {
        (Some(start), Some(end)) => Ok(start..end),
        _ => Err(Cause::Extent { start: symbol.value, end, size }),
    }
}

fn read(section: &Section, slots: Range<usize>, endian: Endian, budget: &mut usize) -> Result<Vec<Raw>, Cause> {
    let (all, _) = section.data.as_chunks::<8>();
    let bytes = (slots.start as u64 * 8, slots.end as u64 * 8);
    let outside = Cause::Extent { start: bytes.0, end: bytes.1, size: section.size };
    let found = all.get(slots).ok_or(outside)?;
    let Some(left) = budget.checked_sub(found.len()) else {
        let what = "the functions of overlapping symbols".into();
        return Err(Cause::TooLarge { what, size: bytes.1 - bytes.0, limit: *budget as u64 * 8 });
    };
    *budget = left;
    Ok(found.iter().map(|slot| Raw::from_bytes(*slot, endian)).collect())
}
