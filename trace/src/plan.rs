//! Plan of a session: the trigger of each program of its objects. Making a plan has no side effects: it reads files and
//! the kernel's lists of attach points.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use twinbpf_kernel::Target;
use twinbpf_loader::section::{PerfPart, PerfProbe, Script, SectionKind};
use twinbpf_loader::{Object, ProgramSpec, Role, StructOps};

use crate::arguments::{Instances, ProbeError, Probed};
use crate::display::Declarations;
use crate::error::Error;
use crate::marked::marked;
use crate::options::{Mode, Options};
use crate::{arguments, signals, target};

pub use slots::Counters;
pub(crate) use slots::OwnSlots;

/// The plans of all objects of a session.
#[derive(Debug)]
#[non_exhaustive]
pub struct Plan {
    /// In the order of the command line.
    pub objects: Vec<ObjectPlan>,
    /// Messages of making the plan that are no errors: debug information that could not be found.
    pub warnings: Vec<String>,
}

/// The plan of one object.
#[derive(Debug)]
#[non_exhaustive]
pub struct ObjectPlan {
    /// The object as it was read.
    pub object: Object,
    /// Whether its maps are created in the kernel.
    pub in_kernel: bool,
    /// Its entry points, in the order of [`Object::programs`].
    pub programs: Vec<Planned>,
    /// Events that count in slots of its maps ([`ObjectPlan::add_terms`]).
    pub counters: Vec<Counters>,
    /// How its maps are printed.
    pub(crate) declarations: Declarations,
}

/// A program and its trigger.
#[derive(Debug)]
#[non_exhaustive]
pub struct Planned {
    /// Index in [`Object::programs`].
    pub spec: usize,
    /// What makes it run.
    pub trigger: Trigger,
}

/// What makes a program run, in userspace or in the kernel.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Trigger {
    /// In userspace, before any attachment is enabled.
    Begin,
    /// In userspace, after all attachments are gone.
    End,
    /// In userspace, periodically.
    Timer {
        /// The period; `None` where `set_timer` sets it.
        period: Option<Duration>,
    },
    /// In userspace, for each record of a map.
    Event {
        /// Index of the map in [`Object::maps`].
        map: usize,
    },
    /// In userspace, for each sample that a host feeds ([`Options::samples`]).
    Sample {
        /// The event whose samples it gets; `None`: those of all events.
        event: Option<Arc<str>>,
        /// Whether it runs before the host itself has chosen samples.
        early: bool,
    },
    /// In userspace, on a signal.
    Signal {
        /// Signal number, as in signal(7).
        number: i32,
    },
    /// In the kernel, where it is attached.
    Kernel {
        /// Attach points; several where each thread of a process has an attachment of its own. Empty where the program is
        /// only loaded: a target of tail calls, for example.
        targets: Vec<Target>,
    },
    /// In the kernel, where a definition in perf's notation has points.
    Probe(Instances),
    /// It does not run.
    Never {
        /// The reason, for messages.
        why: String,
        /// Whether the user or the object asks for that; otherwise it is an error ([`Options::allow_unattached`]).
        intended: bool,
    },
}

impl Plan {
    /// Chooses the trigger of each program.
    ///
    /// # Errors
    /// A program that cannot run as chosen, an option that fits no program, an object of which no program would run.
    pub fn new(objects: Vec<Object>, options: &Options) -> Result<Plan, Error> {
        let attached = options.attach.iter().map(|(name, _)| ("--attach", name));
        for (option, name) in attached.chain(options.without.iter().map(|name| ("--without", name))) {
            if !objects.iter().any(|object| object.program(name).is_some()) {
                return Err(Error::NoProgram { option, name: name.clone() });
            }
        }
        let probes: Vec<&PerfProbe> = objects.iter().flat_map(|object| probes(object, options)).collect();
        let Probed { instances, missing: warnings, .. } = arguments::instances(&probes, options);
        let mut instances = instances.into_iter();
        let (mut plans, mut wrong) = (Vec::new(), Vec::new());
        for object in objects {
            match ObjectPlan::new(object, options, &mut instances) {
                Ok(plan) => plans.push(plan),
                Err(error) => wrong.push(error),
            }
        }
        if wrong.is_empty() { Ok(Plan { objects: plans, warnings }) } else { Err(Error::all(wrong)) }
    }

    /// Numbers of the signals that programs handle.
    pub(crate) fn signals(&self) -> impl Iterator<Item = i32> {
        self.objects.iter().flat_map(|object| &object.programs).filter_map(|planned| match planned.trigger {
            Trigger::Signal { number } => Some(number),
            _ => None,
        })
    }

    /// Whether any object has maps or programs in the kernel.
    pub fn needs_kernel(&self) -> bool {
        self.objects.iter().any(|object| object.in_kernel)
    }
}

