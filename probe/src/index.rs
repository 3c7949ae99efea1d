//! Functions of all units: which DIEs are there, under which names. Each unit's part is made once, several at a time, and
//! for a single name only where [`narrow`] finds it.

mod narrow;

use std::collections::HashMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use gimli::constants as dw;
use gimli::{DwTag, UnitOffset};

use crate::debug::{Debug, Die, Unit, Value};
use crate::elf::Slice;
use crate::error::Refusal;
use crate::extent::Extent;
use crate::glob;

/// Most references from an inlined copy to the DIE that has a name.
const MOST_REFERENCES: usize = 8;
/// Names that are searched for before all units are read: that takes as long as about ten searches.
const MOST_SEARCHES: usize = 8;

/// What a DIE of a function is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It has code of its own.
    Concrete,
    /// A declaration, or what copies refer to.
    Abstract,
    /// A copy in another function.
    Inlined,
}

/// A DIE of a function.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Function<'a> {
    pub(crate) offset: UnitOffset,
    pub(crate) kind: Kind,
    name: Option<&'a [u8]>,
    linkage: Option<&'a [u8]>,
    /// Where its name is, if not here.
    origin: Option<Value<'a>>,
    /// Index of the scope around it, plus 1.
    scope: u32,
    /// Index of the concrete function around an inlined copy.
    pub(crate) around: Option<u32>,
    /// Where it is entered, if it has code of its own.
    pub(crate) begin: Option<u64>,
}

/// A namespace, or a type that has functions.
#[derive(Clone, Copy, Debug)]
struct Scope<'a> {
    name: &'a [u8],
    /// Index of the scope around it, plus 1.
    parent: u32,
}

/// A type with members, by name: what other units only declare.
#[derive(Clone, Copy, Debug)]
struct Type<'a> {
    name: &'a [u8],
    tag: DwTag,
    offset: UnitOffset,
}

/// Part of the index: one unit.
#[derive(Debug, Default)]
pub(crate) struct Part<'a> {
    pub(crate) functions: Vec<Function<'a>>,
    scopes: Vec<Scope<'a>>,
    types: Vec<Type<'a>>,
    pub(crate) damage: Option<String>,
}

/// DIEs by their names, of all units.
struct ByName<'a> {
    functions: HashMap<&'a [u8], Vec<Die>>,
    types: HashMap<&'a [u8], Vec<(DwTag, Die)>>,
    /// Functions with code of their own by the address at which they begin.
    entries: HashMap<u64, Die>,
}

/// All units.
pub(crate) struct Index<'a> {
    parts: Vec<OnceLock<Part<'a>>>,
    by_name: OnceLock<ByName<'a>>,
    narrow: narrow::Narrow,
    searches: AtomicUsize,
    threads: usize,
}

/// Names of a function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Names<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) linkage: Option<&'a [u8]>,
    /// With its scopes, if it is in any.
    pub(crate) scoped: Option<String>,
}

