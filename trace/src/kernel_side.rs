//! Kernel side of an object in a session: its maps, loaded programs, attachments, and the records that they send.
//!
//! [`KernelSide`] owns a file descriptor for each of them: dropping it, or the end of the process, releases all.

use std::borrow::Cow;
use std::io::Read;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::Arc;

use twinbpf::Linker;
use twinbpf_kernel::link::{Options as Attaching, by_one_link};
use twinbpf_kernel::load::{Failure, LoadedProgram, Why};
use twinbpf_kernel::map::unpin;
use twinbpf_kernel::share::{KernelMap, Take};
use twinbpf_kernel::stream::Waiter;
use twinbpf_kernel::{Counter, Link, Loaded, Map, Pending, Target};
use twinbpf_loader::Cause;
use twinbpf_loader::kernel::{KernelLinked, KernelProgram};
use twinbpf_vm::host::OutputFormat;
use twinbpf_vm::map::{MapKind, MapOps};

use crate::control::Control;
use crate::error::Error;
use crate::event_structs;
use crate::functions::is_function;
use crate::loss::Losses;
use crate::options::Options;
use crate::output::Output;
use crate::plan::{ObjectPlan, Planned, Trigger, wrong};
use crate::prepare::{Prepared, prepare};
use crate::print::{self, Formats, Printer};
use crate::progress::Progress;
use crate::start_flag::StartFlag;
use crate::user_side::{Outcome, UserSide};
use crate::verdicts::{Decided, Ruling, Verdicts};

/// Records of a map that are read in one turn, before timers and signals are handled.
const BATCH: usize = 4096;

/// See the module documentation. Empty for an object that stays in userspace.
#[derive(Debug, Default)]
pub(crate) struct KernelSide {
    pending: Vec<Opened>,
    links: Vec<Attached>,
    sources: Vec<Source>,
    waiter: Option<Waiter>,
    /// Owns the maps, and the programs that are loaded without being attached.
    loaded: Option<Loaded>,
    new_pins: NewPins,
    losses: Losses,
    /// Of a recording.
    verdicts: Option<Verdicts>,
    start_flag: Option<StartFlag>,
    printer: Option<Printer>,
    /// Events in slots of maps.
    counters: Vec<Counter>,
    /// Turns left in which a CPU may still deliver a perf record older than those read.
    unsettled: u8,
}

/// Names of maps that are removed unless the session starts.
#[derive(Debug, Default)]
struct NewPins(Vec<PathBuf>);

impl Drop for NewPins {
    fn drop(&mut self) {
        unpin(&self.0);
    }
}

/// An attachment that [`KernelSide::attach`] or [`KernelSide::enable`] makes.
#[derive(Debug)]
struct Opened {
    pending: Pending,
    /// It does nothing before the session begins, as its first instructions see to, or runs only when it is read.
    waits: bool,
    /// Names of the object, program and section, for errors.
    names: [Arc<str>; 3],
    /// An iterator: it runs when its descriptor is read, once.
    iterates: bool,
}

#[derive(Debug)]
struct Attached {
    link: Link,
    iterates: bool,
}

/// A map whose records go to EVENT programs.
#[derive(Debug)]
struct Source {
    /// Index in the object.
    index: usize,
    map: Arc<KernelMap>,
}

/// Name of the map of the kernel's configuration.
const KCONFIG: &str = ".kconfig";
/// Turns after the last record, until no CPU can deliver an older one.
const SETTLE: u8 = 2;

