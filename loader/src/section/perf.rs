//! Section names as perf reads them: `{key=value;} event=function[position] arguments` and `group:event`.
//!
//! The grammar is that of perf's bpf-loader.c and `parse_perf_probe_command`, with a few keys of our own.

use std::ops::Range;
use std::sync::Arc;

use super::span::{self, PerfPart};
use super::{SectionKind, number};

/// A tracepoint in perf's syntax: `[!]group:event`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PerfTracepoint {
    /// Options before the definition, `key=value;` each.
    pub options: PerfOptions,
    /// Tracefs group, for example `raw_syscalls`.
    pub group: Arc<str>,
    /// Tracefs event, for example `sys_enter`.
    pub event: Arc<str>,
    /// Without a leading `!`, which loads the program and leaves it unattached (a tail call target).
    pub attach: bool,
}

/// A probe in perf's syntax: `event=function[position] arguments`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PerfProbe {
    /// Options before the definition, `key=value;` each.
    pub options: PerfOptions,
    /// Name of the event.
    pub event: Arc<str>,
    /// Location of the probe.
    pub point: ProbePoint,
    /// Values passed to the program, in order.
    pub args: Vec<PerfArg>,
}

/// `FUNC[@SRC][:LINE|+OFFSET|%return]` or `SRC:LINE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbePoint {
    /// Function name or glob.
    pub function: Option<Arc<str>>,
    /// Path of the source file, or its end.
    pub file: Option<Arc<str>>,
    /// Position inside the function or file.
    pub position: ProbePosition,
}

/// Position inside a function or file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbePosition {
    /// At the first instruction.
    Entry,
    /// Line, relative to the function, absolute in a file.
    Line(u32),
    /// Offset from the function's start, in bytes.
    Offset(u64),
    /// When the function returns (`%return`).
    Return,
}

/// An argument in perf's syntax: `[NAME=]EXPR[:TYPE][@user]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PerfArg {
    /// Given name, or the last member of the expression.
    pub name: Arc<str>,
    /// `$retval`, `%reg`, `@symbol`, or a variable with members and indices.
    pub expr: Arc<str>,
    /// `u32`, `string` and so on.
    pub ty: Option<Arc<str>>,
    /// Read from user memory.
    pub user: bool,
}

/// `key=value;` before a definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PerfOptions {
    /// `exec=PATH`: a uprobe in that file.
    pub exec: Option<Arc<str>>,
    /// `module=NAME`: a kprobe in that module.
    pub module: Option<Arc<str>>,
    /// `inlines=no` skips inlined copies.
    pub inlines: bool,
    /// `force=yes` adds an event that exists.
    pub force: bool,
    /// `pid=N`: only that process.
    pub pid: Option<u32>,
    /// `sleepable=yes|no|auto`: whether the program may sleep.
    pub sleepable: Switch,
    /// `abi=perf|struct`: how it gets its arguments.
    pub abi: Abi,
    /// `mode=kernel|user|auto`: where it runs.
    pub mode: Mode,
    /// `max=N`: most probe points of one definition.
    pub max: Option<u32>,
    /// Pieces without `=`, which perf warns about and skips.
    pub skipped: Vec<Arc<str>>,
}

/// A choice that may be left open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch {
    /// The option is `yes`.
    Yes,
    /// The option is `no`.
    No,
    /// As the target allows.
    Auto,
}

/// How arguments reach the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Abi {
    /// `(ctx, int err, a1, a2, a3)`.
    Perf,
    /// `(ctx, u64 failed, struct args *)`.
    Struct,
}

/// Where the program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// In the kernel.
    Kernel,
    /// In the userspace VM.
    User,
    /// As the target allows.
    Auto,
}

impl Default for PerfOptions {
    fn default() -> Self {
        PerfOptions {
            exec: None,
            module: None,
            inlines: true,
            force: false,
            pid: None,
            sleepable: Switch::Auto,
            abi: Abi::Perf,
            mode: Mode::Auto,
            max: None,
            skipped: Vec::new(),
        }
    }
}

/// Keys of options before a definition.
pub const PERF_KEYS: [&str; 9] = ["exec", "module", "inlines", "force", "pid", "sleepable", "abi", "mode", "max"];

