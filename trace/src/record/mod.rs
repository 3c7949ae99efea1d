//! Recording: `perf record` runs as a child, and the programs of a session decide which samples it keeps.
//!
//! perf opens the events disabled, the programs are attached, then the events are enabled, so that no sample escapes the
//! programs; at the end it is the other way round. Uprobes and kprobes become probe events of the tracing file system, since
//! perf cannot record others, and a guard process removes those where this one is killed.

mod command;
mod events;
mod guard;
mod outputs;
mod perf;
mod threads;

use std::os::fd::BorrowedFd;

pub use command::{RecordCommand, RecordTarget};

use twinbpf_kernel::{Map, probe_event};

use crate::errln;
use crate::error::Error;
use crate::plan::Plan;
use crate::terms::Terms;
use events::Events;
use guard::Guard;
use outputs::Outputs;
use perf::Perf;
use threads::Threads;

/// What is to be recorded.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Recording {
    /// Options of perf, target and workload.
    pub command: RecordCommand,
    /// Events that perf records besides those of the programs, as `-e` of perf takes them.
    pub events: Vec<String>,
    /// Terms of each object, in the order of the plan's.
    pub terms: Vec<Option<Terms>>,
}

impl Recording {
    /// Understands options for `perf record`, followed by a command unless one option says what to record.
    ///
    /// # Errors
    /// There is no perf; an option that it does not know, or that a recording with programs cannot keep to.
    pub fn new(words: &[String], events: Vec<String>, terms: Vec<Option<Terms>>) -> Result<Recording, Error> {
        let known = perf::known_options()?;
        let command = RecordCommand::parse(words, &known).map_err(|why| Error::Recording { why })?;
        Ok(Recording { command, events, terms })
    }
}

/// A recording of a session. Its fields are dropped in this order: perf closes the events, they are removed, and then the
/// guard is sent away.
#[derive(Debug)]
pub(crate) struct Recorder {
    perf: Option<Perf>,
    events: Events,
    guard: Option<Guard>,
    threads: Option<Threads>,
    recording: Recording,
    outputs: Outputs,
}

impl Recorder {
    /// Makes the events of the programs, to which the plan then attaches them.
    ///
    /// # Errors
    /// No program decides about samples, or the kernel does not make the events.
    pub(crate) fn new(plan: &mut Plan, mut recording: Recording) -> Result<Recorder, Error> {
        if recording.command.target != RecordTarget::All && !probe_event::is_first_namespace() {
            let why = "programs decide by the kernel's thread numbers, and this process is in a container with numbers of its \
                       own: record with -a, or outside of it";
            return Err(Error::Recording { why: why.to_owned() });
        }
        let outputs = Outputs::new(plan, &recording.terms, &mut recording.events)?;
        let mut events = Events::of(plan, &recording.terms);
        if events.names.is_empty() && recording.events.is_empty() && outputs.is_empty() {
            return Err(events::nothing(plan));
        }
        remove_stale();
        let guard = Guard::new(&events.removals())?;
        events.make()?;
        let threads = match recording.command.target {
            RecordTarget::All => None,
            RecordTarget::Command | RecordTarget::Tasks { .. } => Some(Threads::new(recording.command.inherit)?),
        };
        Ok(Recorder { perf: None, events, guard, threads, recording, outputs })
    }

