//! Columns of a table: the members of keys and values, and how each is written.

use std::cmp::Ordering;

use twinbpf_vm::helper::print::{Aggregate, Layout, Merged, Notation, Row, key};
use twinbpf_vm::map::{Field, FieldKind, MapSpec, compare};

use super::settings::Part;
use super::units::{Format, Unit, plain};

/// A part of keys or of values.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    of_key: bool,
    /// Its member; empty for the whole.
    name: String,
    source: Source,
    pub(super) format: Format,
    pub(crate) unit: Option<Unit>,
    /// Numbers are by second.
    pub(super) rate: bool,
}

/// What a column is read from.
#[derive(Clone, Debug, PartialEq)]
enum Source {
    /// Fields of the key or the value.
    Fields(Vec<Field>),
    /// What CPUs have in common.
    Count,
    Average,
    Total,
    /// The least or the greatest value.
    Extreme,
}

/// The columns of a map.
#[derive(Clone, Debug)]
pub(crate) struct Columns {
    pub(crate) keys: Vec<Column>,
    pub(crate) values: Vec<Column>,
    /// What values are, where they are aggregates.
    aggregate: Option<Aggregate>,
}

impl Columns {
    /// Those of a table.
    pub(super) fn of_table(spec: &MapSpec, is_variable: bool) -> Columns {
        let keys = if is_variable { Vec::new() } else { members(true, &spec.key_fields, spec.key_size) };
        let aggregate = Aggregate::of(&spec.value_fields);
        let values = match aggregate {
            None => members(false, &spec.value_fields, spec.value_size),
            Some(aggregate) => parts(aggregate),
        };
        Columns { keys, values, aggregate }
    }

    /// Those of the labels of histograms.
    pub(super) fn of_labels(layout: &Layout) -> Columns {
        let keys = if layout.labels.is_empty() { Vec::new() } else { members(true, &unwrapped(&layout.labels), 0) };
        Columns { keys, values: Vec::new(), aggregate: None }
    }

    /// Names columns, those of keys first. Gives how many there are where the names are more.
    pub(super) fn rename(&mut self, names: &[String]) -> Result<(), usize> {
        let all = self.keys.len() + self.values.len();
        if names.len() > all {
            return Err(all);
        }
        for (column, name) in self.keys.iter_mut().chain(&mut self.values).zip(names) {
            column.name.clone_from(name);
        }
        Ok(())
    }

    /// For a chart: the first number of each element, by its key.
    pub(super) fn points(&self, rows: &[Row], seconds: f64) -> Vec<(String, f64)> {
        let Some(value) = self.values.iter().find(|column| column.is_number()) else { return Vec::new() };
        rows.iter().filter_map(|row| Some((self.label(row, ", "), value.shown(row, seconds)?))).collect()
    }

    /// The key of an element as one text.
    pub(super) fn label(&self, row: &Row, between: &str) -> String {
        self.keys.iter().map(|column| column.cell(row, 1.0)).collect::<Vec<_>>().join(between)
    }

    /// Whether values are counts with totals.
    pub(super) fn is_stats(&self) -> bool {
        self.aggregate == Some(Aggregate::Stats)
    }

    /// The columns of a part: one member, or all.
    pub(super) fn of(&mut self, part: &Part) -> Vec<&mut Column> {
        let columns = if part.of_key { &mut self.keys } else { &mut self.values };
        columns.iter_mut().filter(|column| part.member.is_empty() || column.name == part.member).collect()
    }

    /// Names of the members of keys or values.
    pub(super) fn names(&self, of_key: bool) -> String {
        let columns = if of_key { &self.keys } else { &self.values };
        let names = columns.iter().map(|column| column.name.as_str()).filter(|name| !name.is_empty());
        names.collect::<Vec<_>>().join(", ")
    }

    /// Orders elements by a part of them.
    pub(super) fn compare(&self, spec: &MapSpec, part: &Part, one: &Row, two: &Row) -> Ordering {
        let columns = if part.of_key { &self.keys } else { &self.values };
        match (columns.iter().find(|column| column.name == part.member), self.aggregate) {
            (Some(column), _) => column.compare(one, two),
            (None, _) if part.of_key => compare(&spec.key_fields, &one.key, &two.key),
            (None, Some(aggregate)) => {
                let rank = |row: &Row| aggregate.rank(Merged::of(&row.value));
                rank(one).cmp(&rank(two))
            }
            (None, None) => compare(&spec.value_fields, &one.value, &two.value),
        }
    }
}

