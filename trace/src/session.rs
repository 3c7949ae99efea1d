//! A session: everything is resolved, made and held, then BEGIN, the workload, the loop over what comes, END.
//!
//! What is attached hangs on file descriptors of this process, so that nothing is left however it ends.

use std::sync::Arc;
use std::time::Duration;

use twinbpf::map::{MapKind, MapSpec, create, only_in_kernel};
use twinbpf::program::ExternKind;
use twinbpf::{LinkError, Linker};

use crate::control::{self, Control};
use crate::error::Error;
use crate::events::{Loop, Over};
use crate::kernel::Half;
use crate::options::Options;
use crate::output::Output;
use crate::plan::{ObjectPlan, Plan};
use crate::script::memory::Reach;
use crate::script::{self, Remembering};
use crate::signals::Signals;
use crate::sys;
use crate::tool::{Outcome, Tool};
use crate::workload::{Child, Held};

/// How long a workload that a terminal's Ctrl-C may have reached may take to end before it gets SIGTERM.
const PATIENCE: Duration = Duration::from_secs(1);

/// Status of a session that a BEGIN ended by returning below 0.
pub const STATUS_ABORTED: u8 = 1;

/// A session that is ready to run: all that can fail for want of something was made, and nothing runs.
#[derive(Debug)]
pub struct Session {
    tools: Vec<Tool>,
    halves: Vec<Half>,
    options: Options,
    output: Output,
    warnings: Vec<String>,
    /// A script asks for names of addresses.
    names: bool,
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
        let mut session =
            Session { tools: Vec::new(), halves: Vec::new(), options, output, warnings: Vec::new(), names: false };
        assert_eq!(plan.objects.len(), linkers.len(), "a linker for each object");
        let added = plan.objects.iter().zip(linkers).map(|(object, linker)| session.add(object, linker));
        let failures: Vec<Error> = added.filter_map(Result::err).collect();
        if failures.is_empty() { Ok(session) } else { Err(Error::all(failures)) }
    }

    fn add(&mut self, plan: &ObjectPlan, mut linker: Linker<Control>) -> Result<(), Error> {
        control::functions(&mut linker);
        if self.options.kernel.are_given() || asks_for_kernel(plan) {
            linker.kernel(self.options.kernel.kernel());
        }
        if !self.options.commands {
            script::refuse_commands(&mut linker);
        }
        self.names |= script::asks_for_names(&plan.object);
        if !plan.in_kernel {
            stand_ins(plan, &mut linker)?;
        }
        let half = Half::load(plan, &self.options, &mut linker, &mut self.warnings)?;
        let names: Vec<&str> = plan.scripts().map(|program| &*plan.spec(program).name).collect();
        let pre = linker.instantiate_programs(&plan.object, &names)?;
        self.warnings.extend(pre.warnings().iter().cloned());
        let mut tool = Tool::new(plan, &pre, &self.output)?;
        let chosen = self.options.pid.into_iter().chain(self.options.tid).collect();
        tool.set_reach(Reach::new(self.options.foreign_memory, chosen));
        self.tools.push(tool);
        self.halves.push(half);
        Ok(())
    }

    /// What does not stop it, but may surprise.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Runs it, with a command as workload unless that is empty. The status: that of a script's `exit`, else the
    /// workload's own or 128 and the signal that killed it, else 0; [`STATUS_ABORTED`] when a BEGIN ended it.
    ///
    /// # Errors
    /// A program faulted, the workload cannot be run, the output cannot be written.
    pub fn run(mut self, workload: &[String]) -> Result<u8, Error> {
        let held = if workload.is_empty() { None } else { Some(Held::fork(workload)?) };
        if let Some(held) = &held {
            self.tools.iter_mut().for_each(|tool| tool.set_workload(held.pid() as u32));
        }
        let asked = match self.begin()? {
            Outcome::Aborted => return Ok(STATUS_ABORTED),
            Outcome::Exit(status) => {
                drop(held);
                return self.end(status);
            }
            Outcome::Done => self.trace(held)?,
        };
        self.end(asked)
    }

    fn begin(&mut self) -> Result<Outcome, Error> {
        for tool in &mut self.tools {
            match tool.begin()? {
                Outcome::Done => {}
                outcome => return Ok(outcome),
            }
        }
        Ok(Outcome::Done)
    }

    /// From enabling to the last record; END still to come. The status so far.
    fn trace(&mut self, held: Option<Held>) -> Result<u8, Error> {
        let mut numbers: Vec<i32> = self.tools.iter().flat_map(Tool::signals).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let signals = Signals::watch(&numbers).map_err(|cause| Error::System { what: "watch signals", cause })?;
        let failures: Vec<Error> = self.halves.iter_mut().filter_map(|half| half.enable().err()).collect();
        if !failures.is_empty() {
            return Err(Error::all(failures));
        }
        let mut child = held.map(Held::release).transpose()?;
        self.halves.iter().try_for_each(|half| half.iterate(&self.output))?;
        let over = self.watch(child.as_ref(), &signals, &numbers)?;
        self.halves.iter_mut().for_each(Half::disable);
        signals.impatient();
        let drained = self.drain(&over)?;
        let status = end_child(child.as_mut(), &over)?;
        Ok(match (over, drained) {
            (Over::Exit(asked), _) | (_, Outcome::Exit(asked)) => asked,
            (Over::Ended | Over::Terminated | Over::Interrupted | Over::Idle, _) => status,
        })
    }

    /// Records that were sent and not yet read.
    fn drain(&mut self, over: &Over) -> Result<Outcome, Error> {
        if matches!(over, Over::Exit(_)) {
            return Ok(Outcome::Done);
        }
        for (tool, half) in self.tools.iter_mut().zip(&mut self.halves) {
            self.output.hold(true);
            let drained = half.drain(tool);
            self.output.hold(false);
            if let Outcome::Exit(status) = drained? {
                return Ok(Outcome::Exit(status));
            }
        }
        self.halves.iter().for_each(|half| half.report_loss(&self.output));
        self.output.finish()?;
        Ok(Outcome::Done)
    }

    fn watch(&mut self, child: Option<&Child>, signals: &Signals, numbers: &[i32]) -> Result<Over, Error> {
        let target = match self.options.pid.or(self.options.tid) {
            Some(pid) if child.is_none() => Some(
                sys::pidfd(pid as i32)
                    .map_err(|cause| Error::System { what: "watch the process of -p or -t", cause })?,
            ),
            _ => None,
        };
        self.tools.iter_mut().try_for_each(Tool::start_timers)?;
        let pid = child.map(|child| child.pid() as u32).or(self.options.pid).filter(|_| self.names);
        let remembering = pid.map(Remembering::new);
        let (tools, halves, output) = (&mut self.tools, &mut self.halves, &self.output);
        Loop { tools, halves, output, child, target: target.as_ref(), signals, numbers, remembering }.run()
    }

    fn end(mut self, mut status: u8) -> Result<u8, Error> {
        for tool in &mut self.tools {
            if let Outcome::Exit(asked) = tool.end()? {
                status = asked;
                break;
            }
        }
        if self.options.print_maps {
            self.tools.iter().for_each(Tool::print_maps);
            self.output.finish()?;
        }
        Ok(status)
    }
}