    /// What the user should know before it starts.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.threads.is_none() && !self.events.shared.is_empty() {
            let all = self.events.shared.join(", ");
            warnings.push(format!(
                "every process is recorded: samples of {all} that programs drop are missing in other recordings, too"
            ));
        }
        let beside = self.events.beside.iter();
        warnings.extend(beside.map(|name| format!("{name} runs for every process and decides about no samples")));
        warnings
    }

    /// The map of the threads that are recorded; `None`: all.
    pub(crate) fn threads(&self) -> Option<&Map> {
        self.threads.as_ref().map(Threads::map)
    }

    /// The CPUs that are recorded; empty: all.
    pub(crate) fn cpus(&self) -> &[u32] {
        &self.recording.command.cpus
    }

    /// Starts perf, which opens its events. `workload` is the process that will be the command.
    ///
    /// # Errors
    /// perf's, which has said why.
    pub(crate) fn start(&mut self, workload: Option<u32>) -> Result<(), Error> {
        let command = &self.recording.command;
        let mut options: Vec<String> = self
            .outputs
            .events()
            .chain(self.events.specs.iter().cloned())
            .chain(self.recording.events.iter().cloned())
            .flat_map(|event| ["-e".to_owned(), event])
            .collect();
        options.extend(command.options.iter().cloned());
        match &command.target {
            // Where the user says it, perf takes it twice.
            RecordTarget::All if command.cpus.is_empty() => options.push("-a".to_owned()),
            RecordTarget::All => {}
            RecordTarget::Command => {
                let pid = workload.expect("a command is a workload");
                options.extend(["-p".to_owned(), pid.to_string()]);
                include(&mut self.threads, &[pid], &[])?;
            }
            RecordTarget::Tasks { pids, tids } => include(&mut self.threads, pids, tids)?,
        }
        let guard = &mut self.guard;
        let watch = |pid| guard.iter_mut().for_each(|guard| guard.watch(pid));
        self.perf = Some(Perf::start(&options, watch)?);
        Ok(())
    }

    /// Prepares perf for what programs send, before they run. `maps` are those of an object, by name.
    ///
    /// # Errors
    /// perf ended, or its events cannot be put into the maps of programs.
    pub(crate) fn connect(&mut self, maps: &dyn Fn(usize, &str) -> Option<Map>) -> Result<(), Error> {
        let Some(perf) = &mut self.perf else { return Ok(()) };
        self.outputs.connect(perf, &self.recording.command.cpus, maps)?;
        self.outputs.names().try_for_each(|name| perf.enable(name).map(drop))
    }

    /// Samples are recorded from now on.
    ///
    /// # Errors
    /// perf cannot be reached. Where it has ended already, its end says so.
    pub(crate) fn enable(&mut self) -> Result<(), Error> {
        self.perf.as_mut().map_or(Ok(()), |perf| perf.enable("").map(drop))
    }

    /// Samples are recorded no more; the programs may go. What they send is written until they have gone.
    pub(crate) fn disable(&mut self) {
        let Some(perf) = &mut self.perf else { return };
        let all = [String::new()];
        let events = if self.outputs.is_empty() { &all[..] } else { &self.events.names };
        let disabled = events.iter().try_fold(true, |so_far, event| Ok::<_, Error>(so_far && perf.disable(event)?));
        // It has no time for commands. Without the programs it would record everything.
        if !disabled.unwrap_or(false) {
            perf.end();
        }
    }

    /// Lets perf write what it has.
    ///
    /// # Errors
    /// It did not end well, and has said why.
    pub(crate) fn finish(&mut self) -> Result<(), Error> {
        self.perf.take().map_or(Ok(()), Perf::finish)
    }

    /// Readable when perf has ended.
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.perf.as_ref().map(Perf::fd)
    }
}

/// Adds processes and threads to those that are recorded.
fn include(threads: &mut Option<Threads>, pids: &[u32], tids: &[u32]) -> Result<(), Error> {
    let Some(threads) = threads else { return Ok(()) };
    tids.iter().for_each(|tid| threads.include(*tid));
    pids.iter().try_for_each(|pid| threads.include_process(*pid))
}

/// Removes what recordings left that were killed together with their guards.
fn remove_stale() {
    match probe_event::stale() {
        Ok(all) => {
            for event in all {
                match event.remove() {
                    Ok(()) => errln!("twinbpf: note: removed {event}, which a recording that was killed had left"),
                    // perf still writes its file.
                    Err(error) => log::debug!("{error}"),
                }
            }
        }
        // Making events will say so.
        Err(error) => log::debug!("{error}"),
    }
}
