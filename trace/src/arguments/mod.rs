//! Programs whose section is a probe definition in perf's notation: where their points are, and the arguments of each.
//!
//! A definition becomes points ([`twinbpf_probe`]). Points at which all arguments are in the same places share one instance
//! of the program, with one prologue; every other gets an instance of its own, attached to its own points only.

mod error;
mod fetch;
mod find;
mod machine;
mod mapped;
mod prologue;
pub(crate) mod variants;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use twinbpf_kernel::Target;
use twinbpf_kernel::link::{UprobeSite, by_one_link};
use twinbpf_kernel::probe::{Feature, has};
use twinbpf_loader::section::{Abi, Mode, PerfPart, PerfProbe, Switch};
use twinbpf_probe::{Expr, Machine, Point, Value};

use crate::options::Options;
use crate::target;
use fetch::{Base, Memory};
use find::{Found, shown};
use prologue::Arguments;

pub use error::ProbeError;
pub use find::{kernel_types, with_binary};
pub use machine::ChoiceError;
pub use prologue::{MOST_PARAMETERS, Prologue, STRING};

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
}

/// What a definition becomes.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Instances {
    /// A program for each set of points whose arguments are in the same places.
    pub instances: Vec<ProbeInstance>,
    /// Functions that a pattern matches and that lack an argument, each with the reason.
    pub left_out: Vec<String>,
    /// What the companion is attached to: entries of functions whose registers are needed at points inside of them. It keeps
    /// these by thread and frame, so that each call finds its own, however deep.
    pub companion: Vec<Target>,
    /// The process that all are limited to, by `pid=`.
    pub pid: Option<u32>,
    /// The program or library of user space that the points are in.
    pub file: Option<PathBuf>,
}

impl Instances {
    /// What programs attach to, in the order in which they are loaded: the companion, if there is one, comes first.
    pub(crate) fn targets(&self) -> impl Iterator<Item = &[Target]> {
        let companion = Some(&self.companion[..]).filter(|targets| !targets.is_empty());
        companion.into_iter().chain(self.instances.iter().map(|instance| &instance.targets[..]))
    }
}

/// What definitions become.
#[derive(Debug)]
#[non_exhaustive]
pub struct Probed {
    /// The instances of each definition, in the order of the definitions.
    pub instances: Vec<Result<Instances, ProbeError>>,
    /// Debug information of their files that could not be found, each with the reason.
    pub missing: Vec<String>,
}

/// The instances of programs in a session without limits.
pub fn probe_instances(probes: &[&PerfProbe]) -> Probed {
    instances(probes, &Options::default())
}

/// The instances of programs, each in the order of their first points. Each file is read once.
pub(crate) fn instances(probes: &[&PerfProbe], limits: &Options) -> Probed {
    let checked: Vec<Result<(), ProbeError>> = probes.iter().map(|probe| check(probe, limits)).collect();
    let right = probes.iter().zip(&checked).filter(|(_, checked)| checked.is_ok());
    let right: Vec<&PerfProbe> = right.map(|(probe, _)| *probe).collect();
    let (found, missing) = find::all(&right);
    let mut found = found.into_iter();
    let one = |(probe, checked): (&&PerfProbe, Result<(), ProbeError>)| {
        checked?;
        of_points(probe, found.next().expect("each that is right was looked up")?, limits)
    };
    let instances = probes.iter().zip(checked).map(one).collect();
    Probed { instances, missing }
}

/// Whether options fit each other, the arguments and the session.
fn check(probe: &PerfProbe, limits: &Options) -> Result<(), ProbeError> {
    let options = &probe.options;
    if let Some(piece) = options.skipped.first() {
        let why = format!("'{piece}' before the definition says nothing: write KEY=VALUE");
        return Err(ProbeError::at(PerfPart::Piece(Arc::clone(piece)), why));
    }
    if options.exec.is_some() && options.module.is_some() {
        return Err(ProbeError::option("module", "exec= and module= exclude each other"));
    }
    if options.mode == Mode::User {
        return Err(ProbeError::option("mode", "mode=user: a probe runs in the kernel"));
    }
    if let (Some(own), Some(given)) = (options.pid, limits.pid)
        && own != given
    {
        let why = format!("pid={own}; in its section and process {given} of the session exclude each other");
        return Err(ProbeError::option("pid", why));
    }
    if options.abi == Abi::Perf && probe.args.len() > MOST_PARAMETERS {
        let count = probe.args.len();
        let why = format!(
            "{count} arguments, and registers have room for {MOST_PARAMETERS}: write abi=struct; before the definition, and the \
             program as f(ctx, unsigned long failed, struct args *args)"
        );
        return Err(ProbeError { why, parts: (MOST_PARAMETERS..count).map(PerfPart::Argument).collect() });
    }
    Ok(())
}

