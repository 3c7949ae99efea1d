//! Values that programs aggregate: averages, counts with totals, least and greatest values. The types are
//! those of `<twinbpf/trace.h>`, recognised by their fields; what CPUs have is merged, not added up.

use super::scalar::Notation;
use crate::map::{Entry, Field};

/// What two words of a value are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aggregate {
    /// A count and a total, of which the average matters.
    Avg,
    /// A count and a total, with their average.
    Stats,
    /// A count and the least value.
    Min,
    /// A count and the greatest value.
    Max,
}

const FIELDS: [(Aggregate, [&str; 2]); 4] = [
    (Aggregate::Avg, ["avg_count", "avg_total"]),
    (Aggregate::Stats, ["stats_count", "stats_total"]),
    (Aggregate::Min, ["min_count", "min_value"]),
    (Aggregate::Max, ["max_count", "max_value"]),
];

/// A value over all CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Merged {
    /// Values that were aggregated.
    pub count: u64,
    /// The total, or the least or greatest value.
    pub value: i64,
}

impl Aggregate {
    /// The aggregate that has these fields.
    pub fn of(fields: &[Field]) -> Option<Aggregate> {
        let [first, second] = fields else { return None };
        let words = [first, second].map(|field| (field.off, field.size)) == [(0, 8), (8, 8)];
        let names = [&*first.name, &*second.name];
        FIELDS.into_iter().find(|(_, of)| words && *of == names).map(|(aggregate, _)| aggregate)
    }

    pub(super) fn merge(self, entry: Entry<'_>) -> Merged {
        let used = entry.values().map(Merged::of).filter(|word| word.count > 0);
        let merged = used.reduce(|a, b| Merged {
            count: a.count.wrapping_add(b.count),
            value: match self {
                Aggregate::Avg | Aggregate::Stats => a.value.wrapping_add(b.value),
                Aggregate::Min => a.value.min(b.value),
                Aggregate::Max => a.value.max(b.value),
            },
        });
        merged.unwrap_or(Merged { count: 0, value: 0 })
    }

    /// What entries are sorted by.
    pub fn rank(self, merged: Merged) -> i64 {
        match self {
            Aggregate::Avg => merged.average(),
            Aggregate::Stats | Aggregate::Min | Aggregate::Max => merged.value,
        }
    }

    /// As bpftrace writes it.
    pub(super) fn write(self, out: &mut Vec<u8>, merged: Merged, notation: Notation) {
        let Merged { count, value } = merged;
        let text = match (self, notation) {
            (Aggregate::Stats, Notation::Text) => format!("count {count}, average {}, total {value}", merged.average()),
            (Aggregate::Stats, Notation::Json) => {
                format!(r#"{{"count": {count}, "average": {}, "total": {value}}}"#, merged.average())
            }
            (Aggregate::Avg, _) => merged.average().to_string(),
            (Aggregate::Min | Aggregate::Max, _) => value.to_string(),
        };
        out.extend(text.bytes());
    }

    /// The `type` of its JSON.
    pub(super) fn kind(self) -> &'static str {
        if self == Aggregate::Stats { "stats" } else { "map" }
    }
}

impl Merged {
    /// The two words of a value.
    pub fn of(value: &[u8]) -> Merged {
        let word = |at: usize| value.get(at..at + 8).map_or([0; 8], |bytes| bytes.try_into().expect("eight bytes"));
        Merged { count: u64::from_le_bytes(word(0)), value: i64::from_le_bytes(word(8)) }
    }

    /// The value that has these two words.
    pub(super) fn bytes(self) -> Vec<u8> {
        [self.count.to_le_bytes(), self.value.to_le_bytes()].concat()
    }

    /// The total by the count, as C divides; 0 of nothing.
    pub fn average(self) -> i64 {
        i64::try_from(i128::from(self.value) / i128::from(self.count.max(1))).unwrap_or(0)
    }
}
