//! The code of a DIE: its ranges, and where it is entered.

use gimli::DwAt;
use gimli::constants as dw;

use crate::debug::{Entry, Unit, Value};
use crate::error::Refusal;

/// The attributes that say where code is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Extent<'a> {
    low: Option<Value<'a>>,
    high: Option<Value<'a>>,
    ranges: Option<Value<'a>>,
    entry: Option<Value<'a>>,
}

impl<'a> Extent<'a> {
    pub(crate) fn of(entry: &Entry<'a>) -> Extent<'a> {
        let mut extent = Extent::default();
        entry.attrs().iter().for_each(|attribute| extent.take(attribute.name(), attribute.value()));
        extent
    }

    /// Keeps an attribute if it is one of these.
    pub(crate) fn take(&mut self, name: DwAt, value: Value<'a>) {
        match name {
            dw::DW_AT_low_pc => self.low = Some(value),
            dw::DW_AT_high_pc => self.high = Some(value),
            dw::DW_AT_ranges => self.ranges = Some(value),
            dw::DW_AT_entry_pc => self.entry = Some(value),
            _ => {}
        }
    }

    /// Whether there is any code.
    pub(crate) fn is_there(&self) -> bool {
        self.low.is_some() || self.ranges.is_some()
    }

    /// The ranges that are not empty.
    pub(crate) fn ranges(&self, unit: &Unit<'a>) -> Result<Vec<(u64, u64)>, Refusal> {
        let mut found = Vec::new();
        if let Some(value) = self.ranges
            && let Some(mut ranges) = unit.dwarf.attr_ranges(&unit.unit, value)?
        {
            while let Some(range) = ranges.next()? {
                found.push((range.begin, range.end));
            }
        } else if let (Some(low), Some(high)) = (self.low, self.high)
            && let Some(begin) = unit.dwarf.attr_address(&unit.unit, low)?
        {
            // gimli's own `die_ranges` adds the size without a check.
            let end = match high.udata_value() {
                Some(size) => begin.checked_add(size),
                None => unit.dwarf.attr_address(&unit.unit, high)?,
            };
            found.extend(end.map(|end| (begin, end)));
        }
        found.retain(|(begin, end)| begin < end);
        Ok(found)
    }

    /// Where it is entered.
    pub(crate) fn begin(&self, unit: &Unit<'a>) -> Result<Option<u64>, Refusal> {
        let low = match self.low {
            Some(value) => unit.dwarf.attr_address(&unit.unit, value)?,
            None => None,
        };
        let first = match low {
            Some(low) => Some(low),
            None => self.ranges(unit)?.first().map(|(begin, _)| *begin),
        };
        let Some(value) = self.entry else { return Ok(first) };
        Ok(match (unit.dwarf.attr_address(&unit.unit, value)?, value.udata_value(), first) {
            (Some(address), ..) => Some(address),
            (None, Some(offset), Some(first)) => Some(first.wrapping_add(offset)),
            _ => first,
        })
    }
}
