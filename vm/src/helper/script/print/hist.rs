//! Histograms: counters by slot, as `hist_slot` and `lhist_slot` of script.h number them.
//!
//! A map of counters has the slot in the last integer of its key, what comes before it distinguishes one histogram from
//! another. A map whose values are arrays of counters has a histogram under each key.

use std::collections::BTreeMap;
use std::fmt::{self, Write};

use super::is_scalar;
use super::scalar::quote;
use crate::host::MapRef;
use crate::map::{Field, FieldKind, MapSpec};
use crate::trap::{Trap, TrapCode};

/// Columns of the longest bar.
const BAR: u32 = 52;
/// Slots of a linear histogram, so that two outliers do not print a million empty lines.
const MAX_SLOTS: u64 = 1 << 16;

/// What the slots of a histogram stand for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Below 0, 0, then powers of two: slot n begins at 1 << (n - 2).
    Log2,
    /// Below `min`, steps, from `max` on.
    Linear {
        /// Where the first step begins.
        min: i64,
        /// Where the last step ends.
        max: i64,
        /// Length of a step.
        step: i64,
        /// Number of steps.
        steps: u64,
    },
}

impl Scale {
    /// `None` if that makes no sense, or too many steps. The last step ends at `max`, and is shorter than the others if
    /// it has to.
    pub fn linear(min: i64, max: i64, step: i64) -> Option<Scale> {
        let width = max.checked_sub(min).filter(|width| *width > 0 && step > 0)?;
        let steps = width.cast_unsigned().div_ceil(step.cast_unsigned());
        (steps <= MAX_SLOTS).then_some(Scale::Linear { min, max, step, steps })
    }

    /// Number of the last slot.
    pub fn last(&self) -> u64 {
        match self {
            Scale::Log2 => 65,
            Scale::Linear { steps, .. } => steps + 1,
        }
    }

    /// First number of a slot and the first one above it; `None` is infinite.
    pub fn range(&self, slot: u64) -> (Option<i128>, Option<i128>) {
        match *self {
            Scale::Log2 => match slot {
                0 => (None, Some(0)),
                1 => (Some(0), Some(1)),
                slot => (Some(1 << (slot - 2)), Some(1 << (slot - 1))),
            },
            Scale::Linear { min, max, step, steps } => {
                let start =
                    |slot: u64| (i128::from(min) + i128::from(slot - 1) * i128::from(step)).min(i128::from(max));
                (
                    if slot == 0 { None } else { Some(start(slot)) },
                    if slot > steps { None } else { Some(start(slot + 1)) },
                )
            }
        }
    }

    fn label(&self, slot: u64) -> String {
        let unit = |number| match self {
            Scale::Log2 => with_unit(number, 60),
            Scale::Linear { .. } => with_unit(number, 20),
        };
        match (self, self.range(slot)) {
            (Scale::Log2, (Some(low), _)) if slot <= 2 => format!("[{low}]"),
            (_, (Some(low), Some(above))) => format!("[{}, {})", unit(low), unit(above)),
            (_, (Some(low), None)) => format!("[{}, ...)", unit(low)),
            (_, (None, Some(above))) => format!("(..., {})", unit(above)),
            (_, (None, None)) => unreachable!("a slot has an end"),
        }
    }
}

/// A number in the largest unit of 1,024, of at most `bits` bits, that leaves nothing over.
fn with_unit(number: i128, bits: u32) -> String {
    let zeros = if number == 0 { 0 } else { number.trailing_zeros().min(bits) / 10 };
    let unit = ["", "K", "M", "G", "T", "P", "E"][zeros as usize];
    format!("{}{unit}", number >> (zeros * 10))
}

/// Why a map is no histogram.
#[derive(Debug)]
pub enum Unfit {
    /// Neither are its values counters nor arrays of them.
    Value,
    /// Its key has no slot at its end.
    Key,
    /// Something was counted in a slot that the scale does not have.
    Slot {
        /// Number of the slot.
        slot: i128,
        /// Number of the scale's last one.
        last: u64,
    },
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unfit::Value => f.write_str("its value is neither a counter nor an array of counters"),
            Unfit::Key => f.write_str("its key does not end with an integer, the slot"),
            Unfit::Slot { slot, last } => write!(f, "it counts slot {slot}, and the last one is {last}"),
        }
    }
}

impl Unfit {
    pub(super) fn trap(&self, function: &str, map: &MapRef) -> Trap {
        Trap::new(TrapCode::BadArgument, format!("argument 1 of {function}: map {}: {self}", map.spec().name))
    }
}

/// Counts by slot, of one label.
#[derive(Debug)]
pub struct Histogram {
    /// The bytes of its key that come before the slot; `None` if the map is one histogram.
    pub label: Option<Vec<u8>>,
    /// Counts that are not zero, by slot.
    pub counts: BTreeMap<u64, u64>,
}

impl Histogram {
    fn total(&self) -> u128 {
        self.counts.values().map(|count| u128::from(*count)).sum()
    }

    /// Labels and counts of all slots from the first to the last that counted something.
    pub fn bars(&self, scale: &Scale) -> Vec<(String, u64)> {
        self.slots().map(|(slot, count)| (scale.label(slot), count)).collect()
    }

    /// All slots from the first to the last that counted something.
    fn slots(&self) -> impl Iterator<Item = (u64, u64)> {
        let first = self.counts.keys().next().copied();
        let last = self.counts.keys().next_back().copied();
        let all = first.zip(last).map(|(first, last)| first..=last);
        all.into_iter().flatten().map(|slot| (slot, self.counts.get(&slot).copied().unwrap_or(0)))
    }
}

