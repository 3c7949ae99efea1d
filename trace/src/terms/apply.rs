//! Terms of maps, applied to an object: values become initial elements, events are what a session opens.

use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

use twinbpf_kernel::link::{Clock, EVENTS};
use twinbpf_loader::Object;
use twinbpf_vm::map::{MapKind, MapSpec};

use super::error::{TermError, TermErrorKind as Kind};
use super::event::number;
use super::{Indices, MapTerm, Setting, Terms};

/// `PERF_TYPE_RAW`.
const RAW: u32 = 4;

/// An event that a term puts into slots of a perf event array.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SlotEvent {
    /// Index of the map in [`Object::maps`].
    pub map: usize,
    /// The slots, which are numbers of CPUs; `None` for all.
    pub slots: Option<Vec<RangeInclusive<u32>>>,
    /// What is put there.
    pub event: MapEvent,
    /// Where the event stands in the text of the terms.
    pub span: Range<usize>,
}

/// What a term puts into a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MapEvent {
    /// `bpf-output`: what programs send records by.
    Output,
    /// An event that is counted.
    Counter(Clock),
    /// An event of the caller, by its name.
    Own(String),
}

impl Terms {
    /// Gives elements of the object's maps their values, and returns the events that go into slots. `own` are names of
    /// events that the caller opens.
    ///
    /// # Errors
    /// A term that does not fit the object's map. Terms before it are applied.
    pub fn apply(&self, object: &mut Object, own: &[&str]) -> Result<Vec<SlotEvent>, TermError> {
        let mut events = Vec::new();
        for term in &self.maps {
            let map = object.maps.iter().position(|map| *map.name == *term.map && map.data.is_none());
            let map = map.ok_or_else(|| {
                let detail = format!("there is no map {} in {}", term.map, object.name);
                self.error(Kind::NoMap, detail, term.map_span.clone())
            })?;
            match &term.setting {
                Setting::Value(value) => self.set_values(&mut object.maps[map], term, value)?,
                Setting::Event(text) => {
                    let event = match own.contains(&text.as_str()) {
                        true => MapEvent::Own(text.clone()),
                        false => self.map_event(text, term.value_span.start)?,
                    };
                    events.push(self.slots(&object.maps[map], map, term, event)?);
                }
            }
        }
        Ok(events)
    }

    fn set_values(&self, spec: &mut MapSpec, term: &MapTerm, text: &str) -> Result<(), TermError> {
        let wrong = |kind, detail: String| self.error(kind, detail, term.value_span.clone());
        let value = integer(text).ok_or_else(|| wrong(Kind::ValueType, format!("'{text}' is no number")))?;
        let of_map = |kind, detail: String| Err(self.error(kind, detail, term.map_span.clone()));
        let (name, size) = (&spec.name, spec.value_size);
        if spec.kind != MapKind::Array {
            return of_map(Kind::MapType, format!("{name} is of type {}, no array", spec.kind.name()));
        }
        if spec.key_size < 4 {
            return of_map(Kind::KeySize, format!("keys of {name} have {} bytes, fewer than an index", spec.key_size));
        }
        if ![1, 2, 4, 8].contains(&size) {
            return of_map(Kind::ValueSize, format!("values of {name} have {size} bytes, not 1, 2, 4 or 8"));
        }
        let bits = size * 8;
        if value >> bits != 0 && value >> (bits - 1) != -1 {
            return Err(wrong(Kind::ValueType, format!("{text} does not fit into {size} bytes")));
        }
        let bytes: Arc<[u8]> = value.to_le_bytes()[..size as usize].into();
        match &term.indices {
            Indices::All => spec.elements.push((0..spec.max_entries, bytes)),
            Indices::Some(ranges) => {
                for (range, span) in ranges {
                    self.check_index(spec, spec.max_entries, range, span)?;
                    spec.elements.push((*range.start()..*range.end() + 1, Arc::clone(&bytes)));
                }
            }
        }
        Ok(())
    }

