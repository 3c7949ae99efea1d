//! Which units can have a function or type of a name: those whose bytes have it, or its place in `.debug_str`. Most units
//! are never decoded for one definition.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::{Mutex, OnceLock, PoisonError};

use gimli::constants as dw;
use gimli::{DwAt, DwForm, DwTag, Reader, Section};
use memchr::memmem;

use super::{in_parallel, is_function, is_record};
use crate::debug::{Debug, Dwarf, Value};
use crate::elf::Slice;
use crate::error::Refusal;

/// Places of a name in `.debug_str` that are searched for one after the other; more, in one pass for all of them.
const FEW: usize = 4;
/// Bytes of `.debug_info` that a thread searches before their memory is given back.
const PIECE: usize = 1 << 20;

/// How units write names of functions and types.
#[derive(Clone, Copy, Debug, Default)]
struct Forms {
    /// In place: `DW_FORM_string`.
    inline: bool,
    /// By place in `.debug_str`: `DW_FORM_strp`.
    offset: bool,
}

/// The search, with what it knows of the file.
#[derive(Debug, Default)]
pub(super) struct Narrow(OnceLock<Option<Forms>>);

impl Narrow {
    /// The units with any of these names, in order. `None` if they write names in other ways: by index, in another unit or
    /// in another file.
    pub(super) fn units(&self, debug: &Debug<'_>, names: &[&[u8]], threads: usize) -> Option<Vec<usize>> {
        let (dwarf, units) = debug.own_units()?;
        let (units, tables): (Vec<Range<usize>>, Vec<usize>) = units.unzip();
        let forms = (*self.0.get_or_init(|| forms(dwarf, tables)))?;
        let texts: Vec<Vec<u8>> = names.iter().map(|name| [*name, b"\0"].concat()).collect();
        let mut needles = Vec::new();
        if forms.offset {
            let strings = dwarf.debug_str.reader().slice();
            texts.iter().for_each(|text| needles.extend(places(strings, text)));
        }
        needles.sort_unstable();
        let places: Vec<[u8; 4]> = needles.iter().map(|place| place.to_le_bytes()).collect();
        let inline = texts.iter().filter(|_| forms.inline).map(Vec::as_slice);
        let few = places.iter().filter(|_| places.len() <= FEW).map(|place| place.as_slice());
        let finders: Vec<memmem::Finder<'_>> = inline.chain(few).map(memmem::Finder::new).collect();
        let many = (places.len() > FEW).then(|| Numbers::new(&needles));
        let has = |bytes: &[u8]| {
            finders.iter().any(|finder| finder.find(bytes).is_some())
                || many.as_ref().is_some_and(|many| many.are_in(bytes))
        };
        let info = dwarf.debug_info.reader().slice();
        let bytes = |unit: &Range<usize>| info.get(unit.clone()).unwrap_or_default();
        let wanted = Wanted { places: needles, names };
        let found = Mutex::new(Vec::new());
        let pieces = pieces(&units);
        in_parallel(threads, &pieces, |piece| {
            for unit in piece.clone().filter(|unit| has(bytes(&units[*unit]))) {
                // The same bytes may be a part of something else. Reading a damaged unit says what is wrong with it.
                if wanted.are_in(debug, unit).unwrap_or(true) {
                    found.lock().unwrap_or_else(PoisonError::into_inner).push(unit);
                }
            }
            debug.searched(bytes(&(units[piece.start].start..units[piece.end - 1].end)));
        });
        let mut found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
        found.sort_unstable();
        Some(found)
    }
}

/// Units in pieces of about [`PIECE`] bytes, none of them empty.
fn pieces(units: &[Range<usize>]) -> Vec<Range<usize>> {
    let (mut pieces, mut from) = (Vec::new(), 0);
    for at in 0..units.len() {
        if units[at].end.saturating_sub(units[from].start) >= PIECE || at + 1 == units.len() {
            pieces.push(from..at + 1);
            from = at + 1;
        }
    }
    pieces
}

/// What names are: places in `.debug_str`, in order, and the texts themselves.
struct Wanted<'n> {
    places: Vec<u32>,
    names: &'n [&'n [u8]],
}

impl Wanted<'_> {
    fn is(&self, value: &Value<'_>) -> bool {
        match value {
            Value::DebugStrRef(place) => self.places.binary_search(&(place.0 as u32)).is_ok(),
            Value::String(text) => self.names.contains(&text.slice()),
            _ => false,
        }
    }

    /// Whether a function or type of a unit has one of the names.
    fn are_in(&self, debug: &Debug<'_>, unit: usize) -> Result<bool, Refusal> {
        let (header, abbreviations) = debug.own_unit(unit)?;
        let mut entries = header.entries_raw(&abbreviations, None)?;
        while !entries.is_empty() {
            let Some(abbreviation) = entries.read_abbreviation()? else { continue };
            let attributes = abbreviation.attributes();
            let mut from = 0;
            if has_functions_name(abbreviation.tag()) {
                for (at, spec) in attributes.iter().enumerate().filter(|(_, spec)| is_name(spec.name())) {
                    entries.skip_attributes(&attributes[from..at])?;
                    from = at + 1;
                    if self.is(&entries.read_attribute(*spec)?.value()) {
                        return Ok(true);
                    }
                }
            }
            entries.skip_attributes(&attributes[from..])?;
        }
        Ok(false)
    }
}