/// Without the kernel its own kinds of maps are empty: nothing is there that could fill them.
fn stand_ins(plan: &ObjectPlan, linker: &mut Linker<Control>) -> Result<(), Error> {
    for spec in plan.object.maps.iter().filter(|spec| only_in_kernel(spec.kind).is_some()) {
        let (key, value) = (spec.key_size.max(1), spec.value_size.max(1));
        let empty = MapSpec::new(Arc::clone(&spec.name), MapKind::Hash, key, value, spec.max_entries.max(1));
        let map = create(empty, linker.engine().arena(), 1).map_err(LinkError::from)?;
        linker.map(&spec.name, map);
    }
    Ok(())
}

/// Whether a script is to be relocated to the kernel's types, or reads its configuration.
fn asks_for_kernel(plan: &ObjectPlan) -> bool {
    let object = &plan.object;
    let scripts = object.programs.iter().filter(|spec| spec.attach.prog_type().is_none());
    scripts.into_iter().any(|spec| !object.core_relocs(spec).is_empty())
        || object.externs.iter().any(|symbol| symbol.kind == ExternKind::Kconfig)
}

/// Sees to it that the workload ends, and takes its status.
fn end_child(child: Option<&mut Child>, over: &Over) -> Result<u8, Error> {
    let Some(child) = child else { return Ok(0) };
    match over {
        Over::Ended | Over::Idle => {}
        // A terminal's Ctrl-C reaches the workload too.
        Over::Interrupted if child.ends_within(PATIENCE) => {}
        Over::Interrupted | Over::Terminated | Over::Exit(_) => child.terminate(),
    }
    child.wait()
}
