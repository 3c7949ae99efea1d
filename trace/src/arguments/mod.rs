//! Programs whose section is a probe definition in perf's notation: where their points are, and the arguments of each.
//!
//! A definition becomes points ([`twinbpf_probe`]). Points at which all arguments are in the same places share one instance
//! of the program, with one prologue; every other gets an instance of its own, attached to its own points only.

mod fetch;
mod prologue;
pub(crate) mod variants;

use std::fmt;
use std::path::{Path, PathBuf};

use twinbpf_kernel::link::{Functions, Return, UprobeSite};
use twinbpf_kernel::probe::{Feature, has};
use twinbpf_kernel::{Target, user};
use twinbpf_loader::section::{Abi, Mode, PerfProbe, ProbePosition, Switch};
use twinbpf_probe::{Binary, Bytes, Expr, Machine, Point, Store, Value};

use crate::options::Options;
use crate::probes::probe_definition;
use crate::target;
use fetch::{Base, Memory};
use prologue::{Arguments, MOST};

pub use prologue::{Prologue, STRING};

/// One program in the kernel for a set of points.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ProbeInstance {
    /// Its points, by address.
    pub points: Vec<Point>,
    /// Their arguments as text, `n=%si:s32` for example.
    pub places: Vec<String>,
    /// Code that fetches the arguments.
    pub prologue: Prologue,
    /// The same without sleeping, where that is allowed: for programs that the kernel does not let sleep.
    pub fallback: Option<Prologue>,
    /// What it is attached to.
    pub targets: Vec<Target>,
    /// The process it is limited to, by `pid=`.
    pub pid: Option<u32>,
}

/// Whether instances attach by one link for all of their points.
pub(crate) fn by_one_link() -> bool {
    has(Feature::UprobeMulti)
}

/// The instances of a program in a session without limits.
///
/// # Errors
/// As of a session, in words.
pub fn probe_instances(probe: &PerfProbe) -> Result<Vec<ProbeInstance>, String> {
    instances(probe, &Options::default())
}

/// The instances of a program, in the order of their first points.
///
/// # Errors
/// No file, no point, an argument that has no place, options that do not fit; in words.
pub(crate) fn instances(probe: &PerfProbe, limits: &Options) -> Result<Vec<ProbeInstance>, String> {
    let options = &probe.options;
    let exec = match (&options.exec, &options.module) {
        (Some(exec), None) => exec,
        (Some(_), Some(_)) => return Err("exec= and module= exclude each other".to_owned()),
        (None, _) => {
            return Err("probes of kernel functions by definition are not attached yet: \
                        write exec=FILE; before it for a function of a program, or kprobe/FUNCTION"
                .to_owned());
        }
    };
    if options.mode == Mode::User {
        return Err("mode=user: a probe runs in the kernel".to_owned());
    }
    if let (Some(own), Some(given)) = (options.pid, limits.pid)
        && own != given
    {
        return Err(format!("pid={own}; in its section and process {given} of the session exclude each other"));
    }
    if options.abi == Abi::Perf && probe.args.len() > MOST {
        let count = probe.args.len();
        return Err(format!(
            "{count} arguments, and registers have room for {MOST}: write abi=struct; before the definition, and the \
             program as f(ctx, unsigned long failed, struct args *args)"
        ));
    }
    let path =
        user::find(exec).ok_or_else(|| format!("there is no file {exec}; a bare name is searched for in PATH"))?;
    let path = std::fs::canonicalize(&path).unwrap_or(path);
    let (points, is_fixed) = points(probe, &path)?;
    let mut instances = group(probe, (points, is_fixed), &path)?;
    for instance in &mut instances {
        let targets = std::mem::take(&mut instance.targets).into_iter();
        let limited: Result<Vec<_>, String> = targets.map(|target| target::filtered(target, limits)).collect();
        instance.targets = limited?.concat();
    }
    Ok(instances)
}

/// Reads a file with debug information.
fn read(path: &Path) -> Option<Bytes> {
    std::fs::read(path).ok().map(|bytes| Box::new(bytes) as Bytes)
}

/// The points of a definition in a file, which all have places for all arguments, and whether the file is loaded at its
/// own addresses.
fn points(probe: &PerfProbe, path: &Path) -> Result<(Vec<Point>, bool), String> {
    let of_file = |error: &dyn fmt::Display| format!("{}: {error}", path.display());
    let definition = probe_definition(probe).map_err(|error| error.to_string())?;
    let bytes = std::fs::read(path).map_err(|error| of_file(&error))?;
    let store = Store::new();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let binary = Binary::open(&store, path, &bytes, &read, threads).map_err(|error| of_file(&error))?;
    if binary.machine() != Machine::X86_64 || !cfg!(target_arch = "x86_64") {
        return Err(of_file(&"arguments are fetched on x86-64 only"));
    }
    let points = binary.probe(&definition).map_err(|error| of_file(&error))?;
    let most = probe.options.max.map_or(usize::MAX, |max| max as usize);
    if points.len() > most {
        return Err(format!("{} points match, more than max={most}: narrow the pattern", points.len()));
    }
    let mut wrong = Vec::new();
    for point in &points {
        for (name, value) in &point.args {
            if let Err(why) = value {
                wrong.push(format!("argument {name} at {}: {why}", shown(point)));
            }
        }
    }
    if !wrong.is_empty() {
        let file = path.display();
        let hint = format!("`twinbpf probe -x {file} -V {}` lists what there is", function(probe));
        return Err(format!("{}; {hint}", wrong.join("; ")));
    }
    Ok((points, binary.is_fixed()))
}