impl KernelSide {
    /// Makes the maps, loads the programs, opens their attachments disabled, and gives the maps to the scripts.
    ///
    /// # Errors
    /// All failures of linking, loading and opening together.
    pub(crate) fn load(
        plan: &ObjectPlan,
        options: &Options,
        ruling: Ruling<'_>,
        linker: &mut Linker<Control>,
        warnings: &mut Vec<String>,
    ) -> Result<KernelSide, Error> {
        if !plan.in_kernel {
            return Ok(KernelSide::default());
        }
        let programs = plan.programs.iter().filter(|program| program.trigger.is_kernel());
        let programs = programs.map(|program| program.spec).collect();
        let Prepared { linked, mut loaded, losses, verdicts, start_flag, output } =
            prepare(plan, programs, options, ruling, warnings)?;
        let new_pins = NewPins(std::mem::take(&mut loaded.new_pins));
        let unlinked = linked.failures.iter().map(|failure| Error::from(failure.error.clone()));
        let mut wrong: Vec<Error> =
            unlinked.chain(wrong_formats(plan, &linked)).chain(event_structs::mismatches(plan)).collect();
        wrong.extend(std::mem::take(&mut loaded.failures).into_iter().map(|failure| explain(plan, failure)));
        // What was loaded is opened all the same, so that all errors are reported at once.
        let mut kernel_side = KernelSide { losses, verdicts, start_flag, new_pins, ..KernelSide::default() };
        wrong.extend(kernel_side.open(plan, &loaded, options));
        if !wrong.is_empty() {
            return Err(Error::all_causes(wrong));
        }
        kernel_side.give_maps(plan, &linked, &loaded, linker)?;
        kernel_side.print_from(plan, &linked, &loaded, output, linker)?;
        kernel_side.open_counters(plan, &loaded)?;
        kernel_side.loaded = Some(loaded);
        if kernel_side.pending.is_empty() && plan.tables().next().is_none() && plan.scripts().next().is_none() {
            warnings.push(format!("{}: nothing is attached", plan.object.name));
        }
        Ok(kernel_side)
    }

    /// The session has started: maps stay where they are pinned.
    pub(crate) fn keep_pins(&mut self) {
        self.new_pins.0.clear();
    }

    /// Links the scripts to the kernel's maps, but for read-only data, of which they keep a copy.
    fn give_maps(
        &mut self,
        plan: &ObjectPlan,
        linked: &KernelLinked,
        loaded: &Loaded,
        linker: &mut Linker<Control>,
    ) -> Result<(), Error> {
        let arena = Arc::clone(linker.engine().arena());
        let wanted = |index: usize| {
            plan.scripts().any(|program| matches!(program.trigger, Trigger::Event { map } if map == index))
        };
        for (index, (spec, map)) in linked.maps.iter().map(|map| &map.spec).zip(&loaded.maps).enumerate() {
            let constant = spec.data.as_ref().is_some_and(|data| data.read_only);
            let own = index < plan.object.maps.len() || &*spec.name == KCONFIG;
            let Some(map) = map.as_ref().filter(|_| !constant && own) else { continue };
            // Another process may read a ring that no EVENT program reads, by its pin.
            let rings = matches!(spec.kind, MapKind::Ringbuf | MapKind::PerfEventArray);
            if rings && !wanted(index) {
                continue;
            }
            let shared = KernelMap::new(map, spec, &arena)?;
            if wanted(index) {
                self.watch(index, &shared)?;
            }
            linker.map(&spec.name, shared as Arc<dyn MapOps>);
        }
        Ok(())
    }

    /// Opens the events that terms put into slots of maps. They count once the session is enabled.
    fn open_counters(&mut self, plan: &ObjectPlan, loaded: &Loaded) -> Result<(), Error> {
        for counters in &plan.counters {
            let Some(map) = &loaded.maps[counters.map] else { continue };
            for cpu in &counters.cpus {
                let counter = Counter::open(counters.clock, counters.task, *cpu)?;
                map.update_fd(*cpu, counter.as_fd())?;
                self.counters.push(counter);
            }
        }
        Ok(())
    }

    /// Reads what programs print, if one does.
    fn print_from(
        &mut self,
        plan: &ObjectPlan,
        linked: &KernelLinked,
        loaded: &Loaded,
        output: Option<usize>,
        linker: &Linker<Control>,
    ) -> Result<(), Error> {
        let Some((output, formats)) = output.zip(Formats::of(&plan.object)) else { return Ok(()) };
        let (Some(map), spec) = (&loaded.maps[output], &linked.maps[output].spec) else { return Ok(()) };
        let shared = KernelMap::new(map, spec, linker.engine().arena())?;
        self.wait_for(output, &shared)?;
        self.printer = Some(Printer::new(shared, formats));
        Ok(())
    }

