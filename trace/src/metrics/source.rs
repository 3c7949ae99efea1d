//! A map as families of metrics.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use prometheus::proto::{
    Bucket, Counter, Gauge, Histogram as Drawn, LabelPair, Metric, MetricFamily, MetricType, Summary,
};
use twinbpf_vm::helper::print::{Aggregate, Histogram, Layout, Merged, Row, Scale, rows};
use twinbpf_vm::map::MapOps;

use crate::display::{Column, Declared, Unit};

/// What metrics without a name of their own begin with.
const PREFIX: &str = "twinbpf";

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Source {
    declared: Declared,
    map: Arc<dyn MapOps>,
    help: String,
    metrics: Vec<Named>,
    kind: MetricType,
    aggregate: Option<Aggregate>,
    /// Names of labels: one for each column of the key.
    labels: Vec<String>,
    /// Name of the object.
    object: String,
}

/// A metric: of a column, or the only one of summaries and histograms.
#[derive(Debug)]
struct Named {
    name: String,
    column: Option<Column>,
    /// Metrics have seconds: what numbers are divided by.
    divisor: f64,
}

/// Labels of a series.
type Labels = Vec<(String, String)>;

/// What a histogram has counted, by slot.
type Counts = BTreeMap<u64, u64>;

impl Source {
    /// `None`: no value is a number.
    pub(super) fn new(declared: &Declared, map: &Arc<dyn MapOps>, object: &str) -> Option<Source> {
        let spec = map.spec();
        let aggregate = Aggregate::of(&spec.value_fields);
        let kind = match aggregate {
            _ if declared.hist.is_some() => MetricType::HISTOGRAM,
            Some(Aggregate::Avg | Aggregate::Stats) => MetricType::SUMMARY,
            Some(Aggregate::Min | Aggregate::Max) => MetricType::GAUGE,
            None if declared.is_gauge.unwrap_or(!declared.counts) => MetricType::GAUGE,
            None => MetricType::COUNTER,
        };
        let named = |member: &str, unit: Option<&Unit>, column: Option<&Column>| Named {
            name: name(declared, &spec.name, member, unit, kind),
            column: column.cloned(),
            divisor: match unit {
                Some(&Unit::Time(nanoseconds, _)) => 1e9 / f64::from(nanoseconds),
                _ => 1.0,
            },
        };
        let metrics: Vec<Named> = if [MetricType::HISTOGRAM, MetricType::SUMMARY].contains(&kind) {
            vec![named("", declared.unit.as_ref(), None)]
        } else {
            let numbers: Vec<&Column> = declared.columns.values.iter().filter(|column| column.is_number()).collect();
            let member = |column: &Column| if numbers.len() > 1 { column.name().to_owned() } else { String::new() };
            numbers.iter().map(|column| named(&member(column), column.unit.as_ref(), Some(column))).collect()
        };
        let help = declared.help.clone().or_else(|| declared.title.clone());
        let help = help.unwrap_or_else(|| format!("Map {} of {object}.", spec.name));
        let labels = label_names(&declared.columns.keys, kind);
        let (declared, map, object) = (declared.clone(), Arc::clone(map), object.to_owned());
        (!metrics.is_empty()).then_some(Source { declared, map, help, metrics, kind, aggregate, labels, object })
    }

    /// Names of its series.
    pub(super) fn names(&self) -> Vec<String> {
        let suffixes: &[&str] = match self.kind {
            MetricType::HISTOGRAM => &["", "_bucket", "_sum", "_count"],
            MetricType::SUMMARY => &["", "_sum", "_count"],
            _ => &[""],
        };
        let of = |metric: &Named| suffixes.iter().map(|suffix| format!("{}{suffix}", metric.name)).collect::<Vec<_>>();
        self.metrics.iter().flat_map(of).collect()
    }

    /// Name of the map.
    pub(super) fn map(&self) -> &Arc<str> {
        &self.map.spec().name
    }

    /// Labels of the number of its entries that are left out.
    pub(super) fn left_out_labels(&self) -> Vec<LabelPair> {
        vec![label("object", &self.object), label("map", self.map())]
    }

    /// Its metrics now, with at most so many series each, and how many entries are left out.
    ///
    /// # Errors
    /// The map cannot be read, in words.
    pub(super) fn families(&self, limit: usize) -> Result<(Vec<MetricFamily>, usize), String> {
        let rows = rows(&*self.map).map_err(|errno| format!("{errno:?}"))?;
        if let Some(hist) = &self.declared.hist {
            return self.histograms(rows, hist, limit);
        }
        let (mut families, mut most) = (Vec::new(), 0);
        for Named { name, column, divisor } in &self.metrics {
            let (family, left_out) = match column {
                Some(column) => self.numbers(&rows, name, column, *divisor, limit),
                None => self.summaries(&rows, name, *divisor, limit),
            };
            families.push(family);
            most = most.max(left_out);
        }
        Ok((families, most))
    }