impl<'a> Index<'a> {
    pub(crate) fn new(units: usize, threads: usize) -> Index<'a> {
        let parts = (0..units).map(|_| OnceLock::new()).collect();
        let (by_name, narrow, searches) = (OnceLock::new(), narrow::Narrow::default(), AtomicUsize::new(0));
        Index { parts, by_name, narrow, searches, threads }
    }

    /// Makes the parts that are not there yet.
    pub(crate) fn complete(&self, debug: &Debug<'a>) {
        self.make(debug, 0..self.parts.len());
    }

    /// Makes parts of some units.
    fn make(&self, debug: &Debug<'a>, units: impl IntoIterator<Item = usize>) {
        let missing: Vec<usize> = units.into_iter().filter(|at| self.parts[*at].get().is_none()).collect();
        in_parallel(self.threads, &missing, |unit| {
            self.part(debug, *unit);
        });
    }

    pub(crate) fn part(&self, debug: &Debug<'a>, unit: usize) -> &Part<'a> {
        self.parts[unit].get_or_init(|| match debug.visit(unit, read) {
            Ok(part) => part,
            Err(refusal) => Part { damage: Some(refusal.to_string()), ..Part::default() },
        })
    }

    /// The units that can have any of these names, unless there were so many searches that all are read.
    fn search(&self, debug: &Debug<'a>, names: &[&[u8]]) -> Option<Vec<usize>> {
        if self.by_name.get().is_some() || self.searches.fetch_add(1, Ordering::Relaxed) >= MOST_SEARCHES {
            return None;
        }
        self.narrow.units(debug, names, self.threads)
    }

    fn by_name(&self, debug: &Debug<'a>) -> &ByName<'a> {
        self.by_name.get_or_init(|| {
            self.complete(debug);
            let (mut functions, mut types, mut entries) = (HashMap::new(), HashMap::new(), HashMap::new());
            for unit in 0..self.parts.len() {
                let part = self.part(debug, unit);
                for found in part.functions.iter().filter(|function| function.kind != Kind::Abstract) {
                    let die = Die { unit, offset: found.offset };
                    let (name, linkage) = self.own_names(debug, &self.chain(debug, die));
                    for name in [name, linkage.filter(|linkage| Some(*linkage) != name)].into_iter().flatten() {
                        functions.entry(name).or_insert_with(Vec::new).push(die);
                    }
                    if found.kind == Kind::Concrete {
                        entries.extend(found.begin.map(|begin| (begin, die)));
                    }
                }
                for found in &part.types {
                    let die = Die { unit, offset: found.offset };
                    types.entry(found.name).or_insert_with(Vec::new).push((found.tag, die));
                }
            }
            ByName { functions, types, entries }
        })
    }

    /// Functions and copies that can have a name that a definition means, in order; [`Names::match_pattern`] decides.
    pub(crate) fn candidates(&self, debug: &Debug<'a>, pattern: &str) -> Vec<Die> {
        // The last part of a path; in templates' arguments there are paths as well.
        let last = pattern.rsplit("::").next().unwrap_or(pattern);
        let exact = !glob::is_pattern(pattern) && !pattern.contains(['<', '(', '{']);
        if !exact {
            self.complete(debug);
            return self.functions_of(debug, 0..self.parts.len());
        }
        let names = if pattern == last { &[last][..] } else { &[last, pattern] };
        let names: Vec<&[u8]> = names.iter().map(|name| name.as_bytes()).collect();
        if let Some(units) = self.search(debug, &names) {
            self.make(debug, units.iter().copied());
            return self.functions_of(debug, units);
        }
        let functions = &self.by_name(debug).functions;
        let of_name = |name| functions.get(name).into_iter().flatten();
        let mut found: Vec<Die> = names.into_iter().flat_map(of_name).copied().collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Functions and copies of some units, in order.
    fn functions_of(&self, debug: &Debug<'a>, units: impl IntoIterator<Item = usize>) -> Vec<Die> {
        let of_unit = |unit: usize| {
            let functions = self.part(debug, unit).functions.iter();
            let there = functions.filter(|function| function.kind != Kind::Abstract);
            there.map(move |function| Die { unit, offset: function.offset })
        };
        units.into_iter().flat_map(of_unit).collect()
    }

    /// The concrete function that begins at an address of code.
    pub(crate) fn function_at(&self, debug: &Debug<'a>, address: u64) -> Option<Die> {
        let units = if self.by_name.get().is_none() { debug.units_at(address) } else { Vec::new() };
        if units.is_empty() {
            return self.by_name(debug).entries.get(&address).copied();
        }
        // The units that have the code also say what it is.
        let begins = |function: &&Function<'_>| function.kind == Kind::Concrete && function.begin == Some(address);
        units.into_iter().find_map(|unit| {
            let found = self.part(debug, unit).functions.iter().find(begins)?;
            Some(Die { unit, offset: found.offset })
        })
    }

    pub(crate) fn function(&self, debug: &Debug<'a>, die: Die) -> Option<&Function<'a>> {
        let functions = &self.part(debug, die.unit).functions;
        let at = functions.binary_search_by_key(&die.offset, |function| function.offset).ok()?;
        functions.get(at)
    }

    /// The function with the code of a function or copy; `None` for a copy in what is itself only there as copies.
    pub(crate) fn concrete(&self, debug: &Debug<'a>, die: Die) -> Option<Die> {
        let function = self.function(debug, die)?;
        if function.kind == Kind::Concrete {
            return Some(die);
        }
        let around = self.part(debug, die.unit).functions.get(function.around? as usize)?;
        (around.kind == Kind::Concrete).then_some(Die { offset: around.offset, ..die })
    }

    /// The DIEs from a function to those that it takes its name and attributes from, itself first.
    pub(crate) fn chain(&self, debug: &Debug<'a>, die: Die) -> Vec<Die> {
        let mut chain = vec![die];
        while let Some(origin) = self.function(debug, chain[chain.len() - 1]).and_then(|function| function.origin) {
            match debug.refer(chain[chain.len() - 1].unit, origin) {
                Ok(next) if chain.len() < MOST_REFERENCES && !chain.contains(&next) => chain.push(next),
                _ => break,
            }
        }
        chain
    }

    /// Name and linkage name of a function by its chain, without its scopes.
    fn own_names(&self, debug: &Debug<'a>, chain: &[Die]) -> (Option<&'a [u8]>, Option<&'a [u8]>) {
        let (mut name, mut linkage) = (None, None);
        for function in chain.iter().filter_map(|at| self.function(debug, *at)) {
            name = name.or(function.name.filter(|name| !name.is_empty()));
            linkage = linkage.or(function.linkage);
        }
        (name, linkage)
    }

    /// Names of a function; `None` if it has none.
    pub(crate) fn names(&self, debug: &Debug<'a>, die: Die) -> Option<Names<'a>> {
        let chain = self.chain(debug, die);
        let (name, linkage) = self.own_names(debug, &chain);
        let name = name.or(linkage)?;
        // The last one is the declaration in its class.
        let scope = chain.iter().rev().find_map(|at| {
            let function = self.function(debug, *at)?;
            (function.kind != Kind::Inlined && function.scope != 0).then_some((at.unit, function.scope))
        });
        let scoped = scope.map(|(unit, scope)| self.scoped(debug, unit, scope, name));
        Some(Names { name, linkage, scoped })
    }

    fn scoped(&self, debug: &Debug<'a>, unit: usize, mut scope: u32, name: &[u8]) -> String {
        let scopes = &self.part(debug, unit).scopes;
        let mut parts = vec![String::from_utf8_lossy(name)];
        while let Some(found) = scope.checked_sub(1).and_then(|at| scopes.get(at as usize)) {
            parts.push(String::from_utf8_lossy(found.name));
            scope = found.parent;
        }
        parts.reverse();
        parts.join("::")
    }

    /// Definitions of a type that a unit only declares.
    pub(crate) fn definitions(&self, debug: &Debug<'a>, tag: DwTag, name: &[u8]) -> Vec<Die> {
        let same = |found: DwTag| found == tag || (is_class(found) && is_class(tag));
        match self.search(debug, &[name]) {
            Some(units) => {
                let types = |unit| self.part(debug, unit).types.iter().map(move |found| (unit, found));
                let found =
                    units.into_iter().flat_map(types).filter(|(_, found)| found.name == name && same(found.tag));
                found.map(|(unit, found)| Die { unit, offset: found.offset }).collect()
            }
            None => {
                let found = self.by_name(debug).types.get(name).into_iter().flatten();
                found.filter(|(tag, _)| same(*tag)).map(|(_, die)| *die).collect()
            }
        }
    }
}

/// Does something with each of them, on as many threads as are worth it.
fn in_parallel<T: Sync>(threads: usize, all: &[T], work: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    let run = || {
        while let Some(one) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
            work(one);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.min(all.len() / 8) {
            // Without a further thread this one does the work.
            let _ = std::thread::Builder::new().spawn_scoped(scope, run);
        }
        run();
    });
}

fn is_function(tag: DwTag) -> bool {
    matches!(tag, dw::DW_TAG_subprogram | dw::DW_TAG_inlined_subroutine)
}

fn is_record(tag: DwTag) -> bool {
    is_class(tag) || tag == dw::DW_TAG_union_type
}

fn is_class(tag: DwTag) -> bool {
    matches!(tag, dw::DW_TAG_structure_type | dw::DW_TAG_class_type)
}

impl Names<'_> {
    /// Whether a definition's name means the function.
    pub(crate) fn match_pattern(&self, pattern: &str) -> bool {
        let text = |bytes: &[u8]| std::str::from_utf8(bytes).is_ok_and(|name| glob::matches(pattern, name));
        text(self.name)
            || self.linkage.is_some_and(text)
            || self.scoped.as_deref().is_some_and(|name| pattern.contains("::") && glob::matches_scoped(pattern, name))
    }

    /// Whether a symbol has the function's name.
    pub(crate) fn is_symbol(&self, symbol: &str) -> bool {
        self.linkage.unwrap_or(self.name) == symbol.as_bytes()
    }

    /// The name to show.
    pub(crate) fn shown(&self) -> String {
        self.scoped.clone().unwrap_or_else(|| String::from_utf8_lossy(self.name).into_owned())
    }
}

/// What surrounds the DIE that is read.
struct Around {
    depth: isize,
    scope: u32,
    function: Option<u32>,
}

fn read<'a>(unit: &Unit<'a>) -> Part<'a> {
    let mut part = Part::default();
    if let Err(error) = walk(unit, &mut part) {
        part.damage = Some(error.to_string());
    }
    part
}