    fn watch(&mut self, index: usize, map: &Arc<KernelMap>) -> Result<(), Error> {
        self.wait_for(index, map)?;
        self.sources.push(Source { index, map: Arc::clone(map) });
        Ok(())
    }

    fn wait_for(&mut self, index: usize, map: &Arc<KernelMap>) -> Result<(), Error> {
        if self.waiter.is_none() {
            self.waiter = Some(Waiter::new()?);
        }
        let waiter = self.waiter.as_ref().expect("just made");
        map.watch(waiter, index as u64)?;
        Ok(())
    }

    /// The requests of its programs, if any prints.
    pub(crate) fn printer(&mut self) -> Option<&mut Printer> {
        self.printer.as_mut()
    }

    /// Opens the attachments, disabled. Returns the failures.
    fn open(&mut self, plan: &ObjectPlan, loaded: &Loaded, options: &Options) -> Vec<Error> {
        let mut failures = Vec::new();
        let all: Vec<_> = attachments(plan, loaded).collect();
        let mut progress = Progress::new("opening", all.iter().map(|all| all.targets.len()).sum());
        for Attachments { planned, program, targets } in &all {
            let opened = targets.iter().try_for_each(|(target, pid)| {
                let whole = matches!(**target, Target::Sampling(_));
                let pid = options.pid.or(*pid).filter(|_| !whole);
                let attaching = Attaching { pid, unproven_places: options.unproven_places, ..Attaching::default() };
                let pending = loaded.open(program, target, &attaching)?;
                progress.step();
                let spec = plan.spec(planned);
                let names = [&plan.object.name, &spec.name, &spec.section].map(Arc::clone);
                let iterates = matches!(**target, Target::Iter(_));
                self.pending.push(Opened { pending, waits: iterates || self.waits(planned.spec), names, iterates });
                Ok::<_, twinbpf_kernel::Error>(())
            });
            // The other threads or CPUs of the same program would say the same.
            failures.extend(opened.err().map(|error| wrong(&plan.object, plan.spec(planned), error)));
        }
        failures
    }

    fn waits(&self, program: usize) -> bool {
        self.start_flag.as_ref().is_some_and(|flag| flag.is_read_by(program))
            || self.verdicts.as_ref().is_some_and(|verdicts| verdicts.begin_later(program))
    }

    /// Makes the attachments of programs that wait, before BEGIN.
    pub(crate) fn attach(&mut self) -> Result<(), Error> {
        let (waiting, others) = self.pending.drain(..).partition(|opened| opened.waits);
        self.pending = others;
        attached(self.make(waiting))
    }

    /// Makes all other attachments, whose programs run from now on.
    pub(crate) fn enable(&mut self) -> Result<(), Error> {
        self.counters.iter().try_for_each(Counter::enable)?;
        let pending = std::mem::take(&mut self.pending);
        let mut failures = self.make(pending);
        let ops = self.loaded.iter().flat_map(|loaded| loaded.struct_ops.iter().map(|ops| loaded.register(ops)));
        for registered in ops {
            match registered {
                Ok(link) => self.links.push(Attached { link, iterates: false }),
                Err(error) => failures.push(error.into()),
            }
        }
        attached(failures)
    }

    /// Returns the failures.
    fn make(&mut self, pending: Vec<Opened>) -> Vec<Error> {
        let mut failures = Vec::new();
        let mut progress = Progress::new("attaching", pending.len());
        for Opened { pending, names, iterates, .. } in pending {
            let enabled = pending.enable();
            progress.step();
            match enabled {
                Ok(link) => self.links.push(Attached { link, iterates }),
                Err(error) => {
                    let [object, program, section] = names;
                    failures.push(Error::Program { object, program, section, why: error.to_string() });
                }
            }
        }
        failures
    }

    /// Lets the programs that wait run from now on.
    pub(crate) fn start(&self) -> Result<(), Error> {
        self.set_started(true)
    }