/// Where a map of histograms has what.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Fields of the key that distinguish histograms.
    pub labels: Vec<Field>,
    slot: Option<Field>,
    counters: Vec<Field>,
}

impl Layout {
    /// That of a map.
    ///
    /// # Errors
    /// It counts nothing by slot.
    pub fn of(spec: &MapSpec) -> Result<Layout, Unfit> {
        let key_fields = Field::or_whole(&spec.key_fields, spec.key_size);
        let counters = Field::or_whole(&spec.value_fields, spec.value_size);
        let is_counter = |field: &Field| matches!(field.kind, FieldKind::Unsigned | FieldKind::Signed);
        if counters.is_empty() || !counters.iter().all(is_counter) {
            return Err(Unfit::Value);
        }
        let (labels, slot) = match (&counters[..], key_fields.split_last()) {
            ([_], Some((slot, labels))) if is_counter(slot) => (labels, Some(slot.clone())),
            ([_], _) => return Err(Unfit::Key),
            _ if is_scalar(spec) => (&[][..], None),
            _ => (&key_fields[..], None),
        };
        Ok(Layout { labels: labels.to_vec(), slot, counters: counters.into_owned() })
    }

    /// The part of a key that distinguishes histograms: up to the end of its last field.
    fn label(&self, key: &[u8]) -> Option<Vec<u8>> {
        let end = self.labels.iter().map(|field| (field.off + field.size) as usize).max()?;
        Some(key[..end.min(key.len())].to_vec())
    }
}

/// The histograms in keys and values sorted by key, those with the smallest total first. Empty ones are left out.
///
/// # Errors
/// A slot that the scale does not have.
pub fn histograms<K: AsRef<[u8]>, V: AsRef<[u8]>>(
    layout: &Layout,
    entries: impl IntoIterator<Item = (K, V)>,
    scale: &Scale,
) -> Result<Vec<Histogram>, Unfit> {
    let mut found: Vec<Histogram> = Vec::new();
    for (key, value) in entries {
        let (key, value) = (key.as_ref(), value.as_ref());
        let label = layout.label(key);
        if found.last().is_none_or(|last| last.label != label) {
            found.push(Histogram { label, counts: BTreeMap::new() });
        }
        let counts = &mut found.last_mut().expect("pushed above").counts;
        for (index, counter) in layout.counters.iter().enumerate() {
            let count = counter.integer(value).and_then(|count| u64::try_from(count).ok()).filter(|count| *count != 0);
            let Some(count) = count else { continue };
            let slot = layout.slot.as_ref().map_or(Some(index as i128), |field| field.integer(key)).unwrap_or(-1);
            let fits = u64::try_from(slot).ok().filter(|slot| *slot <= scale.last());
            let slot = fits.ok_or(Unfit::Slot { slot, last: scale.last() })?;
            let sum = counts.entry(slot).or_insert(0);
            *sum = sum.wrapping_add(count);
        }
    }
    found.retain(|histogram| !histogram.counts.is_empty());
    found.sort_by_key(Histogram::total);
    Ok(found)
}

/// As bpftrace draws them, each under its heading.
pub fn hist_text(histograms: &[Histogram], scale: &Scale, heading: impl Fn(Option<&[u8]>) -> Vec<u8>) -> Vec<u8> {
    let mut text = Vec::new();
    for histogram in histograms {
        text.extend(heading(histogram.label.as_deref()));
        text.push(b'\n');
        let most = histogram.counts.values().max().copied().unwrap_or(1);
        let mut lines = String::new();
        for (slot, count) in histogram.slots() {
            // In bpftrace's precision, so that a bar never differs by a column.
            let length = (count as f32 / most as f32 * BAR as f32) as usize;
            let (label, bar) = (scale.label(slot), "@".repeat(length));
            writeln!(lines, "{label:<16}{count:>8} |{bar:<52}|").expect("a string takes everything");
        }
        text.extend(lines.bytes());
        text.push(b'\n');
    }
    text
}

/// A JSON value; numbers are the first and the last of each slot. Text of labels comes from `label`.
pub fn hist_json(histograms: &[Histogram], scale: &Scale, label: impl Fn(&[u8]) -> Vec<u8>) -> Vec<u8> {
    let mut text = Vec::new();
    let labelled = histograms.iter().any(|histogram| histogram.label.is_some());
    text.extend(if labelled { "{" } else { "" }.bytes());
    for (index, histogram) in histograms.iter().enumerate() {
        if let Some(bytes) = &histogram.label {
            text.extend(if index == 0 { "" } else { ", " }.bytes());
            quote(&mut text, &label(bytes));
            text.extend(b": ");
        }
        let slots = histogram.slots().map(|(slot, count)| {
            let (low, above) = scale.range(slot);
            let low = low.map_or_else(String::new, |low| format!("\"min\": {low}, "));
            let high = above.map_or_else(String::new, |above| format!("\"max\": {}, ", above - 1));
            format!("{{{low}{high}\"count\": {count}}}")
        });
        text.extend(format!("[{}]", slots.collect::<Vec<_>>().join(", ")).bytes());
    }
    text.extend(match (labelled, histograms.is_empty()) {
        (true, _) => "}".bytes(),
        (false, true) => "[]".bytes(),
        (false, false) => "".bytes(),
    });
    text
}
