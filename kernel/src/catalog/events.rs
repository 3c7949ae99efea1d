//! Attach points by event: tracepoints, perf events, network interfaces.

use twinbpf_btf::{Btf, Type};

use super::functions::prototype;
use super::{AttachPoint, Catalog, LeftOut, Pattern, programs, types};
use crate::link::{EVENTS, can_sample};
use crate::prog::ProgType;
use crate::system::System;
use crate::tracefs;

/// Names `CATEGORY/NAME`, of those that programs can be attached to.
fn listed() -> std::io::Result<Vec<String>> {
    let mut names = Vec::new();
    for category in tracefs::list("events")? {
        // Those of ftrace itself have a format and cannot be switched on.
        let events = tracefs::list(&format!("events/{category}")).unwrap_or_default();
        let events = events.into_iter().filter(|name| tracefs::exists(&format!("events/{category}/{name}/id")));
        let events = events.filter(|name| tracefs::exists(&format!("events/{category}/{name}/enable")));
        names.extend(events.map(|name| format!("{category}/{name}")));
    }
    Ok(names)
}

pub(super) fn tracepoints(catalog: &mut Catalog, pattern: &Pattern, arguments: bool) {
    let names = match listed() {
        Ok(names) => names,
        Err(error) => {
            if pattern.may_match_kind("tp") {
                let why = format!("the tracing file system cannot be read: {error}");
                catalog.left_out.push(LeftOut { kind: "tp", count: 0, why });
            }
            return;
        }
    };
    let added = catalog.add("tp", pattern, names, || programs(ProgType::Tracepoint));
    if arguments {
        for point in &mut catalog.attach_points[added] {
            let name = point.section.trim_start_matches("tp/");
            let format = tracefs::read(&format!("events/{name}/format")).unwrap_or_default();
            point.arguments = fields(&format);
        }
    }
}

/// The fields of an event, without those that all events have.
fn fields(format: &str) -> Vec<String> {
    let fields = format.lines().filter_map(|line| line.trim().strip_prefix("field:"));
    let fields = fields.filter_map(|line| Some(line.split(';').next()?.trim().to_owned()));
    fields.filter(|field| !field.split_whitespace().last().is_some_and(|name| name.starts_with("common_"))).collect()
}

/// The prefix of the types that say what a raw tracepoint passes.
const TRACE: &str = "btf_trace_";

/// Names of raw tracepoints among types.
fn raw_names(btf: &Btf) -> Vec<String> {
    let typedef = |id| match btf.type_by_id(id) {
        Some(Type::Typedef(_)) => btf.name(id).strip_prefix(TRACE).map(str::to_owned),
        _ => None,
    };
    btf.ids().filter_map(typedef).collect()
}

pub(super) fn raw_tracepoints(catalog: &mut Catalog, pattern: &Pattern, arguments: bool) {
    let system = System::get();
    let btf = match types() {
        Ok(btf) => btf,
        Err(why) => {
            // Most have the name of their event.
            let names = listed().unwrap_or_default().into_iter().filter(|name| !name.starts_with("syscalls/"));
            let names: Vec<String> = names.filter_map(|name| Some(name.split_once('/')?.1.to_owned())).collect();
            catalog.add("raw_tp", pattern, names.iter().cloned(), || programs(ProgType::RawTracepoint));
            catalog.add("tp_btf", pattern, names, || Err(why));
            return;
        }
    };
    let modules = system.modules().iter().map(|module| &*module.btf);
    let all: Vec<&Btf> = std::iter::once(btf).chain(modules).collect();
    let names: Vec<String> = all.iter().flat_map(|btf| raw_names(btf)).collect();
    let raw = catalog.add("raw_tp", pattern, names.iter().cloned(), || programs(ProgType::RawTracepoint));
    let typed = catalog.add("tp_btf", pattern, names, || programs(ProgType::Tracing));
    if arguments {
        for point in catalog.attach_points[raw.start..typed.end].iter_mut() {
            let name = point.section.split_once('/').map_or("", |(_, name)| name);
            let named = ["__probestub_", "__traceiter_"].map(|prefix| format!("{prefix}{name}"));
            let name = format!("{TRACE}{name}");
            let pointer = |btf: &&Btf| {
                // The types of these functions have names for the arguments.
                if let Some(lines) = named.iter().find_map(|name| prototype(btf, btf.func(name)?, 1)) {
                    return Some(lines.into_iter().filter(|line| !line.starts_with("returns ")).collect());
                }
                let id = btf.find(&name, |found| matches!(found, Type::Typedef(_)))?;
                match btf.resolve(id) {
                    // The first argument is the tracepoint's own.
                    Ok((_, Type::Ptr(to))) => prototype(btf, to, 1),
                    Ok(_) | Err(_) => None,
                }
            };
            point.arguments = all.iter().find_map(pointer).unwrap_or_default();
        }
    }
}

pub(super) fn sampled(catalog: &mut Catalog, pattern: &Pattern) {
    let section = "perf_event";
    let wanted: Vec<_> = EVENTS.iter().filter(|(name, _)| pattern.wants(&format!("{section}/{name}"))).collect();
    if wanted.is_empty() {
        return;
    }
    if let Err(why) = programs(ProgType::PerfEvent) {
        catalog.left_out.push(LeftOut { kind: section, count: wanted.len(), why });
        return;
    }
    let mut refused: Vec<(String, Vec<&str>)> = Vec::new();
    for (name, clock) in wanted {
        match can_sample(*clock) {
            Ok(()) => {
                catalog
                    .attach_points
                    .push(AttachPoint { attach: Some(format!("{name}:99")), ..AttachPoint::new(section) });
            }
            Err(error) => {
                let why = match error.raw_os_error() {
                    Some(libc::ENOENT) => "this machine shows no such counters".to_owned(),
                    _ => error.to_string(),
                };
                match refused.iter_mut().find(|(other, _)| *other == why) {
                    Some((_, names)) => names.push(name),
                    None => refused.push((why, vec![name])),
                }
            }
        }
    }
    for (why, names) in refused {
        let why = format!("{}: {why}", names.join(", "));
        catalog.left_out.push(LeftOut { kind: section, count: names.len(), why });
    }
}

pub(super) fn interfaces(catalog: &mut Catalog, pattern: &Pattern) {
    let entries = std::fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    for (section, kind) in
        [("xdp", ProgType::Xdp), ("tcx/ingress", ProgType::SchedCls), ("tcx/egress", ProgType::SchedCls)]
    {
        let wanted: Vec<&String> = names.iter().filter(|name| pattern.wants(&format!("{section}/{name}"))).collect();
        if wanted.is_empty() {
            continue;
        }
        match programs(kind) {
            Ok(()) => {
                let point = |name: &&String| AttachPoint { attach: Some((*name).clone()), ..AttachPoint::new(section) };
                catalog.attach_points.extend(wanted.iter().map(point));
            }
            Err(why) => catalog.left_out.push(LeftOut { kind: section, count: wanted.len(), why }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::fields;

    #[test]
    fn fields_of_a_format() {
        let format = "name: x\nformat:\n\tfield:unsigned short common_type;\toffset:0;\n\n\
            \tfield:const char * filename;\toffset:16;\tsize:8;\n\tfield:char comm[16];\toffset:24;\n\nprint fmt: \"\"\n";
        assert_eq!(fields(format), ["const char * filename", "char comm[16]"]);
    }
}
