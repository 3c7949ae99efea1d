//! Maps as text and as JSON.

use std::collections::HashMap;

use serde_json::json;
use twinbpf_vm::helper::print::{Histogram, Row, Scale, hist_json, hist_text, quote};

use super::columns::{Column, Columns};

/// What is printed of a map at a time.
pub(super) struct Heading<'a> {
    /// Name of the map, after `@`.
    pub(super) map: &'a str,
    pub(super) title: Option<&'a str>,
    pub(super) unit: Option<&'a str>,
    /// When it is.
    pub(super) time: Option<String>,
}

/// Elements that are printed.
pub(super) struct Table<'a> {
    pub(super) columns: &'a Columns,
    pub(super) rows: &'a [Row],
    /// How many others there are.
    pub(super) left_out: usize,
    /// For rates.
    pub(super) seconds: f64,
}

/// Histograms that are printed.
pub(super) struct Histograms<'a> {
    pub(super) columns: &'a Columns,
    pub(super) all: Vec<Histogram>,
    pub(super) left_out: usize,
    pub(super) scale: &'a Scale,
}

/// Spaces between columns.
const GAP: &str = "  ";

impl Heading<'_> {
    fn text(&self) -> String {
        let title = self.title.map_or_else(|| format!("@{}", self.map), str::to_owned);
        self.time.as_ref().map_or_else(|| title.clone(), |time| format!("{time} {title}"))
    }

    fn no_entries(&self) -> String {
        format!("{}: no entries\n", self.text())
    }

    /// An object of the type, with data in JSON.
    fn json(&self, kind: &str, data: &[u8], left_out: usize) -> Vec<u8> {
        let mut out = format!("{{\"type\": \"{kind}\"").into_bytes();
        for (name, text) in [("title", self.title), ("unit", self.unit), ("time", self.time.as_deref())] {
            if let Some(text) = text {
                out.extend(format!(", \"{name}\": ").bytes());
                quote(&mut out, text.as_bytes());
            }
        }
        if left_out > 0 {
            out.extend(format!(", \"left_out\": {left_out}").bytes());
        }
        out.extend(b", \"data\": {");
        quote(&mut out, format!("@{}", self.map).as_bytes());
        out.extend(b": ");
        out.extend(data);
        out.extend(b"}}\n");
        out
    }
}

fn more(left_out: usize) -> String {
    if left_out == 0 { String::new() } else { format!("... and {left_out} more\n") }
}

impl Table<'_> {
    /// A line for a variable, else a table.
    pub(super) fn text(&self, heading: &Heading<'_>) -> String {
        let Some(first) = self.rows.first() else { return heading.no_entries() };
        let Columns { keys, values, .. } = self.columns;
        if keys.is_empty() {
            let cell = |column: &Column| match values.len() {
                1 => column.cell(first, self.seconds),
                _ => format!("{} {}", column.header().to_lowercase(), column.cell(first, self.seconds)),
            };
            let rate = if values.len() == 1 && values[0].rate { "/s" } else { "" };
            return format!("{}: {}{rate}\n", heading.text(), values.iter().map(cell).collect::<Vec<_>>().join(", "));
        }
        let columns: Vec<&Column> = keys.iter().chain(values).collect();
        let header = columns.iter().map(|column| column.header()).collect();
        let cells = |row: &Row| columns.iter().map(|column| column.cell(row, self.seconds)).collect();
        let lines: Vec<Vec<String>> = std::iter::once(header).chain(self.rows.iter().map(cells)).collect();
        let widths: Vec<usize> = (0..columns.len()).map(|at| width(&lines, at)).collect();
        let mut text = format!("{}\n", heading.text());
        for line in &lines {
            let cells = line.iter().zip(&widths).zip(&columns).map(|((cell, width), column)| {
                if column.is_right() { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
            });
            text.push_str(cells.collect::<Vec<_>>().join(GAP).trim_end());
            text.push('\n');
        }
        text.push_str(&more(self.left_out));
        text.push('\n');
        text
    }

    /// An object of the elements, in their order.
    pub(super) fn json(&self, heading: &Heading<'_>) -> Vec<u8> {
        let Columns { keys, values, .. } = self.columns;
        let value = |row: &Row| match &values[..] {
            [only] => self.number(only, row),
            _ => values.iter().map(|column| (column.header().to_lowercase(), self.number(column, row))).collect(),
        };
        let mut data = Vec::new();
        match self.rows.first() {
            Some(row) if keys.is_empty() => data.extend(value(row).to_string().bytes()),
            _ => {
                data.push(b'{');
                let mut known: HashMap<String, u32> = HashMap::new();
                for (index, row) in self.rows.iter().enumerate() {
                    data.extend(if index == 0 { "" } else { ", " }.bytes());
                    let key = self.columns.label(row, ",");
                    let count = known.entry(key.clone()).or_default();
                    *count += 1;
                    // Keys that a format makes the same stay apart.
                    let key = if *count == 1 { key } else { format!("{key} ({count})") };
                    quote(&mut data, key.as_bytes());
                    data.extend(format!(": {}", value(row)).bytes());
                }
                data.push(b'}');
            }
        }
        let kind = if self.columns.is_stats() { "stats" } else { "map" };
        heading.json(kind, &data, self.left_out)
    }

    /// A number without its unit, or a text.
    fn number(&self, column: &Column, row: &Row) -> serde_json::Value {
        match (column.number(row), column.shown(row, self.seconds)) {
            (Some(number), Some(shown)) if column.format.is_number() => match (column.rate, i64::try_from(number)) {
                (true, _) => json!(shown),
                (false, Ok(number)) => json!(number),
                (false, Err(_)) => json!(number as u64),
            },
            _ => json!(column.cell(row, self.seconds)),
        }
    }
}

fn width(lines: &[Vec<String>], at: usize) -> usize {
    lines.iter().map(|line| line[at].chars().count()).max().unwrap_or(0)
}

impl Histograms<'_> {
    /// Each under its label.
    pub(super) fn text(&self, heading: &Heading<'_>) -> String {
        if self.all.is_empty() {
            return heading.no_entries();
        }
        let title = heading.text();
        let drawn = hist_text(&self.all, self.scale, |label| {
            format!("{}:", self.heading(&title, heading.unit, label)).into_bytes()
        });
        format!("{}{}", String::from_utf8_lossy(&drawn), more(self.left_out))
    }

    pub(super) fn json(&self, heading: &Heading<'_>) -> Vec<u8> {
        let drawn = hist_json(&self.all, self.scale, |label| self.label(label).into_bytes());
        heading.json("hist", &drawn, self.left_out)
    }

    /// Each with its heading, for charts.
    pub(super) fn bars(&self, heading: &Heading<'_>) -> Vec<(String, Vec<(String, u64)>)> {
        let title = Heading { time: None, ..*heading }.text();
        let bars = |of: &Histogram| (self.heading(&title, heading.unit, of.label.as_deref()), of.bars(self.scale));
        self.all.iter().map(bars).collect()
    }

    fn heading(&self, title: &str, unit: Option<&str>, label: Option<&[u8]>) -> String {
        let label = label.map(|label| format!(" [{}]", self.label(label))).unwrap_or_default();
        let unit = unit.map_or_else(String::new, |unit| format!(" ({unit})"));
        format!("{title}{label}{unit}")
    }

    fn label(&self, bytes: &[u8]) -> String {
        let row = Row { key: bytes.to_vec(), value: Vec::new() };
        self.columns.label(&row, ", ")
    }
}
