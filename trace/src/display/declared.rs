//! The declarations of an object: BTF tags of its maps, lines of its section `config`, and what `MAP_COUNT` and its like
//! say of themselves.

use std::ops::Range;
use std::time::Duration;

use twinbpf_btf::{Type, TypeId};
use twinbpf_loader::Object;
use twinbpf_vm::helper::print::{Aggregate, Histogram, Layout, Row, Scale, histograms, is_scalar};
use twinbpf_vm::map::{MapKind, MapSpec, compare};

use super::columns::{Column, Columns, has_numbers};
use super::error::DisplayError;
use super::grammar::{Fault, settings, trimmed};
use super::settings::{Part, Settings, Sort};
use super::units::{Format, Unit};
use crate::error::Error;

/// What the text of a BTF tag begins with.
const TAG: &str = "display:";
/// Section of the lines by which maps say how they are printed: `map NAME`, `hist NAME`, `lhist NAME MIN MAX STEP`.
const IMPLIED: &str = ".rodata.twinmaps";

/// How the maps of an object are printed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Declarations {
    /// Those of lines in their order, then those of tags: of `MAP_COUNT` and its like as they are declared, of others as
    /// the object has them.
    pub(crate) declared: Vec<Declared>,
    /// Of a tool without END: each with the declaration that it would be.
    pub(crate) implied: Vec<(Implied, Declared)>,
}

/// A map that is printed as it declares, or is a metric.
#[derive(Clone, Debug)]
pub(crate) struct Declared {
    /// Its index.
    pub(crate) map: usize,
    /// It does not print.
    pub(super) hidden: bool,
    pub(crate) title: Option<String>,
    pub(super) sort: Sort,
    pub(super) top: Option<usize>,
    pub(super) every: Option<Duration>,
    pub(super) clear: bool,
    pub(super) time: bool,
    /// That of all values.
    pub(crate) unit: Option<Unit>,
    pub(crate) columns: Columns,
    /// Of a histogram, whose columns are those of its label.
    pub(crate) hist: Option<(Layout, Scale)>,
    /// Name of its metric.
    pub(crate) metric: Option<String>,
    /// Whether the metric is a gauge, or a counter.
    pub(crate) is_gauge: Option<bool>,
    pub(crate) help: Option<String>,
    /// `MAP_COUNT` or one of its like made it.
    pub(crate) counts: bool,
}

impl Declared {
    /// Whether it is a metric.
    pub(crate) fn is_served(&self) -> bool {
        !self.hidden || self.metric.is_some()
    }

    /// The histograms in elements of a map, those that count most last.
    ///
    /// # Errors
    /// A slot that the scale does not have, in words.
    pub(crate) fn histograms(
        spec: &MapSpec,
        (layout, scale): &(Layout, Scale),
        mut rows: Vec<Row>,
    ) -> Result<Vec<Histogram>, String> {
        rows.sort_by(|one, two| compare(&spec.key_fields, &one.key, &two.key));
        histograms(layout, rows.iter().map(|row| (&row.key, &row.value)), scale).map_err(|why| why.to_string())
    }

    /// The elements of the map that are printed, in order, and how many are not.
    pub(super) fn sorted(&self, spec: &MapSpec, mut rows: Vec<Row>) -> (Vec<Row>, usize) {
        let Declared { sort, columns, top, .. } = self;
        rows.sort_by(|one, two| {
            let order = columns.compare(spec, &sort.by, one, two);
            let order = if sort.descending { order.reverse() } else { order };
            order.then_with(|| compare(&spec.key_fields, &one.key, &two.key))
        });
        // The largest are left.
        let left_out = rows.len().saturating_sub(top.unwrap_or(usize::MAX));
        if sort.descending {
            rows.truncate(rows.len() - left_out);
        } else {
            rows.drain(..left_out);
        }
        (rows, left_out)
    }
}

/// A map that is printed at the end by a function of scripts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Implied {
    pub(crate) map: usize,
    pub(crate) function: String,
    pub(crate) numbers: [i64; 3],
}

