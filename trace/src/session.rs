//! The life of a tracing session: load and open everything, run BEGIN, start the workload, enable the attachments, run
//! the event loop, drain, run END.
//!
//! File descriptors of this process own each attachment, so that the kernel detaches everything however the process
//! ends.

use std::collections::BTreeSet;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use twinbpf::Linker;
use twinbpf_isa::program::ExternKind;
use twinbpf_kernel::share::Take;
use twinbpf_loader::Object;
use twinbpf_vm::map::{MapKind, MapSpec, create, only_in_kernel};
use twinbpf_vm::os::boot_ns;

use crate::control::{Control, Reach};
use crate::errln;
use crate::error::Error;
use crate::events::{Loop, SessionEnd, perform};
use crate::functions::functions;
use crate::kernel_side::KernelSide;
use crate::loss;
use crate::metrics::Metrics;
use crate::options::{OnError, Options};
use crate::output::Output;
use crate::pictures::Pictures;
use crate::plan::{ObjectPlan, Plan};
use crate::print::Formats;
use crate::record::{Recorder, Recording};
use crate::script::{self, SymbolSnapshots};
use crate::signals::Signals;
use crate::sys;
use crate::user_side::{Give, Outcome, Sample, UserSide};
use crate::verdicts::{Decided, Ruling};
use crate::workload::{Child, Suspended};

/// Time that a workload, which a terminal's Ctrl-C may have reached, has to end before it gets SIGTERM.
const PATIENCE: Duration = Duration::from_secs(1);

/// Seconds that perf has, where this process is killed while perf starts, to open events of the workload.
const LINGER: u32 = 2;

/// Status of a session that an error ended after programs were attached.
pub const STATUS_FAILED: u8 = 125;

/// Status of a session that a BEGIN ended by returning below 0.
pub const STATUS_ABORTED: u8 = 1;

/// A session that is ready to run: maps are made, programs loaded, attachments opened and disabled.
#[derive(Debug)]
pub struct Session {
    user_sides: Vec<UserSide>,
    kernel_sides: Vec<KernelSide>,
    options: Options,
    output: Output,
    warnings: Vec<String>,
    /// A script symbolizes user addresses.
    names: bool,
    /// Records, elements and stacks that were lost.
    lost: u64,
    /// Of a recording. It goes after the attachments, which are on its events.
    recorder: Option<Recorder>,
    /// Watched since the events of a recording were made: a signal is no reason to leave them.
    signals: Option<Signals>,
    /// Drawn after END.
    pictures: Pictures,
    /// Served from BEGIN to END.
    metrics: Option<Metrics>,
}

/// How a session ended before END.
struct Traced {
    status: u8,
    /// By an error, which is reported already.
    failed: bool,
    /// The workload, where it still runs or nothing waited for it.
    child: Option<Child>,
}

impl Session {
    /// Makes maps, loads programs, opens what they will be attached to, disabled. Each object has a linker of its own, all
    /// of one engine: what host functions and libraries its scripts see.
    ///
    /// # Errors
    /// What cannot be made.
    ///
    /// # Panics
    /// When there are not as many linkers as objects.
    pub fn new(plan: Plan, options: Options, output: Output, linkers: Vec<Linker<Control>>) -> Result<Session, Error> {
        Session::open(plan, options, output, linkers, None)
    }

    /// The same for a session in which programs on events decide what `perf record` records: a sample for which a program
    /// returns 0 is dropped.
    ///
    /// # Errors
    /// As [`Session::new`], and where no program decides about samples, or the kernel does not make the events.
    ///
    /// # Panics
    /// When there are not as many linkers as objects.
    pub fn record(
        mut plan: Plan,
        options: Options,
        output: Output,
        linkers: Vec<Linker<Control>>,
        recording: Recording,
    ) -> Result<Session, Error> {
        let signals = watch(&sorted(plan.signals()))?;
        let recorder = Recorder::new(&mut plan, recording)?;
        let session = Session::open(plan, options, output, linkers, Some(recorder))?;
        Ok(Session { signals: Some(signals), ..session })
    }

