//! Which functions and copies a definition means, and where in them.

use std::collections::BTreeSet;

use super::{Target, address, source};
use crate::binary::Binary;
use crate::code;
use crate::debug::Die;
use crate::definition::{Definition, Position};
use crate::elf::{Symbol, SymbolKind};
use crate::error::{Error, Refusal, nearest};
use crate::glob;
use crate::index::Kind;
use crate::lines::is_file;

/// A function or copy by its name.
#[derive(Clone, Copy, Debug)]
struct Instance {
    target: Target,
    is_copy: bool,
}

/// Targets in the order of their addresses, each address once.
pub(super) fn targets(binary: &Binary<'_>, definition: &Definition) -> Result<Vec<Target>, Error> {
    let Some(name) = &definition.function else {
        let (Some(file), Position::Line(line)) = (&definition.file, definition.position) else {
            return Err(Error::NoFunction { name: String::new(), nearest: Vec::new() });
        };
        source::need_debug(binary, "a line")?;
        return Ok(ordered(source::targets(binary, file, line)?));
    };
    if let Some(address) = name.strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok()) {
        return Ok(vec![address::target(binary, definition, name, address)?]);
    }
    let instances = instances(binary, definition, name)?;
    let targets = match definition.position {
        Position::Entry => instances.into_iter().map(|instance| instance.target).collect(),
        Position::Return => originals(name, instances)?,
        Position::Offset(offset) => {
            let mut targets = originals(name, instances)?;
            for target in &mut targets {
                code::check_offset(binary.elf(), name, target.entry, target.end - target.entry, offset)?;
                target.pc = target.entry + offset;
                target.view = if offset == 0 { Some(0) } else { None };
            }
            targets
        }
        Position::Line(line) => by_line(binary, name, &instances, line)?,
    };
    Ok(ordered(targets))
}

fn ordered(mut targets: Vec<Target>) -> Vec<Target> {
    // Of a function and a copy of another that begin together, both are points: they are different calls.
    targets.sort_by_key(|target| (target.pc, target.dies.map(|(_, instance)| instance)));
    targets.dedup_by_key(|target| (target.pc, target.dies.map(|(_, instance)| instance)));
    targets
}

/// Without inlined copies, from which nothing returns and in which offsets mean nothing.
fn originals(name: &str, instances: Vec<Instance>) -> Result<Vec<Target>, Error> {
    let found: Vec<Target> = instances.into_iter().filter(|one| !one.is_copy).map(|one| one.target).collect();
    if found.is_empty() { Err(Error::OnlyInlined(name.to_owned())) } else { Ok(found) }
}

fn by_line(binary: &Binary<'_>, name: &str, instances: &[Instance], line: u32) -> Result<Vec<Target>, Error> {
    source::need_debug(binary, "a line")?;
    let (mut found, mut near) = (Vec::new(), BTreeSet::new());
    for Instance { target, .. } in instances {
        let Some((function, instance)) = target.dies else { continue };
        let Some((file, first)) = source::declared(binary, instance) else { continue };
        let wanted = first.saturating_add(line);
        found.extend(source::lines_in(binary, target, &file, wanted));
        let within = binary.ranges(instance).unwrap_or_default();
        let lines = source::near(binary, function.unit, |path| path == file, &within, wanted);
        near.extend(lines.into_iter().filter_map(|line| line.checked_sub(first)));
    }
    if found.is_empty() {
        return Err(Error::NoLine { file: name.to_owned(), line, near: near.into_iter().collect() });
    }
    Ok(found)
}

/// The functions and copies of the name.
fn instances(binary: &Binary<'_>, definition: &Definition, name: &str) -> Result<Vec<Instance>, Error> {
    let (debug, index) = (binary.debug(), binary.index());
    let (mut found, mut seen, mut other_files, mut excluded) = (Vec::new(), BTreeSet::new(), BTreeSet::new(), false);
    for die in index.candidates(debug, name) {
        if !index.names(debug, die).is_some_and(|names| names.match_pattern(name)) {
            continue;
        }
        let Some(outer) = index.concrete(debug, die) else { continue };
        let is_copy = outer != die;
        let Some(instance) = instance(binary, outer, die) else { continue };
        if let Some(file) = &definition.file {
            let declared = source::declared(binary, die).map(|(path, _)| path).unwrap_or_default();
            if !is_file(&declared, file) {
                other_files.insert(declared);
                continue;
            }
        }
        if is_copy && !definition.inlines {
            excluded = true;
            continue;
        }
        if !is_copy && is_part(binary, instance.target.entry, name) {
            continue;
        }
        if !is_copy {
            seen.insert(instance.target.entry);
        }
        found.push(instance);
    }
    let mut indirect = false;
    if definition.file.is_none() {
        let symbols = matching(binary, name).filter(|symbol| symbol.kind != SymbolKind::Data);
        for symbol in symbols {
            indirect |= symbol.kind == SymbolKind::Indirect;
            if symbol.kind == SymbolKind::Function
                && binary.elf().is_code(symbol.address)
                && seen.insert(symbol.address)
            {
                found.push(by_symbol(binary, symbol));
            }
        }
    }
    if !found.is_empty() {
        return Ok(found);
    }
    Err(match (other_files.is_empty(), &definition.file) {
        (false, Some(file)) => {
            Error::NotInFile { function: name.to_owned(), file: file.clone(), files: other_files.into_iter().collect() }
        }
        _ if excluded => Error::InlinesExcluded(name.to_owned()),
        _ if indirect => Error::Indirect(name.to_owned()),
        _ => none(binary, name),
    })
}

