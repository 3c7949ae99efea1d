//! The kernel's half of an object in a session: maps, programs, attachments, and the records they send.
//!
//! Everything hangs on file descriptors that are owned here: dropping it, or the end of the process, takes it all away.

use std::collections::BTreeMap;
use std::io::Read;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use serde_json::json;
use twinbpf::map::{MapKind, MapOps};
use twinbpf::{Linker, OutputFormat};
use twinbpf_kernel::link::Options as Attaching;
use twinbpf_kernel::load::LoadOptions;
use twinbpf_kernel::probe::{Feature, has};
use twinbpf_kernel::share::KernelMap;
use twinbpf_kernel::stream::Waiter;
use twinbpf_kernel::{Link, Loaded, Pending, Target};
use twinbpf_loader::kernel::{KernelLinked, KernelOptions};

use crate::control::Control;
use crate::errln;
use crate::error::Error;
use crate::options::Options;
use crate::output::Output;
use crate::plan::{ObjectPlan, Place, wrong};
use crate::tool::{Outcome, Tool};

/// Records of a map that are seen to before timers and signals have their turn.
const BATCH: usize = 4096;

/// See the module documentation. Of an object that stays in userspace it is empty.
#[derive(Debug, Default)]
pub(crate) struct Half {
    pending: Vec<Prepared>,
    links: Vec<Attached>,
    sources: Vec<Source>,
    waiter: Option<Waiter>,
    /// Kept for what ends with it: maps, and programs that are only loaded.
    loaded: Option<Loaded>,
    /// Records of several CPUs were looked at a moment ago, of which older ones may still come.
    unsettled: u8,
}

/// What is attached by the next step.
#[derive(Debug)]
struct Prepared {
    pending: Pending,
    /// Whose it is: object, program, section.
    names: [Arc<str>; 3],
    /// It runs when it is read, and is over then.
    iterates: bool,
}

#[derive(Debug)]
struct Attached {
    link: Link,
    iterates: bool,
}

/// A map whose records EVENT programs get.
#[derive(Debug)]
struct Source {
    /// Index in the object.
    index: usize,
    map: Arc<KernelMap>,
}

/// How often records are looked at after the last, until none older can come.
const SETTLE: u8 = 2;

impl Half {
    /// Makes the maps, loads the programs, opens what they will be attached to, and gives the maps to the scripts.
    pub(crate) fn load(
        plan: &ObjectPlan,
        options: &Options,
        linker: &mut Linker<Control>,
        warnings: &mut Vec<String>,
    ) -> Result<Half, Error> {
        if !plan.in_kernel {
            return Ok(Half::default());
        }
        let mut targets = BTreeMap::new();
        for program in &plan.programs {
            if let Place::Kernel { targets: of } = &program.place {
                targets.insert(program.spec, of.as_slice());
            }
        }
        let programs = Some(targets.keys().copied().collect());
        let (kernel, linking) = options.kernel.for_loading();
        let mut linked = plan.object.link_kernel(&*kernel, &KernelOptions { programs, ..linking });
        // Whatever the section says: without a link, a table would outlive a session that is killed.
        if plan.tables().next().is_some() && has(Feature::StructOpsLink) {
            linked.struct_ops.iter_mut().flatten().for_each(|table| table.link = true);
        }
        let mut loaded = twinbpf_kernel::load(&plan.object, &linked, &LoadOptions::default());
        let unlinked = linked.failures.iter().map(|failure| Error::from(failure.error.clone()));
        let mut wrong: Vec<Error> = unlinked.collect();
        wrong.extend(std::mem::take(&mut loaded.failures).into_iter().map(|failure| Error::Load(Box::new(failure))));
        // What was loaded is opened all the same, so that all errors are reported at once.
        let mut half = Half::default();
        wrong.extend(half.open(plan, &loaded, &targets, options));
        if !wrong.is_empty() {
            return Err(Error::all(wrong));
        }
        half.give_maps(plan, &linked, &loaded, linker)?;
        half.loaded = Some(loaded);
        if half.pending.is_empty() && plan.tables().next().is_none() && plan.scripts().next().is_none() {
            warnings.push(format!("{}: nothing is attached", plan.object.name));
        }
        Ok(half)
    }