    fn open(
        mut plan: Plan,
        options: Options,
        output: Output,
        linkers: Vec<Linker<Control>>,
        recorder: Option<Recorder>,
    ) -> Result<Session, Error> {
        let warnings = recorder.as_ref().map(Recorder::warnings).unwrap_or_default();
        let pictures = Pictures::new(&options, &plan)?;
        let metrics = options.metrics.map(|address| Metrics::bind(address, options.metrics_series)).transpose()?;
        let mut session = Session {
            user_sides: Vec::new(),
            kernel_sides: Vec::new(),
            options,
            output,
            warnings,
            names: false,
            lost: 0,
            recorder,
            signals: None,
            pictures,
            metrics,
        };
        assert_eq!(plan.objects.len(), linkers.len(), "a linker for each object");
        plan.objects.iter_mut().for_each(|plan| introduce(&mut plan.object));
        let added = plan.objects.iter().zip(linkers).map(|(object, linker)| session.add(object, linker));
        let failures: Vec<Error> = added.filter_map(Result::err).collect();
        if failures.is_empty() { Ok(session) } else { Err(Error::all(failures)) }
    }

    fn add(&mut self, plan: &ObjectPlan, mut linker: Linker<Control>) -> Result<(), Error> {
        functions(&mut linker);
        script::names::set_types(&mut linker, plan.object.btf.clone());
        // What a host feeds has types of its own.
        if self.options.kernel.are_given() || !self.options.samples && needs_kernel_types(plan) {
            linker.kernel(self.options.kernel.kernel());
        }
        if !self.options.commands {
            script::refuse_commands(&mut linker);
        }
        let formats = Formats::of(&plan.object);
        self.names |=
            script::prints_symbols(&plan.object) || formats.is_some_and(|formats| formats.name_functions(&plan.object));
        if !plan.in_kernel {
            stand_ins(plan, &mut linker)?;
        }
        let ruling = ruling(&self.options, self.recorder.as_ref());
        let kernel_side = KernelSide::load(plan, &self.options, ruling, &mut linker, &mut self.warnings)?;
        let names: Vec<&str> = plan.scripts().map(|program| &*plan.spec(program).name).collect();
        let pre = linker.instantiate_programs(&plan.object, &names)?;
        self.warnings.extend(pre.warnings().iter().cloned());
        let mut user_side = UserSide::new(plan, &pre, &self.output, self.options.samples)?;
        self.pictures.keep(&mut user_side);
        if let Some(metrics) = &mut self.metrics {
            self.warnings.extend(metrics.add(plan, pre.maps())?);
        }
        let chosen = self.options.pid.into_iter().chain(self.options.tid).collect();
        user_side.set_reach(Reach::new(self.options.foreign_memory, chosen));
        self.user_sides.push(user_side);
        self.kernel_sides.push(kernel_side);
        Ok(())
    }

    /// Messages of loading and linking that are no errors.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Runs it, with a command as workload unless that is empty. The status: that of a script's `exit`, else the
    /// workload's own or 128 and the signal that killed it, else 0; [`STATUS_ABORTED`] when a BEGIN ended it.
    ///
    /// A trap or an output that cannot be written ends it in order once programs are attached: the error is reported, END
    /// runs, [`Options::on_error`] says what becomes of the workload, and the status is [`STATUS_FAILED`].
    ///
    /// # Errors
    /// Before that: a BEGIN faulted, the workload cannot be run, a program cannot be attached. In END: a trap, an output
    /// that cannot be written. [`Error::Lost`], with [`Options::fail_on_loss`].
    pub fn run(mut self, workload: &[String]) -> Result<u8, Error> {
        let on_error = self.options.on_error;
        let bound = on_error != OnError::Detach;
        let linger = if self.recorder.is_some() { LINGER } else { 0 };
        let suspended = if workload.is_empty() { None } else { Some(Suspended::fork(workload, bound, linger)?) };
        if let Some(recorder) = &mut self.recorder {
            recorder.start(suspended.as_ref().map(|suspended| suspended.pid() as u32))?;
        }
        if let Some(suspended) = &suspended {
            self.user_sides.iter_mut().for_each(|user_side| user_side.set_workload(suspended.pid() as u32));
        }
        Error::gather(self.kernel_sides.iter_mut().map(KernelSide::attach))?;
        let _serving = self.metrics.take().map(Metrics::serve).transpose()?;
        match self.begin()? {
            Outcome::Aborted => Ok(STATUS_ABORTED),
            Outcome::Exit(status) => {
                drop(suspended);
                self.kernel_sides.iter_mut().for_each(KernelSide::keep_pins);
                self.end(status)
            }
            Outcome::Done => {
                let Traced { status, failed, child } = self.trace(suspended)?;
                let ended = self.end(status);
                if failed { Ok(after_failure(ended, child, on_error)) } else { ended }
            }
        }
    }