fn instance(binary: &Binary<'_>, outer: Die, die: Die) -> Option<Instance> {
    let (entry, end) = binary.entry_of(outer).ok()??;
    let is_copy = outer != die;
    let copy = if is_copy { Some(binary.entry_of(die).ok()??) } else { None };
    let (pc, view) = copy.map_or((entry, 0), |(begin, _)| (begin, source::entry_view(binary, die)));
    let target = Target { dies: Some((outer, die)), entry, end, pc, copy, view: Some(view) };
    Some(Instance { target, is_copy })
}

/// Whether code is a part that the compiler split from a function: it is not where calls begin.
fn is_part(binary: &Binary<'_>, entry: u64, pattern: &str) -> bool {
    let part = |name: &str| name.contains(".part.") || name.ends_with(".cold") || name.contains(".cold.");
    let mut symbols = binary.symbols_at(entry).peekable();
    symbols.peek().is_some()
        && symbols.all(|symbol| part(symbol.name) && !(pattern.contains('.') && glob::matches(pattern, symbol.name)))
}

/// The symbols that a definition's name means, mangled or not.
fn matching<'b>(binary: &'b Binary<'_>, pattern: &'b str) -> impl Iterator<Item = &'b Symbol<'b>> {
    let is_pattern = glob::is_pattern(pattern);
    let plain = move |symbol: &&Symbol<'_>| match is_pattern {
        true => glob::matches(pattern, symbol.name),
        false => symbol.name == pattern,
    };
    let is_part = |symbol: &Symbol<'_>| symbol.name.contains(".part.") || symbol.name.contains(".cold");
    let by_name = binary.symbols().iter().filter(plain);
    let by_name = by_name.filter(move |symbol| pattern.contains('.') || !is_part(symbol));
    let scoped = move |(_, name): &(&Symbol<'_>, &str)| {
        (is_pattern || name.ends_with(pattern)) && glob::matches_scoped(pattern, name)
    };
    by_name.chain(binary.demangled().filter(scoped).map(|(symbol, _)| symbol))
}

fn by_symbol(binary: &Binary<'_>, symbol: &Symbol<'_>) -> Instance {
    let (entry, end) = (symbol.address, symbol.address.saturating_add(symbol.size));
    if let Some(instance) = binary.function_at(entry).and_then(|die| instance(binary, die, die)) {
        return instance;
    }
    Instance { target: Target { dies: None, entry, end, pc: entry, copy: None, view: None }, is_copy: false }
}

/// That no function has the name, with names that resemble it.
fn none(binary: &Binary<'_>, name: &str) -> Error {
    if let Some(why) = binary.no_debug()
        && binary.symbols().iter().all(|symbol| symbol.kind == SymbolKind::Data)
    {
        return Error::NoNames { name: name.to_owned(), why: why.to_owned() };
    }
    if glob::is_pattern(name) {
        return Error::NoMatch(name.to_owned());
    }
    let mut names: BTreeSet<String> = binary
        .symbols()
        .iter()
        .filter(|symbol| symbol.kind != SymbolKind::Data)
        .map(|symbol| symbol.name.to_owned())
        .collect();
    binary.index().complete(binary.debug());
    for unit in 0..binary.debug().len() {
        for function in &binary.index().part(binary.debug(), unit).functions {
            let names_of = binary.index().names(binary.debug(), Die { unit, offset: function.offset });
            names.extend(names_of.map(|names| String::from_utf8_lossy(names.name).into_owned()));
        }
    }
    Error::NoFunction { name: name.to_owned(), nearest: nearest(name, names.iter().map(String::as_str)) }
}

impl<'a> Binary<'a> {
    /// Names of all functions that match a pattern and have code of their own, in order.
    ///
    /// # Errors
    /// Debug information is damaged.
    pub fn functions(&self, pattern: &str) -> Result<Vec<String>, Refusal> {
        let (debug, index) = (self.debug(), self.index());
        index.complete(debug);
        let mut names = BTreeSet::new();
        for unit in 0..debug.len() {
            for function in &index.part(debug, unit).functions {
                let die = Die { unit, offset: function.offset };
                let found = index.names(debug, die).filter(|names| names.match_pattern(pattern));
                if function.kind != Kind::Abstract
                    && let Some(found) = found
                    && self.entry_of(die)?.is_some()
                {
                    names.insert(found.shown());
                }
            }
        }
        for symbol in matching(self, pattern).filter(|symbol| symbol.kind == SymbolKind::Function) {
            if self.elf().is_code(symbol.address) {
                names.insert(symbol.demangled().unwrap_or_else(|| symbol.name.to_owned()));
            }
        }
        Ok(names.into_iter().collect())
    }
}
