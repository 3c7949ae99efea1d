//! A point by its address, which needs neither symbols nor debug information.

use super::{Target, source};
use crate::binary::Binary;
use crate::code;
use crate::definition::{Definition, Position};
use crate::error::Error;

/// The target at an address of the file, `text` in the definition: in the innermost function or copy that has it.
pub(super) fn target(binary: &Binary<'_>, definition: &Definition, text: &str, address: u64) -> Result<Target, Error> {
    match definition.position {
        Position::Entry | Position::Return if definition.file.is_none() => {}
        Position::Line(_) => {
            source::need_debug(binary, "a line")?;
            return Err(Error::Position(text.to_owned()));
        }
        _ => return Err(Error::Position(text.to_owned())),
    }
    if !binary.elf().is_code(address) {
        return Err(Error::NoCode { address, code: binary.elf().code_ranges() });
    }
    let view = None;
    let mut units = binary.debug().units_at(address);
    if units.is_empty() {
        units.extend(0..binary.debug().len());
    }
    let inside = units.into_iter().find_map(|unit| source::target_at(binary, unit, address, view));
    let symbol = binary.symbol_over(address);
    let target = inside.unwrap_or_else(|| {
        let (entry, end) = symbol.map_or((address, address), |symbol| {
            (symbol.address, symbol.address.saturating_add(symbol.size).max(address))
        });
        Target { dies: None, entry, end, pc: address, copy: None, view }
    });
    let name = || {
        let shown = target.dies.and_then(|(function, _)| binary.shown(function));
        shown.or(symbol.map(|symbol| symbol.name.to_owned())).unwrap_or_else(|| format!("{:#x}", target.entry))
    };
    if address == target.entry {
        // As for a function by its name, whatever is inlined there.
        let dies = target.dies.map(|(function, _)| (function, function));
        return Ok(Target { dies, copy: None, view: Some(0), ..target });
    }
    if definition.position == Position::Return {
        return Err(Error::NoReturn { address, function: name(), entry: target.entry });
    }
    if target.entry < address && address < target.end {
        code::check_offset(binary.elf(), &name(), target.entry, target.end - target.entry, address - target.entry)?;
    }
    let begins = target.copy.is_some_and(|(begin, _)| begin == address);
    let view = target.dies.filter(|_| begins).map(|(_, copy)| source::entry_view(binary, copy));
    Ok(Target { view, ..target })
}