/// The instances of a program whose points are known.
fn of_points(probe: &PerfProbe, found: Found, limits: &Options) -> Result<Instances, ProbeError> {
    let Found { points, left_out, file, is_fixed } = found;
    let limit = |targets: Vec<Target>| {
        let all: Result<Vec<_>, String> = targets.into_iter().map(|target| target::filtered(target, limits)).collect();
        Ok::<_, String>(all?.concat())
    };
    let companion = limit(file.as_deref().map(|file| companion(file, &points)).unwrap_or_default())?;
    let mut instances: Vec<ProbeInstance> = Vec::new();
    for point in points {
        let (prologue, fallback) = prologues(probe, &point, base(&point, is_fixed), file.is_none())?;
        match instances.iter_mut().find(|other| other.prologue == prologue) {
            Some(instance) => instance.points.push(point),
            None => {
                let (places, points) = (places(&point), vec![point]);
                instances.push(ProbeInstance { points, places, prologue, fallback, targets: Vec::new() });
            }
        }
    }
    for instance in &mut instances {
        instance.targets = limit(match &file {
            Some(file) => targets(file, &instance.points),
            None => instance.points.iter().map(kprobe).collect(),
        })?;
    }
    Ok(Instances { instances, left_out, companion, pid: probe.options.pid, file })
}

/// The attach points of the companion: where functions begin whose registers at the entry some value needs.
fn companion(file: &Path, points: &[Point]) -> Vec<Target> {
    let entry = |point: &Point| Some(point.offset.wrapping_sub(point.address).wrapping_add(point.entry?));
    let mut offsets: Vec<u64> = points.iter().filter(|point| point.cfa.is_some()).filter_map(entry).collect();
    offsets.sort_unstable();
    offsets.dedup();
    sites(file, offsets, false)
}

/// How code at a point finds out where the file was loaded.
fn base(point: &Point, is_fixed: bool) -> Base {
    let is_address = |expr: &Expr| matches!(expr, Expr::Address(_));
    let moves = point.args.iter().flat_map(|(_, value)| value).any(|value| value.expr.any(&is_address));
    if is_fixed {
        Base::Fixed
    } else if moves && !point.is_return {
        Base::Pointer(point.address)
    } else {
        Base::Unknown
    }
}

/// The prologue of a point, and the one for a program that may not sleep.
fn prologues(
    probe: &PerfProbe,
    point: &Point,
    base: Base,
    in_kernel: bool,
) -> Result<(Prologue, Option<Prologue>), ProbeError> {
    let values: Vec<&Value> = point.args.iter().flat_map(|(_, value)| value).collect();
    let is_load = |expr: &Expr| matches!(expr, Expr::Load { .. });
    let reads = values.iter().any(|value| value.is_string() || value.expr.any(&is_load));
    let user: Vec<bool> = probe.args.iter().map(|arg| arg.user).collect();
    let prologue = |memory| {
        let (abi, values, user) = (probe.options.abi, values.clone(), user.clone());
        let arguments = Arguments { abi, memory, user, base, values, cfa: point.cfa.as_ref() };
        arguments.prologue().map_err(|(at, why)| {
            let why = format!("argument {} at {}: {why}", point.args[at].0, shown(point));
            ProbeError::at(PerfPart::Argument(at), why)
        })
    };
    match probe.options.sleepable {
        _ if in_kernel => Ok((prologue(Memory::Kernel)?, None)),
        Switch::Yes => Ok((prologue(Memory::Sleepable)?, None)),
        Switch::Auto if reads => Ok((prologue(Memory::Sleepable)?, Some(prologue(Memory::User)?))),
        Switch::No | Switch::Auto => Ok((prologue(Memory::User)?, None)),
    }
}

/// A point in the kernel.
fn kprobe(point: &Point) -> Target {
    Target::Kprobe { function: point.function.clone(), offset: 0, ret: point.is_return }
}

fn places(point: &Point) -> Vec<String> {
    let moved = point.offset.wrapping_sub(point.address).cast_signed();
    let text = |(name, value): &(String, Result<Value, _>)| {
        value.as_ref().ok().map(|value| format!("{name}={}", value.text(Machine::X86_64, moved)))
    };
    point.args.iter().filter_map(text).collect()
}

/// What points are attached by.
fn targets(path: &Path, points: &[Point]) -> Vec<Target> {
    let is_return = points.iter().any(|point| point.is_return);
    sites(path, points.iter().map(|point| point.offset).collect(), is_return)
}

/// One link for all places where the kernel has it, else an event for each.
fn sites(path: &Path, offsets: Vec<u64>, is_return: bool) -> Vec<Target> {
    let site = |offset| UprobeSite { offset, ..UprobeSite::default() };
    let uprobe = |offset| Target::Uprobe { path: PathBuf::from(path), site: site(offset), ret: is_return };
    let events: Vec<Target> = offsets.into_iter().map(uprobe).collect();
    if has(Feature::UprobeMulti) { by_one_link(&events) } else { events }
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
mod differential;
#[cfg(test)]
mod tests;