fn walk<'a>(unit: &Unit<'a>, part: &mut Part<'a>) -> Result<(), Refusal> {
    let mut entries = unit.unit.entries_raw(None)?;
    let mut around: Vec<Around> = Vec::new();
    while !entries.is_empty() {
        let (offset, depth) = (entries.next_offset(), entries.next_depth());
        let Some(abbreviation) = entries.read_abbreviation()? else { continue };
        while around.last().is_some_and(|around| around.depth >= depth) {
            around.pop();
        }
        let (scope, function) = around.last().map_or((0, None), |around| (around.scope, around.function));
        let tag = abbreviation.tag();
        let is_type = is_record(tag);
        let inner = match tag {
            _ if is_function(tag) => {
                let mut found = Attributes::default();
                for spec in abbreviation.attributes() {
                    found.take(unit, entries.read_attribute(*spec)?);
                }
                let inlined = tag == dw::DW_TAG_inlined_subroutine;
                let kind = match (inlined, found.extent.is_there()) {
                    (true, _) => Kind::Inlined,
                    (false, true) => Kind::Concrete,
                    (false, false) => Kind::Abstract,
                };
                let (name, linkage, origin) = (found.name, found.linkage, found.origin);
                let at = u32::try_from(part.functions.len()).unwrap_or(u32::MAX);
                let concrete = kind == Kind::Concrete;
                let begin = concrete.then(|| found.extent.begin(unit).ok().flatten()).flatten();
                part.functions.push(Function { offset, kind, name, linkage, origin, scope, around: function, begin });
                Some((scope, if inlined { function } else { Some(at) }))
            }
            _ if is_type || tag == dw::DW_TAG_namespace || tag == dw::DW_TAG_module => {
                let mut found = Attributes::default();
                for spec in abbreviation.attributes() {
                    found.take(unit, entries.read_attribute(*spec)?);
                }
                if let (Some(name), true, false) = (found.name, is_type, found.is_declaration) {
                    part.types.push(Type { name, tag, offset });
                }
                part.scopes.push(Scope { name: found.name.unwrap_or(b"{unnamed}"), parent: scope });
                Some((u32::try_from(part.scopes.len()).unwrap_or(0), function))
            }
            _ => {
                entries.skip_attributes(abbreviation.attributes())?;
                None
            }
        };
        if let Some((scope, function)) = inner.filter(|_| abbreviation.has_children()) {
            around.push(Around { depth, scope, function });
        }
    }
    Ok(())
}

#[derive(Default)]
struct Attributes<'a> {
    name: Option<&'a [u8]>,
    linkage: Option<&'a [u8]>,
    origin: Option<Value<'a>>,
    extent: Extent<'a>,
    is_declaration: bool,
}

impl<'a> Attributes<'a> {
    fn take(&mut self, unit: &Unit<'a>, attribute: gimli::Attribute<Slice<'a>>) {
        match attribute.name() {
            dw::DW_AT_name => self.name = unit.string(attribute.value()),
            dw::DW_AT_linkage_name | dw::DW_AT_MIPS_linkage_name => self.linkage = unit.string(attribute.value()),
            dw::DW_AT_abstract_origin | dw::DW_AT_specification => self.origin = Some(attribute.value()),
            dw::DW_AT_declaration => self.is_declaration = true,
            other => self.extent.take(other, attribute.value()),
        }
    }
}