/// Whether names of such DIEs are searched for.
fn has_functions_name(tag: DwTag) -> bool {
    is_function(tag) || is_record(tag)
}

fn is_name(name: DwAt) -> bool {
    matches!(name, dw::DW_AT_name | dw::DW_AT_linkage_name | dw::DW_AT_MIPS_linkage_name)
}

/// Where a string begins: also as the end of a longer one, since linkers merge these. The lower half of places beyond
/// 4 GiB: it is what a unit of 64-bit DWARF has first.
fn places(strings: &[u8], text: &[u8]) -> Vec<u32> {
    memmem::find_iter(strings, text).map(|at| at as u32).collect()
}

/// A set of numbers that are searched for in one pass.
struct Numbers(Vec<u64>);

impl Numbers {
    fn new(numbers: &[u32]) -> Numbers {
        let most = numbers.iter().max().map_or(0, |most| *most as usize);
        let mut bits = vec![0u64; most / 64 + 1];
        numbers.iter().for_each(|number| bits[*number as usize / 64] |= 1 << (number % 64));
        Numbers(bits)
    }

    fn are_in(&self, bytes: &[u8]) -> bool {
        bytes.windows(4).any(|word| {
            let number = word.try_into().map_or(0, u32::from_le_bytes) as usize;
            self.0.get(number / 64).is_some_and(|bits| bits >> (number % 64) & 1 != 0)
        })
    }
}

/// What the abbreviations of all units let names be; `None` for what is not searched.
fn forms(dwarf: &Dwarf<'_>, tables: Vec<usize>) -> Option<Forms> {
    let mut forms = Forms::default();
    let all = dwarf.debug_abbrev.reader();
    for table in HashSet::<usize>::from_iter(tables) {
        let mut table = all.range_from(table.min(all.len())..);
        while forms.abbreviation(&mut table)? {}
    }
    Some(forms)
}

impl Forms {
    /// Reads an abbreviation; false at the end of its table.
    fn abbreviation(&mut self, table: &mut Slice<'_>) -> Option<bool> {
        if table.read_uleb128().ok()? == 0 {
            return Some(false);
        }
        let tag = DwTag(table.read_uleb128_u16().ok()?);
        table.read_u8().ok()?;
        loop {
            let (name, form) = (DwAt(table.read_uleb128_u16().ok()?), DwForm(table.read_uleb128_u16().ok()?));
            if form == dw::DW_FORM_implicit_const {
                table.read_sleb128().ok()?;
            }
            if (name, form) == (dw::DW_AT_null, dw::DW_FORM_null) {
                return Some(true);
            }
            self.attribute(tag, name, form)?;
        }
    }

    fn attribute(&mut self, tag: DwTag, name: DwAt, form: DwForm) -> Option<()> {
        match name {
            // What it has is in another file.
            dw::DW_AT_dwo_name | dw::DW_AT_GNU_dwo_name => return None,
            name if is_name(name) && has_functions_name(tag) => match form {
                dw::DW_FORM_string => self.inline = true,
                dw::DW_FORM_strp => self.offset = true,
                _ => return None,
            },
            // The name is there.
            dw::DW_AT_abstract_origin | dw::DW_AT_specification if is_function(tag) => match form {
                dw::DW_FORM_ref1 | dw::DW_FORM_ref2 | dw::DW_FORM_ref4 | dw::DW_FORM_ref8 | dw::DW_FORM_ref_udata => {}
                _ => return None,
            },
            _ => {}
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_unit_is_in_one_piece() {
        let ends = [1, PIECE, PIECE + 1, 4 * PIECE, 4 * PIECE + 8];
        let units: Vec<Range<usize>> =
            ends.iter().scan(0, |from, to| Some(std::mem::replace(from, *to)..*to)).collect();
        assert_eq!(pieces(&units), [0..2, 2..4, 4..5]);
        assert_eq!(pieces(&[]), []);
    }

    #[test]
    fn numbers_are_found_at_any_byte() {
        let numbers = Numbers::new(&[7, 0x1234]);
        assert!(numbers.are_in(&[9, 9, 0x34, 0x12, 0, 0]) && numbers.are_in(&[7, 0, 0, 0]));
        assert!(!numbers.are_in(&[7, 0, 0]) && !numbers.are_in(&[0x34, 0x12, 0, 1]) && !numbers.are_in(&[0xff; 9]));
    }
}