/// Fields by the first part of their names, `member` or `member[0]`.
fn members(of_key: bool, fields: &[Field], size: u32) -> Vec<Column> {
    let mut groups: Vec<(String, Vec<Field>)> = Vec::new();
    for field in Field::or_whole(fields, size).iter() {
        let name = &field.name[..field.name.find(['.', '[']).unwrap_or(field.name.len())];
        match groups.last_mut() {
            Some((last, inside)) if last == name => inside.push(field.clone()),
            _ => groups.push((name.to_owned(), vec![field.clone()])),
        }
    }
    let column = |(name, fields)| Column::new(of_key, name, Source::Fields(fields));
    groups.into_iter().map(column).collect()
}

fn parts(aggregate: Aggregate) -> Vec<Column> {
    let parts: &[(&str, Source)] = match aggregate {
        Aggregate::Avg => &[("average", Source::Average)],
        Aggregate::Stats => &[("count", Source::Count), ("average", Source::Average), ("total", Source::Total)],
        Aggregate::Min => &[("min", Source::Extreme)],
        Aggregate::Max => &[("max", Source::Extreme)],
    };
    parts.iter().map(|(name, source)| Column::new(false, (*name).to_owned(), source.clone())).collect()
}

/// The fields of labels without the member `key` that holds them in the maps of `<twinbpf/trace.h>`.
fn unwrapped(fields: &[Field]) -> Vec<Field> {
    let inside = |field: &Field| {
        let rest = field.name.strip_prefix("key")?;
        let name = rest.strip_prefix('.').unwrap_or(rest);
        (rest.is_empty() || rest.starts_with(['.', '['])).then(|| Field { name: name.into(), ..field.clone() })
    };
    let all: Option<Vec<Field>> = fields.iter().map(inside).collect();
    all.unwrap_or_else(|| fields.to_vec())
}

impl Column {
    fn new(of_key: bool, name: String, source: Source) -> Column {
        Column { of_key, name, source, format: Format::Dec, unit: None, rate: false }
    }

    /// The only field, if there is one.
    fn field(&self) -> Option<&Field> {
        match &self.source {
            Source::Fields(fields) => fields.first().filter(|_| fields.len() == 1),
            Source::Count | Source::Average | Source::Total | Source::Extreme => None,
        }
    }

    /// Whether it is one number.
    pub(crate) fn is_number(&self) -> bool {
        match &self.source {
            Source::Fields(_) => self.field().is_some_and(is_integer),
            Source::Count | Source::Average | Source::Total | Source::Extreme => true,
        }
    }

    /// Whether its numbers are of the declared unit: not a count beside values.
    pub(super) fn has_unit(&self) -> bool {
        self.is_number() && self.source != Source::Count
    }

    /// Whether its numbers grow with what is counted, so that there is one by second.
    pub(super) fn adds_up(&self) -> bool {
        match &self.source {
            Source::Fields(_) => self.is_number(),
            Source::Count | Source::Total => true,
            Source::Average | Source::Extreme => false,
        }
    }

    /// Bytes of its fields.
    fn size(&self) -> usize {
        match &self.source {
            Source::Fields(fields) => fields.iter().map(|field| field.size as usize).sum(),
            Source::Count | Source::Average | Source::Total | Source::Extreme => 8,
        }
    }

    /// Why it cannot be written in a format.
    pub(super) fn refuses(&self, format: Format) -> Option<String> {
        let size = self.size();
        match format.bytes() {
            Some(wanted) if wanted != size => Some(format!("an address has {wanted} bytes, and this has {size}")),
            None if !self.is_number() => Some("the format is for numbers, and this is none".to_owned()),
            Some(_) | None => None,
        }
    }

    /// Its member; empty for the whole.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Title of the column.
    pub(crate) fn header(&self) -> String {
        let name = match (&self.unit, self.format) {
            _ if !self.name.is_empty() => self.name.as_str(),
            (Some(unit), _) => unit.header(),
            (None, Format::Name(named)) => named.noun(),
            (None, Format::Ipv4 | Format::Ipv6) => "address",
            (None, Format::Dec | Format::Hex) if self.of_key => "key",
            (None, Format::Dec | Format::Hex) => "value",
        };
        format!("{}{}", name.to_uppercase(), if self.rate { "/s" } else { "" })
    }

    /// Whether cells are numbers, which end at the right.
    pub(super) fn is_right(&self) -> bool {
        self.is_number() && self.format.is_number()
    }

