//! User side of an object in a session: the instance of its scripts, and the calls of their entry points.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use twinbpf::{Entry, Instance, InstancePre, MapRef, Trap};
use twinbpf_isa::program::ValType;
use twinbpf_vm::helper::map_text;
use twinbpf_vm::map::MapOps;
use twinbpf_vm::mem::Block;

use crate::control::{Control, Reach};
use crate::errln;
use crate::error::Error;
use crate::output::Output;
use crate::plan::{ObjectPlan, Planned, Trigger};
use crate::{sys, terminal};

/// Most record sizes for which a block of the arena is cached.
const KEPT: usize = 64;

/// How a script call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The program has returned.
    Done,
    /// It called `exit(status)`.
    Exit(u8),
    /// A BEGIN returned below 0.
    Aborted,
}

/// A function to call.
#[derive(Debug)]
struct Step {
    name: Arc<str>,
    entry: Entry,
    /// Whether it returns something.
    returns: bool,
}

#[derive(Debug)]
struct Timer {
    step: Step,
    /// From its section; `None` where programs set it.
    period: Option<Duration>,
    fd: OwnedFd,
    running: bool,
}

#[derive(Debug)]
struct Event {
    step: Step,
    map: usize,
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct UserSide {
    name: Arc<str>,
    instance: Instance<Control>,
    output: Output,
    begins: Vec<Step>,
    ends: Vec<Step>,
    timers: Vec<Timer>,
    events: Vec<Event>,
    signals: Vec<(i32, Step)>,
    /// Index and map, for the userspace maps through which scripts may send records.
    local: Vec<(usize, Arc<dyn MapOps>)>,
    /// Size and block of each cached record, the last one used first.
    records: Vec<(usize, Block)>,
}

impl UserSide {
    /// Instantiates the object's scripts.
    pub(crate) fn new(plan: &ObjectPlan, pre: &InstancePre<Control>, output: &Output) -> Result<UserSide, Error> {
        let mut instance = pre.instance_with_output(Control::default(), output.boxed())?;
        instance.machine().runtime_mut().format = output.format();
        instance.machine().runtime_mut().trace = Box::new(terminal::Stderr);
        let (name, output) = (Arc::clone(&plan.object.name), output.clone());
        let mut user_side = UserSide {
            name,
            instance,
            output,
            begins: Vec::new(),
            ends: Vec::new(),
            timers: Vec::new(),
            events: Vec::new(),
            signals: Vec::new(),
            local: Vec::new(),
            records: Vec::new(),
        };
        for program in plan.scripts() {
            user_side.add(plan, program, pre)?;
        }
        Ok(user_side)
    }

    fn add(&mut self, plan: &ObjectPlan, program: &Planned, pre: &InstancePre<Control>) -> Result<(), Error> {
        let spec = plan.spec(program);
        let step = Step {
            name: Arc::clone(&spec.name),
            entry: pre.program(&spec.name).expect("instantiated by name"),
            returns: spec.signature.as_ref().is_none_or(|signature| signature.result != ValType::Void),
        };
        match program.trigger {
            Trigger::Begin => self.begins.push(step),
            Trigger::End => self.ends.push(step),
            Trigger::Timer { period } => {
                let fd = sys::timer().map_err(|cause| Error::System { what: "make a timer", cause })?;
                self.timers.push(Timer { step, period, fd, running: false });
            }
            Trigger::Event { map } => {
                let ours = &pre.maps()[map];
                if !plan.in_kernel && !self.local.iter().any(|(index, _)| *index == map) {
                    self.local.push((map, Arc::clone(ours)));
                }
                self.events.push(Event { step, map });
            }
            Trigger::Signal { number } => self.signals.push((number, step)),
            Trigger::Kernel { .. } | Trigger::Never { .. } => {}
        }
        Ok(())
    }

    /// Sets the processes whose memory `read_mem` may read.
    pub(crate) fn set_reach(&mut self, reach: Reach) {
        self.instance.data_mut().reach = reach;
    }

    /// Sets the process id that `workload_pid` returns.
    pub(crate) fn set_workload(&mut self, pid: u32) {
        self.instance.data_mut().workload = pid;
    }

    /// Calls the BEGIN programs, until one of them ends the session.
    pub(crate) fn begin(&mut self) -> Result<Outcome, Error> {
        for index in 0..self.begins.len() {
            let Step { entry, returns, .. } = self.begins[index];
            let result = self.instance.call(entry, &[]);
            // It is an `int` in C: the upper 32 bits are undefined.
            if let (Ok(r0), true) = (&result, returns)
                && (*r0 as i32) < 0
            {
                self.output.finish()?;
                let name = &self.begins[index].name;
                errln!("twinbpf: {}: {name} returned {}: the run ends here", self.name, *r0 as i32);
                return Ok(Outcome::Aborted);
            }
            if let Outcome::Exit(status) = self.after(result)? {
                return Ok(Outcome::Exit(status));
            }
        }
        Ok(Outcome::Done)
    }

    /// Calls the END programs.
    pub(crate) fn end(&mut self) -> Result<Outcome, Error> {
        for index in 0..self.ends.len() {
            if let Outcome::Exit(status) = self.call(self.ends[index].entry)? {
                return Ok(Outcome::Exit(status));
            }
        }
        Ok(Outcome::Done)
    }