/// Why a name in perf's language says nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PerfError {
    /// An option that perf does not define (its `PROGCONF_TERM`).
    #[error("unknown option '{0}', there are {keys}", keys = PERF_KEYS.join(" "))]
    Key(Arc<str>),
    /// A value the key does not take.
    #[error("option '{key}' cannot be '{value}'")]
    Value {
        /// Name of the option.
        key: Arc<str>,
        /// Value of the option.
        value: Arc<str>,
    },
    /// Nothing follows the options.
    #[error("no event after the options: write group:event or name=function")]
    Empty,
    /// A probe definition without a name for the event.
    #[error("no event name: write name={0}")]
    NoEvent(Arc<str>),
    /// A group that perf does not allow.
    #[error("the group of a probe is perf_bpf_probe, not '{0}'")]
    Group(Arc<str>),
    /// A position inside the function that cannot be read.
    #[error("'{0}' is no FUNCTION[@FILE][:LINE|+OFFSET|%return]")]
    Point(Arc<str>),
}

impl PerfError {
    /// The part of a section's name that it is about, in bytes; at the end where something is missing.
    ///
    /// ```
    /// use twinbpf_loader::section::{Attach, SectionKind};
    ///
    /// let name = "exec=./t;inlines=maybe;wk=work n";
    /// let SectionKind::Malformed(error) = Attach::parse(name).kind else { panic!("it is wrong") };
    /// assert_eq!(&name[error.span(name)], "maybe");
    /// ```
    pub fn span(&self, section: &str) -> Range<usize> {
        let main = span::main(section);
        let within = |text: &str| section[main..].find(text).map(|at| main + at..main + at + text.len());
        let span = match self {
            PerfError::Key(key) => PerfPart::Option(Arc::clone(key), false).span(section),
            PerfError::Value { key, .. } => PerfPart::Option(Arc::clone(key), true).span(section),
            PerfError::Empty => None,
            PerfError::NoEvent(text) | PerfError::Group(text) | PerfError::Point(text) => within(text),
        };
        span.unwrap_or(section.len()..section.len())
    }
}

/// Reads a name in which `:`, `=` or `;` comes before any `/`.
pub(super) fn parse(name: &str) -> Result<SectionKind, PerfError> {
    let (config, main) = match name.rsplit_once(';') {
        Some((config, main)) => (Some(config), main.trim()),
        None => (None, name.trim()),
    };
    let options = options(config)?;
    if main.is_empty() {
        return Err(PerfError::Empty);
    }
    if main.contains('=') {
        return probe(options, main).map(|probe| SectionKind::PerfProbe(Arc::new(probe)));
    }
    match main.split_once(':') {
        Some((group, event)) if !group.is_empty() && !event.is_empty() => {
            let plain = group.strip_prefix('!');
            Ok(SectionKind::PerfTracepoint(Arc::new(PerfTracepoint {
                options,
                group: plain.unwrap_or(group).into(),
                event: event.into(),
                attach: plain.is_none(),
            })))
        }
        Some(_) => Err(PerfError::Point(main.into())),
        None => Err(PerfError::NoEvent(main.into())),
    }
}

fn options(config: Option<&str>) -> Result<PerfOptions, PerfError> {
    let mut options = PerfOptions::default();
    for piece in config.into_iter().flat_map(|config| config.split(';')).filter(|piece| !piece.is_empty()) {
        match piece.split_once('=') {
            Some((key, value)) => option(&mut options, key, value)?,
            None => options.skipped.push(piece.into()),
        }
    }
    Ok(options)
}

fn option(options: &mut PerfOptions, key: &str, value: &str) -> Result<(), PerfError> {
    let bad = || PerfError::Value { key: key.into(), value: value.into() };
    let yes = || match value {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err(bad()),
    };
    match key {
        "exec" => options.exec = Some(value.into()),
        "module" => options.module = Some(value.into()),
        "inlines" => options.inlines = yes()?,
        "force" => options.force = yes()?,
        "pid" => options.pid = Some(number(value).ok_or_else(bad)?),
        "max" => options.max = Some(number(value).ok_or_else(bad)?),
        "sleepable" => {
            options.sleepable = match value {
                "auto" => Switch::Auto,
                _ if yes()? => Switch::Yes,
                _ => Switch::No,
            }
        }
        "abi" => {
            options.abi = match value {
                "perf" => Abi::Perf,
                "struct" => Abi::Struct,
                _ => return Err(bad()),
            }
        }
        "mode" => {
            options.mode = match value {
                "kernel" => Mode::Kernel,
                "user" => Mode::User,
                "auto" => Mode::Auto,
                _ => return Err(bad()),
            }
        }
        _ => return Err(PerfError::Key(key.into())),
    }
    Ok(())
}