impl ObjectPlan {
    /// `instances` has those of each program with a probe definition, in order.
    fn new(object: Object, options: &Options, instances: &mut Found) -> Result<ObjectPlan, Error> {
        let (mut programs, mut wrong) = (Vec::new(), repeated(&object, options));
        for (index, spec) in entries(&object) {
            match trigger(&object, spec, options, instances) {
                Ok(trigger) => programs.push(Planned { spec: index, trigger }),
                Err(error) => {
                    // For what else is wrong with the object.
                    let trigger = Trigger::Never { why: error.to_string(), intended: true };
                    programs.push(Planned { spec: index, trigger });
                    wrong.push(error);
                }
            }
        }
        let kernel = programs.iter().any(|program| program.trigger.is_kernel());
        let in_kernel = match options.mode {
            Mode::Auto => kernel,
            Mode::Kernel => true,
            Mode::User => false,
        };
        let declarations = Declarations::of(&object).unwrap_or_else(|error| {
            wrong.push(error);
            Declarations::default()
        });
        let plan = ObjectPlan { object, in_kernel, programs, counters: Vec::new(), declarations };
        let does_something = plan.programs.iter().any(|program| program.trigger.does_something());
        let is_mistaken = !options.allow_unattached && plan.mistaken().next().is_some();
        if wrong.is_empty() && !does_something && !is_mistaken && plan.tables().next().is_none() {
            return Err(Error::Nothing { object: Arc::clone(&plan.object.name) });
        }
        if !options.allow_unattached {
            wrong.extend(plan.idle());
        }
        if wrong.is_empty() { Ok(plan) } else { Err(Error::all(wrong)) }
    }

    /// Tables of functions (`.struct_ops`) that the kernel calls while the session lasts.
    pub fn tables(&self) -> impl Iterator<Item = &StructOps> {
        self.object.struct_ops.iter().filter(|table| self.in_kernel && table.autocreate)
    }

    /// The table that has this program as a member.
    fn table_with(&self, spec: usize) -> Option<&StructOps> {
        self.tables().find(|table| table.functions.iter().any(|(_, of)| *of == spec))
    }

    /// The object's description of a planned program.
    pub fn spec(&self, program: &Planned) -> &ProgramSpec {
        &self.object.programs[program.spec]
    }

    /// The programs that run in userspace.
    pub(crate) fn scripts(&self) -> impl Iterator<Item = &Planned> {
        self.programs.iter().filter(|program| program.trigger.is_userspace())
    }
}

impl Trigger {
    /// Whether it makes the program run: one that is only loaded does not.
    fn does_something(&self) -> bool {
        match self {
            Trigger::Kernel { targets } => !targets.is_empty(),
            Trigger::Probe(_) => true,
            _ => self.is_userspace(),
        }
    }

    /// Whether the program runs in the kernel.
    pub(crate) fn is_kernel(&self) -> bool {
        matches!(self, Trigger::Kernel { .. } | Trigger::Probe(_))
    }

    /// Attach points of a loaded program by its number among those of this trigger, and the process each is limited to.
    pub(crate) fn attachments(&self, instance: usize) -> impl Iterator<Item = (&Target, Option<u32>)> {
        let (targets, pid) = match self {
            Trigger::Kernel { targets } => (targets.as_slice(), None),
            Trigger::Probe(all) => (all.targets().nth(instance).unwrap_or_default(), all.pid),
            Trigger::Begin
            | Trigger::End
            | Trigger::Timer { .. }
            | Trigger::Event { .. }
            | Trigger::Sample { .. }
            | Trigger::Signal { .. }
            | Trigger::Never { .. } => (&[][..], None),
        };
        targets.iter().map(move |target| (target, pid))
    }

    /// Whether the program runs in userspace.
    pub fn is_userspace(&self) -> bool {
        match self {
            Trigger::Begin
            | Trigger::End
            | Trigger::Timer { .. }
            | Trigger::Event { .. }
            | Trigger::Sample { .. }
            | Trigger::Signal { .. } => true,
            Trigger::Kernel { .. } | Trigger::Probe(_) | Trigger::Never { .. } => false,
        }
    }
}

/// An error that names the program.
pub(crate) fn wrong(object: &Object, spec: &ProgramSpec, why: impl fmt::Display) -> Error {
    Error::Program {
        object: Arc::clone(&object.name),
        program: Arc::clone(&spec.name),
        section: Arc::clone(&spec.section),
        why: why.to_string(),
    }
}

/// Instances of definitions, in their order.
type Found = std::vec::IntoIter<Result<Instances, ProbeError>>;

/// The entry points of an object, by index.
fn entries(object: &Object) -> impl Iterator<Item = (usize, &ProgramSpec)> {
    object.programs.iter().enumerate().filter(|(_, spec)| spec.role == Role::Entry)
}

