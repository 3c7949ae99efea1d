//! Points by lines of source files.

use std::collections::BTreeSet;

use gimli::constants as dw;

use super::Target;
use crate::binary::Binary;
use crate::debug::Die;
use crate::error::{Error, nearest};
use crate::index::Kind;
use crate::lines::is_file;
use crate::scope;
use crate::site::Site;

/// That a position needs debug information which is not there, and why.
pub(super) fn need_debug(binary: &Binary<'_>, what: &str) -> Result<(), Error> {
    match binary.no_debug() {
        Some(why) => Err(Error::NoDebug { what: what.to_owned(), why: why.to_owned() }),
        None => Ok(()),
    }
}

/// In which of gcc's views of its first address a copy begins.
pub(super) fn entry_view(binary: &Binary<'_>, copy: Die) -> u64 {
    let entry = binary.debug().entry(copy).ok();
    entry.and_then(|entry| entry.attr(dw::DW_AT_GNU_entry_view)?.udata_value()).unwrap_or(0)
}

/// Path and line of an address.
pub(super) fn line_of(binary: &Binary<'_>, unit: usize, pc: u64) -> Option<(String, u32)> {
    let table = binary.lines(unit);
    let row = table.at(pc)?;
    Some((table.file(row.file)?.to_owned(), row.line))
}

/// File and line in which a function is declared.
pub(super) fn declared(binary: &Binary<'_>, function: Die) -> Option<(String, u32)> {
    let mut line = None;
    for die in binary.index().chain(binary.debug(), function) {
        let entry = binary.debug().entry(die).ok()?;
        let number = |name| entry.attr(name).and_then(|value| value.udata_value());
        line = line.or_else(|| number(dw::DW_AT_decl_line));
        let file = match entry.attr_value(dw::DW_AT_decl_file) {
            Some(gimli::AttributeValue::FileIndex(file)) => Some(file),
            _ => number(dw::DW_AT_decl_file),
        };
        if let (Some(line), Some(file)) = (line, file) {
            let file = binary.lines(die.unit).file(file)?.to_owned();
            return Some((file, u32::try_from(line).ok()?));
        }
    }
    None
}

/// The statements of a line that begin in a function or inlined copy, as targets.
pub(super) fn lines_in(binary: &Binary<'_>, target: &Target, file: &str, line: u32) -> Vec<Target> {
    let Some((function, instance)) = target.dies else { return Vec::new() };
    let ranges = binary.ranges(instance).unwrap_or_default();
    let inside = |address: u64| ranges.iter().any(|(begin, end)| *begin <= address && address < *end);
    let found = statements(binary, function.unit, |path| path == file, line);
    let found = found.into_iter().filter(|(address, _)| inside(*address));
    found.map(|(pc, view)| Target { pc, view: Some(view), ..*target }).collect()
}

/// Address and view of each statement of a line: where a run of its rows begins.
fn statements(binary: &Binary<'_>, unit: usize, is: impl Fn(&str) -> bool, line: u32) -> Vec<(u64, u64)> {
    let table = binary.lines(unit);
    let files: Vec<u64> = table.files().filter(|(_, path)| is(path)).map(|(number, _)| number).collect();
    let mut found: Vec<(u64, u64)> = Vec::new();
    let mut runs = false;
    for row in &table.rows {
        let is_line = !row.end && row.line == line && files.contains(&row.file);
        if is_line && row.is_stmt && !runs && found.iter().all(|(address, _)| *address != row.address) {
            found.push((row.address, row.view));
        }
        runs = is_line && (runs || row.is_stmt);
    }
    found.retain(|(address, _)| binary.elf().is_code(*address));
    found
}

/// Lines near one that have statements, in a function or in a whole file.
pub(super) fn near(
    binary: &Binary<'_>,
    unit: usize,
    is: impl Fn(&str) -> bool,
    within: &[(u64, u64)],
    line: u32,
) -> Vec<u32> {
    let table = binary.lines(unit);
    let files: Vec<u64> = table.files().filter(|(_, path)| is(path)).map(|(number, _)| number).collect();
    let inside =
        |address: u64| within.is_empty() || within.iter().any(|(begin, end)| *begin <= address && address < *end);
    let rows = table.rows.iter().filter(|row| !row.end && row.is_stmt && row.line != 0 && files.contains(&row.file));
    let lines: BTreeSet<u32> = rows.filter(|row| inside(row.address)).map(|row| row.line).collect();
    let before = lines.range(..line).next_back().copied();
    before.into_iter().chain(lines.range(line..).next().copied()).collect()
}

/// The targets of a line of a file, in whichever functions have code of it.
pub(super) fn targets(binary: &Binary<'_>, wanted: &str, line: u32) -> Result<Vec<Target>, Error> {
    let mut paths: BTreeSet<String> = BTreeSet::new();
    let mut all: BTreeSet<String> = BTreeSet::new();
    for unit in 0..binary.debug().len() {
        for (_, path) in binary.lines(unit).files() {
            if is_file(path, wanted) {
                paths.insert(path.to_owned());
            } else if let Some((_, name)) = path.rsplit_once('/') {
                all.insert(name.to_owned());
            }
        }
    }
    let mut with_code: BTreeSet<&String> = BTreeSet::new();
    let (mut found, mut near_lines) = (Vec::new(), BTreeSet::new());
    for unit in 0..binary.debug().len() {
        for path in &paths {
            for (pc, view) in statements(binary, unit, |other| other == path, line) {
                with_code.insert(path);
                found.extend(target_at(binary, unit, pc, Some(view)));
            }
            near_lines.extend(near(binary, unit, |other| other == path, &[], line));
        }
    }
    if with_code.len() > 1 {
        let files = with_code.into_iter().cloned().collect();
        return Err(Error::AmbiguousFile { file: wanted.to_owned(), files });
    }
    if paths.is_empty() {
        let nearest = nearest(wanted, all.iter().map(String::as_str));
        return Err(Error::NoFile { file: wanted.to_owned(), nearest });
    }
    if found.is_empty() {
        let near: Vec<u32> = near_lines.into_iter().collect();
        let before = near.iter().rev().find(|near| **near < line);
        let near = before.into_iter().chain(near.iter().find(|near| **near > line)).copied().collect();
        return Err(Error::NoLine { file: wanted.to_owned(), line, near });
    }
    Ok(found)
}

/// The innermost function at an address of a unit.
pub(super) fn target_at(binary: &Binary<'_>, unit: usize, pc: u64, view: Option<u64>) -> Option<Target> {
    let functions = &binary.index().part(binary.debug(), unit).functions;
    let concrete = functions.iter().filter(|function| function.kind == Kind::Concrete);
    for function in concrete.map(|function| Die { unit, offset: function.offset }) {
        let covers = |(begin, end): &(u64, u64)| *begin <= pc && pc < *end;
        if !binary.ranges(function).ok()?.iter().any(covers) {
            continue;
        }
        let (entry, end) = binary.entry_of(function).ok()??;
        let site = Site { binary, function, entry, end, pc, copy: None, view, depth: 0 };
        let instance = scope::innermost(&site).unwrap_or(function);
        let copy = if instance == function { None } else { binary.entry_of(instance).ok()? };
        return Some(Target { dies: Some((function, instance)), entry, end, pc, copy, view });
    }
    None
}