/// A declaration as it is written.
struct Source {
    map: usize,
    /// Where it is.
    place: String,
    text: String,
    /// The settings in it.
    part: Range<usize>,
}

impl Declarations {
    /// Those of an object.
    ///
    /// # Errors
    /// Each that cannot be read, or does not fit its map.
    pub(crate) fn of(object: &Object) -> Result<Declarations, Error> {
        let mut declarations = Declarations::default();
        let (implied, mut wrong) = implied(object);
        let mut sources: Vec<Source> = Vec::new();
        for source in lines(object).into_iter().chain(tags(object, &implied)) {
            let added = source.and_then(|source| match sources.iter().find(|other| other.map == source.map) {
                None => {
                    sources.push(source);
                    Ok(())
                }
                Some(other) => {
                    let why = format!("the map has another declaration: {}", other.text.trim());
                    let Source { place, text, part, .. } = source;
                    Err(DisplayError::new(&object.name, place, &text, Fault::new(&part, why)))
                }
            });
            wrong.extend(added.err());
        }
        for source in sources {
            match declared(object, &source, &implied) {
                Ok(declared) => declarations.declared.push(declared),
                Err(fault) => wrong.push(DisplayError::new(&object.name, source.place, &source.text, fault)),
            }
        }
        for of in implied.iter().filter(|of| !declarations.declared.iter().any(|declared| declared.map == of.map)) {
            let source = Source { map: of.map, place: format!("section {IMPLIED}"), text: String::new(), part: 0..0 };
            match declared(object, &source, &implied) {
                Ok(declared) => declarations.implied.push((of.clone(), declared)),
                Err(fault) => wrong.push(DisplayError::new(&object.name, source.place, &source.text, fault)),
            }
        }
        let wrong: Vec<Error> = wrong.into_iter().map(|error| Error::Display(Box::new(error))).collect();
        if wrong.is_empty() { Ok(declarations) } else { Err(Error::all(wrong)) }
    }

    /// Whether a map is a histogram, or prints every interval.
    pub(crate) fn have_charts(&self) -> bool {
        let implied = self.implied.iter().map(|(_, declared)| declared);
        self.declared.iter().chain(implied).any(|declared| declared.hist.is_some() || declared.every.is_some())
    }

    /// When the map with this index is printed, in words. `None`: no declaration says so.
    pub(crate) fn when(&self, map: usize) -> Option<String> {
        let declared = self.declared.iter().find(|declared| declared.map == map)?;
        Some(match declared.every {
            _ if declared.hidden => "hidden".to_owned(),
            Some(every) => format!("printed every {every:?}"),
            None => "printed at the end".to_owned(),
        })
    }
}

/// `DISPLAY("...")` at the declaration of a map.
fn tags(object: &Object, implied: &[Implied]) -> Vec<Result<Source, DisplayError>> {
    let Some(btf) = &object.btf else { return Vec::new() };
    let of = |id| match btf.type_by_id(id) {
        Some(Type::DeclTag { target, .. }) => Some((target, btf.name(id).strip_prefix(TAG)?.to_owned())),
        _ => None,
    };
    let is_map = |id: TypeId| btf.datasec(".maps").is_some_and(|maps| maps.vars().any(|var| var.var_id == id));
    let source = |(target, text): (TypeId, String)| {
        let name = btf.name(target);
        match object.map(name).filter(|_| matches!(btf.type_by_id(target), Some(Type::Var { .. }))) {
            Some(map) => Ok(Some(Source { map, place: format!("map {name}"), part: 0..text.len(), text })),
            // Its definition is wrong, which is an error of its own.
            None if is_map(target) => Ok(None),
            None => {
                let fault = Fault::new(&(0..text.len()), "only a map can be displayed");
                Err(DisplayError::new(&object.name, format!("'{name}'"), &text, fault))
            }
        }
    };
    let mut sources: Vec<_> = btf.ids().filter_map(of).filter_map(|tag| source(tag).transpose()).collect();
    sources.sort_by_key(|source| {
        let map = source.as_ref().map_or(usize::MAX, |source| source.map);
        (implied.iter().position(|implied| implied.map == map).unwrap_or(usize::MAX), map)
    });
    sources
}