/// The definition that a program is attached by, if its section is one and no option says otherwise.
fn probe_of<'a>(spec: &'a ProgramSpec, options: &Options) -> Option<&'a PerfProbe> {
    let SectionKind::PerfProbe(probe) = &spec.attach.kind else { return None };
    let is_left_out = options.without.iter().any(|name| *name == *spec.name) || options.mode == Mode::User;
    let is_chosen = options.attach.iter().any(|(name, _)| *name == *spec.name);
    (spec.attach.autoload && !is_left_out && !is_chosen).then_some(&**probe)
}

fn probes<'a>(object: &'a Object, options: &'a Options) -> impl Iterator<Item = &'a PerfProbe> {
    entries(object).filter_map(|(_, spec)| probe_of(spec, options))
}

/// Errors of events that an object defines twice, but for those that `force=yes` allows.
fn repeated(object: &Object, options: &Options) -> Vec<Error> {
    let mut known: HashMap<&str, &ProgramSpec> = HashMap::new();
    let mut wrong = Vec::new();
    for (_, spec) in entries(object) {
        let Some(probe) = probe_of(spec, options) else { continue };
        let event = &*probe.event;
        match known.get(event) {
            None => drop(known.insert(event, spec)),
            Some(_) if probe.options.force => {}
            Some(other) => {
                let why = format!(
                    "event \"{event}\" already exists, of program {}: name it otherwise, or set 'force=yes' in BPF source",
                    other.name
                );
                wrong.push(wrong_probe(object, spec, ProbeError::at(PerfPart::Event, why)));
            }
        }
    }
    wrong
}

/// An error of a definition, with carets.
fn wrong_probe(object: &Object, spec: &ProgramSpec, error: ProbeError) -> Error {
    match error.marked(&spec.section) {
        Some(marked) => wrong(object, spec, format!("{error}\n{marked}")),
        None => wrong(object, spec, error),
    }
}

fn trigger(object: &Object, spec: &ProgramSpec, options: &Options, instances: &mut Found) -> Result<Trigger, Error> {
    if probe_of(spec, options).is_some() {
        let found = instances.next().expect("each definition was looked up");
        return found.map(Trigger::Probe).map_err(|error| wrong_probe(object, spec, error));
    }
    let never = |why: &str| Ok(Trigger::Never { why: why.to_owned(), intended: true });
    if options.without.iter().any(|name| *name == *spec.name) {
        return never("--without leaves it out");
    }
    let chosen = options.attach.iter().filter(|(name, _)| *name == *spec.name);
    let chosen: Vec<&str> = chosen.map(|(_, place)| place.as_str()).collect();
    if let SectionKind::Script(script) = &spec.attach.kind {
        if !chosen.is_empty() {
            return Err(wrong(object, spec, "--attach is for programs in the kernel, and this one runs in userspace"));
        }
        return script_trigger(object, spec, script, options);
    }
    if let SectionKind::Malformed(error) = &spec.attach.kind {
        return Err(wrong(object, spec, format!("{error}\n{}", marked(&spec.section, &[error.span(&spec.section)]))));
    }
    if spec.attach.prog_type().is_none() {
        let why = idle::unknown(&spec.section);
        let intended = options.mode == Mode::User && !options.samples || !spec.attach.autoload;
        return Ok(Trigger::Never { why, intended });
    }
    if options.samples && spec.attach.autoload {
        return Err(wrong(object, spec, "it is for the kernel, and over a recording only userspace programs run"));
    }
    if options.mode == Mode::User {
        return never("it is for the kernel, and --mode user keeps away from that");
    }
    if !spec.attach.autoload && chosen.is_empty() {
        return never("its section begins with ?");
    }
    let targets = target::of(spec, &chosen, options).map_err(|why| wrong(object, spec, why))?;
    Ok(Trigger::Kernel { targets })
}

fn script_trigger(object: &Object, spec: &ProgramSpec, script: &Script, options: &Options) -> Result<Trigger, Error> {
    Ok(match script {
        Script::Begin => Trigger::Begin,
        Script::End => Trigger::End,
        Script::Timer { period } => Trigger::Timer { period: *period },
        Script::Event { map } if options.samples => match map.as_deref().and_then(|name| sender(object, name)) {
            Some(map) => Trigger::Event { map },
            None => Trigger::Sample { event: map.clone(), early: false },
        },
        Script::Early { event } if options.samples => Trigger::Sample { event: event.clone(), early: true },
        Script::Early { .. } => {
            return Err(wrong(object, spec, "EARLY gets samples of a recording: twinbpf script runs it"));
        }
        Script::Signal { .. } if options.samples => {
            return Err(wrong(object, spec, "no signal runs a program over a recording"));
        }
        Script::Event { map } => Trigger::Event { map: event_map(object, spec, map.as_deref())? },
        Script::Signal { name } => match signals::number(name) {
            Some(number) => Trigger::Signal { number },
            None => return Err(wrong(object, spec, format!("no signal {name} that a program can wait for"))),
        },
        Script::Error => Trigger::Never {
            why: "nothing calls ERROR: a program that traps ends the session, and END runs".to_owned(),
            intended: false,
        },
    })
}