fn probe(options: PerfOptions, main: &str) -> Result<PerfProbe, PerfError> {
    let probe = definition(main)?;
    match &probe.event {
        event if event.is_empty() => {
            Err(PerfError::NoEvent(main.split_ascii_whitespace().next().unwrap_or(main).into()))
        }
        _ => Ok(PerfProbe { options, ..probe }),
    }
}

/// Reads `[EVENT=]FUNCTION[position] arguments`, what `perf probe` takes. Without a name the event's is empty.
///
/// # Errors
/// The text is no definition.
pub fn definition(text: &str) -> Result<PerfProbe, PerfError> {
    let mut words = text.split_ascii_whitespace();
    let first = words.next().ok_or(PerfError::Empty)?;
    let (event, point) = first.split_once('=').unwrap_or(("", first));
    let event = match event.split_once(':') {
        Some(("perf_bpf_probe", event)) => event,
        Some((group, _)) => return Err(PerfError::Group(group.into())),
        None => event,
    };
    if event.is_empty() && first.contains('=') {
        return Err(PerfError::NoEvent(point.into()));
    }
    let options = PerfOptions::default();
    Ok(PerfProbe { options, event: event.into(), point: probe_point(point)?, args: words.map(arg).collect() })
}

fn probe_point(text: &str) -> Result<ProbePoint, PerfError> {
    let bad = || PerfError::Point(text.into());
    let end = name_end(text);
    let (name, mut rest) = text.split_at(end);
    if name.is_empty() {
        return Err(bad());
    }
    // perf's rule: a name with a dot before a line, and nothing that belongs to a function.
    let is_file = rest.starts_with(':') && name.contains('.') && !text.contains(['+', '%', '@']);
    let mut point = ProbePoint {
        function: (!is_file).then(|| name.into()),
        file: is_file.then(|| name.into()),
        position: ProbePosition::Entry,
    };
    while let Some(kind) = rest.chars().next() {
        let body = rest.get(1..).unwrap_or_default();
        let end = body.find([':', '+', '%', '@']).unwrap_or(body.len());
        let (word, tail) = body.split_at(end);
        let position = match kind {
            '@' if point.file.is_none() && !word.is_empty() => {
                point.file = Some(word.into());
                point.position
            }
            ':' => ProbePosition::Line(number(word).ok_or_else(bad)?),
            '+' => ProbePosition::Offset(number(word).ok_or_else(bad)?.into()),
            '%' if word == "return" => ProbePosition::Return,
            _ => return Err(bad()),
        };
        if kind != '@' && point.position != ProbePosition::Entry {
            return Err(bad());
        }
        point.position = position;
        rest = tail;
    }
    Ok(point)
}

/// Where a name ends: before the position. `::` is a part of it, as names of C++ and Rust have it.
fn name_end(text: &str) -> usize {
    let mut from = 0;
    while let Some(at) = text[from..].find([':', '+', '%', '@']).map(|at| from + at) {
        if !text[at..].starts_with("::") {
            return at;
        }
        from = at + 2;
    }
    text.len()
}

fn arg(word: &str) -> PerfArg {
    let (name, rest) = match word.split_once('=') {
        Some((name, rest)) => (Some(name), rest),
        None => (None, word),
    };
    let (rest, user) = match rest.strip_suffix("@user") {
        Some(rest) if !rest.is_empty() => (rest, true),
        _ => (rest, false),
    };
    let (expr, ty) = match rest.split_once(':') {
        Some((expr, ty)) => (expr, Some(ty.into())),
        None => (rest, None),
    };
    let default = || {
        let member = expr.rsplit(['.', '>']).next().unwrap_or(expr);
        member.split('[').next().unwrap_or(member).trim_start_matches(['$', '%', '@'])
    };
    PerfArg { name: name.unwrap_or_else(default).into(), expr: expr.into(), ty, user }
}