/// Lines of the section `config`, `MAP: SETTINGS`.
fn lines(object: &Object) -> Vec<Result<Source, DisplayError>> {
    let config = object.config.as_deref().unwrap_or_default();
    let lines = config.split(|byte| [0, b'\n'].contains(byte)).map(String::from_utf8_lossy);
    let lines = lines.filter(|line| !line.trim().is_empty() && !line.trim_start().starts_with('#'));
    let source = |line: String| {
        let place = || "section config".to_owned();
        let fail = |span: &Range<usize>, why: String| {
            Err(DisplayError::new(&object.name, place(), &line, Fault::new(span, why)))
        };
        let Some(colon) = line.find(':') else {
            return fail(&(0..line.len()), "a line is MAP: SETTINGS, or a comment after #".to_owned());
        };
        let span = trimmed(&line, 0..colon);
        let name = &line[span.clone()];
        match object.map(name) {
            Some(map) => {
                let part = trimmed(&line, colon + 1..line.len());
                Ok(Source { map, place: place(), part, text: line.clone() })
            }
            None => fail(&span, format!("there is no map '{name}'{}", others(object))),
        }
    };
    lines.map(|line| source(line.into_owned())).collect()
}

/// Names of the maps that there are.
fn others(object: &Object) -> String {
    let names = object.maps.iter().filter(|map| map.data.is_none()).map(|map| &*map.name).collect::<Vec<_>>();
    if names.is_empty() { String::new() } else { format!("; there are {}", names.join(", ")) }
}

/// What `MAP_COUNT` and its like say.
fn implied(object: &Object) -> (Vec<Implied>, Vec<DisplayError>) {
    let map = object.maps.iter().find(|map| &*map.name == IMPLIED);
    let bytes = map.and_then(|map| map.data.as_ref()).map(|data| data.bytes.as_slice()).unwrap_or_default();
    let lines = bytes.split(|byte| *byte == 0).filter(|line| !line.is_empty()).map(String::from_utf8_lossy);
    let (mut all, mut wrong) = (Vec::new(), Vec::new());
    for line in lines {
        match implied_by(object, &line) {
            Ok(implied) => all.push(implied),
            Err(fault) => wrong.push(DisplayError::new(&object.name, format!("section {IMPLIED}"), &line, fault)),
        }
    }
    (all, wrong)
}

fn implied_by(object: &Object, line: &str) -> Result<Implied, Fault> {
    let mut words = line.split(' ');
    let (kind, name) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let span = 0..line.len();
    let map = object.map(name).ok_or_else(|| Fault::new(&span, format_args!("there is no map '{name}'")))?;
    let numbers: Option<Vec<i64>> = words.map(|word| word.parse().ok()).collect();
    let numbers = match (kind, numbers.as_deref()) {
        ("map" | "hist", Some([])) => [0; 3],
        ("lhist", Some(&[min, max, step])) if Scale::linear(min, max, step).is_some() => [min, max, step],
        ("lhist", _) => {
            let why = "MAP_LHIST(NAME, MIN, MAX, STEP) takes three numbers, not expressions, with at most 65,536 steps";
            return Err(Fault::new(&span, why));
        }
        _ => return Err(Fault::new(&span, "a line is map NAME, hist NAME or lhist NAME MIN MAX STEP")),
    };
    Ok(Implied { map, function: format!("print_{kind}"), numbers })
}

