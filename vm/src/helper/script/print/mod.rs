//! `print_map`, `print_hist` and `print_lhist`: maps as bpftrace prints them, as text or, where the run's output is
//! JSON, one object a line.
//!
//! Everything works on a snapshot. What a key and a value are is read from the fields that BTF gave the map; without
//! BTF they are unsigned integers or bytes.

mod aggregate;
mod hist;
pub(super) mod scalar;

use super::Host;
use super::map::{InterruptCheck, snapshot};
use super::output::write_out;
use crate::helper::HelperResult;
use crate::host::{Fail, HostFn, MapRef, OutputFormat};
use crate::map::{Direction, Entry, Errno, Field, MapKind, MapOps, MapSpec, Snapshot, SortBy};
use crate::trap::Trap;

pub use aggregate::{Aggregate, Merged};
pub use hist::{Histogram, Layout, Scale, Unfit, hist_json, hist_text, histograms};
pub use scalar::{Notation, key, quote, value};

pub(super) fn functions() -> Vec<HostFn> {
    vec![
        HostFn::typed::<(), _>("print_map", |caller: Host<'_>, map: MapRef| print_map(caller, &map, u64::MAX)),
        HostFn::typed::<(), _>("twinbpf_print_top", |caller: Host<'_>, map: MapRef, top: u64| {
            print_map(caller, &map, top)
        }),
        HostFn::typed::<(), _>("print_hist", |caller: Host<'_>, map: MapRef| print_hist(caller, &map, &Scale::Log2)),
        HostFn::typed::<(), _>("print_lhist", |caller: Host<'_>, map: MapRef, min: i64, max: i64, step: i64| {
            let scale = Scale::linear(min, max, step).ok_or(Errno::EINVAL)?;
            print_hist(caller, &map, &scale)
        }),
    ]
}

/// Entries by value, `@name[key]: value`; an array of one element is `@name: value`. Elements of larger arrays that
/// are zero count as never used. At most `top` of them, those with the largest values. Gives the number of entries printed,
/// or below 0 an errno.
fn print_map(mut caller: Host<'_>, map: &MapRef, top: u64) -> HelperResult<i32> {
    let (format, top) = (caller.runtime().format, usize::try_from(top).unwrap_or(usize::MAX));
    let (text, count) = top_text(map, top, format, &mut || caller.check_interrupt())?;
    finish(caller, &text, count)
}

/// What `print_map` prints of a map, and the number of entries in it.
///
/// # Errors
/// The map cannot be walked, or `check_interrupt`, which is called every now and then, says so.
pub fn map_text(
    map: &MapRef,
    format: OutputFormat,
    check_interrupt: InterruptCheck<'_>,
) -> Result<(Vec<u8>, usize), Fail> {
    top_text(map, usize::MAX, format, check_interrupt)
}

fn top_text(
    map: &MapRef,
    top: usize,
    format: OutputFormat,
    check_interrupt: InterruptCheck<'_>,
) -> Result<(Vec<u8>, usize), Fail> {
    let mut entries = snapshot(map, SortBy::Value, Direction::Ascending, check_interrupt)?;
    entries.retain(|entry| !is_unused(map.spec(), entry.copied));
    if let Some(aggregate) = Aggregate::of(&map.spec().value_fields) {
        entries.sort_by_rank(|entry| aggregate.rank(aggregate.merge(entry)));
    }
    entries.keep_last(top);
    let text = match format {
        OutputFormat::Text => map_as_text(map, &entries, check_interrupt)?,
        OutputFormat::Json => map_as_json(map, &entries, check_interrupt)?,
    };
    Ok((text, entries.len()))
}

fn map_as_text(map: &MapRef, entries: &Snapshot, check_interrupt: InterruptCheck<'_>) -> Result<Vec<u8>, Trap> {
    let (spec, scalar) = (map.spec(), is_scalar(map.spec()));
    let fields = &spec.value_fields;
    let mut text = Vec::new();
    for entry in entries.iter() {
        check_interrupt()?;
        text.push(b'@');
        text.extend(shown_name(&spec.name).bytes());
        if !scalar {
            text.push(b'[');
            key(&mut text, &spec.key_fields, entry.key, Notation::Text);
            text.push(b']');
        }
        text.extend(b": ");
        value_of(&mut text, fields, entry, Notation::Text);
        text.push(b'\n');
    }
    Ok(text)
}

fn map_as_json(map: &MapRef, entries: &Snapshot, check_interrupt: InterruptCheck<'_>) -> Result<Vec<u8>, Trap> {
    let (spec, scalar) = (map.spec(), is_scalar(map.spec()));
    let fields = &spec.value_fields;
    let mut text = opening(Aggregate::of(fields).map_or("map", Aggregate::kind), &spec.name);
    let element = |text: &mut Vec<u8>, entry: Entry<'_>| value_of(text, fields, entry, Notation::Json);
    match entries.iter().next() {
        Some(entry) if scalar => element(&mut text, entry),
        _ => {
            text.push(b'{');
            for (index, entry) in entries.iter().enumerate() {
                check_interrupt()?;
                text.extend(if index == 0 { "" } else { ", " }.bytes());
                let mut name = Vec::new();
                key(&mut name, &spec.key_fields, entry.key, Notation::Json);
                quote(&mut text, &name);
                text.extend(b": ");
                element(&mut text, entry);
            }
            text.push(b'}');
        }
    }
    text.extend(b"}}\n");
    Ok(text)
}

