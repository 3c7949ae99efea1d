//! perf's terms of an object, `OBJ/term,term/`: values of array maps, events in perf event arrays, and how the object's
//! events are recorded.
//!
//! ```text
//! terms   := term {"," term}
//! term    := "map:" NAME ".value" [indices] "=" NUMBER
//!          | "map:" NAME ".event" [indices] "=" EVENT
//!          | event term                                  period=4000 call-graph=dwarf no-inherit ...
//! indices := "[all]" | "[" range {"," range} "]"         range := NUMBER ["..." NUMBER]
//! ```
//!
//! Source: `split_bpf_config_terms` of perf's `util/parse-events.c`, `util/bpf-loader.c`. perf 6.1 parses no indices but
//! `[all]`; here all of its grammar works. Values that do not fit are errors, which perf cuts.

mod apply;
mod error;
mod event;
mod grammar;

use std::ops::{Range, RangeInclusive};

pub use apply::{MapEvent, SlotEvent};
pub use error::{TermError, TermErrorKind};
pub use event::{CallGraph, EventTerm};

/// The terms of an object, with the text that they were read from.
///
/// ```
/// use twinbpf_trace::{CallGraph, EventTerm, Terms};
///
/// let (file, terms) = Terms::split("t.bpf.o/map:limits.value[0,3...5]=7,call-graph=dwarf/", &|path| path == "t.bpf.o")?;
/// let terms = terms.expect("it has some");
/// assert_eq!((file, terms.maps.len()), ("t.bpf.o", 1));
/// assert_eq!(terms.events().next(), Some(&EventTerm::CallGraph(CallGraph::Dwarf)));
/// # Ok::<(), twinbpf_trace::TermError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Terms {
    /// The whole argument, for messages.
    pub text: String,
    /// Terms of maps, in order.
    pub maps: Vec<MapTerm>,
    /// Terms of events, in order, and where each stands in the text.
    pub event_terms: Vec<(EventTerm, Range<usize>)>,
}

/// A term that sets slots of a map.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MapTerm {
    /// Name of the map.
    pub map: String,
    /// Which slots are set.
    pub indices: Indices,
    /// What they are set to, as written: a number, or an event.
    pub setting: Setting,
    /// Where the name of the map stands in the text.
    pub map_span: Range<usize>,
    /// Where `value` or `event` stands, with the indices.
    pub option_span: Range<usize>,
    /// Where that which they are set to stands.
    pub value_span: Range<usize>,
}

/// Slots of a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Indices {
    /// No indices, or `[all]`.
    All,
    /// Ranges, and where each stands in the text.
    Some(Vec<(RangeInclusive<u32>, Range<usize>)>),
}

/// What slots are set to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Setting {
    /// `.value=NUMBER`: a number, or what is none.
    Value(String),
    /// `.event=EVENT`: an event as perf names it.
    Event(String),
}

impl Terms {
    /// Splits an argument into the file and its terms. A file of the whole name has none; else the terms begin after the
    /// first part that is a file, or looks like an object or a C source.
    ///
    /// # Errors
    /// What follows the file are no terms.
    pub fn split<'a>(argument: &'a str, is_file: &dyn Fn(&str) -> bool) -> Result<(&'a str, Option<Terms>), TermError> {
        if is_file(argument) {
            return Ok((argument, None));
        }
        let slashes = || argument.match_indices('/').map(|(at, _)| at).filter(|at| *at > 0);
        let ends_as_file = |path: &str| [".o", ".obj", ".c"].iter().any(|ending| path.ends_with(ending));
        let found = slashes().find(|at| is_file(&argument[..*at]));
        let found = found.or_else(|| slashes().find(|at| ends_as_file(&argument[..*at])));
        match found {
            Some(at) => Ok((&argument[..at], Some(grammar::parse(argument, at)?))),
            None => Ok((argument, None)),
        }
    }

    /// Terms of events: how the events of the object are to be recorded.
    pub fn events(&self) -> impl Iterator<Item = &EventTerm> {
        self.event_terms.iter().map(|(term, _)| term)
    }

    /// For commands that record nothing.
    ///
    /// # Errors
    /// There is a term of events.
    pub fn refuse_event_terms(&self) -> Result<(), TermError> {
        match self.event_terms.first() {
            None => Ok(()),
            Some((term, span)) => {
                let detail = format!("'{term}' says how samples are recorded, and nothing is recorded here");
                Err(self.error(TermErrorKind::ForRecord, detail, span.clone()))
            }
        }
    }

    /// An error at a part of the text.
    pub(crate) fn error(&self, kind: TermErrorKind, detail: impl Into<String>, span: Range<usize>) -> TermError {
        TermError { kind, detail: detail.into(), text: self.text.clone(), span }
    }
}

#[cfg(test)]
mod tests;