/// Reads a declaration and compares it with its map.
fn declared(object: &Object, source: &Source, implied: &[Implied]) -> Result<Declared, Fault> {
    let spec = &object.maps[source.map];
    let settings = Settings::read(&settings(&source.text, source.part.clone())?)?;
    if !settings.hidden && !has_elements(spec.kind) {
        return Err(Fault::new(
            &source.part,
            format_args!("a map of type {} has no elements to print", spec.kind.name()),
        ));
    }
    let implied = implied.iter().find(|implied| implied.map == source.map);
    let hist = hist(spec, source, &settings, implied)?;
    let mut columns = match &hist {
        Some((layout, _)) => Columns::of_labels(layout),
        None => Columns::of_table(spec, is_scalar(spec)),
    };
    if let Some((names, span)) = &settings.columns {
        columns.rename(names).map_err(|all| Fault::new(span, format_args!("there are only {all} columns")))?;
    }
    format(&mut columns, &settings, hist.is_none())?;
    let sort = sort(&mut columns, &settings, hist.is_some())?;
    check_effect(spec, &settings, hist.is_some())?;
    check_clear(spec, &settings)?;
    check_metric(spec, &settings, &columns, hist.is_some())?;
    Ok(Declared {
        map: source.map,
        hidden: settings.hidden,
        title: settings.title,
        sort,
        top: settings.top.map(|(top, _)| top),
        every: settings.every.map(|(every, _)| every),
        clear: settings.clear.is_some(),
        time: settings.time,
        unit: settings.units.into_iter().find(|((member, _), _)| member.is_empty()).map(|((_, unit), _)| unit),
        columns,
        hist,
        metric: settings.metric.map(|(name, _)| name),
        is_gauge: settings.is_gauge.map(|(is_gauge, _)| is_gauge),
        help: settings.help,
        counts: implied.is_some(),
    })
}

fn has_elements(kind: MapKind) -> bool {
    use MapKind::{Array, Hash, LpmTrie, LruHash, LruPercpuHash, PercpuArray, PercpuHash};
    matches!(kind, Array | Hash | LpmTrie | LruHash | LruPercpuHash | PercpuArray | PercpuHash)
}

/// The histogram that a declaration makes of a map, or that the map says it is.
fn hist(
    spec: &MapSpec,
    source: &Source,
    settings: &Settings,
    implied: Option<&Implied>,
) -> Result<Option<(Layout, Scale)>, Fault> {
    let (scale, span) = match (&settings.scale, implied.map(|implied| (implied.function.as_str(), implied.numbers))) {
        (Some((scale, span)), _) => (scale.clone(), span),
        (None, Some(("print_hist", _))) => (Scale::Log2, &source.part),
        (None, Some(("print_lhist", [min, max, step]))) => {
            (Scale::linear(min, max, step).expect("checked where it was read"), &source.part)
        }
        (None, _) => return Ok(None),
    };
    match Layout::of(spec) {
        Ok(layout) => Ok(Some((layout, scale))),
        Err(why) => Err(Fault::new(span, format_args!("the map is no histogram: {why}"))),
    }
}

/// Gives columns their formats, and those of numbers the unit and the rate.
fn format(columns: &mut Columns, settings: &Settings, is_table: bool) -> Result<(), Fault> {
    for ((part, format), span) in &settings.formats {
        let found = columns.of(part);
        let missing = found.is_empty();
        for column in found {
            if let Some(why) = column.refuses(*format) {
                return Err(Fault::new(span, why));
            }
            column.format = *format;
        }
        if missing {
            return Err(no_member(columns, part, span));
        }
    }
    if !is_table {
        return Ok(());
    }
    let mut set = |span: &Range<usize>, wants: &dyn Fn(&Column) -> bool, set: &dyn Fn(&mut Column), what: &str| {
        let mut found = columns.values.iter_mut().filter(|column| wants(column)).peekable();
        if found.peek().is_none() {
            return Err(Fault::new(span, format_args!("no value of the map is {what}")));
        }
        found.for_each(set);
        Ok(())
    };
    for ((member, unit), span) in &settings.units {
        let wants = |column: &Column| {
            column.has_unit() && if member.is_empty() { column.unit.is_none() } else { column.name() == member }
        };
        set(span, &wants, &|column| column.unit = Some(unit.clone()), "such a number")?;
    }
    let is_decimal = |column: &Column| column.format == Format::Dec || !(column.rate || column.unit.is_some());
    if let Some(((), span)) = &settings.rate {
        set(span, &Column::adds_up, &|column| column.rate = true, "a sum, of which there is one by second")?;
    }
    match settings.formats.iter().find(|((part, format), _)| !part.of_key && *format != Format::Dec) {
        Some((_, span)) if !columns.values.iter().all(is_decimal) => {
            Err(Fault::new(span, "a value with a unit or a rate is decimal"))
        }
        _ => Ok(()),
    }
}

