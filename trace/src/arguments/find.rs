//! From a definition to points whose arguments have places: in a file by its debug information, in the kernel by its types.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use twinbpf_kernel::system::System;
use twinbpf_kernel::user;
use twinbpf_loader::section::{PerfArg, PerfPart, PerfProbe, ProbePosition, Switch};
use twinbpf_probe::{Argument, Binary, Definition, KernelTypes, Machine, Point, Store, is_pattern};

use super::error::ProbeError;
use super::mapped;
use crate::probes::probe_definition;

/// What a definition leads to.
pub(super) struct Found {
    pub(super) points: Vec<Point>,
    /// Functions of a pattern that lack an argument, and why.
    pub(super) left_out: Vec<String>,
    /// Of user space.
    pub(super) file: Option<PathBuf>,
    /// Whether the file is loaded at its own addresses.
    pub(super) is_fixed: bool,
}

/// Does something with a file to be probed and its debug information, which other files may have.
///
/// # Errors
/// It cannot be read, or is none to be probed; in words.
pub fn with_binary<R>(path: &Path, work: impl FnOnce(&Binary<'_>) -> R) -> Result<R, String> {
    let named = |error: &dyn fmt::Display| format!("{}: {error}", path.display());
    let read = |path: &Path| mapped::bytes(path).ok();
    let store = Store::new();
    let bytes = store.keep(mapped::bytes(path).map_err(|error| named(&error))?);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let binary = Binary::open(&store, path, bytes, &read, threads).map_err(|error| named(&error))?;
    Ok(work(&binary))
}

/// What definitions lead to, in their order, and which debug information is missing. Each file is read and indexed once.
pub(super) fn all(probes: &[&PerfProbe]) -> (Vec<Result<Found, ProbeError>>, Vec<String>) {
    let mut found: Vec<Option<Result<Found, ProbeError>>> = probes.iter().map(|_| None).collect();
    let mut files: Vec<(PathBuf, Vec<usize>)> = Vec::new();
    for (at, probe) in probes.iter().enumerate() {
        match probe.options.exec.as_deref().map(located) {
            None => found[at] = Some(in_kernel(probe)),
            Some(Err(error)) => found[at] = Some(Err(error)),
            Some(Ok(path)) => match files.iter_mut().find(|(known, _)| *known == path) {
                Some((_, all)) => all.push(at),
                None => files.push((path, vec![at])),
            },
        }
    }
    let mut missing = Vec::new();
    for (path, all) in files {
        let read = with_binary(&path, |binary| {
            for at in &all {
                found[*at] = Some(in_file(probes[*at], &path, binary));
            }
            for tried in binary.missing() {
                let incomplete = format!("debug information is incomplete: {tried}");
                for at in &all {
                    if let Some(Err(error)) = &mut found[*at] {
                        error.why += &format!("; {incomplete}");
                    }
                }
                missing.push(format!("{}: {incomplete}", path.display()));
            }
        });
        if let Err(why) = read {
            all.iter().for_each(|at| found[*at] = Some(Err(ProbeError::option("exec", why.clone()))));
        }
    }
    (found.into_iter().flatten().collect(), missing)
}

fn located(exec: &str) -> Result<PathBuf, ProbeError> {
    let path = user::find(exec).ok_or_else(|| {
        ProbeError::option("exec", format!("there is no file {exec}; a bare name is searched for in PATH"))
    })?;
    Ok(std::fs::canonicalize(&path).unwrap_or(path))
}

fn definition(probe: &PerfProbe) -> Result<Definition, ProbeError> {
    let is_wrong = |arg: &PerfArg| Argument::parse(&arg.name, &arg.expr, arg.ty.as_deref()).is_err();
    probe_definition(probe).map_err(|error| {
        let wrong = probe.args.iter().position(is_wrong);
        ProbeError { why: error.to_string(), parts: wrong.map(PerfPart::Argument).into_iter().collect() }
    })
}

/// What of a definition an error of its points is about.
fn part(probe: &PerfProbe, error: &twinbpf_probe::Error) -> PerfPart {
    match error {
        twinbpf_probe::Error::TooMany { .. } if probe.options.max.is_some() => PerfPart::Option("max".into(), true),
        _ => PerfPart::Function,
    }
}

/// The points of a definition in a file.
///
/// # Errors
/// No point, or an argument without a place.
fn in_file(probe: &PerfProbe, path: &Path, binary: &Binary<'_>) -> Result<Found, ProbeError> {
    let named = |error: &dyn fmt::Display| format!("{}: {error}", path.display());
    if binary.machine() != Machine::X86_64 || !cfg!(target_arch = "x86_64") {
        return Err(ProbeError::option("exec", named(&"arguments are fetched on x86-64 only")));
    }
    let points = binary.probe(&definition(probe)?);
    let points = points.map_err(|error| ProbeError::at(part(probe, &error), named(&error)))?;
    let (points, left_out) = with_arguments(probe, points, &format!("-x {}", path.display()))?;
    Ok(Found { points, left_out, is_fixed: binary.is_fixed(), file: Some(path.to_owned()) })
}

/// The points of a definition in the kernel.
///
/// # Errors
/// As [`in_file`], and where the kernel's types or symbols cannot be read.
fn in_kernel(probe: &PerfProbe) -> Result<Found, ProbeError> {
    if !cfg!(target_arch = "x86_64") {
        return Err("arguments are fetched on x86-64 only".to_owned().into());
    }
    if probe.options.sleepable == Switch::Yes {
        let why = "sleepable=yes: the kernel runs no sleepable programs at its own functions";
        return Err(ProbeError::option("sleepable", why));
    }
    let definition = definition(probe)?;
    let types = kernel_types(probe.options.module.as_deref()).map_err(|why| ProbeError::option("module", why))?;
    let points = types.probe(&definition);
    let points = points.map_err(|error| ProbeError::at(part(probe, &error), error.to_string()))?;
    let (points, left_out) = with_arguments(probe, points, "-k")?;
    Ok(Found { points, left_out, file: None, is_fixed: true })
}

/// Types and symbols of the running kernel, or of one of its modules.
///
/// # Errors
/// It has no types, or its symbols cannot be read; in words.
pub fn kernel_types(module: Option<&str>) -> Result<Arc<KernelTypes<'static>>, String> {
    // Each program of an object asks anew, and counting a hundred thousand symbols takes a while.
    static KERNEL: OnceLock<Arc<KernelTypes<'static>>> = OnceLock::new();
    if let (None, Some(known)) = (module, KERNEL.get()) {
        return Ok(Arc::clone(known));
    }
    let system = System::get();
    let btf = system.types(module).ok_or_else(|| match module {
        Some(module) => {
            format!("there are no types of module {module} in /sys/kernel/btf: load it, or leave module= out")
        }
        None => "the kernel has no types: there is no /sys/kernel/btf/vmlinux (CONFIG_DEBUG_INFO_BTF)".to_owned(),
    })?;
    if system.functions().next().is_none() {
        return Err("the kernel's symbols in /proc/kallsyms cannot be read".to_owned());
    }
    let types = Arc::new(KernelTypes::new(btf, system.functions(), Machine::X86_64));
    Ok(if module.is_none() { Arc::clone(KERNEL.get_or_init(|| types)) } else { types })
}

