//! Copies of all elements of a map, for walks over a sorted map.

use std::cmp::Ordering;

use super::{Direction, Entry, Errno, Field, MapOps, MapSpec, SortBy, compare};

/// Elements that are sorted between two checks for an interrupt.
const PIECE: usize = 1 << 14;

/// Copies of all elements of a map, in an order of their own. All bytes lie in one buffer.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    key_size: usize,
    value_size: u32,
    /// Bytes of a key and its copied value.
    stride: usize,
    bytes: Vec<u8>,
    /// Numbers of elements, as they were copied.
    order: Vec<u32>,
}

impl Snapshot {
    /// Copies a map. Elements that go away meanwhile are left out.
    ///
    /// # Errors
    /// Those of [`MapOps::entries`] and of `check_interrupt`, which is called for each element.
    pub(crate) fn of<E: From<Errno>>(
        map: &dyn MapOps,
        check_interrupt: &mut dyn FnMut() -> Result<(), E>,
    ) -> Result<Snapshot, E> {
        let spec = map.spec();
        let key_size = spec.key_size as usize;
        let mut snapshot = Snapshot {
            key_size,
            value_size: spec.value_size,
            stride: key_size + spec.kind.copy_size(spec.value_size, map.cpus() as usize),
            bytes: Vec::new(),
            order: Vec::new(),
        };
        let mut interrupted = Ok(());
        map.entries(&mut |entry| {
            interrupted = check_interrupt();
            snapshot.bytes.extend(entry.key);
            snapshot.bytes.extend(entry.copied);
            interrupted.is_ok()
        })?;
        interrupted?;
        let count = snapshot.bytes.len().checked_div(snapshot.stride).unwrap_or(0);
        snapshot.order = (0..u32::try_from(count).map_err(|_| Errno::ENOMEM)?).collect();
        Ok(snapshot)
    }

    /// Number of elements.
    pub(crate) fn len(&self) -> usize {
        self.order.len()
    }

    /// The elements in order.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = Entry<'_>> {
        self.order.iter().map(|number| self.element(*number))
    }

    /// Leaves out the elements for which `keep` is false.
    pub(crate) fn retain(&mut self, keep: impl Fn(Entry<'_>) -> bool) {
        let mut order = std::mem::take(&mut self.order);
        order.retain(|number| keep(self.element(*number)));
        self.order = order;
    }

    /// Leaves out all but the last `count` elements.
    pub(crate) fn keep_last(&mut self, count: usize) {
        self.order.drain(..self.order.len().saturating_sub(count));
    }

    /// Sorts by a number for each element, equal ones as they are.
    pub(crate) fn sort_by_rank(&mut self, rank: impl Fn(Entry<'_>) -> i64) {
        let mut ranked: Vec<(i64, u32)> =
            self.order.iter().map(|number| (rank(self.element(*number)), *number)).collect();
        ranked.sort_by_key(|(rank, _)| *rank);
        self.order = ranked.into_iter().map(|(_, number)| number).collect();
    }

    /// The values of all CPUs as one, element by element; none in a map whose values are one already.
    fn sums(&self, spec: &MapSpec) -> Option<Vec<u8>> {
        if !spec.kind.is_per_cpu() {
            return None;
        }
        let size = self.value_size as usize;
        let fields = Field::or_whole(&spec.value_fields, self.value_size);
        let mut sums = vec![0; size * self.len()];
        for (entry, sum) in self.iter().zip(sums.chunks_mut(size.max(1))) {
            entry.sum_into(&fields, sum);
        }
        Some(sums)
    }

    fn element(&self, number: u32) -> Entry<'_> {
        let start = number as usize * self.stride;
        let (key, copied) = self.bytes[start..start + self.stride].split_at(self.key_size);
        Entry::new(key, copied, self.value_size)
    }
}