    fn numbers(&self, rows: &[Row], name: &str, column: &Column, divisor: f64, limit: usize) -> (MetricFamily, usize) {
        let combine = |a: &mut i128, b: i128| match self.aggregate {
            Some(Aggregate::Min) => *a = b.min(*a),
            Some(Aggregate::Max) => *a = b.max(*a),
            _ => *a = a.saturating_add(b),
        };
        let series = unique(self.series(rows, |row| column.number(row).unwrap_or(0)), combine);
        let (series, left_out) = limited(series, |number| *number, |_| 1, limit);
        let metrics = series.into_iter().map(|(labels, number)| self.plain(labels, number as f64 / divisor));
        (self.family(name, metrics), left_out)
    }

    fn summaries(&self, rows: &[Row], name: &str, divisor: f64, limit: usize) -> (MetricFamily, usize) {
        let add = |a: &mut Merged, b: Merged| {
            *a = Merged { count: a.count.saturating_add(b.count), value: a.value.saturating_add(b.value) };
        };
        let series = unique(self.series(rows, |row| Merged::of(&row.value)), add);
        let (series, left_out) = limited(series, |merged| merged.count.into(), |_| 2, limit);
        (self.family(name, series.into_iter().map(|(labels, merged)| summary(labels, merged, divisor))), left_out)
    }

    fn series<'a, T: 'a>(
        &'a self,
        rows: &'a [Row],
        value: impl Fn(&Row) -> T + 'a,
    ) -> impl Iterator<Item = (Labels, T)> + 'a {
        rows.iter().map(move |row| (self.labels(row), value(row)))
    }

    fn labels(&self, row: &Row) -> Labels {
        let cells = self.declared.columns.keys.iter().map(|column| column.cell(row, 1.0));
        self.labels.iter().cloned().zip(cells).collect()
    }

    fn family(&self, name: &str, metrics: impl Iterator<Item = Metric>) -> MetricFamily {
        let mut family = MetricFamily::default();
        family.set_name(name.to_owned());
        family.set_help(self.help.clone());
        family.set_field_type(self.kind);
        family.set_metric(metrics.collect());
        family
    }

    fn plain(&self, labels: Labels, number: f64) -> Metric {
        let mut metric = labelled(labels);
        if self.kind == MetricType::COUNTER {
            let mut counter = Counter::default();
            counter.set_value(number);
            metric.set_counter(counter);
        } else {
            let mut gauge = Gauge::default();
            gauge.set_value(number);
            metric.set_gauge(gauge);
        }
        metric
    }

    fn histograms(
        &self,
        rows: Vec<Row>,
        hist: &(Layout, Scale),
        limit: usize,
    ) -> Result<(Vec<MetricFamily>, usize), String> {
        let all = Declared::histograms(self.map.spec(), hist, rows)?;
        let series = all.into_iter().map(|Histogram { label, counts }| {
            let row = Row { key: label.unwrap_or_default(), value: Vec::new() };
            (self.labels(&row), counts)
        });
        let add = |a: &mut Counts, b: Counts| {
            for (slot, count) in b {
                let sum = a.entry(slot).or_default();
                *sum = sum.saturating_add(count);
            }
        };
        // Those that count most.
        let total = |counts: &Counts| counts.values().map(|count| i128::from(*count)).sum();
        let buckets = |counts: &Counts| counts.keys().next_back().map_or(0, |last| *last as usize) + 3;
        let (series, left_out) = limited(unique(series, add), total, buckets, limit);
        let Named { name, divisor, .. } = &self.metrics[0];
        let metrics = series.into_iter().map(|(labels, counts)| {
            let mut metric = labelled(labels);
            metric.set_histogram(drawn(&counts, &hist.1, *divisor));
            metric
        });
        Ok((vec![self.family(name, metrics)], left_out))
    }
}

fn summary(labels: Labels, merged: Merged, divisor: f64) -> Metric {
    let mut summary = Summary::default();
    summary.set_sample_count(merged.count);
    summary.set_sample_sum(merged.value as f64 / divisor);
    let mut metric = labelled(labels);
    metric.set_summary(summary);
    metric
}

/// Buckets up to the last that has counted, so that they only become more. The sum of what was counted is unknown.
fn drawn(counts: &Counts, scale: &Scale, divisor: f64) -> Drawn {
    let first = counts.keys().next().copied().unwrap_or(1).min(1);
    let last = counts.keys().next_back().copied().unwrap_or(0);
    let mut sum = 0_u64;
    let buckets = (first..=last).filter_map(|slot| {
        sum = sum.saturating_add(counts.get(&slot).copied().unwrap_or(0));
        let (_, above) = scale.range(slot);
        let mut bucket = Bucket::default();
        // Numbers are whole: the largest of a bucket is one less than the first of the next.
        bucket.set_upper_bound((above? - 1) as f64 / divisor);
        bucket.set_cumulative_count(sum);
        Some(bucket)
    });
    let mut drawn = Drawn::default();
    drawn.set_bucket(buckets.collect());
    drawn.set_sample_count(counts.values().fold(0, |sum, count| sum.saturating_add(*count)));
    drawn.set_sample_sum(f64::NAN);
    drawn
}