    pub(crate) fn begin(&mut self) -> Result<Outcome, Error> {
        self.output.begin()?;
        for user_side in &mut self.user_sides {
            match user_side.begin()? {
                Outcome::Done => {}
                outcome => return Ok(outcome),
            }
        }
        Ok(Outcome::Done)
    }

    /// From enabling the attachments to the last record, before END. Returns how it ended so far.
    fn trace(&mut self, suspended: Option<Suspended>) -> Result<Traced, Error> {
        let numbers = sorted(self.user_sides.iter().flat_map(UserSide::signals));
        let signals = self.signals.take().map_or_else(|| watch(&numbers), Ok)?;
        Error::gather(self.kernel_sides.iter_mut().map(KernelSide::enable))?;
        Error::gather(self.kernel_sides.iter().map(KernelSide::start))?;
        self.start_recording()?;
        let mut child = suspended.map(Suspended::release).transpose()?;
        self.kernel_sides.iter_mut().for_each(KernelSide::keep_pins);
        self.output.set_lasting(true);
        let over = self.kernel_sides.iter().try_for_each(|kernel_side| kernel_side.iterate(&self.output));
        let over = over.and_then(|()| self.watch(child.as_ref(), &signals, &numbers));
        self.recorder.iter_mut().for_each(Recorder::disable);
        self.kernel_sides.iter_mut().for_each(KernelSide::disable);
        signals.impatient();
        let over = self.end_recording().and(over);
        let over = over.and_then(|over| self.drain(over));
        if let Err(error) = &over {
            errln!("twinbpf: {error:#}");
            self.discard();
        }
        let lost = self.kernel_sides.iter().map(|kernel_side| kernel_side.report_loss(&self.output));
        self.lost = lost.sum::<Result<u64, Error>>()?;
        Ok(match over {
            Err(_) => Traced { status: STATUS_FAILED, failed: true, child },
            Ok(SessionEnd::Exit(status)) => {
                let _ = end_child(child.as_mut(), &SessionEnd::Exit(status))?;
                Traced { status, failed: false, child: None }
            }
            Ok(over) => Traced { status: end_child(child.as_mut(), &over)?, failed: false, child: None },
        })
    }

    /// From now on programs decide, and perf records.
    fn start_recording(&mut self) -> Result<(), Error> {
        let Some(recorder) = &mut self.recorder else { return Ok(()) };
        let kernel_sides = &self.kernel_sides;
        recorder.connect(&|object, name| kernel_sides[object].map(name).and_then(|map| map.try_clone().ok()))?;
        kernel_sides.iter().try_for_each(KernelSide::begin_verdicts)?;
        recorder.enable()
    }

    /// Waits until perf has written what it recorded, and says what programs decided.
    fn end_recording(&mut self) -> Result<(), Error> {
        let Some(recorder) = &mut self.recorder else { return Ok(()) };
        let finished = recorder.finish();
        for kernel_side in &self.kernel_sides {
            for Decided { program, kept, dropped } in kernel_side.decided()? {
                errln!("twinbpf: {program}: {kept} samples kept, {dropped} dropped");
                let verdict = json!({ "program": &*program, "kept": kept, "dropped": dropped });
                self.output.object("verdicts", &verdict);
            }
        }
        finished
    }

