//! Functions of all units: which DIEs are there, under which names. Each unit's part is made once, several at a time.

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

/// Definitions of types with their tags.
type ByName<'a> = HashMap<&'a [u8], Vec<(DwTag, Die)>>;

/// All units.
pub(crate) struct Index<'a> {
    parts: Vec<OnceLock<Part<'a>>>,
    types: OnceLock<ByName<'a>>,
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
        Index { parts: (0..units).map(|_| OnceLock::new()).collect(), types: OnceLock::new(), threads }
    }

    /// Makes the parts that are not there yet.
    pub(crate) fn complete(&self, debug: &Debug<'a>) {
        let missing: Vec<usize> = (0..self.parts.len()).filter(|at| self.parts[*at].get().is_none()).collect();
        let next = AtomicUsize::new(0);
        let work = || {
            while let Some(unit) = missing.get(next.fetch_add(1, Ordering::Relaxed)) {
                self.part(debug, *unit);
            }
        };
        let threads = self.threads.min(missing.len() / 8);
        std::thread::scope(|scope| {
            for _ in 1..threads {
                // Without a further thread this one does the work.
                let _ = std::thread::Builder::new().spawn_scoped(scope, work);
            }
            work();
        });
    }

    pub(crate) fn part(&self, debug: &Debug<'a>, unit: usize) -> &Part<'a> {
        self.parts[unit].get_or_init(|| match debug.visit(unit, read) {
            Ok(part) => part,
            Err(refusal) => Part { damage: Some(refusal.to_string()), ..Part::default() },
        })
    }

    fn function(&self, debug: &Debug<'a>, die: Die) -> Option<&Function<'a>> {
        let functions = &self.part(debug, die.unit).functions;
        let at = functions.binary_search_by_key(&die.offset, |function| function.offset).ok()?;
        functions.get(at)
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

    /// Names of a function; `None` if it has none.
    pub(crate) fn names(&self, debug: &Debug<'a>, die: Die) -> Option<Names<'a>> {
        let mut names = Names::default();
        let mut scope = None;
        for at in self.chain(debug, die) {
            let Some(function) = self.function(debug, at) else { continue };
            names.linkage = names.linkage.or(function.linkage);
            if let Some(name) = function.name.filter(|_| names.name.is_empty()) {
                names.name = name;
            }
            // The last one is the declaration in its class.
            if function.kind != Kind::Inlined && function.scope != 0 {
                scope = Some((at.unit, function.scope));
            }
        }
        if names.name.is_empty() {
            names.name = names.linkage?;
        }
        if let Some((unit, scope)) = scope {
            names.scoped = Some(self.scoped(debug, unit, scope, names.name));
        }
        Some(names)
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
        let types = self.types.get_or_init(|| {
            self.complete(debug);
            let mut types = ByName::new();
            for unit in 0..self.parts.len() {
                for found in &self.part(debug, unit).types {
                    types.entry(found.name).or_default().push((found.tag, Die { unit, offset: found.offset }));
                }
            }
            types
        });
        let same = |found: &&(DwTag, Die)| found.0 == tag || (is_class(found.0) && is_class(tag));
        types.get(name).into_iter().flatten().filter(same).map(|(_, die)| *die).collect()
    }
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
        let is_type = matches!(tag, dw::DW_TAG_structure_type | dw::DW_TAG_class_type | dw::DW_TAG_union_type);
        let inner = match tag {
            dw::DW_TAG_subprogram | dw::DW_TAG_inlined_subroutine => {
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
