//! `twinbpf check`: what every program, map and extern of an object is and resolves to. Runs and makes nothing.

mod kernel;

use std::collections::HashMap;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use serde_json::{Value, json};
use twinbpf::Plan;
use twinbpf_isa::Endian;
use twinbpf_loader::section::{PerfProbe, Script, SectionKind};
use twinbpf_loader::{Object, ProgramSpec};
use twinbpf_probe::Point;
use twinbpf_trace::{EventTerm, Instances, ProbeError, ProbeInstance, Probed, Terms, probe_instances, terminal};

use crate::args::{CheckArgs, EngineArgs, LimitArgs};
use crate::load;
use kernel::ForKernel;

/// Exit status when a program that runs in userspace cannot.
const STATUS_PROBLEMS: u8 = 1;

pub(crate) fn check(args: &CheckArgs) -> Result<ExitCode> {
    let (paths, terms): (Vec<PathBuf>, Vec<_>) = load::with_terms(&args.objects)?.into_iter().unzip();
    let mut objects = load::open_all(&paths, &args.load)?;
    for (object, terms) in objects.iter_mut().zip(&terms) {
        terms.iter().try_for_each(|terms| terms.apply(object, &[]).map(drop))?;
    }
    let engine = load::engine(&args.load, &LimitArgs::default(), &EngineArgs::default())?;
    let mut linker = load::linker(&engine, &args.load)?;
    twinbpf_trace::functions(&mut linker);
    let files = args.target.files()?;
    if files.are_given() {
        linker.kernel(files.kernel());
    }
    let mut problems = 0;
    for (object, terms) in objects.iter().zip(&terms) {
        let plan = linker.check(object)?;
        let kernel = (args.kernel || files.are_given()).then(|| ForKernel::new(object, &*files.kernel()));
        problems += plan.programs.iter().filter(|program| program.problem.is_some()).count();
        problems += kernel.as_ref().map_or(0, ForKernel::problems);
        let report =
            Report { object, plan: &plan, kernel, terms: terms.as_ref(), probed: Definitions::of(object, &plan) };
        if args.json {
            writeln!(terminal::stdout(), "{}", report.json())?;
        } else {
            report.print(&mut terminal::stdout())?;
        }
    }
    Ok(if problems > 0 { ExitCode::from(STATUS_PROBLEMS) } else { ExitCode::SUCCESS })
}

struct Report<'a> {
    object: &'a Object,
    plan: &'a Plan,
    kernel: Option<ForKernel<'a>>,
    terms: Option<&'a Terms>,
    probed: Definitions,
}

/// What the probe definitions of an object lead to, in perf's notation.
struct Definitions {
    /// By the program's index in the object.
    instances: HashMap<usize, Result<Instances, ProbeError>>,
    missing: Vec<String>,
}

impl Definitions {
    fn of(object: &Object, plan: &Plan) -> Definitions {
        let definition = |spec: usize| match &object.programs[spec].attach.kind {
            SectionKind::PerfProbe(probe) => Some((spec, &**probe)),
            _ => None,
        };
        let found = plan.programs.iter().filter_map(|program| definition(program.spec));
        let (specs, probes): (Vec<usize>, Vec<&PerfProbe>) = found.unzip();
        let Probed { instances, missing, .. } = probe_instances(&probes);
        Definitions { instances: specs.into_iter().zip(instances).collect(), missing }
    }
}

impl Report<'_> {
    fn print(&self, out: &mut impl Write) -> Result<()> {
        let object = self.object;
        let license = object.license.as_deref().unwrap_or("none");
        let endian = match object.endian {
            Endian::Little => "little",
            Endian::Big => "big",
        };
        let btf = if object.btf.is_some() { "with BTF" } else { "without BTF" };
        writeln!(out, "{}: {endian}-endian, {btf}, license {license}", object.name)?;
        for program in &self.plan.programs {
            let spec = &object.programs[program.spec];
            writeln!(out, "  program {:24} {:28} {}", spec.name, spec.section, kind(spec))?;
            match (&program.problem, self.probed.instances.get(&program.spec)) {
                (Some(problem), _) => writeln!(out, "    cannot run: {problem}")?,
                (None, Some(instances)) => print_instances(out, &spec.section, instances)?,
                (None, None) => writeln!(
                    out,
                    "    {}, {}",
                    count(program.insns, "instruction"),
                    count(program.functions, "function")
                )?,
            }
        }
        self.kernel.iter().try_for_each(|kernel| kernel.print(out))?;
        for map in &object.maps {
            writeln!(
                out,
                "  map     {:24} {:28} key {}, value {}, entries {}",
                map.name,
                map.kind.name(),
                map.key_size,
                map.value_size,
                map.max_entries
            )?;
        }
        for term in self.event_terms() {
            writeln!(out, "  term    {term:24} for events that `twinbpf record` records")?;
        }
        for (symbol, resolution) in object.externs.iter().zip(&self.plan.externs) {
            let weak = if symbol.weak { " (weak)" } else { "" };
            writeln!(out, "  extern  {:24} {resolution}{weak}", symbol.name)?;
        }
        for (name, available) in &self.plan.helpers {
            let what = if *available { "in the virtual machine" } else { "in the kernel only; calling it here traps" };
            writeln!(out, "  helper  {name:24} {what}")?;
        }
        for note in self.notes() {
            writeln!(out, "  note    {note}")?;
        }
        Ok(())
    }

    /// Messages about the object that are no errors.
    fn notes(&self) -> impl Iterator<Item = String> {
        let notes = self.object.report.iter().map(ToString::to_string);
        notes.chain(self.plan.warnings.iter().cloned()).chain(self.probed.missing.iter().cloned())
    }

    /// Terms of events, as perf has them.
    fn event_terms(&self) -> impl Iterator<Item = String> {
        self.terms.into_iter().flat_map(Terms::events).map(EventTerm::to_string)
    }

    fn json(&self) -> Value {
        let object = self.object;
        let programs = self.plan.programs.iter().map(|program| {
            let spec = &object.programs[program.spec];
            json!({
                "name": &*spec.name, "section": &*spec.section, "kind": kind(spec), "insns": program.insns,
                "functions": program.functions, "problem": program.problem.as_ref().map(ToString::to_string),
                "probe": self.probed.instances.get(&program.spec).map(instances_json),
            })
        });
        let maps = object.maps.iter().map(|map| {
            json!({
                "name": &*map.name, "type": map.kind.name(), "key_size": map.key_size, "value_size": map.value_size,
                "max_entries": map.max_entries, "flags": map.flags,
            })
        });
        let externs = object.externs.iter().zip(&self.plan.externs).map(|(symbol, resolution)| {
            json!({
                "name": &*symbol.name, "weak": symbol.weak, "resolved": resolution.is_resolved(),
                "to": resolution.to_string(),
            })
        });
        let helpers = self.plan.helpers.iter().map(|(name, available)| json!({ "name": name, "available": available }));
        json!({
            "object": &*object.name, "license": object.license.as_deref(), "btf": object.btf.is_some(),
            "programs": programs.collect::<Vec<_>>(), "maps": maps.collect::<Vec<_>>(),
            "externs": externs.collect::<Vec<_>>(), "helpers": helpers.collect::<Vec<_>>(),
            "terms": self.event_terms().collect::<Vec<_>>(), "notes": self.notes().collect::<Vec<_>>(), "kernel": self.kernel.as_ref().map(ForKernel::json),
        })
    }
}