    /// Reads the records that programs sent before they were detached. `exit` in a script ends the session then, too.
    fn drain(&mut self, over: SessionEnd) -> Result<SessionEnd, Error> {
        if matches!(over, SessionEnd::Exit(_)) {
            return Ok(over);
        }
        if let Outcome::Exit(status) = perform(&mut self.user_sides, &mut self.kernel_sides, Take::All)? {
            return Ok(SessionEnd::Exit(status));
        }
        for (user_side, kernel_side) in self.user_sides.iter_mut().zip(&mut self.kernel_sides) {
            self.output.set_batched(true);
            let drained = kernel_side.drain(user_side);
            self.output.set_batched(false);
            if let Outcome::Exit(status) = drained? {
                return Ok(SessionEnd::Exit(status));
            }
        }
        self.output.finish()?;
        Ok(over)
    }

    /// After a failure: prints what kernel programs have printed, and says how many records no EVENT program gets.
    fn discard(&mut self) {
        // What fails here fails in END, too, and that is reported.
        let _ = perform(&mut self.user_sides, &mut self.kernel_sides, Take::All);
        for kernel_side in &mut self.kernel_sides {
            for (map, count) in kernel_side.discard() {
                errln!("twinbpf: {count} records of map {map} were not handled: the session had failed");
                loss::object(&self.output, Some(&map), None, None, count);
            }
        }
    }

    fn watch(&mut self, child: Option<&Child>, signals: &Signals, numbers: &[i32]) -> Result<SessionEnd, Error> {
        let target = match self.options.pid.or(self.options.tid) {
            Some(pid) if child.is_none() => Some(
                sys::pidfd(pid as i32)
                    .map_err(|cause| Error::System { what: "watch the process of -p or -t", cause })?,
            ),
            _ => None,
        };
        self.user_sides.iter_mut().try_for_each(UserSide::start_timers)?;
        let pid = child.map(|child| child.pid() as u32).or(self.options.pid).filter(|_| self.names);
        let snapshots = pid.map(SymbolSnapshots::new);
        let (user_sides, kernel_sides, output) = (&mut self.user_sides, &mut self.kernel_sides, &self.output);
        let recorder = self.recorder.as_ref().and_then(Recorder::fd);
        let ends = target.as_ref().map(AsFd::as_fd).into_iter().chain(recorder).collect();
        Loop { user_sides, kernel_sides, output, child, ends, signals, numbers, snapshots }.run()
    }

    /// From now on samples come.
    pub(crate) fn start_samples(&mut self) -> Result<(), Error> {
        self.output.set_lasting(true);
        self.output.set_batched(true);
        self.user_sides.iter_mut().try_for_each(UserSide::start_timers)
    }

    /// Whether programs run before the host has chosen samples.
    pub(crate) fn has_early(&self) -> bool {
        self.user_sides.iter().any(UserSide::has_early)
    }

    /// Gives a sample to the scripts, all of which must keep it. `give` is what is called for the programs of an object.
    pub(crate) fn on_sample(&mut self, sample: &Sample<'_>, give: Give) -> Result<(Outcome, bool), Error> {
        let mut kept = true;
        for user_side in &mut self.user_sides {
            match give(user_side, sample)? {
                (Outcome::Done, keeps) => kept &= keeps,
                over => return Ok(over),
            }
        }
        Ok((Outcome::Done, kept))
    }

    /// Says how many samples the recording lacks.
    pub(crate) fn report_lost(&mut self, lost: u64) {
        self.lost += lost;
        loss::samples(&self.output, lost);
    }

    /// Says which programs had no sample, since the recording has none of their event.
    pub(crate) fn report_unmet(&self) {
        for user_side in &self.user_sides {
            let had = match user_side.events().join(", ") {
                events if events.is_empty() => "it has no samples at all".to_owned(),
                events => format!("there are samples of {events}"),
            };
            for (program, event) in user_side.unmet() {
                let object = user_side.name();
                errln!("twinbpf: warning: {object}: program {program}: the recording has no sample of {event}; {had}");
            }
        }
    }

