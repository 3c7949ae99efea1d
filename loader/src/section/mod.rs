//! Parser of program section names: program type, attach type and target.
//!
//! Three languages share the name: libbpf's patterns, the script entry points, and perf's probe definitions.
//! The first of the characters `/ : = ;` decides which one it is. The result is data: nothing here resolves a
//! target, and a name that no language knows is a value too.

mod perf;
mod span;
mod table;
#[cfg(test)]
mod tests;
mod types;

use std::sync::Arc;
use std::time::Duration;

pub use perf::{
    Abi, Mode, PERF_KEYS, PerfArg, PerfError, PerfOptions, PerfProbe, PerfTracepoint, ProbePoint, ProbePosition,
    Switch, definition,
};
pub use span::PerfPart;
pub use table::{Row, TABLE};
pub use types::{AttachType, AutoAttach, Flag, ProgType};

/// A section name, understood.
#[derive(Clone, Debug, PartialEq)]
pub struct Attach {
    /// Without a leading `?`, which keeps libbpf from loading the program.
    pub autoload: bool,
    /// What it is.
    pub kind: SectionKind,
}

/// What kind of section a program sits in.
#[derive(Clone, Debug, PartialEq)]
pub enum SectionKind {
    /// `.text`: functions that others call.
    Text,
    /// An entry point that always runs in userspace.
    Script(Script),
    /// One of libbpf's patterns.
    Known {
        /// Row of the section table that matched.
        row: &'static Row,
        /// What follows the `/`.
        target: Option<Arc<str>>,
        /// Matched as a mere prefix, as libbpf before 1.0 and others do (`classifier/foo`, `xdp_drop`).
        loose: bool,
    },
    /// A tracepoint in perf's syntax, `group:event`.
    PerfTracepoint(Arc<PerfTracepoint>),
    /// perf's `event=function arguments`, a kprobe or, with `exec=`, a uprobe.
    PerfProbe(Arc<PerfProbe>),
    /// iproute2's `MAP/KEY`: a tail call target for that slot of the prog array with that id.
    TailCall {
        /// `id` in the map's definition.
        map: u32,
        /// Slot index in the map.
        key: u32,
    },
    /// In perf's language, but wrong there.
    Malformed(PerfError),
    /// No language has this name.
    Unknown,
}

/// An entry point of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Script {
    /// Before anything else.
    Begin,
    /// After everything else.
    End,
    /// When a program traps.
    Error,
    /// Repeatedly, at a fixed period.
    Timer {
        /// From `TIMER/100ms`; without it the script calls `set_timer`.
        period: Option<Duration>,
    },
    /// For each sample of a perf or ring buffer.
    Event {
        /// From `EVENT/map`; without it `__bpf_stdout__`.
        map: Option<Arc<str>>,
    },
    /// For each sample of a recording that perf reads, before perf's own options choose among them.
    Early {
        /// From `EARLY/EVENT`; without it samples of all events.
        event: Option<Arc<str>>,
    },
    /// On a signal.
    Signal {
        /// For example `USR1`.
        name: Arc<str>,
    },
}

impl Attach {
    /// Reads a section name.
    pub fn parse(section: &str) -> Attach {
        let (autoload, name) = match section.strip_prefix('?') {
            Some(name) => (false, name),
            None => (true, section),
        };
        let kind = match name.find(['/', ':', '=', ';']).and_then(|at| name.as_bytes().get(at)) {
            None | Some(b'/') => plain(name),
            Some(_) => perf::parse(name).unwrap_or_else(SectionKind::Malformed),
        };
        Attach { autoload, kind }
    }

    /// Program type, where the name gives one. Script entry points have none: the kernel never sees them.
    pub fn prog_type(&self) -> Option<ProgType> {
        match &self.kind {
            SectionKind::Known { row, .. } => Some(row.prog),
            SectionKind::PerfTracepoint(_) => Some(ProgType::Tracepoint),
            SectionKind::PerfProbe(_) => Some(ProgType::Kprobe),
            SectionKind::TailCall { .. } => Some(ProgType::SchedCls),
            SectionKind::Text | SectionKind::Script(_) | SectionKind::Malformed(_) | SectionKind::Unknown => None,
        }
    }
}