    /// The slots of a map that an event goes into.
    fn slots(&self, spec: &MapSpec, map: usize, term: &MapTerm, event: MapEvent) -> Result<SlotEvent, TermError> {
        let name = &spec.name;
        if spec.kind != MapKind::PerfEventArray {
            let detail = format!("{name} is of type {}, no perf_event_array", spec.kind.name());
            return Err(self.error(Kind::MapType, detail, term.map_span.clone()));
        }
        let slots = match &term.indices {
            Indices::All => None,
            Indices::Some(ranges) => {
                // A map without a size gets a slot for each CPU.
                let entries = if spec.max_entries == 0 { u32::MAX } else { spec.max_entries };
                ranges.iter().try_for_each(|(range, span)| self.check_index(spec, entries, range, span))?;
                Some(ranges.iter().map(|(range, _)| range.clone()).collect())
            }
        };
        Ok(SlotEvent { map, slots, event, span: term.value_span.clone() })
    }

    fn check_index(
        &self,
        spec: &MapSpec,
        entries: u32,
        range: &RangeInclusive<u32>,
        span: &Range<usize>,
    ) -> Result<(), TermError> {
        if *range.end() < entries {
            return Ok(());
        }
        Err(self.error(Kind::Index, format!("map {} has {entries} elements", spec.name), span.clone()))
    }

    /// Reads `NAME[/term,term/]`, which stands at a place of the text.
    fn map_event(&self, text: &str, start: usize) -> Result<MapEvent, TermError> {
        let (name, own_terms) = match text.split_once('/') {
            Some((name, rest)) => (name, Some(rest)),
            None => (text, None),
        };
        let named = start..start + name.len();
        if let Some(rest) = own_terms {
            self.check_own_terms(rest, named.end + 1)?;
        }
        if name == "bpf-output" {
            return Ok(MapEvent::Output);
        }
        if let Some((_, clock)) = EVENTS.iter().find(|(known, _)| *known == name) {
            return Ok(MapEvent::Counter(*clock));
        }
        let digits = name.strip_prefix('r').filter(|digits| (1..=16).contains(&digits.len()));
        if let Some(config) = digits.and_then(|digits| number(&format!("0x{digits}"))) {
            return Ok(MapEvent::Counter(Clock::Event { kind: RAW, config }));
        }
        if name.contains(':') {
            let detail = format!("{name} is a tracepoint, which counts nothing for programs");
            return Err(self.error(Kind::EventType, detail, named));
        }
        let known: Vec<&str> = EVENTS.iter().map(|(name, _)| *name).collect();
        let detail = format!("'{name}' is none of bpf-output, {} and rHEX", known.join(", "));
        Err(self.error(Kind::NoEvent, detail, named))
    }

    /// Terms of the event itself: whether children inherit it, and a name.
    fn check_own_terms(&self, text: &str, start: usize) -> Result<(), TermError> {
        let Some(body) = text.strip_suffix('/') else {
            let end = start + text.len();
            return Err(self.error(Kind::NoEnd, "EVENT/TERM,TERM/", end..end));
        };
        let mut at = start;
        for term in body.split(',').filter(|_| !body.is_empty()) {
            let span = at..at + term.len();
            at = span.end + 1;
            match term {
                "inherit" | "inherit=1" | "no-inherit=0" => return Err(self.error(Kind::Inherit, "", span)),
                "no-inherit" | "no-inherit=1" | "inherit=0" => {}
                _ if term.starts_with("name=") => {}
                _ => {
                    let detail = format!("'{term}' of an event in a map; there are no-inherit and name=NAME");
                    return Err(self.error(Kind::Option, detail, span));
                }
            }
        }
        Ok(())
    }
}

/// A number, which may have a sign.
fn integer(text: &str) -> Option<i128> {
    match text.strip_prefix('-') {
        Some(digits) => number(digits).map(|number| -i128::from(number)),
        None => number(text).map(i128::from),
    }
}
