//! From a definition to points whose arguments have places: in a file by its debug information, in the kernel by its types.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use twinbpf_kernel::system::System;
use twinbpf_kernel::user;
use twinbpf_loader::section::{PerfProbe, ProbePosition, Switch};
use twinbpf_probe::{Binary, Bytes, KernelTypes, Machine, Point, Store, is_pattern};

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
    let read = |path: &Path| std::fs::read(path).ok().map(|bytes| Box::new(bytes) as Bytes);
    let bytes = std::fs::read(path).map_err(|error| named(&error))?;
    let store = Store::new();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let binary = Binary::open(&store, path, &bytes, &read, threads).map_err(|error| named(&error))?;
    Ok(work(&binary))
}

/// The points of a definition in a file.
///
/// # Errors
/// No file, no point, or an argument without a place.
pub(super) fn in_file(probe: &PerfProbe, exec: &str) -> Result<Found, String> {
    let path =
        user::find(exec).ok_or_else(|| format!("there is no file {exec}; a bare name is searched for in PATH"))?;
    let path = std::fs::canonicalize(&path).unwrap_or(path);
    let named = |error: &dyn fmt::Display| format!("{}: {error}", path.display());
    let definition = probe_definition(probe).map_err(|error| error.to_string())?;
    with_binary(&path, |binary| {
        if binary.machine() != Machine::X86_64 || !cfg!(target_arch = "x86_64") {
            return Err(named(&"arguments are fetched on x86-64 only"));
        }
        let points = binary.probe(&definition).map_err(|error| named(&error))?;
        let (points, left_out) = with_arguments(probe, points, &format!("-x {}", path.display()))?;
        Ok(Found { points, left_out, is_fixed: binary.is_fixed(), file: Some(path.clone()) })
    })?
}

/// The points of a definition in the kernel.
///
/// # Errors
/// As [`in_file`], and where the kernel's types or symbols cannot be read.
pub(super) fn in_kernel(probe: &PerfProbe) -> Result<Found, String> {
    if !cfg!(target_arch = "x86_64") {
        return Err("arguments are fetched on x86-64 only".to_owned());
    }
    if probe.options.sleepable == Switch::Yes {
        return Err("sleepable=yes: the kernel runs no sleepable programs at its own functions".to_owned());
    }
    let definition = probe_definition(probe).map_err(|error| error.to_string())?;
    let types = kernel_types(probe.options.module.as_deref())?;
    let points = types.probe(&definition).map_err(|error| error.to_string())?;
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
fn with_arguments(probe: &PerfProbe, points: Vec<Point>, command: &str) -> Result<(Vec<Point>, Vec<String>), String> {
    let is_whole = |point: &Point| point.args.iter().all(|(_, value)| value.is_ok());
    let (whole, others): (Vec<Point>, Vec<Point>) = points.into_iter().partition(is_whole);
    let mut wrong = Vec::new();
    for point in &others {
        for (name, value) in &point.args {
            if let Err(why) = value {
                wrong.push(format!("argument {name} at {}: {why}", shown(point)));
            }
        }
    }
    let is_pattern = probe.point.function.as_deref().is_some_and(is_pattern);
    // Another copy of the same function would be missed.
    let is_other = |point: &Point| whole.iter().all(|whole| whole.function != point.function);
    if !wrong.is_empty() && (whole.is_empty() || !is_pattern || !others.iter().all(is_other)) {
        let hint = format!("`twinbpf probe {command} -V '{}'` lists what there is", function(probe));
        return Err(format!("{}; {hint}", wrong.join("; ")));
    }
    let most = probe.options.max.map_or(usize::MAX, |max| max as usize);
    if whole.len() > most {
        return Err(format!("{} points match, more than max={most}: narrow the pattern", whole.len()));
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