    /// Prints each map that can be walked and is no data section.
    pub(crate) fn print_maps(&self) {
        for map in self.instance.pre().maps().iter().filter(|map| map.spec().data.is_none()) {
            match map_text(&MapRef::from(Arc::clone(map)), self.output.format(), &mut || Ok(())) {
                Ok((text, _)) => self.output.print(&text),
                Err(fail) => log::debug!("map {} is not printed: {fail:?}", map.spec().name),
            }
        }
    }

    /// Starts the timers whose section has a period.
    pub(crate) fn start_timers(&mut self) -> Result<(), Error> {
        for timer in &mut self.timers {
            if let Some(period) = timer.period {
                timer.set(period)?;
            }
        }
        Ok(())
    }

    /// Index and descriptor of each running timer.
    pub(crate) fn running_timers(&self) -> impl Iterator<Item = (usize, BorrowedFd<'_>)> {
        self.timers
            .iter()
            .enumerate()
            .filter(|(_, timer)| timer.running)
            .map(|(index, timer)| (index, timer.fd.as_fd()))
    }

    /// Calls the program of an expired timer.
    pub(crate) fn on_timer(&mut self, index: usize) -> Result<Outcome, Error> {
        // Several expirations since the last call are one call.
        sys::drain(self.timers[index].fd.as_fd());
        self.call(self.timers[index].step.entry)
    }

    /// Numbers of the signals that its programs handle.
    pub(crate) fn signals(&self) -> impl Iterator<Item = i32> {
        self.signals.iter().map(|(number, _)| *number)
    }

    /// Calls the programs of a signal.
    pub(crate) fn on_signal(&mut self, number: i32) -> Result<Outcome, Error> {
        for index in 0..self.signals.len() {
            if self.signals[index].0 == number
                && let Outcome::Exit(status) = self.call(self.signals[index].1.entry)?
            {
                return Ok(Outcome::Exit(status));
            }
        }
        Ok(Outcome::Done)
    }

    /// Calls the EVENT programs of a map for a record. Their output is flushed at the end of the batch.
    pub(crate) fn on_event(&mut self, map: usize, bytes: &[u8]) -> Result<Outcome, Error> {
        let addr = self.record(bytes)?;
        for index in 0..self.events.len() {
            if self.events[index].map != map {
                continue;
            }
            match self.instance.call(self.events[index].step.entry, &[addr, bytes.len() as u64]) {
                Ok(_) => {}
                Err(trap) => return self.ended(trap),
            }
        }
        self.apply()?;
        Ok(Outcome::Done)
    }

    /// Memory for a record, of exactly its size, so that programs cannot read past it.
    fn record(&mut self, bytes: &[u8]) -> Result<u64, Error> {
        if let Some(at) = self.records.iter().position(|(size, _)| *size == bytes.len()) {
            self.records.swap(0, at);
            let block = &self.records[0].1;
            block.write(0, bytes);
            return Ok(block.addr());
        }
        if self.records.len() >= KEPT {
            self.records.clear();
        }
        let block = self.instance.context(bytes)?;
        let addr = block.addr();
        self.records.push((bytes.len(), block));
        Ok(addr)
    }

    fn call(&mut self, entry: Entry) -> Result<Outcome, Error> {
        let result = self.instance.call(entry, &[]);
        self.after(result)
    }

    /// After a call: flushes the output, sets the requested timers, delivers the records that were sent.
    fn after(&mut self, result: Result<u64, Trap>) -> Result<Outcome, Error> {
        if let Err(trap) = result {
            return self.ended(trap);
        }
        self.output.finish()?;
        self.apply()?;
        self.local_events()
    }

    /// After a trap: a fault is reported before a failed write; after `exit` only END runs.
    fn ended(&mut self, trap: Trap) -> Result<Outcome, Error> {
        let printed = self.output.finish();
        match trap.exit_status() {
            Some(status) => {
                printed?;
                self.local.iter().for_each(|(_, map)| drop(map.take_sent()));
                Ok(Outcome::Exit(status as u8))
            }
            None => Err(trap.into()),
        }
    }

    /// Sets the timers as the last program requested (`set_timer`).
    fn apply(&mut self) -> Result<(), Error> {
        if let Some(period) = self.instance.data_mut().period.take() {
            for timer in self.timers.iter_mut().filter(|timer| timer.period.is_none()) {
                timer.set(period)?;
            }
        }
        Ok(())
    }

    /// Calls EVENT programs for the records that scripts sent to each other, until none is left.
    fn local_events(&mut self) -> Result<Outcome, Error> {
        loop {
            let sent: Vec<(usize, Vec<u8>)> = self
                .local
                .iter()
                .flat_map(|(index, map)| map.take_sent().into_iter().map(|sent| (*index, sent.bytes)))
                .collect();
            if sent.is_empty() {
                return Ok(Outcome::Done);
            }
            for (map, bytes) in sent {
                if let Outcome::Exit(status) = self.on_event(map, &bytes)? {
                    return Ok(Outcome::Exit(status));
                }
            }
            self.output.finish()?;
        }
    }
}

impl Timer {
    fn set(&mut self, period: Duration) -> Result<(), Error> {
        sys::set_timer(self.fd.as_fd(), period).map_err(|cause| Error::System { what: "set a timer", cause })?;
        self.running = !period.is_zero();
        Ok(())
    }
}
