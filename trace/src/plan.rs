//! What a session would do with each program of its objects. Making a plan has no side effects: it reads files and the
//! kernel's lists of what there is.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use twinbpf::map::Slot;
use twinbpf_kernel::Target;
use twinbpf_loader::section::{Script, SectionKind};
use twinbpf_loader::{Object, ProgramSpec, Role, StructOps};

use crate::error::Error;
use crate::options::{Mode, Options};
use crate::{signals, target};

/// What each object of a session is for.
#[derive(Debug)]
pub struct Plan {
    /// In the order of the command line.
    pub objects: Vec<ObjectPlan>,
}

/// What the programs of an object are for.
#[derive(Debug)]
pub struct ObjectPlan {
    /// The object.
    pub object: Object,
    /// Whether its maps are the kernel's.
    pub in_kernel: bool,
    /// Its entry points, in its order.
    pub programs: Vec<Planned>,
}

/// One program.
#[derive(Debug)]
pub struct Planned {
    /// Index in [`Object::programs`].
    pub spec: usize,
    /// Where and when it runs.
    pub place: Place,
}

/// Where and when a program runs.
#[derive(Clone, Debug, PartialEq)]
pub enum Place {
    /// In userspace, before anything is enabled.
    Begin,
    /// In userspace, when everything is over.
    End,
    /// In userspace, again and again.
    Timer {
        /// How often; otherwise `set_timer` says it.
        period: Option<Duration>,
    },
    /// In userspace, for each record of a map.
    Event {
        /// Index of the map in [`Object::maps`].
        map: usize,
    },
    /// In userspace, on a signal.
    Signal {
        /// Its number.
        number: i32,
    },
    /// In the kernel.
    Kernel {
        /// What it is attached to; several where each thread of a process has an attachment of its own. None where it is
        /// only loaded: a target of tail calls, for example.
        targets: Vec<Target>,
    },
    /// Nowhere.
    Nowhere {
        /// Why not.
        why: String,
    },
}

impl Plan {
    /// Decides where each program runs.
    ///
    /// # Errors
    /// A program that shall run and cannot, an option that fits no program, an object of which nothing would run.
    pub fn new(objects: Vec<Object>, options: &Options) -> Result<Plan, Error> {
        for (name, _) in &options.attach {
            if !objects.iter().any(|object| object.program(name).is_some()) {
                return Err(Error::NoProgram { option: "--attach", name: name.clone() });
            }
        }
        let (mut plans, mut wrong) = (Vec::new(), Vec::new());
        for object in objects {
            match ObjectPlan::new(object, options) {
                Ok(plan) => plans.push(plan),
                Err(error) => wrong.push(error),
            }
        }
        if wrong.is_empty() { Ok(Plan { objects: plans }) } else { Err(Error::all(wrong)) }
    }

    /// Whether any program is the kernel's.
    pub fn needs_kernel(&self) -> bool {
        self.objects.iter().any(|object| object.in_kernel)
    }
}

impl ObjectPlan {
    fn new(object: Object, options: &Options) -> Result<ObjectPlan, Error> {
        let entries = object.programs.iter().enumerate().filter(|(_, spec)| spec.role == Role::Entry);
        let (mut programs, mut wrong) = (Vec::new(), Vec::new());
        for (index, spec) in entries {
            match place(&object, spec, options) {
                Ok(place) => programs.push(Planned { spec: index, place }),
                Err(error) => wrong.push(error),
            }
        }
        if !wrong.is_empty() {
            return Err(Error::all(wrong));
        }
        let kernel = programs.iter().any(|program| matches!(program.place, Place::Kernel { .. }));
        let in_kernel = match options.mode {
            Mode::Auto => kernel,
            Mode::Kernel => true,
            Mode::User => false,
        };
        let plan = ObjectPlan { object, in_kernel, programs };
        if !plan.programs.iter().any(|program| program.place.does_something()) && plan.tables().next().is_none() {
            return Err(Error::Nothing { object: Arc::clone(&plan.object.name) });
        }
        Ok(plan)
    }

    /// Tables of functions (`.struct_ops`) that the kernel calls while the session lasts.
    pub fn tables(&self) -> impl Iterator<Item = &StructOps> {
        self.object.struct_ops.iter().filter(|table| self.in_kernel && table.autocreate)
    }

    /// The one that a program is in.
    fn table_with(&self, spec: usize) -> Option<&StructOps> {
        self.tables().find(|table| table.functions.iter().any(|(_, of)| *of == spec))
    }

    /// What a planned program is.
    pub fn spec(&self, program: &Planned) -> &ProgramSpec {
        &self.object.programs[program.spec]
    }

    /// Entry points that do not run, and why. Those for the kernel are meant to stay out in [`Mode::User`].
    pub fn left_out(&self) -> impl Iterator<Item = (&ProgramSpec, &str)> {
        self.programs.iter().filter_map(|program| match &program.place {
            Place::Nowhere { why } => Some((self.spec(program), why.as_str())),
            Place::Begin
            | Place::End
            | Place::Timer { .. }
            | Place::Event { .. }
            | Place::Signal { .. }
            | Place::Kernel { .. } => None,
        })
    }