impl Script {
    /// The entry point that a function of `.text` with this name is.
    pub fn of_function(name: &str) -> Option<Script> {
        match name {
            "BEGIN" => Some(Script::Begin),
            "END" => Some(Script::End),
            "ERROR" => Some(Script::Error),
            "TIMER" => Some(Script::Timer { period: None }),
            "EVENT" => Some(Script::Event { map: None }),
            "EARLY" => Some(Script::Early { event: None }),
            _ => None,
        }
    }

    fn of_section(name: &str) -> Option<Script> {
        match name.split_once('/') {
            None => Script::of_function(name),
            Some(("TIMER", period)) => Some(Script::Timer { period: Some(duration(period)?) }),
            Some(("EVENT", map)) if !map.is_empty() => Some(Script::Event { map: Some(map.into()) }),
            Some(("EARLY", event)) if !event.is_empty() => Some(Script::Early { event: Some(event.into()) }),
            Some(("SIGNAL", name)) if !name.is_empty() => {
                Some(Script::Signal { name: name.strip_prefix("SIG").unwrap_or(name).into() })
            }
            Some(_) => None,
        }
    }
}

/// `10`, `10s`, `100ms`, `5us`, `2m`, `1h`; seconds without a unit. Zero and overflow are no durations.
pub fn duration(text: &str) -> Option<Duration> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let nanos_per_unit = match unit {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "" | "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    };
    let nanos = number.parse::<u64>().ok()?.checked_mul(nanos_per_unit)?;
    (nanos > 0).then(|| Duration::from_nanos(nanos))
}

/// The kind of a name that contains none of perf's delimiters.
fn plain(name: &str) -> SectionKind {
    if name == ".text" {
        return SectionKind::Text;
    }
    if let Some(script) = Script::of_section(name) {
        return SectionKind::Script(script);
    }
    if let Some(kind) = TABLE.iter().find_map(|row| exact(row, name)) {
        return kind;
    }
    if let Some((map, key)) = tail_call(name) {
        return SectionKind::TailCall { map, key };
    }
    let loose = TABLE.iter().filter(|row| is_loose(row, name)).max_by_key(|row| row.pattern.len());
    match loose {
        Some(row) => {
            let rest = name.get(row.pattern.len()..).and_then(|rest| rest.strip_prefix('/'));
            let target = rest.filter(|rest| !rest.is_empty()).map(Arc::from);
            SectionKind::Known { row, target, loose: true }
        }
        None => SectionKind::Unknown,
    }
}

/// libbpf's rule since 1.0 (`sec_def_matches`).
fn exact(row: &'static Row, name: &str) -> Option<SectionKind> {
    let target = match name.strip_prefix(row.pattern)? {
        "" => None,
        rest if row.takes_target => Some(rest.strip_prefix('/')?.into()),
        _ => return None,
    };
    Some(SectionKind::Known { row, target, loose: false })
}

/// The old prefix rule, as far as the prefix ends in a word boundary.
fn is_loose(row: &Row, name: &str) -> bool {
    let next = name.strip_prefix(row.pattern).and_then(|rest| rest.chars().next());
    next.is_some_and(|next| !next.is_ascii_alphabetic())
}

fn tail_call(name: &str) -> Option<(u32, u32)> {
    let (map, key) = name.split_once('/')?;
    Some((number(map)?, number(key)?))
}

/// C's `%i`: decimal, or hexadecimal after `0x`.
fn number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x") {
        Some(hex) if !hex.starts_with('+') => u32::from_str_radix(hex, 16).ok(),
        Some(_) => None,
        None => text.starts_with(|c: char| c.is_ascii_digit()).then(|| text.parse().ok()).flatten(),
    }
}