/// The value of all CPUs: merged where it is an aggregate, else added up.
fn value_of(out: &mut Vec<u8>, fields: &[Field], entry: Entry<'_>, notation: Notation) {
    match Aggregate::of(fields) {
        Some(aggregate) => aggregate.write(out, aggregate.merge(entry), notation),
        None => value(out, fields, &entry.summed(fields), notation),
    }
}

/// Histograms by the number of what they counted, each followed by an empty line. Gives the number of histograms.
fn print_hist(mut caller: Host<'_>, map: &MapRef, scale: &Scale) -> HelperResult<i32> {
    let function = caller.function();
    let entries = snapshot(map, SortBy::Key, Direction::Ascending, &mut || caller.check_interrupt())?;
    let spec = map.spec();
    let drawn = Layout::of(spec).and_then(|layout| {
        let rows = entries.iter().map(|entry| (entry.key, entry.summed(&spec.value_fields)));
        Ok((histograms(&layout, rows, scale)?, layout.labels))
    });
    let (drawn, labels) = drawn.map_err(|why| why.trap(function, map))?;
    caller.check_interrupt()?;
    let label = |bytes: &[u8], notation| {
        let mut text = Vec::new();
        key(&mut text, &labels, bytes, notation);
        text
    };
    let heading = |of: Option<&[u8]>| {
        let of = of.map(|of| [b"[", &label(of, Notation::Text)[..], b"]"].concat()).unwrap_or_default();
        [b"@", shown_name(&spec.name).as_bytes(), &of].concat()
    };
    if let Some(kept) = &mut caller.runtime().histograms {
        let heading = |of: &Histogram| String::from_utf8_lossy(&heading(of.label.as_deref())).into_owned();
        kept.extend(drawn.iter().map(|of| (heading(of), of.bars(scale))));
    }
    let text = match caller.runtime().format {
        OutputFormat::Text => hist_text(&drawn, scale, |of| [&heading(of)[..], b": "].concat()),
        OutputFormat::Json => {
            let drawn = hist_json(&drawn, scale, |of| label(of, Notation::Json));
            [&opening("hist", &spec.name)[..], &drawn, b"}}\n"].concat()
        }
    };
    finish(caller, &text, drawn.len())
}

/// `{"type": "map", "data": {"@name": `.
fn opening(kind: &str, name: &str) -> Vec<u8> {
    let mut text = format!("{{\"type\": \"{kind}\", \"data\": {{").into_bytes();
    quote(&mut text, format!("@{}", shown_name(name)).as_bytes());
    text.extend(b": ");
    text
}

/// The name after `@`. A map `_` is what bpftrace's map without a name is.
pub fn shown_name(name: &str) -> &str {
    if name == "_" { "" } else { name }
}

fn finish(mut caller: Host<'_>, text: &[u8], count: usize) -> HelperResult<i32> {
    let written = write_out(&mut caller, text)?;
    Ok(if written.is_ok() { i32::try_from(count).unwrap_or(i32::MAX) } else { -1 })
}

fn is_array(spec: &MapSpec) -> bool {
    matches!(spec.kind, MapKind::Array | MapKind::PercpuArray)
}

/// Whether the map is one variable, as bpftrace's maps without a key.
pub fn is_scalar(spec: &MapSpec) -> bool {
    is_array(spec) && spec.max_entries == 1
}

/// Whether an element counts as never used: one of a larger array that is zero.
fn is_unused(spec: &MapSpec, copied: &[u8]) -> bool {
    is_array(spec) && !is_scalar(spec) && copied.iter().all(|byte| *byte == 0)
}

/// An element of a map, the values of all CPUs as one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Bytes of the key.
    pub key: Vec<u8>,
    /// Bytes of the value: sums, or of aggregates what they are merged to.
    pub value: Vec<u8>,
}

/// The elements of a map in its own order, without those of larger arrays that are zero.
///
/// # Errors
/// The map cannot be walked.
pub fn rows(map: &dyn MapOps) -> Result<Vec<Row>, Errno> {
    let spec = map.spec();
    let aggregate = Aggregate::of(&spec.value_fields);
    let mut rows = Vec::new();
    map.entries(&mut |entry| {
        if !is_unused(spec, entry.copied) {
            let value = match aggregate {
                Some(aggregate) => aggregate.merge(entry).bytes(),
                None => entry.summed(&spec.value_fields),
            };
            rows.push(Row { key: entry.key.to_vec(), value });
        }
        true
    })?;
    Ok(rows)
}

#[cfg(test)]
mod tests;