/// Names of the labels of columns. One that is taken, or that Prometheus has for something else, gets a `_` at its end.
fn label_names(columns: &[Column], kind: MetricType) -> Vec<String> {
    let reserved: &[&str] = match kind {
        MetricType::HISTOGRAM => &["le"],
        MetricType::SUMMARY => &["quantile"],
        _ => &[],
    };
    let mut names: Vec<String> = Vec::new();
    for column in columns {
        let name = identifier(&column.header().to_lowercase());
        // Two of them begin a name of Prometheus itself.
        let inside = name.trim_start_matches('_');
        let mut name = if name.starts_with("__") { format!("_{inside}") } else { name };
        while names.contains(&name) || reserved.contains(&name.as_str()) {
            name.push('_');
        }
        names.push(name);
    }
    names
}

/// The series that rank highest and together cost no more than the limit, and how many are left out.
fn limited<T>(
    mut series: Vec<(Labels, T)>,
    rank: impl Fn(&T) -> i128,
    cost: impl Fn(&T) -> usize,
    limit: usize,
) -> (Vec<(Labels, T)>, usize) {
    series.sort_by_key(|(_, value)| Reverse(rank(value)));
    let (all, mut sum) = (series.len(), 0_usize);
    let kept = series.iter().take_while(|(_, value)| {
        sum = sum.saturating_add(cost(value));
        sum <= limit
    });
    let kept = kept.count();
    series.truncate(kept);
    (series, all - kept)
}

/// Series with the same labels are one: an entry for each address has the name of one function.
fn unique<T>(series: impl Iterator<Item = (Labels, T)>, add: impl Fn(&mut T, T)) -> Vec<(Labels, T)> {
    let mut all: Vec<(Labels, T)> = Vec::new();
    let mut known: HashMap<Labels, usize> = HashMap::new();
    for (labels, value) in series {
        match known.get(&labels) {
            Some(&at) => add(&mut all[at].1, value),
            None => {
                known.insert(labels.clone(), all.len());
                all.push((labels, value));
            }
        }
    }
    all
}

fn labelled(labels: Labels) -> Metric {
    Metric::from_label(labels.iter().map(|(name, value)| label(name, value)).collect())
}

/// A label and its value.
fn label(name: &str, value: &str) -> LabelPair {
    let mut label = LabelPair::default();
    label.set_name(name.to_owned());
    label.set_value(value.to_owned());
    label
}

/// The name that is declared; otherwise that of the map with what it is, as Prometheus names metrics.
fn name(declared: &Declared, map: &str, member: &str, unit: Option<&Unit>, kind: MetricType) -> String {
    let joined =
        |name: &str| if member.is_empty() { name.to_owned() } else { format!("{name}_{}", identifier(member)) };
    if let Some(name) = &declared.metric {
        return joined(name);
    }
    let mut name = joined(&format!("{PREFIX}_{}", identifier(map.trim_start_matches('_'))));
    let unit = unit.map(|unit| match unit {
        Unit::Time(..) => "seconds".to_owned(),
        unit => identifier(unit.name()),
    });
    for part in unit.into_iter().chain((kind == MetricType::COUNTER).then(|| "total".to_owned())) {
        if !name.ends_with(&format!("_{part}")) {
            name = format!("{name}_{part}");
        }
    }
    name
}

/// A text as the name of a label or a part of one of a metric.
fn identifier(text: &str) -> String {
    let text: String = text.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    match text.chars().next() {
        None => "value".to_owned(),
        Some(first) if first.is_ascii_digit() => format!("_{text}"),
        Some(_) => text,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use twinbpf_vm::helper::print::Scale;

    use super::{drawn, identifier, limited, unique};

    #[test]
    fn names_are_those_of_the_format() {
        assert_eq!(
            (identifier("a.b"), identifier("1st"), identifier("")),
            ("a_b".into(), "_1st".into(), "value".into())
        );
    }

    #[test]
    fn series_with_the_same_labels_are_added_up_before_the_limit() {
        let labels = |name: &str| vec![("a".to_owned(), name.to_owned())];
        let all = [("x", 1), ("y", 3), ("x", 4), ("z", 2)].map(|(name, value)| (labels(name), value));
        let (kept, left_out) = limited(unique(all.into_iter(), |a, b| *a += b), |value| *value, |_| 1, 2);
        assert_eq!((kept, left_out), (vec![(labels("x"), 5), (labels("y"), 3)], 1));
        let (kept, left_out) = limited(vec![(labels("x"), 1)], |value| *value, |_| 9, 8);
        assert_eq!((kept.len(), left_out), (0, 1));
    }

    #[test]
    fn counts_of_histograms_do_not_overflow() {
        let counts = BTreeMap::from([(3, u64::MAX), (4, 2)]);
        let drawn = drawn(&counts, &Scale::Log2, 1.0);
        assert_eq!(drawn.get_sample_count(), u64::MAX);
        let sums: Vec<u64> = drawn.get_bucket().iter().map(|bucket| bucket.cumulative_count()).collect();
        assert_eq!(sums, [0, 0, u64::MAX, u64::MAX]);
    }
}