    pub(crate) fn end(mut self, mut status: u8) -> Result<u8, Error> {
        let mut ended = Ok(());
        for user_side in &mut self.user_sides {
            match user_side.end() {
                Ok(Outcome::Done | Outcome::Aborted) => continue,
                Ok(Outcome::Exit(requested)) => status = requested,
                Err(error) => ended = Err(error),
            }
            break;
        }
        for user_side in &mut self.user_sides {
            let lost = user_side.losses();
            self.lost += loss::of_scripts(user_side.name(), &lost, &self.output);
        }
        let displayed: Vec<_> = self.user_sides.iter_mut().map(UserSide::display).collect();
        displayed.into_iter().fold(ended, Result::and)?;
        if self.options.print_maps {
            self.user_sides.iter().for_each(UserSide::print_maps);
            self.output.finish()?;
        }
        self.pictures.draw(&mut self.user_sides)?;
        match self.lost {
            count if count > 0 && self.options.fail_on_loss => Err(Error::Lost { count }),
            _ => Ok(status),
        }
    }
}

/// Watches what ends a session, and signals of scripts.
fn watch(numbers: &[i32]) -> Result<Signals, Error> {
    Signals::watch(numbers).map_err(|cause| Error::System { what: "watch signals", cause })
}

fn sorted(numbers: impl Iterator<Item = i32>) -> Vec<i32> {
    numbers.collect::<BTreeSet<_>>().into_iter().collect()
}

fn ruling<'a>(options: &Options, recorder: Option<&'a Recorder>) -> Ruling<'a> {
    match recorder {
        Some(recorder) => Ruling::Judge { threads: recorder.threads(), cpus: recorder.cpus() },
        None if options.filter || !options.count_loss => Ruling::AsTheyAre,
        None => Ruling::KeepAll,
    }
}

/// After a session that failed, and its END: what becomes of the workload.
fn after_failure(ended: Result<u8, Error>, child: Option<Child>, on_error: OnError) -> u8 {
    if let Err(error) = ended {
        errln!("twinbpf: {error:#}");
    }
    let Some(mut child) = child else { return STATUS_FAILED };
    match on_error {
        OnError::Wait => {
            if let Err(error) = child.wait() {
                errln!("twinbpf: {error}");
            }
        }
        OnError::Detach => child.detach(),
        // Dropping it does.
        OnError::Kill => {}
    }
    STATUS_FAILED
}

/// Sets the variables of `<twinbpf/trace.h>` that say when the session was loaded, and which process it is.
fn introduce(object: &mut Object) {
    let values = [("__twin_start", boot_ns()), ("__twin_self", std::process::id().into())];
    for (name, value) in values {
        match object.set_variable(name, &value.to_string()) {
            Ok(()) => {}
            // Programs that do not ask have none.
            Err(error) => log::debug!("{error}"),
        }
    }
}

/// In user mode, map types that only the kernel fills become empty hash maps.
fn stand_ins(plan: &ObjectPlan, linker: &mut Linker<Control>) -> Result<(), Error> {
    for spec in plan.object.maps.iter().filter(|spec| only_in_kernel(spec.kind).is_some()) {
        let (key, value) = (spec.key_size.max(1), spec.value_size.max(1));
        let empty = MapSpec::new(Arc::clone(&spec.name), MapKind::Hash, key, value, spec.max_entries.max(1));
        let map = create(empty, linker.engine().arena(), 1).map_err(twinbpf::Error::from)?;
        linker.map(&spec.name, map);
    }
    Ok(())
}

/// Whether a script has CO-RE relocations or reads kernel configuration (Kconfig externs).
fn needs_kernel_types(plan: &ObjectPlan) -> bool {
    let object = &plan.object;
    let scripts = object.programs.iter().filter(|spec| spec.attach.prog_type().is_none());
    scripts.into_iter().any(|spec| !object.core_relocs(spec).is_empty())
        || object.externs.iter().any(|symbol| symbol.kind == ExternKind::Kconfig)
}

/// Ends the workload, unless it ended by itself, and returns its exit status.
fn end_child(child: Option<&mut Child>, over: &SessionEnd) -> Result<u8, Error> {
    let Some(child) = child else { return Ok(0) };
    match over {
        SessionEnd::Ended | SessionEnd::Idle => {}
        // A terminal's Ctrl-C reaches the workload too.
        SessionEnd::Interrupted if child.ends_within(PATIENCE) => {}
        SessionEnd::Interrupted | SessionEnd::Terminated | SessionEnd::Exit(_) => child.terminate(),
    }
    child.wait()
}
