//! Terms of events: how samples are recorded.

use std::fmt;

/// A term that perf gives to every event of an object. Its text is what perf reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EventTerm {
    /// `period=N`: a sample every so many events.
    Period(u64),
    /// `freq=N`: so many samples a second.
    Frequency(u64),
    /// `time=0`, `time=1`: whether samples have a time.
    Time(bool),
    /// `call-graph=KIND`: how callers are recorded.
    CallGraph(CallGraph),
    /// `stack-size=N`: bytes of the stack that are copied for DWARF.
    StackSize(u32),
    /// `max-stack=N`: most callers of a sample.
    MaxStack(u32),
    /// `nr=N`: most events.
    MaxEvents(u64),
    /// `inherit`, `no-inherit`: whether children are recorded.
    Inherit(bool),
    /// `overwrite`, `no-overwrite`: whether new samples replace old ones.
    Overwrite(bool),
}

/// How callers are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallGraph {
    /// `fp`: by frame pointers.
    FramePointers,
    /// `dwarf`: from a copy of the stack.
    Dwarf,
    /// `lbr`: from the last branch records.
    LastBranch,
    /// `no`: not at all.
    No,
}

/// Names of the terms, for messages.
pub(super) const NAMES: [&str; 11] = [
    "period",
    "freq",
    "time",
    "call-graph",
    "stack-size",
    "max-stack",
    "nr",
    "inherit",
    "no-inherit",
    "overwrite",
    "no-overwrite",
];

impl EventTerm {
    /// Reads a term by its name; `None` where no term of events has it.
    ///
    /// # Errors
    /// A value that the term does not take, in words.
    pub(super) fn parse(name: &str, value: Option<&str>) -> Option<Result<EventTerm, String>> {
        let whole = || {
            let value = value.ok_or_else(|| format!("write {name}=N"))?;
            number(value).ok_or_else(|| format!("'{value}' is no number"))
        };
        let small = || u32::try_from(whole()?).map_err(|_| format!("{name} is at most {}", u32::MAX));
        let flag = || match value {
            None | Some("1") => Ok(true),
            Some("0") => Ok(false),
            Some(value) => Err(format!("'{value}' is neither 0 nor 1")),
        };
        Some(match name {
            "period" => whole().map(EventTerm::Period),
            "freq" => whole().map(EventTerm::Frequency),
            "time" => flag().map(EventTerm::Time),
            "call-graph" => call_graph(value).map(EventTerm::CallGraph),
            "stack-size" => small().map(EventTerm::StackSize),
            "max-stack" => small().map(EventTerm::MaxStack),
            "nr" => whole().map(EventTerm::MaxEvents),
            "inherit" => flag().map(EventTerm::Inherit),
            "no-inherit" => flag().map(|no| EventTerm::Inherit(!no)),
            "overwrite" => flag().map(EventTerm::Overwrite),
            "no-overwrite" => flag().map(|no| EventTerm::Overwrite(!no)),
            _ => return None,
        })
    }

    /// Whether both say something about the same thing.
    pub(super) fn excludes(self, other: EventTerm) -> bool {
        let rates = |term| matches!(term, EventTerm::Period(_) | EventTerm::Frequency(_));
        std::mem::discriminant(&self) == std::mem::discriminant(&other) || (rates(self) && rates(other))
    }
}

fn call_graph(value: Option<&str>) -> Result<CallGraph, String> {
    match value {
        Some("fp") => Ok(CallGraph::FramePointers),
        Some("dwarf") => Ok(CallGraph::Dwarf),
        Some("lbr") => Ok(CallGraph::LastBranch),
        Some("no") => Ok(CallGraph::No),
        _ => Err("call-graph is fp, dwarf, lbr or no".to_owned()),
    }
}

/// A number as perf writes it: decimal, or hexadecimal after 0x.
pub(super) fn number(text: &str) -> Option<u64> {
    let (digits, radix) = match text.strip_prefix("0x") {
        Some(digits) => (digits, 16),
        None => (text, 10),
    };
    u64::from_str_radix(digits, radix).ok().filter(|_| !digits.starts_with('+'))
}

impl fmt::Display for EventTerm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let no = |yes: bool| if yes { "" } else { "no-" };
        match *self {
            EventTerm::Period(number) => write!(f, "period={number}"),
            EventTerm::Frequency(number) => write!(f, "freq={number}"),
            EventTerm::Time(yes) => write!(f, "time={}", u8::from(yes)),
            EventTerm::CallGraph(CallGraph::FramePointers) => f.write_str("call-graph=fp"),
            EventTerm::CallGraph(CallGraph::Dwarf) => f.write_str("call-graph=dwarf"),
            EventTerm::CallGraph(CallGraph::LastBranch) => f.write_str("call-graph=lbr"),
            EventTerm::CallGraph(CallGraph::No) => f.write_str("call-graph=no"),
            EventTerm::StackSize(number) => write!(f, "stack-size={number}"),
            EventTerm::MaxStack(number) => write!(f, "max-stack={number}"),
            EventTerm::MaxEvents(number) => write!(f, "nr={number}"),
            EventTerm::Inherit(yes) => write!(f, "{}inherit", no(yes)),
            EventTerm::Overwrite(yes) => write!(f, "{}overwrite", no(yes)),
        }
    }
}