    fn bytes<'a>(&self, row: &'a Row) -> &'a [u8] {
        if self.of_key { &row.key } else { &row.value }
    }

    /// Its number in an element.
    pub(crate) fn number(&self, row: &Row) -> Option<i128> {
        let merged = || Merged::of(&row.value);
        match &self.source {
            Source::Fields(_) => self.field()?.integer(self.bytes(row)),
            Source::Count => Some(merged().count.into()),
            Source::Average => Some(merged().average().into()),
            Source::Total | Source::Extreme => Some(merged().value.into()),
        }
    }

    fn compare(&self, one: &Row, two: &Row) -> Ordering {
        match (&self.source, self.number(one), self.number(two)) {
            (_, Some(one), Some(two)) => one.cmp(&two),
            (Source::Fields(fields), ..) => compare(fields, self.bytes(one), self.bytes(two)),
            _ => Ordering::Equal,
        }
    }

    /// The number that is shown: by second, where that is so.
    pub(super) fn shown(&self, row: &Row, seconds: f64) -> Option<f64> {
        let number = self.number(row)? as f64;
        Some(if self.rate { number / seconds } else { number })
    }

    /// Text of an element's cell.
    pub(crate) fn cell(&self, row: &Row, seconds: f64) -> String {
        if let Some(address) = self.address(row) {
            return address;
        }
        match (self.number(row), self.shown(row, seconds), &self.unit) {
            (Some(number), ..) if !self.format.is_number() => self.format.number(number, self.size()),
            (_, Some(shown), Some(unit)) if self.rate || unit.is_scaled() => unit.write(shown),
            (_, Some(shown), _) if self.rate => plain(shown),
            (Some(number), ..) => self.format.number(number, self.size()),
            (None, ..) => self.text(row),
        }
    }

    fn address(&self, row: &Row) -> Option<String> {
        self.format.bytes()?;
        let Source::Fields(fields) = &self.source else { return None };
        let start = fields.first()?.off as usize;
        self.format.address(self.bytes(row).get(start..)?)
    }

    fn text(&self, row: &Row) -> String {
        let Source::Fields(fields) = &self.source else { return String::new() };
        let mut text = Vec::new();
        key(&mut text, fields, self.bytes(row), Notation::Text);
        String::from_utf8_lossy(&text).into_owned()
    }
}

fn is_integer(field: &Field) -> bool {
    matches!(field.kind, FieldKind::Unsigned | FieldKind::Signed) && field.size <= 8
}

/// Whether any field is an integer.
pub(super) fn has_numbers(fields: &[Field], size: u32) -> bool {
    Field::or_whole(fields, size).iter().any(is_integer)
}

/// The difference to an earlier element with the same key, of all integers; `None` where there is none. What an unsigned
/// number lost, the element was made anew meanwhile.
pub(super) fn since(fields: &[Field], value: &[u8], before: Option<&[u8]>) -> Option<Vec<u8>> {
    let fields = Field::or_whole(fields, value.len() as u32);
    let numbers = || fields.iter().filter(|field| is_integer(field));
    let mut difference = value.to_vec();
    if let Some(before) = before {
        let both = |field: &Field| field.integer(value).zip(field.integer(before)).unwrap_or((0, 0));
        let is_made_anew = |field: &Field| field.kind == FieldKind::Unsigned && both(field).0 < both(field).1;
        if !numbers().any(is_made_anew) {
            for field in numbers() {
                let (now, then) = both(field);
                let bytes = (now - then).to_le_bytes();
                let start = field.off as usize;
                difference[start..start + field.size as usize].copy_from_slice(&bytes[..field.size as usize]);
            }
        }
    }
    let is_new = before.is_none();
    (is_new || numbers().any(|field| field.integer(&difference) != Some(0))).then_some(difference)
}

#[cfg(test)]
mod tests {
    use twinbpf_vm::map::{Field, FieldKind};

    use super::since;

    #[test]
    fn differences_are_of_numbers() {
        let field = |off, size, kind| Field { name: "".into(), off, size, kind };
        let fields = [field(0, 4, FieldKind::Unsigned), field(4, 4, FieldKind::Bytes), field(8, 8, FieldKind::Signed)];
        let value = |count: u32, sum: i64| [&count.to_le_bytes()[..], b"abcd", &sum.to_le_bytes()].concat();
        let of = |now: &[u8], before: &[u8]| since(&fields, now, Some(before));
        assert_eq!(of(&value(5, -7), &value(3, 1)), Some(value(2, -8)));
        assert_eq!(of(&value(5, 1), &value(5, 1)), None);
        // Made anew.
        assert_eq!(of(&value(2, 9), &value(5, 1)), Some(value(2, 9)));
        assert_eq!(since(&fields, &value(1, 0), None), Some(value(1, 0)));
        assert_eq!(since(&fields, &value(0, 0), None), Some(value(0, 0)));
        assert_eq!(since(&[], &3_u64.to_le_bytes(), Some(&1_u64.to_le_bytes())), Some(2_u64.to_le_bytes().to_vec()));
    }
}
