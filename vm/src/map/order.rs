//! Order of keys and values by what they mean, for walks over a sorted map.

use std::cmp::Ordering;

use super::{Field, FieldKind, MapOps};

/// Elements that are sorted or merged at a time.
const PIECE: usize = 1024;

/// What a snapshot is sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SortBy {
    /// Not at all: the map's own order.
    Map,
    /// By key, in the order of its fields.
    Key,
    /// By value, and by key among equal values.
    Value,
}

/// Which end of the order comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The least element.
    Ascending,
    /// The greatest element; in the map's own order the last.
    Descending,
}

/// A copy of one element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Bytes of the key.
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

    /// One value for all CPUs: integer fields are added up, and wrap as integers of their size do; of each other
    /// field, the first CPU's that is not zero.
    pub fn summed(&self, fields: &[Field]) -> Vec<u8> {
        let Some((first, rest)) = self.values.split_first() else { return Vec::new() };
        let mut whole = first.clone();
        if rest.is_empty() {
            return whole;
        }
        for field in Field::or_whole(fields, first.len() as u32).iter() {
            let range = field.off as usize..field.off.saturating_add(field.size) as usize;
            let Some(target) = whole.get_mut(range) else { continue };
            if let Some(sum) = sum(field, &self.values) {
                target.copy_from_slice(&sum.to_le_bytes()[..target.len()]);
            } else if let Some(value) =
                self.values.iter().find(|value| field.bytes(value).iter().any(|byte| *byte != 0))
            {
                target.copy_from_slice(field.bytes(value));
            }
        }
        whole
    }
}

/// An integer field over all CPUs.
fn sum(field: &Field, values: &[Vec<u8>]) -> Option<i128> {
    values.iter().map(|value| field.integer(value)).sum()
}

/// A snapshot of a map, sorted. Elements that go away meanwhile are left out.
///
/// Per-CPU values are ordered as one would read them: each integer field counts as its sum over all CPUs, other
/// fields are compared CPU by CPU.
///
/// # Errors
/// That of `check_interrupt`, which is called every now and then: there may be millions of elements.
pub fn sorted<E>(
    map: &dyn MapOps,
    by: SortBy,
    direction: Direction,
    check_interrupt: &mut dyn FnMut() -> Result<(), E>,
) -> Result<Vec<Entry>, E> {
    let spec = map.spec();
    let copy = |key: Vec<u8>| {
        let value = |cpu| {
            let mut value = vec![0; spec.value_size as usize];
            map.lookup_copy(&key, cpu, &mut value).ok().map(|()| value)
        };
        let values = (0..map.cpus()).map(value).collect::<Option<Vec<_>>>()?;
        Some(Entry { key, values })
    };
    let mut entries: Vec<Entry> = Vec::new();
    for key in map.keys() {
        check_interrupt()?;
        entries.extend(copy(key));
    }
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
        SortBy::Key => entries = sort(entries, &by_key, check_interrupt)?,
        SortBy::Value => entries = sort(entries, &by_value, check_interrupt)?,
    }
    match direction {
        Direction::Ascending => {}
        Direction::Descending => entries.reverse(),
    }
    Ok(entries)
}

/// Sorts pieces and merges them, so that it can be given up in between. Stable.
fn sort<E>(
    entries: Vec<Entry>,
    order: &dyn Fn(&Entry, &Entry) -> Ordering,
    check_interrupt: &mut dyn FnMut() -> Result<(), E>,
) -> Result<Vec<Entry>, E> {
    let mut pieces: Vec<Vec<Entry>> = Vec::new();
    let mut rest = entries.into_iter();
    loop {
        let mut piece: Vec<Entry> = rest.by_ref().take(PIECE).collect();
        if piece.is_empty() {
            break;
        }
        check_interrupt()?;
        piece.sort_by(order);
        pieces.push(piece);
    }
    while pieces.len() > 1 {
        let mut neighbours = std::mem::take(&mut pieces).into_iter();
        while let Some(one) = neighbours.next() {
            pieces.push(match neighbours.next() {
                Some(two) => merge(one, two, order, check_interrupt)?,
                None => one,
            });
        }
    }
    Ok(pieces.pop().unwrap_or_default())
}

fn merge<E>(
    one: Vec<Entry>,
    two: Vec<Entry>,
    order: &dyn Fn(&Entry, &Entry) -> Ordering,
    check_interrupt: &mut dyn FnMut() -> Result<(), E>,
) -> Result<Vec<Entry>, E> {
    let mut merged = Vec::with_capacity(one.len() + two.len());
    let (mut one, mut two) = (one.into_iter().peekable(), two.into_iter().peekable());
    loop {
        let first = match (one.peek(), two.peek()) {
            (Some(left), Some(right)) if order(right, left) == Ordering::Less => two.next(),
            (Some(_), _) => one.next(),
            (None, _) => two.next(),
        };
        let Some(first) = first else { return Ok(merged) };
        merged.push(first);
        if merged.len().is_multiple_of(PIECE) {
            check_interrupt()?;
        }
    }
}

/// Orders two keys or two values field by field, then by their bytes. Without fields, 1, 2, 4 or 8 bytes are an
/// unsigned integer, anything else is bytes.
pub fn compare(fields: &[Field], one: &[u8], two: &[u8]) -> Ordering {
    let fields = Field::or_whole(fields, one.len() as u32);
    let by_field = fields.iter().map(|field| compare_field(field, one, two));
    by_field.fold(Ordering::Equal, Ordering::then).then_with(|| one.cmp(two))
}

fn compare_field(field: &Field, one: &[u8], two: &[u8]) -> Ordering {
    match (field.integer(one), field.integer(two)) {
        (Some(one), Some(two)) => one.cmp(&two),
        _ if field.kind == FieldKind::String => field.text(one).cmp(field.text(two)),
        _ => field.bytes(one).cmp(field.bytes(two)),
    }
}

fn compare_percpu(fields: &[Field], size: u32, one: &[Vec<u8>], two: &[Vec<u8>]) -> Ordering {
    let fields = Field::or_whole(fields, size);
    let by_field = fields.iter().map(|field| match (sum(field, one), sum(field, two)) {
        (Some(one), Some(two)) => one.cmp(&two),
        _ => {
            let by_cpu = one.iter().zip(two).map(|(one, two)| compare_field(field, one, two));
            by_cpu.fold(Ordering::Equal, Ordering::then)
        }
    });
    by_field.fold(Ordering::Equal, Ordering::then).then_with(|| one.cmp(two))
}
