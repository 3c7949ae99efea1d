//! What sections of programs name in this process.

use std::sync::Arc;

use twinbpf_hook::{Function, Module, Point};
use twinbpf_loader::section::{AutoAttach, SectionKind};
use twinbpf_loader::usdt::{self, Note};
use twinbpf_vm::map::Errno;

use super::{Hooks, Target};
use crate::instance::InstancePre;

/// Why nothing of an object is attached.
pub(super) const NONE: &str = "no program has a section that names functions of a process, as uprobe/libc.so.6:malloc";

/// Why a section is none for a process.
const PERF: &str =
    "programs in perf's notation run in a process by twinbpf_trace::HookedProbes, which reads debug information";
const SESSION: &str = "a session runs at entry and return by functions of the kernel (bpf_session_is_return): use uprobe.multi and \
                       uretprobe.multi, or run it in the kernel (`twinbpf run`)";
const AT_RETURN: &str = "a return has no offset: FILE:FUNC";

/// Where the program of a section runs: nothing where the section is of another kind.
pub(super) fn targets<T: Send + 'static>(
    hooks: &Hooks<T>,
    section: &str,
    kind: &SectionKind,
) -> Option<Result<Vec<Target>, String>> {
    let (row, target) = match kind {
        SectionKind::Known { row, target, .. } => (row, target.as_deref()),
        SectionKind::PerfProbe(_) => return Some(Err(PERF.to_owned())),
        _ => return None,
    };
    let auto =
        row.auto.filter(|auto| [AutoAttach::Uprobe, AutoAttach::UprobeMulti, AutoAttach::Usdt].contains(auto))?;
    // `SEC("uprobe")` and `SEC("usdt")` alone: the host says where.
    let target = target?;
    let section = section.trim_start_matches('?');
    let point = if section.starts_with("uretprobe") { Point::Return } else { Point::Entry };
    Some(match auto {
        AutoAttach::Usdt => parts(target).and_then(|probe| static_probe(&hooks.pre, probe, 0)),
        AutoAttach::UprobeMulti if section.starts_with("uprobe.session") => Err(SESSION.to_owned()),
        AutoAttach::UprobeMulti => many(hooks, target).map(|functions| vec![at(functions, point)]),
        _ => one(target, point).map(|functions| vec![at(functions, point)]),
    })
}

fn at(functions: Vec<Function>, point: Point) -> Target {
    Target { functions, point, cookie: 0, semaphore: None }
}

fn module_of(target: &str) -> Result<(Arc<Module>, &str), String> {
    let (file, rest) = target.rsplit_once(':').ok_or("it names no function: FILE:FUNC")?;
    Ok((Module::find(file).map_err(|error| error.to_string())?, rest))
}

/// `FILE:PATTERN`: all that can be hooked.
fn many<T: Send + 'static>(hooks: &Hooks<T>, target: &str) -> Result<Vec<Function>, String> {
    let (module, pattern) = module_of(target)?;
    let mut functions = module.functions(pattern);
    functions.retain(|function| hooks.allowed(function).check().is_ok());
    match functions.is_empty() {
        true => Err(format!("{} has no function {pattern} that can be hooked", module.path().display())),
        false => Ok(functions),
    }
}

/// `FILE:FUNC[+OFFSET]`.
fn one(target: &str, point: Point) -> Result<Vec<Function>, String> {
    let (module, name) = module_of(target)?;
    let (name, offset) = match name.rsplit_once('+') {
        Some((name, offset)) => (name, number(offset).ok_or_else(|| format!("'{offset}' is no offset"))?),
        None => (name, 0),
    };
    let functions = if name.contains(['*', '?']) { Vec::new() } else { module.functions(name) };
    match functions.is_empty() {
        true => Err(format!("{} has no function {name}", module.path().display())),
        false if offset > 0 && point == Point::Return => Err(AT_RETURN.to_owned()),
        false => Ok(functions.iter().map(|function| function.at_offset(offset)).collect()),
    }
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// `FILE:PROVIDER:NAME`.
fn parts(target: &str) -> Result<(&str, &str, &str), String> {
    let (rest, name) = target.rsplit_once(':').unwrap_or((target, ""));
    let (file, provider) = rest.rsplit_once(':').ok_or("it names no static probe: FILE:PROVIDER:NAME")?;
    Ok((file, provider, name))
}

/// The instructions of a static probe, each with the number of its specification as a cookie, as libbpf has it.
pub(super) fn static_probe<T: Send + 'static>(
    pre: &InstancePre<T>,
    (file, provider, name): (&str, &str, &str),
    cookie: u64,
) -> Result<Vec<Target>, String> {
    let module = Module::find(file).map_err(|error| error.to_string())?;
    let [section, base] = module.sections([usdt::SECTION, usdt::BASE]);
    let notes = section.map_or(Vec::new(), |(_, bytes)| usdt::notes(&bytes, base.map(|(address, _)| address)));
    let mine: Vec<&Note> = notes.iter().filter(|note| note.provider == provider && note.name == name).collect();
    if mine.is_empty() {
        return Err(usdt::absent(notes.iter().map(|note| (&*note.provider, &*note.name)), provider));
    }
    mine.into_iter().map(|note| site(pre, &module, note, cookie)).collect()
}

fn site<T: Send + 'static>(
    pre: &InstancePre<T>,
    module: &Arc<Module>,
    note: &Note,
    cookie: u64,
) -> Result<Target, String> {
    let arguments = usdt::arguments(&note.arguments)?;
    let here = |address: u64| module.bias().wrapping_add(address);
    let address = here(note.address);
    let unknown =
        || format!("what function the probe at {:#x} is in, neither symbols nor unwind information say", note.address);
    let function = module.function_around(address).ok_or_else(unknown)?;
    let number = specification(pre, &arguments, cookie)?;
    // For programs that were linked for a kernel without cookies.
    let map = pre.map_ops(usdt::ADDRESSES).ok_or_else(no_maps)?;
    map.update(&address.to_ne_bytes(), &number.to_ne_bytes(), 0, 0).map_err(|errno| full(usdt::ADDRESSES, errno))?;
    Ok(Target {
        functions: vec![function],
        point: Point::Entry,
        cookie: number.into(),
        semaphore: (note.semaphore != 0).then(|| here(note.semaphore)),
    })
}

fn no_maps() -> String {
    format!("the object has no map {}: include <bpf/usdt.bpf.h>", usdt::SPECS)
}

fn full(map: &str, errno: Errno) -> String {
    let hint = if errno == Errno::E2BIG { ": raise BPF_USDT_MAX_SPEC_CNT in the program" } else { "" };
    format!("map {map} refuses one more: {errno:?}{hint}")
}

/// The number of a specification; equal ones share it.
fn specification<T: Send + 'static>(
    pre: &InstancePre<T>,
    arguments: &[usdt::Argument],
    cookie: u64,
) -> Result<u32, String> {
    let map = pre.map_ops(usdt::SPECS).ok_or_else(no_maps)?;
    let spec = usdt::spec(arguments, cookie, map.spec().value_size as usize);
    let mut known = pre.usdt_specs();
    if let Some(number) = known.iter().position(|other| *other == spec) {
        return Ok(number as u32);
    }
    let number = known.len() as u32;
    map.update(&number.to_ne_bytes(), &spec, 0, 0).map_err(|errno| full(usdt::SPECS, errno))?;
    known.push(spec);
    Ok(number)
}
