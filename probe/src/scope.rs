//! Variables that can be named at an address.

use gimli::constants as dw;

use crate::debug::{Die, Entry};
use crate::error::Refusal;
use crate::site::Site;

/// Most blocks in each other.
const MOST_NESTED: usize = 256;

/// A parameter or variable.
#[derive(Clone, Debug)]
pub(crate) struct Variable {
    pub(crate) name: String,
    pub(crate) die: Die,
    pub(crate) is_parameter: bool,
}

/// Parameters and variables of a function or inlined copy at the site, those of inner blocks last. Parameters that the
/// copy lacks come first.
pub(crate) fn variables(site: &Site<'_, '_>, instance: Die) -> Result<Vec<Variable>, Refusal> {
    let mut found = Vec::new();
    collect(site, instance, &mut found, MOST_NESTED)?;
    let debug = site.binary.debug();
    let mut all: Vec<Variable> = Vec::new();
    for origin in site.binary.index().chain(debug, instance).into_iter().skip(1) {
        let mut declared = Vec::new();
        collect(site, origin, &mut declared, 1)?;
        let is_new = |one: &Variable, all: &[Variable]| {
            one.is_parameter && !found.iter().chain(all).any(|other| other.name == one.name)
        };
        for one in declared {
            if is_new(&one, &all) {
                all.push(one);
            }
        }
    }
    all.extend(found);
    Ok(all)
}

fn collect(site: &Site<'_, '_>, of: Die, found: &mut Vec<Variable>, left: usize) -> Result<(), Refusal> {
    let Some(left) = left.checked_sub(1) else { return Ok(()) };
    let unit = &site.binary.debug().unit(of.unit)?.unit;
    let mut blocks = Vec::new();
    let mut tree = unit.entries_tree(Some(of.offset))?;
    let mut children = tree.root()?.children();
    while let Some(child) = children.next()? {
        let entry = child.entry();
        let die = Die { unit: of.unit, offset: entry.offset() };
        match entry.tag() {
            dw::DW_TAG_formal_parameter | dw::DW_TAG_variable => {
                let is_parameter = entry.tag() == dw::DW_TAG_formal_parameter;
                if let Some(name) = name(site, die, entry)? {
                    found.push(Variable { name, die, is_parameter });
                }
            }
            dw::DW_TAG_lexical_block | dw::DW_TAG_try_block | dw::DW_TAG_catch_block => blocks.push(die),
            _ => {}
        }
    }
    for block in blocks {
        let ranges = site.binary.ranges(block)?;
        if ranges.iter().any(|(begin, end)| *begin <= site.pc && site.pc < *end) {
            collect(site, block, found, left)?;
        }
    }
    Ok(())
}

/// The name of a variable, its own or that of what it is a copy of.
fn name<'a>(site: &Site<'_, 'a>, die: Die, entry: &Entry<'a>) -> Result<Option<String>, Refusal> {
    let debug = site.binary.debug();
    let (mut at, mut entry) = (die, entry.clone());
    for _ in 0..8 {
        if let Some(value) = entry.attr_value(dw::DW_AT_name) {
            let name = debug.unit(at.unit)?.string(value);
            return Ok(name.map(|name| String::from_utf8_lossy(name).into_owned()));
        }
        let origin = entry.attr_value(dw::DW_AT_abstract_origin).or_else(|| entry.attr_value(dw::DW_AT_specification));
        let Some(origin) = origin else { return Ok(None) };
        at = debug.refer(at.unit, origin)?;
        entry = debug.entry(at)?;
    }
    Ok(None)
}

/// The type of a variable, its own or that of what it is a copy of.
pub(crate) fn type_of(site: &Site<'_, '_>, die: Die) -> Result<Option<Die>, Refusal> {
    let debug = site.binary.debug();
    let mut at = die;
    for _ in 0..8 {
        let entry = debug.entry(at)?;
        if let Some(ty) = entry.attr_value(dw::DW_AT_type) {
            return Ok(Some(debug.refer(at.unit, ty)?));
        }
        let origin = entry.attr_value(dw::DW_AT_abstract_origin).or_else(|| entry.attr_value(dw::DW_AT_specification));
        let Some(origin) = origin else { return Ok(None) };
        at = debug.refer(at.unit, origin)?;
    }
    Ok(None)
}

/// A variable of the whole file, by name.
pub(crate) fn global(site: &Site<'_, '_>, unit: usize, wanted: &str) -> Result<Option<Variable>, Refusal> {
    let found = site.binary.debug().unit(unit)?;
    let mut tree = found.unit.entries_tree(None)?;
    let mut children = tree.root()?.children();
    while let Some(child) = children.next()? {
        let entry = child.entry();
        if entry.tag() != dw::DW_TAG_variable || entry.has_attr(dw::DW_AT_declaration) {
            continue;
        }
        let die = Die { unit, offset: entry.offset() };
        if let Some(name) = name(site, die, entry)?.filter(|name| name == wanted) {
            return Ok(Some(Variable { name, die, is_parameter: false }));
        }
    }
    Ok(None)
}

/// The innermost function or inlined copy at the site.
pub(crate) fn innermost(site: &Site<'_, '_>) -> Result<Die, Refusal> {
    let mut at = site.function;
    for _ in 0..MOST_NESTED {
        match inlined(site, at, MOST_NESTED)? {
            Some(inner) => at = inner,
            None => break,
        }
    }
    Ok(at)
}

/// An inlined copy that covers the site, directly in a function or copy or in its blocks.
fn inlined(site: &Site<'_, '_>, of: Die, left: usize) -> Result<Option<Die>, Refusal> {
    let Some(left) = left.checked_sub(1) else { return Ok(None) };
    let unit = &site.binary.debug().unit(of.unit)?.unit;
    let mut tree = unit.entries_tree(Some(of.offset))?;
    let mut children = tree.root()?.children();
    while let Some(child) = children.next()? {
        let tag = child.entry().tag();
        if tag != dw::DW_TAG_inlined_subroutine && tag != dw::DW_TAG_lexical_block {
            continue;
        }
        let die = Die { unit: of.unit, offset: child.entry().offset() };
        let ranges = site.binary.ranges(die)?;
        if !ranges.iter().any(|(begin, end)| *begin <= site.pc && site.pc < *end) {
            continue;
        }
        if tag == dw::DW_TAG_inlined_subroutine {
            return Ok(Some(die));
        }
        if let Some(found) = inlined(site, die, left)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}