fn no_member(columns: &Columns, part: &Part, span: &Range<usize>) -> Fault {
    let whole = if part.of_key { "key" } else { "value" };
    let names = columns.names(part.of_key);
    let there = if names.is_empty() { String::new() } else { format!("; there are {names}") };
    match part.member.as_str() {
        "" => Fault::new(span, format_args!("there is no {whole} to write")),
        member => Fault::new(span, format_args!("the {whole} has no member {member}{there}")),
    }
}

/// The largest value first, unless it says otherwise; of histograms the last.
fn sort(columns: &mut Columns, settings: &Settings, is_hist: bool) -> Result<Sort, Fault> {
    let by_value = || Sort { by: Part { of_key: false, member: String::new() }, descending: !is_hist };
    let Some((sort, span)) = &settings.sort else { return Ok(by_value()) };
    if is_hist && sort.by != by_value().by {
        return Err(Fault::new(span, "histograms are sorted by what they count: sort=value asc or desc"));
    }
    if !is_hist && columns.of(&sort.by).is_empty() {
        return Err(no_member(columns, &sort.by, span));
    }
    Ok(sort.clone())
}

/// Refuses what would have no effect on the map.
fn check_effect(spec: &MapSpec, settings: &Settings, is_hist: bool) -> Result<(), Fault> {
    let refuse = |span: Option<&Range<usize>>, why: &str| span.map_or(Ok(()), |span| Err(Fault::new(span, why)));
    let rate = settings.rate.as_ref().map(|(_, span)| span);
    if is_hist {
        refuse(rate, "a histogram counts, and has no rate")?;
        let of_member = settings.units.iter().find(|((member, _), _)| !member.is_empty());
        return refuse(of_member.map(|(_, span)| span), "the unit of a histogram is that of all its numbers");
    }
    if is_scalar(spec) {
        let top = settings.top.as_ref().map(|(_, span)| span);
        refuse(top.or(settings.sort.as_ref().map(|(_, span)| span)), "the map has only one value")?;
    }
    Ok(())
}

fn check_clear(spec: &MapSpec, settings: &Settings) -> Result<(), Fault> {
    let Some(((), span)) = &settings.clear else { return Ok(()) };
    if matches!(spec.kind, MapKind::LruHash | MapKind::LruPercpuHash) {
        return Err(Fault::new(span, "the map drops entries by itself, which would be missing in an interval"));
    }
    if !has_numbers(&spec.value_fields, spec.value_size) {
        return Err(Fault::new(span, "no value of the map is a number, of which there would be a difference"));
    }
    match Aggregate::of(&spec.value_fields) {
        Some(Aggregate::Min | Aggregate::Max) => Err(Fault::new(
            span,
            "the map keeps extremes of the whole session, from which those of an interval do not follow",
        )),
        _ => Ok(()),
    }
}

fn check_metric(spec: &MapSpec, settings: &Settings, columns: &Columns, is_hist: bool) -> Result<(), Fault> {
    let is_number = |column: &Column| column.is_number();
    if let (Some((_, span)), false) = (&settings.metric, is_hist)
        && !(has_elements(spec.kind) && columns.values.iter().any(is_number))
    {
        return Err(Fault::new(span, "a metric is a number, and no value of the map is one"));
    }
    if let Some((_, span)) = &settings.is_gauge
        && (is_hist || Aggregate::of(&spec.value_fields).is_some())
    {
        return Err(Fault::new(span, "histograms, averages and extremes have a type of their own"));
    }
    Ok(())
}