/// A definition's function and position, as it was written.
fn function(probe: &PerfProbe) -> String {
    let mut text = probe.point.function.as_deref().unwrap_or_default().to_owned();
    if let Some(file) = &probe.point.file {
        text += if text.is_empty() { "" } else { "@" };
        text += file;
    }
    match probe.point.position {
        ProbePosition::Entry => {}
        ProbePosition::Line(line) => text += &format!(":{line}"),
        ProbePosition::Offset(offset) => text += &format!("+{offset:#x}"),
        ProbePosition::Return => text += "%return",
    }
    text
}

/// A point for messages: `work1 at 0x1140 (t.c:7)`.
fn shown(point: &Point) -> String {
    let line = point.source.as_ref().map(|(file, line)| format!(" ({file}:{line})")).unwrap_or_default();
    let returns = if point.is_return { "return of " } else { "" };
    format!("{returns}{} at {:#x}{line}", point.function, point.address)
}

/// One instance for all points that have the same arguments in the same places.
fn group(probe: &PerfProbe, (points, is_fixed): (Vec<Point>, bool), path: &Path) -> Result<Vec<ProbeInstance>, String> {
    let mut instances: Vec<ProbeInstance> = Vec::new();
    for point in points {
        let (prologue, fallback) = prologues(probe, &point, is_fixed)?;
        let same = instances.iter().position(|other| other.prologue == prologue);
        match same.and_then(|at| instances.get_mut(at)) {
            Some(instance) => instance.points.push(point),
            None => instances.push(ProbeInstance {
                places: places(&point),
                points: vec![point],
                prologue,
                fallback,
                targets: Vec::new(),
                pid: probe.options.pid,
            }),
        }
    }
    for instance in &mut instances {
        instance.targets = targets(path, &instance.points);
    }
    Ok(instances)
}

/// The prologue of a point, and the one for a program that may not sleep.
fn prologues(probe: &PerfProbe, point: &Point, is_fixed: bool) -> Result<(Prologue, Option<Prologue>), String> {
    let values: Vec<&Value> = point.args.iter().flat_map(|(_, value)| value).collect();
    let some = |is: fn(&Expr) -> bool| values.iter().any(|value| value.expr.any(&is));
    let moves = some(|expr| matches!(expr, Expr::Address(_)));
    let reads = some(|expr| matches!(expr, Expr::Load { .. })) || values.iter().any(|value| value.is_string());
    let prologue = |memory| {
        let base = if is_fixed {
            Base::Fixed
        } else if moves && !point.is_return {
            Base::Pointer(point.address)
        } else {
            Base::Unknown
        };
        let arguments = Arguments { abi: probe.options.abi, memory, base, values: values.clone() };
        arguments.prologue().map_err(|(at, why)| format!("argument {} at {}: {why}", point.args[at].0, shown(point)))
    };
    match probe.options.sleepable {
        Switch::Yes => Ok((prologue(Memory::Sleepable)?, None)),
        Switch::Auto if reads => Ok((prologue(Memory::Sleepable)?, Some(prologue(Memory::User)?))),
        Switch::No | Switch::Auto => Ok((prologue(Memory::User)?, None)),
    }
}

fn places(point: &Point) -> Vec<String> {
    let moved = point.offset.wrapping_sub(point.address).cast_signed();
    let text = |(name, value): &(String, Result<Value, _>)| {
        value.as_ref().ok().map(|value| format!("{name}={}", value.text(Machine::X86_64, moved)))
    };
    point.args.iter().filter_map(text).collect()
}

/// What points are attached by: one link where the kernel has it, else an event for each.
fn targets(path: &Path, points: &[Point]) -> Vec<Target> {
    let is_return = points.iter().any(|point| point.is_return);
    let sites: Vec<UprobeSite> =
        points.iter().map(|point| UprobeSite { offset: point.offset, ..UprobeSite::default() }).collect();
    if by_one_link() {
        let ret = if is_return { Return::Yes } else { Return::No };
        return vec![Target::UprobeMulti { path: PathBuf::from(path), functions: Functions::Sites(sites), ret }];
    }
    sites.into_iter().map(|site| Target::Uprobe { path: PathBuf::from(path), site, ret: is_return }).collect()
}

impl fmt::Display for ProbeInstance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, point) in self.points.iter().enumerate() {
            let separator = if at == 0 { "" } else { ", " };
            write!(f, "{separator}{}", shown(point))?;
        }
        if !self.places.is_empty() {
            write!(f, ": {}", self.places.join(" "))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
