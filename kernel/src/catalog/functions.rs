//! Functions of the kernel that programs can be attached to, and iterators.

use std::collections::HashSet;

use twinbpf_btf::{Btf, Type, TypeId};

use super::{Catalog, LeftOut, Pattern, kprobes, programs, types};
use crate::probe::RETURN_0;
use crate::prog::{AttachType, LoadTarget, Prog, ProgLoad, ProgType};
use crate::system::System;
use crate::{Error, Options, Target, tracefs};

/// What a function gets and returns, a line each, without the first `skip` parameters.
pub(super) fn prototype(btf: &Btf, id: TypeId, skip: usize) -> Option<Vec<String>> {
    let proto = match btf.type_by_id(id)? {
        Type::Func { proto, .. } => proto,
        Type::FuncProto(_) => id,
        _ => return None,
    };
    let Type::FuncProto(proto) = btf.type_by_id(proto)? else { return None };
    let parameter = |name: &str, id: TypeId| {
        let kind = btf.type_name(id);
        let space = if kind.ends_with('*') { "" } else { " " };
        format!("{kind}{space}{name}").trim_end().to_owned()
    };
    let parameters = proto.params().skip(skip).filter(|param| param.type_id != TypeId(0));
    let mut lines: Vec<String> = parameters.map(|param| parameter(param.name, param.type_id)).collect();
    if proto.result != TypeId(0) {
        lines.push(format!("returns {}", btf.type_name(proto.result)));
    }
    Some(lines)
}

/// Names of functions that ftrace can patch; `None` if tracefs does not list them.
fn patchable() -> Option<Vec<String>> {
    let text = tracefs::read("available_filter_functions").ok().filter(|text| !text.is_empty())?;
    let names = text.lines().filter_map(|line| line.split_whitespace().next());
    Some(names.map(str::to_owned).collect())
}

/// Names of code in the table of symbols.
fn symbols() -> Vec<String> {
    System::get().functions().map(str::to_owned).collect()
}

pub(super) fn describe(catalog: &mut Catalog, added: std::ops::Range<usize>, prefix: &str, skip: usize) {
    let Ok(btf) = types() else { return };
    for point in &mut catalog.attach_points[added] {
        let name = point.section.split_once('/').map_or("", |(_, name)| name);
        let found = btf.func(&format!("{prefix}{name}"));
        point.arguments = found.and_then(|id| prototype(btf, id, skip)).unwrap_or_default();
    }
}

pub(super) fn probes(catalog: &mut Catalog, pattern: &Pattern, arguments: bool) {
    let mut names = None;
    for kind in ["kprobe", "kretprobe"].into_iter().filter(|kind| pattern.includes(kind, "kprobe")) {
        let names = names.get_or_insert_with(|| patchable().unwrap_or_else(symbols));
        let added = catalog.add(kind, pattern, names.iter().cloned(), kprobes);
        if arguments {
            describe(catalog, added, "", 0);
        }
    }
    let calls = tracefs::list("events/syscalls").unwrap_or_default();
    let calls: Vec<String> =
        calls.iter().filter_map(|name| name.strip_prefix("sys_enter_").map(str::to_owned)).collect();
    for kind in ["ksyscall", "kretsyscall"].into_iter().filter(|kind| pattern.includes(kind, "ksyscall")) {
        catalog.add(kind, pattern, calls.iter().cloned(), kprobes);
    }
}

