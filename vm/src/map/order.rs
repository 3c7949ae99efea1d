//! Order of keys and values by what they mean.

use std::cmp::Ordering;

use super::{Field, FieldKind};

/// What a snapshot is sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SortBy {
    /// Not at all: the map's own order.
    Map,
    /// By key, in the order of its fields.
    Key,
    /// By value, and by key among equal values.
    Value,
}

/// Which end of the order comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// The least element.
    Ascending,
    /// The greatest element; in the map's own order the last.
    Descending,
}

/// Orders two keys or two values field by field, then by their bytes. Without fields, 1, 2, 4 or 8 bytes are an
/// unsigned integer, anything else is bytes.
pub fn compare(fields: &[Field], one: &[u8], two: &[u8]) -> Ordering {
    let fields = Field::or_whole(fields, one.len() as u32);
    let by_field = fields.iter().map(|field| compare_field(field, one, two));
    by_field.fold(Ordering::Equal, Ordering::then).then_with(|| one.cmp(two))
}

fn compare_field(field: &Field, one: &[u8], two: &[u8]) -> Ordering {
    if let (Some(one), Some(two)) = (field.float(one), field.float(two)) {
        return one.total_cmp(&two);
    }
    match (field.integer(one), field.integer(two)) {
        (Some(one), Some(two)) => one.cmp(&two),
        _ if field.kind == FieldKind::String => field.text(one).cmp(field.text(two)),
        _ => field.bytes(one).cmp(field.bytes(two)),
    }
}
