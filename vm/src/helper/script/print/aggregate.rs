//! Values that programs aggregate: averages, counts with totals, least and greatest values. The types are
//! those of `<twinbpf/trace.h>`, recognised by their fields; what CPUs have is merged, not added up.

use super::scalar::Notation;
use crate::map::{Entry, Field};

/// What two words of a value are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Aggregate {
    Avg,
    Stats,
    Min,
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
pub(super) struct Merged {
    count: u64,
    /// The total, or the least or greatest value.
    value: i64,
}

impl Aggregate {
    pub(super) fn of(fields: &[Field]) -> Option<Aggregate> {
        let [first, second] = fields else { return None };
        let words = [first, second].map(|field| (field.off, field.size)) == [(0, 8), (8, 8)];
        let names = [&*first.name, &*second.name];
        FIELDS.into_iter().find(|(_, of)| words && *of == names).map(|(aggregate, _)| aggregate)
    }

    pub(super) fn merge(self, entry: Entry<'_>) -> Merged {
        let words = entry.values().map(|value| {
            let word = |at: usize| value.get(at..at + 8).map_or([0; 8], |bytes| bytes.try_into().expect("eight bytes"));
            Merged { count: u64::from_le_bytes(word(0)), value: i64::from_le_bytes(word(8)) }
        });
        let used = words.filter(|word| word.count > 0);
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
    pub(super) fn rank(self, merged: Merged) -> i64 {
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
    fn average(self) -> i64 {
        i64::try_from(i128::from(self.value) / i128::from(self.count.max(1))).unwrap_or(0)
    }
}
