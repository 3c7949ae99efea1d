//! One element of a map, copied.

use super::Field;

/// A copy of one element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Bytes of the key.
    pub key: &'a [u8],
    /// The value as `BPF_MAP_LOOKUP_ELEM` lays it out: per-CPU values follow each other, each padded to 8 bytes.
    pub copied: &'a [u8],
    value_size: usize,
}

impl<'a> Entry<'a> {
    /// An element of a map whose values have this size.
    pub fn new(key: &'a [u8], copied: &'a [u8], value_size: u32) -> Entry<'a> {
        Entry { key, copied, value_size: value_size as usize }
    }

    /// Its value; in per-CPU maps one for each CPU, in order.
    pub fn values(&self) -> impl Iterator<Item = &'a [u8]> + Clone + use<'a> {
        let (size, copied) = (self.value_size, self.copied);
        let stride = if copied.len() <= size { size } else { size.next_multiple_of(8) };
        copied.chunks(stride.max(1)).map(move |value| &value[..size.min(value.len())])
    }

    /// One value for all CPUs: integer fields are added up, and wrap as integers of their size do; of each other
    /// field, the first CPU's that is not zero.
    pub fn summed(&self, fields: &[Field]) -> Vec<u8> {
        let mut whole = vec![0; self.value_size];
        self.sum_into(&Field::or_whole(fields, self.value_size as u32), &mut whole);
        whole
    }

    pub(super) fn sum_into(&self, fields: &[Field], whole: &mut [u8]) {
        let Some(first) = self.values().next() else { return };
        whole.copy_from_slice(first);
        if self.copied.len() <= self.value_size {
            return;
        }
        for field in fields {
            let range = field.off as usize..field.off.saturating_add(field.size) as usize;
            let Some(target) = whole.get_mut(range) else { continue };
            if let Some(sum) = self.values().map(|value| field.integer(value)).sum::<Option<i128>>() {
                target.copy_from_slice(&sum.to_le_bytes()[..target.len()]);
            } else if let Some(value) = self.values().find(|value| field.bytes(value).iter().any(|byte| *byte != 0)) {
                target.copy_from_slice(field.bytes(value));
            }
        }
    }
}