/// A snapshot of a map, sorted. Per-CPU values are ordered as one would read them, by [`Entry::summed`].
///
/// # Errors
/// Those of [`Snapshot::of`]; `check_interrupt` is called now and then while sorting, too.
pub(crate) fn sorted<E: From<Errno>>(
    map: &dyn MapOps,
    by: SortBy,
    direction: Direction,
    check_interrupt: &mut dyn FnMut() -> Result<(), E>,
) -> Result<Snapshot, E> {
    let spec = map.spec();
    let mut snapshot = Snapshot::of(map, check_interrupt)?;
    let key_fields = Field::or_whole(&spec.key_fields, spec.key_size);
    let keys = Part { fields: &key_fields, data: &|number: u32| snapshot.element(number).key };
    let order = match by {
        SortBy::Map => None,
        SortBy::Key => Some(ranked(&snapshot, &[keys], check_interrupt)?),
        SortBy::Value => {
            let (size, sums) = (spec.value_size as usize, snapshot.sums(spec));
            let value = |number: u32| match &sums {
                Some(sums) => &sums[number as usize * size..][..size],
                None => snapshot.element(number).copied,
            };
            let value_fields = Field::or_whole(&spec.value_fields, spec.value_size);
            let values = Part { fields: &value_fields, data: &value };
            Some(ranked(&snapshot, &[values, keys], check_interrupt)?)
        }
    };
    snapshot.order = order.unwrap_or(snapshot.order);
    if direction == Direction::Descending {
        snapshot.order.reverse();
    }
    Ok(snapshot)
}

/// What elements are ordered by: the key, or the value.
#[derive(Clone, Copy)]
struct Part<'a> {
    fields: &'a [Field],
    data: &'a dyn Fn(u32) -> &'a [u8],
}

/// Numbers with the order of the first two fields that decide, and the element's number: most comparisons need no more.
type Ranked = ([u64; 2], u32);

/// Numbers of all elements, ordered by these parts.
fn ranked<E>(
    snapshot: &Snapshot,
    parts: &[Part<'_>],
    check_interrupt: &mut dyn FnMut() -> Result<(), E>,
) -> Result<Vec<u32>, E> {
    let Some(first) = snapshot.order.first() else { return Ok(Vec::new()) };
    // The first field of each part whose part before is one field, which its number decides.
    let mut leading = Vec::new();
    for part in parts {
        let data = (part.data)(*first);
        leading.push((part, &part.fields[0]));
        let decided = part.fields.len() == 1 && part.fields[0].rank(data).is_some() && part.fields[0].is_all_of(data);
        if !decided {
            break;
        }
    }
    let rank = |number: u32, at: usize| {
        let field = leading.get(at).and_then(|(part, field)| field.rank((part.data)(number)));
        field.unwrap_or(0)
    };
    let all = snapshot.order.iter().map(|number| ([rank(*number, 0), rank(*number, 1)], *number)).collect();
    let order = |one: u32, two: u32| {
        let mut by_part = parts.iter().map(|part| compare(part.fields, (part.data)(one), (part.data)(two)));
        by_part.find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
    };
    Ok(sort(all, &order, check_interrupt)?.into_iter().map(|(_, number)| number).collect())
}

/// By the ranks, and where these are equal by `order`.
fn by_ranks(one: &Ranked, two: &Ranked, order: &dyn Fn(u32, u32) -> Ordering) -> Ordering {
    one.0.cmp(&two.0).then_with(|| order(one.1, two.1))
}

/// Sorts pieces and merges them, so that it can be given up in between. Stable.
fn sort<E>(
    mut all: Vec<Ranked>,
    order: &dyn Fn(u32, u32) -> Ordering,
    check_interrupt: &mut dyn FnMut() -> Result<(), E>,
) -> Result<Vec<Ranked>, E> {
    for piece in all.chunks_mut(PIECE) {
        check_interrupt()?;
        piece.sort_by(|one, two| by_ranks(one, two, order));
    }
    let mut sorted = PIECE;
    while sorted < all.len() {
        let mut merged = Vec::with_capacity(all.len());
        for both in all.chunks(2 * sorted) {
            let (one, two) = both.split_at(sorted.min(both.len()));
            merge(one, two, &mut merged, order, check_interrupt)?;
        }
        all = merged;
        sorted *= 2;
    }
    Ok(all)
}

fn merge<E>(
    mut one: &[Ranked],
    mut two: &[Ranked],
    merged: &mut Vec<Ranked>,
    order: &dyn Fn(u32, u32) -> Ordering,
    check_interrupt: &mut dyn FnMut() -> Result<(), E>,
) -> Result<(), E> {
    while let (Some((left, rest)), Some((right, others))) = (one.split_first(), two.split_first()) {
        if by_ranks(right, left, order) == Ordering::Less {
            merged.push(*right);
            two = others;
        } else {
            merged.push(*left);
            one = rest;
        }
        if merged.len().is_multiple_of(PIECE) {
            check_interrupt()?;
        }
    }
    merged.extend(one);
    merged.extend(two);
    Ok(())
}
