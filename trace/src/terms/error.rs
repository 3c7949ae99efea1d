//! What is wrong with a term: perf's words, and the place.

use std::fmt;
use std::ops::Range;

use crate::marked::marked;

/// What a user may write, in perf's notation.
const HINT: &str = "map:[<arraymap>].value<indices>=[value], map:[<eventmap>].event<indices>=[event]; <indices> is \
                    [all], [0,3...5] or [0x10]";

/// What is wrong with a term. The texts are those of perf's `util/bpf-loader.c`, where it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TermErrorKind {
    /// Neither a term of maps nor one of events.
    #[error("Invalid object config option")]
    Option,
    /// A term without `=`.
    #[error("Config value not set (missing '=')")]
    NoValue,
    /// A term of maps that is neither `.value` nor `.event`.
    #[error("Invalid object map config option")]
    MapOption,
    /// The object has no map of the name.
    #[error("Target map doesn't exist")]
    NoMap,
    /// A value that is no number, or too large for the map's values.
    #[error("Incorrect value type for map")]
    ValueType,
    /// `.value` of a map that is no array, `.event` of one that is no perf event array.
    #[error("Can't use this config term with this map type")]
    MapType,
    /// Keys that are smaller than an index.
    #[error("Incorrect map key size")]
    KeySize,
    /// Values that are no numbers of 1, 2, 4 or 8 bytes.
    #[error("Incorrect map value size")]
    ValueSize,
    /// No event has the name.
    #[error("Event not found for map setting")]
    NoEvent,
    /// A slot for which there is no CPU.
    #[error("Invalid map size for event setting")]
    MapSize,
    /// An event of a process with several threads.
    #[error("Cannot set event to BPF map in multi-thread tracing")]
    Threads,
    /// An event that children inherit.
    #[error("Doesn't support inherit event (Hint: use -i to turn off inherit)")]
    Inherit,
    /// A tracepoint, or another event that a map does not take.
    #[error("Can only put raw, hardware and BPF output event into a BPF map")]
    EventType,
    /// An index that the map has not.
    #[error("Index too large")]
    Index,
    /// Indices that are not written as such.
    #[error("Invalid indices")]
    Indices,
    /// The value of an event term.
    #[error("Invalid value of an event term")]
    EventValue,
    /// A term that an object has already.
    #[error("The term is given twice")]
    Twice,
    /// A term of events where nothing is recorded.
    #[error("An event term is for `twinbpf record`")]
    ForRecord,
    /// A slot that the session fills itself, or an event that needs the kernel.
    #[error("The event cannot be put into the map here")]
    NotHere,
    /// Terms that do not end.
    #[error("Terms end with /")]
    NoEnd,
}

/// A term that cannot be read or applied. The text has a caret under the part that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TermError {
    /// What is wrong, by kind.
    pub kind: TermErrorKind,
    /// More about it; may be empty.
    pub detail: String,
    /// The whole argument, `OBJ/TERMS/`.
    pub text: String,
    /// The part of it that is wrong, in bytes.
    pub span: Range<usize>,
}

impl fmt::Display for TermError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TermError { kind, detail, text, span } = self;
        let separator = if detail.is_empty() { "" } else { ": " };
        write!(f, "{kind}{separator}{detail}\n{}\n  hint: {HINT}", marked(text, std::slice::from_ref(span)))
    }
}

impl std::error::Error for TermError {}