    /// The scripts see the kernel's maps in place of maps of their own, but for what never changes.
    fn give_maps(
        &mut self,
        plan: &ObjectPlan,
        linked: &KernelLinked,
        loaded: &Loaded,
        linker: &mut Linker<Control>,
    ) -> Result<(), Error> {
        let arena = Arc::clone(linker.engine().arena());
        let wanted =
            |index: usize| plan.scripts().any(|program| matches!(program.place, Place::Event { map } if map == index));
        for (index, (spec, map)) in linked.maps.iter().map(|map| &map.spec).zip(&loaded.maps).enumerate() {
            let constant = spec.data.as_ref().is_some_and(|data| data.read_only);
            let Some(map) = map.as_ref().filter(|_| !constant) else { continue };
            // Without a reader the rings are the user's business, pinned perhaps for another process.
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

    fn watch(&mut self, index: usize, map: &Arc<KernelMap>) -> Result<(), Error> {
        if self.waiter.is_none() {
            self.waiter = Some(Waiter::new()?);
        }
        let waiter = self.waiter.as_ref().expect("just made");
        map.watch(waiter, index as u64)?;
        self.sources.push(Source { index, map: Arc::clone(map) });
        Ok(())
    }

    /// Prepares what will be attached; what cannot be.
    fn open(
        &mut self,
        plan: &ObjectPlan,
        loaded: &Loaded,
        targets: &BTreeMap<usize, &[Target]>,
        options: &Options,
    ) -> Vec<Error> {
        let mut failures = Vec::new();
        for program in loaded.programs.iter().flatten() {
            for target in targets.get(&program.spec).copied().unwrap_or_default() {
                let whole = matches!(target, Target::Sampling(_));
                let pid = options.pid.filter(|_| !whole);
                let attaching = Attaching { pid, unproven_places: options.unproven_places, ..Attaching::default() };
                match loaded.open(program, target, &attaching) {
                    Ok(pending) => {
                        let iterates = matches!(target, Target::Iter(_));
                        let spec = &plan.object.programs[program.spec];
                        let names = [&plan.object.name, &spec.name, &spec.section].map(Arc::clone);
                        self.pending.push(Prepared { pending, names, iterates });
                    }
                    Err(error) => {
                        failures.push(wrong(&plan.object, &plan.object.programs[program.spec], error));
                        // The other threads or CPUs of the same program would say the same.
                        break;
                    }
                }
            }
        }
        failures
    }

    /// From now on its programs run.
    pub(crate) fn enable(&mut self) -> Result<(), Error> {
        let mut failures = Vec::new();
        for Prepared { pending, names, iterates } in self.pending.drain(..) {
            match pending.enable() {
                Ok(link) => self.links.push(Attached { link, iterates }),
                Err(error) => {
                    let [object, program, section] = names;
                    failures.push(Error::Program { object, program, section, why: error.to_string() });
                }
            }
        }
        if let Some(loaded) = &self.loaded {
            for ops in &loaded.struct_ops {
                match loaded.register(ops) {
                    Ok(link) => self.links.push(Attached { link, iterates: false }),
                    Err(error) => failures.push(error.into()),
                }
            }
        }
        if failures.is_empty() { Ok(()) } else { Err(Error::all(failures)) }
    }

    /// Nothing of it runs any more.
    pub(crate) fn disable(&mut self) {
        self.links.clear();
    }

    /// Runs its iterators, each once, and prints what they say.
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

    /// Whether anything of it can still happen.
    pub(crate) fn is_attached(&self) -> bool {
        self.links.iter().any(|attached| !attached.iterates)
    }

    /// Readable when there are records.
    pub(crate) fn sources(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.waiter.iter().map(Waiter::as_fd)
    }

    /// Whether records are to be looked at again soon, though nothing new may have come.
    pub(crate) fn is_unsettled(&self) -> bool {
        self.unsettled > 0
    }

    /// Calls EVENT for the records that are there.
    pub(crate) fn read(&mut self, tool: &mut Tool, new: bool) -> Result<Outcome, Error> {
        let times = self.sources.iter().any(|source| source.map.spec().kind == MapKind::PerfEventArray);
        self.unsettled = if new && times { SETTLE } else { self.unsettled.saturating_sub(1) };
        self.consume(tool, false)
    }

    /// The same for all that is left, when no program sends any more.
    pub(crate) fn drain(&mut self, tool: &mut Tool) -> Result<Outcome, Error> {
        self.consume(tool, true)
    }

    fn consume(&mut self, tool: &mut Tool, last: bool) -> Result<Outcome, Error> {
        for source in &self.sources {
            let (mut outcome, mut count) = (Ok(Outcome::Done), 0);
            // What was taken out of a perf event array must be seen to; a ring buffer keeps the rest.
            let keeps = source.map.spec().kind == MapKind::Ringbuf && !last;
            source.map.consume(last, |_, bytes| {
                outcome = tool.on_event(source.index, bytes);
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

    /// Records that found no room, by map.
    pub(crate) fn report_loss(&self, output: &Output) {
        for source in &self.sources {
            let (name, lost) = (&source.map.spec().name, source.map.lost());
            if lost > 0 {
                errln!("twinbpf: {lost} records of {name} were lost: they came faster than EVENT took them");
                output.object("lost", &json!({ "map": **name, "records": lost }));
            }
        }
    }
}