/// What a session would attach a program to, a line for each instance.
fn print_instances(out: &mut impl Write, section: &str, instances: &Result<Instances, ProbeError>) -> Result<()> {
    match instances {
        Ok(all) => {
            all.instances.iter().try_for_each(|instance| writeln!(out, "    {instance}"))?;
            all.left_out.iter().try_for_each(|why| writeln!(out, "    left out: {why}"))?;
        }
        Err(error) => {
            writeln!(out, "    cannot be attached: {error}")?;
            error.marked(section).map_or(Ok(()), |marked| writeln!(out, "{marked}"))?;
        }
    }
    Ok(())
}

fn instances_json(instances: &Result<Instances, ProbeError>) -> Value {
    match instances {
        Ok(all) => {
            json!({ "instances": all.instances.iter().map(instance_json).collect::<Value>(), "left_out": all.left_out })
        }
        Err(error) => json!({ "error": error.to_string() }),
    }
}

fn instance_json(instance: &ProbeInstance) -> Value {
    let point = |point: &Point| {
        json!({
            "function": point.function, "address": point.address, "offset": point.offset, "return": point.is_return,
            "file": point.source.as_ref().map(|(file, _)| file), "line": point.source.as_ref().map(|(_, line)| line),
        })
    };
    json!({
        "points": instance.points.iter().map(point).collect::<Vec<_>>(), "arguments": instance.places,
        "prologue": instance.prologue.text.lines().collect::<Vec<_>>(), "sleepable": instance.prologue.sleeps,
    })
}

/// `1 function`, `2 functions`.
pub(crate) fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// What a program is for, by its section.
fn kind(spec: &ProgramSpec) -> String {
    // A script's function is nothing that libbpf would load, with a question mark or without.
    let script = matches!(spec.attach.kind, SectionKind::Script(_));
    let load = if spec.attach.autoload || script { "" } else { ", loaded only on request" };
    let kind = match &spec.attach.kind {
        SectionKind::Text => "function".to_owned(),
        SectionKind::Script(script) => format!("script, userspace: {}", when(script)),
        SectionKind::Known { row, target, loose } => {
            let target = target.as_deref().map_or_else(String::new, |target| format!(" on {target}"));
            let loose = if *loose { " (by prefix; libbpf wants the exact name)" } else { "" };
            format!("{}{target}{loose}", row.prog.name())
        }
        SectionKind::PerfTracepoint(_) => "tracepoint, perf's notation".to_owned(),
        SectionKind::PerfProbe(_) => "probe, perf's notation".to_owned(),
        SectionKind::TailCall { map, key } => format!("tail call target {key} of map id {map}"),
        SectionKind::Malformed(error) => format!("malformed section name: {error}"),
        SectionKind::Unknown => "unknown section name".to_owned(),
    };
    format!("{kind}{load}")
}

/// When a script's function is called.
fn when(script: &Script) -> String {
    match script {
        Script::Begin => "before the workload".to_owned(),
        Script::End => "after the workload".to_owned(),
        Script::Error => "when a program traps; not called, a fault ends the run".to_owned(),
        Script::Timer { period: Some(period) } => format!("every {period:?}"),
        Script::Timer { period: None } => "by a timer".to_owned(),
        Script::Event { map: Some(map) } => format!("for each event of map {map}"),
        Script::Event { map: None } => "for each event".to_owned(),
        Script::Early { event: Some(event) } => format!("for each sample of {event}, before perf chooses"),
        Script::Early { event: None } => "for each sample, before perf chooses".to_owned(),
        Script::Signal { name } => format!("on SIG{name}"),
    }
}