    fn set_started(&self, started: bool) -> Result<(), Error> {
        let both = self.start_flag.as_ref().zip(self.loaded.as_ref());
        both.map_or(Ok(()), |(flag, loaded)| flag.set(loaded, started))
    }

    /// Detaches all programs.
    pub(crate) fn disable(&mut self) {
        // Detaching many takes a while. It ends what a flag that cannot be cleared does not.
        let _ = self.set_started(false);
        let mut progress = Progress::new("detaching", self.links.len());
        for link in self.links.drain(..) {
            drop(link);
            progress.step();
        }
    }

    /// Runs each iterator once and prints its output.
    pub(crate) fn iterate(&self, output: &Output) -> Result<(), Error> {
        for attached in self.links.iter().filter(|attached| attached.iterates) {
            let mut text = Vec::new();
            let read = attached.link.iterate()?.read_to_end(&mut text);
            read.map_err(|cause| Error::System { what: "read from an iterator", cause })?;
            match output.format() {
                OutputFormat::Text => output.print(&text),
                OutputFormat::Json => output.object("iter", &String::from_utf8_lossy(&text).into()),
            }
        }
        output.finish()
    }

    /// Whether any program is attached that is no iterator.
    pub(crate) fn is_attached(&self) -> bool {
        self.links.iter().any(|attached| !attached.iterates)
    }

    /// Descriptors that are readable when there are records.
    pub(crate) fn sources(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.waiter.iter().map(Waiter::as_fd)
    }

    /// Whether perf buffers must be read again soon, without a new wake-up.
    pub(crate) fn is_unsettled(&self) -> bool {
        self.unsettled > 0
    }

    /// Calls EVENT programs for the records that are there. `new`: a descriptor was readable.
    pub(crate) fn read(&mut self, user_side: &mut UserSide, new: bool) -> Result<Outcome, Error> {
        let times = self.sources.iter().any(|source| source.map.spec().kind == MapKind::PerfEventArray);
        self.unsettled = if new && times { SETTLE } else { self.unsettled.saturating_sub(1) };
        self.consume(user_side, Take::Settled)
    }

    /// The same for all remaining records, once the programs are detached.
    pub(crate) fn drain(&mut self, user_side: &mut UserSide) -> Result<Outcome, Error> {
        self.consume(user_side, Take::All)
    }

    fn consume(&mut self, user_side: &mut UserSide, take: Take) -> Result<Outcome, Error> {
        for source in &self.sources {
            let (mut outcome, mut count) = (Ok(Outcome::Done), 0);
            // A perf event array does not keep records that were taken out, a ring buffer keeps the rest.
            let keeps = source.map.spec().kind == MapKind::Ringbuf && take == Take::Settled;
            source.map.consume(take, |_, bytes| {
                outcome = user_side.on_event(source.index, bytes);
                count += 1;
                match outcome {
                    Ok(Outcome::Done) if !keeps || count < BATCH => ControlFlow::Continue(()),
                    Ok(_) | Err(_) => ControlFlow::Break(()),
                }
            });
            match outcome {
                Ok(Outcome::Done) => {}
                ended => return ended,
            }
        }
        Ok(Outcome::Done)
    }

    /// Takes out the records that are left. Names of maps, and how many each had.
    pub(crate) fn discard(&mut self) -> Vec<(Arc<str>, u64)> {
        let left = self.sources.iter().map(|source| {
            let mut count = 0;
            source.map.consume(Take::All, |_, _| {
                count += 1;
                ControlFlow::Continue(())
            });
            (Arc::clone(&source.map.spec().name), count)
        });
        left.filter(|(_, count)| *count > 0).collect()
    }

    /// Lets programs decide about samples from now on.
    pub(crate) fn begin_verdicts(&self) -> Result<(), Error> {
        let both = self.verdicts.as_ref().zip(self.loaded.as_ref());
        both.map_or(Ok(()), |(verdicts, loaded)| verdicts.begin(loaded))
    }

