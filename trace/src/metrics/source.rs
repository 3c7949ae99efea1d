//! A map as families of metrics.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use prometheus::proto::{
    Bucket, Counter, Gauge, Histogram as Drawn, LabelPair, Metric, MetricFamily, MetricType, Summary,
};
use twinbpf_vm::helper::print::{Aggregate, Histogram, Layout, Merged, Row, Scale, histograms, rows};
use twinbpf_vm::map::{MapOps, compare};

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
        let (declared, map) = (declared.clone(), Arc::clone(map));
        (!metrics.is_empty()).then_some(Source { declared, map, help, metrics, kind })
    }

    /// Names of its metrics.
    pub(super) fn names(&self) -> impl Iterator<Item = String> {
        self.metrics.iter().map(|metric| metric.name.clone())
    }

    /// Name of the map.
    pub(super) fn map(&self) -> &Arc<str> {
        &self.map.spec().name
    }

    /// Its metrics now, with at most so many series each, and how many entries are left out.
    ///
    /// # Errors
    /// The map cannot be read, in words.
    pub(super) fn families(&self, limit: usize) -> Result<(Vec<MetricFamily>, usize), String> {
        let fail = |why: &dyn std::fmt::Display| format!("map {}: {why}", self.map());
        let rows = rows(&*self.map).map_err(|errno| fail(&format_args!("{errno:?}")))?;
        if let Some((layout, scale)) = &self.declared.hist {
            return self.histograms(rows, layout, scale, limit).map_err(|why| fail(&why));
        }
        let (rows, left_out) = self.declared.sorted(self.map.spec(), rows, Some(limit));
        let families = self.metrics.iter().map(|Named { name, column, divisor }| match column {
            Some(column) => {
                let series = unique(self.series(&rows, |row| column.number(row).unwrap_or(0)), |a, b| *a += b);
                let series = series.into_iter().map(|(labels, number)| (labels, number as f64 / divisor));
                self.family(name, series.map(|(labels, number)| self.plain(labels, number)))
            }
            None => {
                let add = |a: &mut Merged, b: Merged| {
                    *a = Merged { count: a.count.wrapping_add(b.count), value: a.value.wrapping_add(b.value) };
                };
                let series = unique(self.series(&rows, |row| Merged::of(&row.value)), add);
                self.family(name, series.into_iter().map(|(labels, merged)| summary(labels, merged, *divisor)))
            }
        });
        Ok((families.collect(), left_out))
    }

    fn series<'a, T: 'a>(
        &'a self,
        rows: &'a [Row],
        value: impl Fn(&Row) -> T + 'a,
    ) -> impl Iterator<Item = (Labels, T)> + 'a {
        rows.iter().map(move |row| (self.labels(row), value(row)))
    }

    fn labels(&self, row: &Row) -> Labels {
        let keys = self.declared.columns.keys.iter();
        keys.map(|column| (identifier(&column.header().to_lowercase()), column.cell(row, 1.0))).collect()
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
        mut rows: Vec<Row>,
        layout: &Layout,
        scale: &Scale,
        limit: usize,
    ) -> Result<(Vec<MetricFamily>, usize), String> {
        rows.sort_by(|one, two| compare(&self.map.spec().key_fields, &one.key, &two.key));
        let all = histograms(layout, rows.iter().map(|row| (&row.key, &row.value)), scale);
        let mut all = all.map_err(|why| why.to_string())?;
        let left_out = all.len().saturating_sub(limit);
        // Those that count most come last.
        let all = all.split_off(left_out);
        let series = all.into_iter().map(|Histogram { label, counts }| {
            let row = Row { key: label.unwrap_or_default(), value: Vec::new() };
            (self.labels(&row), counts)
        });
        let series =
            unique(series, |a, b| b.into_iter().for_each(|(slot, count)| *a.entry(slot).or_default() += count));
        let Named { name, divisor, .. } = &self.metrics[0];
        let metrics = series.into_iter().map(|(labels, counts)| {
            let mut metric = labelled(labels);
            metric.set_histogram(drawn(&counts, scale, *divisor));
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
fn drawn(counts: &BTreeMap<u64, u64>, scale: &Scale, divisor: f64) -> Drawn {
    let first = counts.keys().next().copied().unwrap_or(1).min(1);
    let last = counts.keys().next_back().copied().unwrap_or(0);
    let mut sum = 0;
    let buckets = (first..=last).filter_map(|slot| {
        sum += counts.get(&slot).copied().unwrap_or(0);
        let (_, above) = scale.range(slot);
        let mut bucket = Bucket::default();
        // Numbers are whole: the largest of a bucket is one less than the first of the next.
        bucket.set_upper_bound((above? - 1) as f64 / divisor);
        bucket.set_cumulative_count(sum);
        Some(bucket)
    });
    let mut drawn = Drawn::default();
    drawn.set_bucket(buckets.collect());
    drawn.set_sample_count(counts.values().sum());
    drawn.set_sample_sum(f64::NAN);
    drawn
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
pub(super) fn label(name: &str, value: &str) -> LabelPair {
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
    use super::identifier;

    #[test]
    fn names_are_those_of_the_format() {
        assert_eq!(
            (identifier("a.b"), identifier("1st"), identifier("")),
            ("a_b".into(), "_1st".into(), "value".into())
        );
    }
}
