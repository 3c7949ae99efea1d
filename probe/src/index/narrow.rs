//! Which units can have a function or type of a name: those whose bytes have it, or its place in `.debug_str`. Most units
//! are never decoded for one definition.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::{Mutex, OnceLock, PoisonError};

use gimli::constants as dw;
use gimli::{DwAt, DwForm, DwTag, Reader, Section};
use memchr::memmem;

use super::{in_parallel, is_function, is_record};
use crate::debug::{Debug, Dwarf, Unit, Value};
use crate::elf::Slice;
use crate::error::Refusal;

/// Places of a name in `.debug_str` that are searched for one after the other; more, in one pass for all of them.
const FEW: usize = 4;

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
        let info = dwarf.debug_info.reader().slice();
        let mut found = vec![false; units.len()];
        let mut search = |needle: &[u8]| mark(info, &units, needle, &mut found);
        if forms.inline {
            texts.iter().for_each(|text| search(text));
        }
        match needles.as_slice() {
            few if few.len() <= FEW => few.iter().for_each(|place| search(&place.to_le_bytes())),
            many => mark_any(info, &units, many, &mut found),
        }
        let found: Vec<usize> = (0..units.len()).filter(|unit| found[*unit]).collect();
        needles.sort_unstable();
        Some(confirmed(debug, &found, &Wanted { places: needles, names }, threads))
    }
}

/// The units in which a function or type has one of the names: the same bytes may be a part of something else. Nothing of a
/// unit is kept.
fn confirmed(debug: &Debug<'_>, units: &[usize], wanted: &Wanted<'_>, threads: usize) -> Vec<usize> {
    let rest = Mutex::new(Vec::new());
    in_parallel(threads, units, |unit| {
        // Reading a damaged unit says what is wrong with it.
        if debug.visit(unit, |unit| wanted.are_in(unit)).is_ok_and(|found| found.unwrap_or(true)) {
            rest.lock().unwrap_or_else(PoisonError::into_inner).push(unit);
        }
    });
    let mut rest = rest.into_inner().unwrap_or_else(PoisonError::into_inner);
    rest.sort_unstable();
    rest
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
    fn are_in(&self, unit: &Unit<'_>) -> Result<bool, Refusal> {
        let mut entries = unit.unit.entries_raw(None)?;
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

/// Marks the units that have some bytes.
fn mark(info: &[u8], units: &[Range<usize>], needle: &[u8], found: &mut [bool]) {
    let finder = memmem::Finder::new(needle);
    let mut from = 0;
    while let Some(at) = info.get(from..).and_then(|rest| finder.find(rest)) {
        let unit = units.partition_point(|unit| unit.end <= from + at);
        match (units.get(unit), found.get_mut(unit)) {
            (Some(unit), Some(found)) => {
                *found = true;
                // Bytes that begin in the unit before do not hide others.
                from = unit.end.max(from + at + 1);
            }
            _ => return,
        }
    }
}

/// Marks the units that have the bytes of any of these numbers.
fn mark_any(info: &[u8], units: &[Range<usize>], needles: &[u32], found: &mut [bool]) {
    let most = needles.iter().max().map_or(0, |most| *most as usize);
    let mut wanted = vec![0u64; most / 64 + 1];
    needles.iter().for_each(|needle| wanted[*needle as usize / 64] |= 1 << (needle % 64));
    let is_wanted = |word: &[u8]| {
        let number = word.try_into().map_or(0, u32::from_le_bytes) as usize;
        wanted.get(number / 64).is_some_and(|bits| bits >> (number % 64) & 1 != 0)
    };
    for (unit, found) in units.iter().zip(found) {
        *found |= info.get(unit.clone()).is_some_and(|bytes| bytes.windows(4).any(is_wanted));
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