    /// What programs decided about samples.
    pub(crate) fn decided(&self) -> Result<Vec<Decided>, Error> {
        let both = self.verdicts.as_ref().zip(self.loaded.as_ref());
        both.map_or(Ok(Vec::new()), |(verdicts, loaded)| verdicts.decided(loaded))
    }

    /// A map of the object, by name.
    pub(crate) fn map(&self, name: &str) -> Option<&Map> {
        self.loaded.as_ref()?.map(name)
    }

    /// Reports what programs lost, and returns how much that is.
    pub(crate) fn report_loss(&self, output: &Output) -> Result<u64, Error> {
        let Some(loaded) = &self.loaded else { return Ok(0) };
        let sources = self.sources.iter().map(|source| (&source.map.spec().name, source.map.lost()));
        self.losses.report(loaded, sources, output)
    }
}

/// What a loaded program is attached to.
struct Attachments<'a> {
    planned: &'a Planned,
    program: &'a LoadedProgram,
    /// Each with the process or thread that it is limited to.
    targets: Vec<(Cow<'a, Target>, Option<u32>)>,
}

/// Those of all programs that are loaded. One that did not load has no instance either.
fn attachments<'a>(plan: &'a ObjectPlan, loaded: &'a Loaded) -> impl Iterator<Item = Attachments<'a>> {
    let of = move |planned: &'a Planned| {
        let variants = loaded.programs.iter().flatten().filter(|program| program.spec == planned.spec);
        variants.enumerate().map(move |(at, program)| {
            let targets = planned.trigger.attachments(at);
            let targets = match program.by_one_link {
                true => {
                    let merged = by_one_link(targets.map(|(target, _)| target));
                    merged.into_iter().map(|target| (Cow::Owned(target), None)).collect()
                }
                false => targets.map(|(target, pid)| (Cow::Borrowed(target), pid)).collect(),
            };
            Attachments { planned, program, targets }
        })
    };
    plan.programs.iter().flat_map(of)
}

fn attached(failures: Vec<Error>) -> Result<(), Error> {
    if failures.is_empty() { Ok(()) } else { Err(Error::all_causes(failures)) }
}

/// The error of a program that does not load. A function that only userspace has is named as one.
fn explain(plan: &ObjectPlan, failure: Failure) -> Error {
    if let (Why::Linker(error), Some(name)) = (&failure.why, failure.section.as_ref().map(|_| &failure.name))
        && let Cause::Ksym { name: function, .. } | Cause::Undeclared { name: function } = error.cause()
        && is_function(function)
        && let Some(spec) = plan.object.program(name).map(|index| &plan.object.programs[index])
    {
        let plain = function.strip_prefix("twinbpf_").unwrap_or(function);
        // `printfv` and `snprintfv` are what macros call.
        let called = plain.strip_suffix('v').filter(|name| name.ends_with("printf")).unwrap_or(plain);
        let prints = ["printf", "exit", "print_map", "print_hist", "print_lhist"].contains(&called);
        let remedy = match prints {
            true => {
                "include <twinbpf/trace.h> instead of <twinbpf/script.h>, whose printf, exit and print_map work there"
            }
            false => "call it from EVENT, TIMER or END",
        };
        let why = format!("it calls {called}, which userspace has and the kernel has not: {remedy} ({error})");
        return wrong(&plan.object, spec, why);
    }
    Error::Load(Box::new(failure))
}

/// Errors of the formats that programs print with.
fn wrong_formats(plan: &ObjectPlan, linked: &KernelLinked) -> Vec<Error> {
    let Some(formats) = Formats::of(&plan.object) else { return Vec::new() };
    let of = |program: &KernelProgram| {
        let why = |(pc, why): (usize, String)| {
            let line = program.line_at(pc).map(|line| format!(", at {}:{}", line.file, line.line)).unwrap_or_default();
            wrong(&plan.object, &plan.object.programs[program.spec], format!("printf: {why}{line}"))
        };
        print::check(program, &formats).map(why).collect::<Vec<_>>()
    };
    linked.programs.iter().flat_map(of).collect()
}