/// Index of a ring buffer or perf event array by its name.
fn sender(object: &Object, name: &str) -> Option<usize> {
    object.maps.iter().position(|map| *map.name == *name && target::sends_events(map))
}

/// Index of the map whose records an EVENT program gets: the one it names, the only one, or `__bpf_stdout__`.
fn event_map(object: &Object, spec: &ProgramSpec, name: Option<&str>) -> Result<usize, Error> {
    let sends = |index: &usize| target::sends_events(&object.maps[*index]);
    let all: Vec<usize> = (0..object.maps.len()).filter(sends).collect();
    let names = || all.iter().map(|index| &*object.maps[*index].name).collect::<Vec<_>>().join(", ");
    let by_name = |name: &str| sender(object, name);
    let why = match (name, all.as_slice()) {
        (Some(name), _) => match by_name(name) {
            Some(index) => return Ok(index),
            None if all.is_empty() => format!("there is no ring buffer or perf event array {name}, nor any other"),
            None => format!("there is no ring buffer or perf event array {name}; there are {}", names()),
        },
        (None, [only]) => return Ok(*only),
        (None, []) => "there is no ring buffer or perf event array it could get records from".to_owned(),
        (None, _) => match by_name("__bpf_stdout__") {
            Some(index) => return Ok(index),
            None => format!("say which of these it is for by SEC(\"EVENT/MAP\"): {}", names()),
        },
    };
    Err(wrong(object, spec, why))
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.objects.iter().try_for_each(|object| object.fmt(f))
    }
}

impl fmt::Display for ObjectPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.object.name)?;
        for program in &self.programs {
            let name = &self.spec(program).name;
            match &program.trigger {
                Trigger::Begin => writeln!(f, "  {name:<24} userspace  first")?,
                Trigger::End => writeln!(f, "  {name:<24} userspace  last")?,
                Trigger::Timer { period: Some(period) } => writeln!(f, "  {name:<24} userspace  every {period:?}")?,
                Trigger::Timer { period: None } => writeln!(f, "  {name:<24} userspace  as set_timer says")?,
                Trigger::Event { map } => {
                    writeln!(f, "  {name:<24} userspace  each record of {}", self.object.maps[*map].name)?;
                }
                Trigger::Sample { event, early } => {
                    let of = event.as_ref().map_or_else(String::new, |event| format!(" of {event}"));
                    let when = if *early { ", before perf chooses" } else { "" };
                    writeln!(f, "  {name:<24} userspace  each sample{of}{when}")?;
                }
                Trigger::Signal { number } => writeln!(f, "  {name:<24} userspace  on signal {number}")?,
                Trigger::Kernel { targets } if targets.is_empty() => match self.table_with(program.spec) {
                    Some(table) => writeln!(f, "  {name:<24} kernel     a function of {}", table.name)?,
                    None => writeln!(f, "  {name:<24} kernel     loaded, attached to nothing")?,
                },
                Trigger::Kernel { targets } => {
                    let (first, rest) = (&targets[0], targets.len() - 1);
                    let more = if rest == 0 { String::new() } else { format!(" and {rest} more") };
                    writeln!(f, "  {name:<24} kernel     {first}{more}")?;
                }
                Trigger::Probe(all) => {
                    let mut instances = all.instances.iter();
                    instances.try_for_each(|instance| writeln!(f, "  {name:<24} kernel     {instance}"))?;
                    all.left_out.iter().try_for_each(|why| writeln!(f, "  {name:<24} left out   {why}"))?;
                }
                Trigger::Never { why, .. } => writeln!(f, "  {name:<24} not run: {why}")?,
            }
        }
        for table in self.tables() {
            writeln!(f, "  {:<24} kernel     registered, a table of its functions", table.name)?;
        }
        for (index, map) in self.object.maps.iter().enumerate() {
            let side = if self.in_kernel { "kernel" } else { "userspace" };
            match self.declarations.when(index) {
                Some(when) => writeln!(f, "  map {:<20} {side:<10} {when}", map.name)?,
                None => writeln!(f, "  map {:<20} {side}", map.name)?,
            }
        }
        for Counters { map, cpus, event, .. } in &self.counters {
            let cpus: Vec<String> = cpus.iter().map(u32::to_string).collect();
            writeln!(f, "  map {:<20} {event} on CPU {}", self.object.maps[*map].name, cpus.join(", "))?;
        }
        Ok(())
    }
}

mod idle;
mod slots;
#[cfg(test)]
mod tests;