/// Functions with types, which programs without breakpoints can be attached to.
pub(super) fn trampolines(catalog: &mut Catalog, pattern: &Pattern, arguments: bool) {
    let kinds = ["fentry", "fexit"].into_iter().filter(|kind| pattern.includes(kind, "fentry"));
    let kinds: Vec<&'static str> = kinds.collect();
    let btf = match types() {
        Ok(btf) => btf,
        Err(why) => {
            for kind in kinds.into_iter().filter(|kind| pattern.may_match_kind(kind)) {
                catalog.left_out.push(LeftOut { kind, count: 0, why: why.clone() });
            }
            return;
        }
    };
    let known: HashSet<String> = patchable().unwrap_or_else(symbols).into_iter().collect();
    let function = |btf: &Btf, id: TypeId| match btf.type_by_id(id) {
        Some(Type::Func { .. }) => Some(btf.name(id).to_owned()).filter(|name| known.contains(name)),
        _ => None,
    };
    let modules = System::get().modules().iter().map(|module| &*module.btf);
    let names: Vec<String> =
        std::iter::once(btf).chain(modules).flat_map(|btf| btf.ids().filter_map(move |id| function(btf, id))).collect();
    for kind in kinds {
        let can = || trampoline(btf, names.iter().map(String::as_str));
        let added = catalog.add(kind, pattern, names.iter().cloned(), can);
        if arguments {
            describe(catalog, added, "", 0);
        }
    }
}

/// Tries whether a program can be attached to a function, one that is called often enough to exist everywhere and
/// seldom enough not to slow anything down.
fn trampoline<'a>(btf: &Btf, names: impl Iterator<Item = &'a str>) -> Result<(), String> {
    const TRIED: [&str; 3] = ["bpf_fentry_test1", "do_exit", "vfs_mkdir"];
    let known: Vec<&str> = names.filter(|name| TRIED.contains(name)).collect();
    let Some(id) = known.first().and_then(|name| btf.func(name)) else {
        return Err("no function to try it with".to_owned());
    };
    let attempt = || {
        let prog = try_load(ProgType::Tracing, AttachType::TraceFentry, id)?;
        Target::Btf.attach(&prog, &Options::default()).map(drop)
    };
    attempt().map_err(|error| format!("tried at {}: {error}", known[0]))
}

/// A program that returns 0 for a function of the kernel.
pub(super) fn try_load(kind: ProgType, attach: AttachType, id: TypeId) -> Result<Prog, Error> {
    let insns = RETURN_0.concat();
    let target = LoadTarget { attach: attach as u32, btf_id: id.0, of: None };
    Prog::load(&ProgLoad { target, ..ProgLoad::new("list", kind, &insns, "GPL") })
}

/// What iterators go over: functions of types that begin with their description of a walk.
pub(super) fn iterators(catalog: &mut Catalog, pattern: &Pattern, arguments: bool) {
    const PREFIX: &str = "bpf_iter_";
    let Ok(btf) = types() else {
        if pattern.may_match_kind("iter") {
            catalog.left_out.push(LeftOut { kind: "iter", count: 0, why: types().err().unwrap_or_default() });
        }
        return;
    };
    let walks = |proto: TypeId| {
        let Some(Type::FuncProto(proto)) = btf.type_by_id(proto) else { return false };
        proto.params().next().is_some_and(|param| btf.type_name(param.type_id) == "struct bpf_iter_meta *")
    };
    let target = |id: TypeId| match btf.type_by_id(id) {
        Some(Type::Func { proto, .. }) if walks(proto) => btf.name(id).strip_prefix(PREFIX).map(|name| (name, id)),
        _ => None,
    };
    let wanted: Vec<(&str, TypeId)> =
        btf.ids().filter_map(target).filter(|(name, _)| pattern.wants(&format!("iter/{name}"))).collect();
    let registered = |id| match try_load(ProgType::Tracing, AttachType::TraceIter, id) {
        Ok(_) => true,
        // The kernel has the type, and no iterator for it; or (EPERM) nothing can be tried, which is reported for all.
        Err(error) => error.errno() == Some(libc::EPERM),
    };
    let (there, absent): (Vec<_>, Vec<_>) = wanted.into_iter().partition(|(_, id)| registered(*id));
    let names = there.into_iter().map(|(name, _)| name.to_owned());
    let added = catalog.add("iter", pattern, names, || programs(ProgType::Tracing));
    if arguments {
        describe(catalog, added, PREFIX, 1);
    }
    if !absent.is_empty() {
        let names: Vec<&str> = absent.iter().map(|(name, _)| *name).collect();
        let why = format!("the kernel refuses {}", names.join(", "));
        catalog.left_out.push(LeftOut { kind: "iter", count: names.len(), why });
    }
}
