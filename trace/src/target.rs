//! Attach points of kernel programs: by section, by `--attach`, limited to processes, threads and CPUs by options.

use std::path::PathBuf;

use twinbpf_kernel::Target;
use twinbpf_kernel::link::{EVENTS, Rate, Sampling, interface};
use twinbpf_loader::ProgramSpec;
use twinbpf_loader::section::{Attach, ProgType, Row, SectionKind};
use twinbpf_vm::map::{MapKind, MapSpec};

use crate::options::Options;

/// Whether a map carries records from programs to userspace.
pub(crate) fn sends_events(map: &MapSpec) -> bool {
    matches!(map.kind, MapKind::Ringbuf | MapKind::PerfEventArray)
}

/// Whether a program there decides about samples of an event that perf may have open.
pub(crate) fn decides(target: &Target) -> bool {
    matches!(target, Target::Tracepoint { .. } | Target::ProbeEvent { .. })
}

/// Attach points of a program; `chosen` are the values of `--attach`. Empty for a program that is only loaded.
pub(crate) fn of(spec: &ProgramSpec, chosen: &[&str], options: &Options) -> Result<Vec<Target>, String> {
    let mut targets = Vec::new();
    for place in chosen {
        targets.extend(placed(spec, place, options)?);
    }
    if chosen.is_empty() {
        targets.extend(match is_sampling(spec) {
            true => vec![Target::Sampling(sampling("cpu-clock", options)?)],
            false => of_section(&spec.attach)?,
        });
    }
    let mut filtered_targets = Vec::new();
    for target in targets {
        filtered_targets.extend(filtered(target, options)?);
    }
    Ok(filtered_targets)
}

/// What a section says, patterns included; nothing where it leaves the place to the user.
fn of_section(attach: &Attach) -> Result<Vec<Target>, String> {
    Target::all_of_section(&attach.kind).map_err(|error| error.to_string())
}

fn is_sampling(spec: &ProgramSpec) -> bool {
    spec.attach.prog_type() == Some(ProgType::PerfEvent)
}

/// Limits a target to the process, thread or CPUs of the options. An error where the kernel cannot filter it.
pub(crate) fn filtered(target: Target, options: &Options) -> Result<Vec<Target>, String> {
    if !options.filters() {
        return Ok(vec![target]);
    }
    let refused = |why: &str, option: &str| Err(format!("{target} runs {why}: {option} cannot limit it"));
    let everywhere = "for every process and on every CPU";
    if let Target::Sampling(sampling) = &target {
        let threads = match (options.tid, options.pid) {
            (Some(tid), _) => vec![tid],
            (None, Some(pid)) => threads(pid)?,
            (None, None) => return Ok(vec![target]),
        };
        let one = |tid: u32| Target::Sampling(Sampling { pid: Some(tid), ..sampling.clone() });
        return Ok(threads.into_iter().map(one).collect());
    }
    match (target.in_processes(), options.tid, options.pid) {
        (true, Some(_), _) => refused("in whole processes", "-t").map_err(|why| why + ", -p can"),
        (true, None, _) if !options.cpus.is_empty() => refused("on every CPU", "-C"),
        (true, None, _) => Ok(vec![target]),
        (false, Some(_), _) => refused(everywhere, "-t"),
        (false, None, Some(_)) => refused(everywhere, "-p"),
        (false, None, None) => refused(everywhere, "-C"),
    }
}

/// The threads of a process.
pub(crate) fn threads(pid: u32) -> Result<Vec<u32>, String> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/task")).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => format!("there is no process {pid}"),
        _ => format!("cannot list the threads of process {pid}: {error}"),
    })?;
    Ok(entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
}

/// `CLOCK[:HZ]`.
fn sampling(text: &str, options: &Options) -> Result<Sampling, String> {
    let (name, hertz) = match text.split_once(':') {
        Some((name, hertz)) => (name, hertz.trim_end_matches("hz").trim_end_matches("Hz").parse().ok()),
        None => (text, Some(options.frequency)),
    };
    let clock = EVENTS.iter().find(|(known, _)| *known == name).map(|(_, clock)| *clock);
    let clock = clock.ok_or_else(|| {
        let known: Vec<&str> = EVENTS.iter().map(|(name, _)| *name).collect();
        format!("'{name}' is none of {}", known.join(", "))
    })?;
    let hertz: u64 = hertz.filter(|hertz| *hertz > 0).ok_or_else(|| format!("'{text}' is not EVENT:HZ"))?;
    let online = twinbpf_kernel::cpu::online();
    if let Some(cpu) = options.cpus.iter().find(|cpu| !online.contains(cpu)) {
        let known: Vec<String> = online.iter().map(u32::to_string).collect();
        return Err(format!("-C: there is no CPU {cpu}; those that run are {}", known.join(",")));
    }
    Ok(Sampling { clock, rate: Rate::Frequency(hertz), pid: None, cpus: options.cpus.clone() })
}

/// The attach points that `--attach PROG=PLACE` names, by program type.
fn placed(spec: &ProgramSpec, place: &str, options: &Options) -> Result<Vec<Target>, String> {
    let SectionKind::Known { row, .. } = &spec.attach.kind else {
        return Err("--attach is for programs whose section is one of libbpf's".to_owned());
    };
    let device = || interface(place).map_err(|error| error.to_string());
    let (prog, path) = (row.prog, PathBuf::from(place));
    if prog == ProgType::PerfEvent {
        return Ok(vec![Target::Sampling(sampling(place, options)?)]);
    }
    if prog == ProgType::Xdp {
        return Ok(vec![Target::Xdp { interface: device()?, flags: 0 }]);
    }
    if prog == ProgType::SchedCls && row.pattern.starts_with("netkit") {
        return Ok(vec![Target::Netkit { interface: device()?, peer: row.pattern.ends_with("peer") }]);
    }
    if prog == ProgType::SchedCls {
        return Ok(vec![Target::Tc { interface: device()?, egress: row.pattern.ends_with("egress") }]);
    }
    if OF_CGROUPS.contains(&prog) {
        return Ok(vec![Target::Cgroup { path }]);
    }
    if [ProgType::SkLookup, ProgType::FlowDissector].contains(&prog) {
        return Ok(vec![Target::NetNamespace { path }]);
    }
    probe(row, place)
}

/// Whether `--attach` has places for programs of a section.
pub(crate) fn has_places(row: &Row) -> bool {
    let others = [ProgType::PerfEvent, ProgType::Xdp, ProgType::SchedCls, ProgType::SkLookup, ProgType::FlowDissector];
    row.auto.is_some() || others.contains(&row.prog) || OF_CGROUPS.contains(&row.prog)
}

/// Program types that attach to a cgroup.
const OF_CGROUPS: [ProgType; 7] = [
    ProgType::CgroupSkb,
    ProgType::CgroupSock,
    ProgType::CgroupDevice,
    ProgType::CgroupSockAddr,
    ProgType::CgroupSysctl,
    ProgType::CgroupSockopt,
    ProgType::SockOps,
];

/// Parses `place` as the rest of the program's section name.
fn probe(row: &Row, place: &str) -> Result<Vec<Target>, String> {
    let targets = of_section(&Attach::parse(&format!("{}/{place}", row.pattern)))?;
    match targets.is_empty() {
        true => Err(format!("a program of section {} cannot be attached to '{place}'", row.pattern)),
        false => Ok(targets),
    }
}
