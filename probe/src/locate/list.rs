//! Location lists, with gcc's views: states at one address, which the list tells apart by number.

use gimli::constants as dw;
use gimli::{AttributeValue, Expression, Operation, RawLocListEntry, Reader, UnitOffset};

use super::Site;
use crate::debug::{Entry, Unit};
use crate::elf::{Slice, slice};
use crate::error::Refusal;

/// An entry: from and to, each an address with a view.
struct Range<'a> {
    begin: (u64, u64),
    end: (u64, u64),
    data: Expression<Slice<'a>>,
}

/// The expression of the entry that covers the site.
pub(super) fn at<'a>(
    site: &Site<'_, 'a>,
    unit: usize,
    entry: &Entry<'a>,
    value: AttributeValue<Slice<'a>>,
) -> Result<Expression<Slice<'a>>, Refusal> {
    let found = site.binary.debug().unit(unit)?;
    let offset = found.dwarf.attr_locations_offset(&found.unit, value)?;
    let offset = offset.ok_or_else(|| Refusal::Operation(format!("its location has an unknown form, {value:?}")))?;
    let mut ranges = ranges(found, offset)?;
    let views = views(site, found, entry, offset.0)?;
    let has_views = views.is_some();
    if views.as_ref().is_some_and(|views| views.len() != ranges.len()) {
        return Err(Refusal::Damaged("a location list has other ranges than views".to_owned()));
    }
    for (range, (begin, end)) in ranges.iter_mut().zip(views.into_iter().flatten()) {
        (range.begin.1, range.end.1) = (begin, end);
    }
    let here = (site.pc, if has_views { site.view.unwrap_or(u64::MAX) } else { 0 });
    if let Some(range) = ranges.iter().find(|range| range.begin <= here && here < range.end) {
        return Ok(range.data);
    }
    if let Some(data) = passed_in_memory(site, found, entry, &ranges) {
        return Ok(data);
    }
    let filled = ranges.iter().filter(|range| range.begin.0 < range.end.0 && !range.data.0.is_empty());
    let places: Vec<(u64, u64)> = filled.map(|range| (range.begin.0, range.end.0)).collect();
    if places.is_empty() { Err(Refusal::OptimisedOut) } else { Err(Refusal::NotHere { pc: site.pc, places }) }
}

/// The place of a parameter that the caller passes in memory and that has none before the first statement. It is that of the
/// first view there is of the first instruction, if every piece is where the whole has it: between views nothing runs, and
/// what is assigned to a member by then has a place of another kind.
fn passed_in_memory<'a>(
    site: &Site<'_, 'a>,
    unit: &Unit<'a>,
    entry: &Entry<'a>,
    ranges: &[Range<'a>],
) -> Option<Expression<Slice<'a>>> {
    let is_entry = site.is_entry() && site.copy.is_none() && entry.tag() == dw::DW_TAG_formal_parameter;
    let function = site.binary.debug().entry(site.function).ok().filter(|_| is_entry)?;
    let base = function.attr_value(dw::DW_AT_frame_base)?.exprloc_value()?;
    if base.0.slice() != [dw::DW_OP_call_frame_cfa.0] {
        return None;
    }
    let first = ranges.iter().filter(|range| range.begin.0 == site.pc).min_by_key(|range| range.begin.1)?;
    let (mut text, mut at, mut whole) = (first.data.0, 0, None);
    let mut piece = None;
    while !text.is_empty() {
        match Operation::parse(&mut text, unit.unit.encoding()).ok()? {
            Operation::FrameOffset { offset } if piece.is_none() => piece = Some(offset),
            Operation::Piece { size_in_bits, bit_offset: None } if size_in_bits % 8 == 0 => {
                let begin = piece.take().map(|offset| offset.checked_sub(at).unwrap_or(-1));
                if begin.is_some_and(|begin| begin < 0 || *whole.get_or_insert(begin) != begin) {
                    return None;
                }
                at = at.checked_add(i64::try_from(size_in_bits / 8).ok()?)?;
            }
            _ => return None,
        }
    }
    (piece.is_none() && whole.is_some()).then_some(first.data)
}

/// All entries, empty ones too: those hold at one address, for some of its views.
fn ranges<'a>(unit: &Unit<'a>, offset: gimli::LocationListsOffset) -> Result<Vec<Range<'a>>, Refusal> {
    let mut raw = unit.dwarf.raw_locations(&unit.unit, offset)?;
    let address = |index| unit.dwarf.address(&unit.unit, index);
    let mut base = unit.unit.low_pc;
    let mut ranges = Vec::new();
    while let Some(entry) = raw.next()? {
        let (begin, end, data) = match entry {
            RawLocListEntry::BaseAddress { addr } => {
                base = addr;
                continue;
            }
            RawLocListEntry::BaseAddressx { addr } => {
                base = address(addr)?;
                continue;
            }
            RawLocListEntry::AddressOrOffsetPair { begin, end, data }
            | RawLocListEntry::OffsetPair { begin, end, data } => {
                (base.wrapping_add(begin), base.wrapping_add(end), data)
            }
            RawLocListEntry::StartxEndx { begin, end, data } => (address(begin)?, address(end)?, data),
            RawLocListEntry::StartxLength { begin, length, data } => {
                let begin = address(begin)?;
                (begin, begin.wrapping_add(length), data)
            }
            RawLocListEntry::StartEnd { begin, end, data } => (begin, end, data),
            RawLocListEntry::StartLength { begin, length, data } => (begin, begin.wrapping_add(length), data),
            RawLocListEntry::DefaultLocation { data } => (0, u64::MAX, data),
        };
        ranges.push(Range { begin: (begin, 0), end: (end, 0), data });
    }
    Ok(ranges)
}

/// Numbers of the views between which each entry holds, which gcc writes just before the list. Without them, what a list
/// says at an address may be true only of another state there: views that cannot be read are an error.
fn views<'a>(
    site: &Site<'_, 'a>,
    unit: &Unit<'a>,
    entry: &Entry<'a>,
    list: usize,
) -> Result<Option<Vec<(u64, u64)>>, Refusal> {
    let damaged = || Refusal::Damaged("the views of a location list are not before it".to_owned());
    let begin = match entry.attr_value(dw::DW_AT_GNU_locviews) {
        None => return Ok(None),
        // In a .dwo of DWARF 5, gcc counts from the end of the section's header, as the lists' own offsets do.
        Some(AttributeValue::SecOffset(begin)) if unit.skeleton.is_some() => {
            begin.checked_add(unit.unit.loclists_base.0).ok_or_else(damaged)?
        }
        Some(AttributeValue::SecOffset(begin)) => begin,
        Some(_) => return Err(damaged()),
    };
    let section = unit.locations.unwrap_or_else(|| site.binary.locations(unit.unit.encoding().version));
    let mut bytes = slice(section.get(begin..list).ok_or_else(damaged)?);
    let mut views = Vec::new();
    while !bytes.is_empty() {
        views.push((bytes.read_uleb128()?, bytes.read_uleb128()?));
    }
    Ok(Some(views))
}

/// A DIE of a base type: offsets into a unit are at least the size of its header.
pub(super) fn is_generic(base: UnitOffset) -> bool {
    base.0 == 0
}