/// The points at which all arguments have places; of a pattern, those of other functions are left out.
fn with_arguments(
    probe: &PerfProbe,
    points: Vec<Point>,
    command: &str,
) -> Result<(Vec<Point>, Vec<String>), ProbeError> {
    let is_whole = |point: &Point| point.args.iter().all(|(_, value)| value.is_ok());
    let (whole, others): (Vec<Point>, Vec<Point>) = points.into_iter().partition(is_whole);
    let (mut wrong, mut parts) = (Vec::new(), Vec::new());
    for point in &others {
        for (at, (name, value)) in point.args.iter().enumerate() {
            if let Err(why) = value {
                parts.push(PerfPart::Argument(at));
                wrong.push(format!("argument {name} at {}: {why}", shown(point)));
            }
        }
    }
    let is_pattern = probe.point.function.as_deref().is_some_and(is_pattern);
    // Another copy of the same function would be missed.
    let is_other = |point: &Point| whole.iter().all(|whole| whole.function != point.function);
    if !wrong.is_empty() && (whole.is_empty() || !is_pattern || !others.iter().all(is_other)) {
        let hint = format!("`twinbpf probe {command} -V '{}'` lists what there is", function(probe));
        return Err(ProbeError { why: format!("{}; {hint}", wrong.join("; ")), parts });
    }
    Ok((whole, wrong))
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
pub(super) fn shown(point: &Point) -> String {
    let line = point.source.as_ref().map(|(file, line)| format!(" ({file}:{line})")).unwrap_or_default();
    let returns = if point.is_return { "return of " } else { "" };
    match point.address {
        // A function of the kernel is known by its name.
        0 => format!("{returns}{}", point.function),
        address => format!("{returns}{} at {address:#x}{line}", point.function),
    }
}