    /// Programs that would be loaded and never run: what they attach to is nowhere said, and no tail call leads to them.
    pub fn unattached(&self) -> impl Iterator<Item = &ProgramSpec> {
        let called = |name: &str| {
            let slots = self.object.maps.iter().flat_map(|map| &map.slots);
            slots.into_iter().any(|(_, slot)| matches!(slot, Slot::Program(program) if **program == *name))
        };
        self.programs.iter().filter_map(move |program| match &program.place {
            Place::Kernel { targets } if targets.is_empty() => {
                Some(self.spec(program)).filter(|spec| !called(&spec.name) && self.table_with(program.spec).is_none())
            }
            Place::Kernel { .. }
            | Place::Begin
            | Place::End
            | Place::Timer { .. }
            | Place::Event { .. }
            | Place::Signal { .. }
            | Place::Nowhere { .. } => None,
        })
    }

    /// Those that run in userspace.
    pub(crate) fn scripts(&self) -> impl Iterator<Item = &Planned> {
        self.programs.iter().filter(|program| program.place.is_userspace())
    }
}

impl Place {
    /// Whether it makes a session worth while: a program that is only loaded does not.
    fn does_something(&self) -> bool {
        match self {
            Place::Kernel { targets } => !targets.is_empty(),
            Place::Nowhere { .. } => false,
            Place::Begin | Place::End | Place::Timer { .. } | Place::Event { .. } | Place::Signal { .. } => true,
        }
    }

    /// Whether it is in userspace.
    pub fn is_userspace(&self) -> bool {
        match self {
            Place::Begin | Place::End | Place::Timer { .. } | Place::Event { .. } | Place::Signal { .. } => true,
            Place::Kernel { .. } | Place::Nowhere { .. } => false,
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

fn place(object: &Object, spec: &ProgramSpec, options: &Options) -> Result<Place, Error> {
    let nowhere = |why: &str| Ok(Place::Nowhere { why: why.to_owned() });
    if let SectionKind::Script(script) = &spec.attach.kind {
        return script_place(object, spec, script);
    }
    let asked = options.attach.iter().find(|(name, _)| *name == *spec.name).map(|(_, place)| place.as_str());
    if let SectionKind::Malformed(error) = &spec.attach.kind {
        return Err(wrong(object, spec, error));
    }
    if spec.attach.prog_type().is_none() {
        return nowhere("its section says nothing of what it is for");
    }
    if options.mode == Mode::User {
        return nowhere("it is for the kernel, and --mode user keeps away from that");
    }
    if !spec.attach.autoload && asked.is_none() {
        return nowhere("its section begins with ?");
    }
    let targets = target::of(spec, asked, options).map_err(|why| wrong(object, spec, why))?;
    Ok(Place::Kernel { targets })
}

fn script_place(object: &Object, spec: &ProgramSpec, script: &Script) -> Result<Place, Error> {
    Ok(match script {
        Script::Begin => Place::Begin,
        Script::End => Place::End,
        Script::Timer { period } => Place::Timer { period: *period },
        Script::Event { map } => Place::Event { map: event_map(object, spec, map.as_deref())? },
        Script::Signal { name } => match signals::number(name) {
            Some(number) => Place::Signal { number },
            None => return Err(wrong(object, spec, format!("no signal {name} that a program can wait for"))),
        },
        Script::Error => Place::Nowhere { why: "a program that faults ends the run".to_owned() },
    })
}

/// The map whose records an EVENT program gets: the one it names, `__bpf_stdout__`, or the only one there is.
fn event_map(object: &Object, spec: &ProgramSpec, name: Option<&str>) -> Result<usize, Error> {
    let sends = |index: &usize| target::sends_events(&object.maps[*index]);
    let all: Vec<usize> = (0..object.maps.len()).filter(sends).collect();
    let names = || all.iter().map(|index| &*object.maps[*index].name).collect::<Vec<_>>().join(", ");
    let by_name = |name: &str| all.iter().copied().find(|index| *object.maps[*index].name == *name);
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
            match &program.place {
                Place::Begin => writeln!(f, "  {name:<24} userspace  first")?,
                Place::End => writeln!(f, "  {name:<24} userspace  last")?,
                Place::Timer { period: Some(period) } => writeln!(f, "  {name:<24} userspace  every {period:?}")?,
                Place::Timer { period: None } => writeln!(f, "  {name:<24} userspace  as set_timer says")?,
                Place::Event { map } => {
                    writeln!(f, "  {name:<24} userspace  each record of {}", self.object.maps[*map].name)?;
                }
                Place::Signal { number } => writeln!(f, "  {name:<24} userspace  on signal {number}")?,
                Place::Kernel { targets } if targets.is_empty() => match self.table_with(program.spec) {
                    Some(table) => writeln!(f, "  {name:<24} kernel     a function of {}", table.name)?,
                    None => writeln!(f, "  {name:<24} kernel     loaded, attached to nothing")?,
                },
                Place::Kernel { targets } => {
                    let (first, rest) = (&targets[0], targets.len() - 1);
                    let more = if rest == 0 { String::new() } else { format!(" and {rest} more") };
                    writeln!(f, "  {name:<24} kernel     {first}{more}")?;
                }
                Place::Nowhere { why } => writeln!(f, "  {name:<24} not run: {why}")?,
            }
        }
        for table in self.tables() {
            writeln!(f, "  {:<24} kernel     registered, a table of its functions", table.name)?;
        }
        for map in &self.object.maps {
            let place = if self.in_kernel { "kernel" } else { "userspace" };
            writeln!(f, "  map {:<20} {place}", map.name)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
