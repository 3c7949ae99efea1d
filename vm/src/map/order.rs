//! Order of keys and values by what they mean, for walks over a sorted map.

use std::cmp::Ordering;

use super::{Field, FieldKind, MapOps};

/// What a snapshot is sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SortBy {
    /// Not at all: the map's own order.
    Map,
    /// By key.
    Key,
    /// By value, and by key among equal values.
    Value,
}

/// A copy of one element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: Vec<u8>,
    /// Its value; in per-CPU maps one for each CPU, in order.
    pub values: Vec<Vec<u8>>,
}

impl Entry {
    /// The value as `BPF_MAP_LOOKUP_ELEM` lays it out: per-CPU values follow each other, each padded to 8 bytes.
    pub fn value(&self) -> Vec<u8> {
        match self.values.as_slice() {
            [value] => value.clone(),
            values => {
                let pad = |value: &Vec<u8>| value.len().next_multiple_of(8);
                let padded = |value: &Vec<u8>| value.iter().copied().chain([0; 8]).take(pad(value)).collect::<Vec<_>>();
                values.iter().flat_map(padded).collect()
            }
        }
    }
}

/// A snapshot of a map, sorted. Elements that go away meanwhile are left out.
///
/// Per-CPU values are ordered as one would read them: each integer field counts as its sum over all CPUs, other
/// fields are compared CPU by CPU.
pub fn sorted(map: &dyn MapOps, by: SortBy, descending: bool) -> Vec<Entry> {
    let spec = map.spec();
    let copy = |key: Vec<u8>| {
        let value = |cpu| {
            let mut value = vec![0; spec.value_size as usize];
            map.lookup_copy(&key, cpu, &mut value).ok().map(|()| value)
        };
        let values = (0..map.cpus()).map(value).collect::<Option<Vec<_>>>()?;
        Some(Entry { key, values })
    };
    let mut entries: Vec<Entry> = map.keys().into_iter().filter_map(copy).collect();
    let by_key = |one: &Entry, two: &Entry| compare(&spec.key_fields, &one.key, &two.key);
    let by_value = |one: &Entry, two: &Entry| {
        let order = match (one.values.as_slice(), two.values.as_slice()) {
            ([one], [two]) => compare(&spec.value_fields, one, two),
            (one, two) => compare_percpu(&spec.value_fields, spec.value_size, one, two),
        };
        order.then_with(|| by_key(one, two))
    };
    match by {
        SortBy::Map => {}
        SortBy::Key => entries.sort_by(by_key),
        SortBy::Value => entries.sort_by(by_value),
    }
    if descending {
        entries.reverse();
    }
    entries
}

/// Orders two keys or two values field by field, then by their bytes. Without fields, 1, 2, 4 or 8 bytes are an
/// unsigned integer, anything else is bytes.
pub fn compare(fields: &[Field], one: &[u8], two: &[u8]) -> Ordering {
    let whole = whole(one.len() as u32);
    let fields = if fields.is_empty() { std::slice::from_ref(&whole) } else { fields };
    let by_field = fields.iter().map(|field| compare_field(field, one, two));
    by_field.fold(Ordering::Equal, Ordering::then).then_with(|| one.cmp(two))
}

/// The field that stands for data without any.
fn whole(size: u32) -> Field {
    let kind = if matches!(size, 1 | 2 | 4 | 8) { FieldKind::Unsigned } else { FieldKind::Bytes };
    Field { name: "".into(), off: 0, size, kind }
}

/// The bytes of a field; none if it lies outside.
fn bytes<'a>(field: &Field, data: &'a [u8]) -> &'a [u8] {
    let start = field.off as usize;
    data.get(start..start.saturating_add(field.size as usize)).unwrap_or_default()
}

fn compare_field(field: &Field, one: &[u8], two: &[u8]) -> Ordering {
    match (integer(field, one), integer(field, two)) {
        (Some(one), Some(two)) => one.cmp(&two),
        _ if field.kind == FieldKind::String => string(bytes(field, one)).cmp(string(bytes(field, two))),
        _ => bytes(field, one).cmp(bytes(field, two)),
    }
}

/// A string up to its NUL.
fn string(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// The value of an integer field of at most 8 bytes.
fn integer(field: &Field, data: &[u8]) -> Option<i128> {
    let bytes = bytes(field, data);
    let signed = match field.kind {
        FieldKind::Unsigned => false,
        FieldKind::Signed => true,
        FieldKind::String | FieldKind::Bytes => return None,
    };
    let top = *bytes.last().filter(|_| bytes.len() <= 8)?;
    let fill = if signed && top >= 0x80 { 0xff } else { 0 };
    let mut wide = [fill; 16];
    wide[..bytes.len()].copy_from_slice(bytes);
    Some(i128::from_le_bytes(wide))
}

fn compare_percpu(fields: &[Field], size: u32, one: &[Vec<u8>], two: &[Vec<u8>]) -> Ordering {
    let whole = whole(size);
    let fields = if fields.is_empty() { std::slice::from_ref(&whole) } else { fields };
    let sum =
        |field: &Field, values: &[Vec<u8>]| values.iter().map(|value| integer(field, value)).sum::<Option<i128>>();
    let by_field = fields.iter().map(|field| match (sum(field, one), sum(field, two)) {
        (Some(one), Some(two)) => one.cmp(&two),
        _ => {
            let by_cpu = one.iter().zip(two).map(|(one, two)| compare_field(field, one, two));
            by_cpu.fold(Ordering::Equal, Ordering::then)
        }
    });
    by_field.fold(Ordering::Equal, Ordering::then).then_with(|| one.cmp(two))
}
