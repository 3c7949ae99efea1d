//! User side of an object in a session: the instance of its scripts, and the calls of their entry points.

use std::collections::{BTreeMap, HashMap};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use twinbpf::{Entry, Instance, InstancePre, MapRef, Trap};
use twinbpf_isa::program::ValType;
use twinbpf_vm::helper::print::map_text;
use twinbpf_vm::host::Loss;
use twinbpf_vm::map::MapOps;
use twinbpf_vm::mem::Block;

use crate::control::{Control, Reach};
use crate::display::Displays;
use crate::errln;
use crate::error::Error;
use crate::output::Output;
use crate::picture::Chart;
use crate::plan::{ObjectPlan, Planned, Trigger};
use crate::print::{Kind, Request, Value};
use crate::terminal;
use crate::timer::Timer;

mod records;
mod samples;

use records::Records;
pub(crate) use samples::Give;
pub use samples::Sample;
use samples::Samples;

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
    timers: Vec<(Step, Timer)>,
    events: Vec<Event>,
    samples: Samples,
    /// Before the host has chosen samples.
    early: Samples,
    signals: Vec<(i32, Step)>,
    /// Index and map, for the userspace maps through which scripts may send records.
    local: Vec<(usize, Arc<dyn MapOps>)>,
    records: Records,
    /// Formats of kernel programs, by number.
    formats: HashMap<u32, Block>,
    /// Maps that are printed as they declare.
    displays: Displays,
}

/// The first numbers of a request.
fn numbers(request: &Request) -> [u64; 5] {
    let mut numbers = [0; 5];
    for (to, value) in numbers.iter_mut().zip(&request.values) {
        *to = if let Value::Number(number) = value { *number } else { 0 };
    }
    numbers
}

impl UserSide {
    /// Instantiates the object's scripts. Timers go by the times of samples, or by the system's clock.
    pub(crate) fn new(
        plan: &ObjectPlan,
        pre: &InstancePre<Control>,
        output: &Output,
        by_samples: bool,
    ) -> Result<UserSide, Error> {
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
            samples: Samples::default(),
            early: Samples::default(),
            signals: Vec::new(),
            local: Vec::new(),
            records: Records::default(),
            formats: HashMap::new(),
            displays: Displays::new(&plan.declarations, pre.maps(), by_samples)?,
        };
        for program in plan.scripts() {
            user_side.add(plan, program, pre, by_samples)?;
        }
        Ok(user_side)
    }

    fn add(
        &mut self,
        plan: &ObjectPlan,
        program: &Planned,
        pre: &InstancePre<Control>,
        by_samples: bool,
    ) -> Result<(), Error> {
        let spec = plan.spec(program);
        let step = Step {
            name: Arc::clone(&spec.name),
            entry: pre.program(&spec.name).expect("instantiated by name"),
            returns: spec.signature.as_ref().is_none_or(|signature| signature.result != ValType::Void),
        };
        match &program.trigger {
            Trigger::Begin => self.begins.push(step),
            Trigger::End => self.ends.push(step),
            &Trigger::Timer { period } => {
                let timer = if by_samples { Timer::by_samples(period) } else { Timer::by_clock(period)? };
                self.timers.push((step, timer));
            }
            Trigger::Sample { event, early: false } => self.samples.add(step, event.clone()),
            Trigger::Sample { event, early: true } => self.early.add(step, event.clone()),
            &Trigger::Event { map } => {
                let ours = &pre.maps()[map];
                if !plan.in_kernel && !self.local.iter().any(|(index, _)| *index == map) {
                    self.local.push((map, Arc::clone(ours)));
                }
                self.events.push(Event { step, map });
            }
            &Trigger::Signal { number } => self.signals.push((number, step)),
            Trigger::Kernel { .. } | Trigger::Probe(_) | Trigger::Never { .. } => {}
        }
        Ok(())
    }

    /// From now on folded stacks are kept, not printed.
    pub(crate) fn fold(&mut self) {
        self.instance.data_mut().folded = Some(BTreeMap::new());
    }

    /// Those that were kept.
    pub(crate) fn folded(&mut self) -> BTreeMap<String, u64> {
        self.instance.data_mut().folded.take().unwrap_or_default()
    }

    /// From now on what charts are made of is kept.
    pub(crate) fn keep_charts(&mut self) {
        self.instance.machine().runtime_mut().histograms = Some(BTreeMap::new());
        self.displays.keep();
    }

    /// The charts: histograms that programs printed, then maps that print themselves.
    pub(crate) fn charts(&mut self) -> Vec<Chart> {
        let printed = self.instance.machine().runtime_mut().histograms.take().unwrap_or_default();
        let printed = printed.into_iter().map(|(title, slots)| Chart::Histogram { title, slots });
        printed.chain(self.displays.charts()).collect()
    }

    /// What maps had no room for.
    pub(crate) fn losses(&mut self) -> Vec<Loss> {
        self.instance.machine().runtime_mut().losses().to_vec()
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

    /// Prints the maps that a declaration describes.
    pub(crate) fn display(&mut self) -> Result<(), Error> {
        self.displays.end(&self.output)
    }

    /// Calls the END programs. Without any, prints the maps of lines such as `MAP_COUNT(calls)`.
    pub(crate) fn end(&mut self) -> Result<Outcome, Error> {
        if self.ends.is_empty() {
            return self.print_implied();
        }
        for index in 0..self.ends.len() {
            if let Outcome::Exit(status) = self.call(self.ends[index].entry)? {
                return Ok(Outcome::Exit(status));
            }
        }
        Ok(Outcome::Done)
    }

    fn print_implied(&mut self) -> Result<Outcome, Error> {
        let implied = self.displays.implied().map(|(map, function, numbers)| (map, function.to_owned(), numbers));
        for (map, function, numbers) in implied.collect::<Vec<_>>() {
            let name = &self.instance.pre().maps()[map].spec().name;
            let handle = self.instance.pre().map_handle(name).expect("a map of the object");
            let [min, max, step] = numbers.map(i64::cast_unsigned);
            if let Err(trap) = self.host(&function, [handle, min, max, step, 0])? {
                return self.ended(trap);
            }
        }
        self.output.finish()?;
        Ok(Outcome::Done)
    }

    /// Prints each map that can be walked, is no data section, and of which no declaration says how it is printed.
    pub(crate) fn print_maps(&self) {
        let all = self.instance.pre().maps().iter().enumerate();
        let all = all.filter(|(index, map)| map.spec().data.is_none() && !self.displays.declares(*index));
        for (_, map) in all {
            match map_text(&MapRef::from(Arc::clone(map)), self.output.format(), &mut || Ok(())) {
                Ok((text, _)) => self.output.print(&text),
                Err(fail) => log::debug!("map {} is not printed: {fail:?}", map.spec().name),
            }
        }
    }

    /// Starts the timers whose section has a period.
    pub(crate) fn start_timers(&mut self) -> Result<(), Error> {
        self.displays.start()?;
        self.timers.iter_mut().try_for_each(|(_, timer)| timer.start())
    }

    /// Index and descriptor of each running timer: those of programs, then those of maps that are printed.
    pub(crate) fn running_timers(&self) -> impl Iterator<Item = (usize, BorrowedFd<'_>)> {
        let programs = self.timers.iter().enumerate().filter_map(|(index, (_, timer))| Some((index, timer.running()?)));
        let first = self.timers.len();
        programs.chain(self.displays.running_timers().map(move |(index, fd)| (first + index, fd)))
    }

    /// Calls the program of an expired timer, or prints the map that it is for.
    pub(crate) fn on_timer(&mut self, index: usize) -> Result<Outcome, Error> {
        if let Some(display) = index.checked_sub(self.timers.len()) {
            return self.displays.on_timer(display, &self.output).map(|()| Outcome::Done);
        }
        // Several expirations since the last call are one call.
        let (step, timer) = &self.timers[index];
        timer.drain();
        self.call(step.entry)
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
        let block = self.memory(bytes.len())?;
        block.write(0, bytes);
        let addr = block.addr();
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

    /// Does what a record of a kernel program asks for.
    pub(crate) fn perform(&mut self, request: &Request) -> Result<Outcome, Error> {
        let result = match request.format.kind {
            Kind::Printf => self.printf(request),
            Kind::Exit => self.host("twinbpf_exit", numbers(request)),
            Kind::PrintMap => self.on_map("twinbpf_print_top", request),
            Kind::PrintHist => self.on_map("print_hist", request),
            Kind::PrintLhist => self.on_map("print_lhist", request),
            Kind::Clear => self.on_map("twinbpf_clear", request),
            Kind::Zero => self.on_map("twinbpf_zero", request),
            Kind::Join => self.join(request),
        };
        match result? {
            Ok(_) => Ok(Outcome::Done),
            Err(trap) => self.ended(trap),
        }
    }

    /// Calls `twinbpf_printfv` with the format, and the values and texts in memory of the instance.
    fn printf(&mut self, request: &Request) -> Result<Result<u64, Trap>, Error> {
        if !self.formats.contains_key(&request.number) {
            let block = self.instance.context(&request.format.text)?;
            self.formats.insert(request.number, block);
        }
        let texts = request.values.iter().map(|value| value.text().map_or(0, |text| text.len() + 1));
        let words = 8 * request.values.len();
        // Few sizes, so that blocks are used again.
        let size = (words + texts.sum::<usize>()).next_multiple_of(64);
        let block = self.memory(size)?;
        let addr = block.addr();
        let mut bytes = vec![0; words];
        for (at, value) in request.values.iter().enumerate() {
            let word = match (value, value.text()) {
                (Value::Number(word), _) => *word,
                (_, text) => {
                    let start = addr + bytes.len() as u64;
                    bytes.extend_from_slice(text.unwrap_or_default());
                    bytes.push(0);
                    start
                }
            };
            bytes[8 * at..8 * at + 8].copy_from_slice(&word.to_ne_bytes());
        }
        block.write(0, &bytes);
        let format = self.formats[&request.number].addr();
        self.host("twinbpf_printfv", [format, addr, request.values.len() as u64, 0, 0])
    }

    /// Prints texts in one line, up to the first that is empty or could not be read.
    fn join(&mut self, request: &Request) -> Result<Result<u64, Trap>, Error> {
        let texts = request.values.iter().map_while(|value| match value {
            Value::Text(text) if !text.is_empty() => Some(text.as_slice()),
            _ => None,
        });
        let line = texts.collect::<Vec<_>>().join(&b' ');
        self.put(&[&line[..], b"\n"].concat())
    }

    /// Prints a text as `printf("%s", text)` does.
    fn put(&mut self, text: &[u8]) -> Result<Result<u64, Trap>, Error> {
        let all = [b"%s\0", text, b"\0"].concat();
        // Few sizes, so that blocks are used again.
        let block = self.memory(all.len().next_multiple_of(64))?;
        block.write(0, &all);
        let addr = block.addr();
        self.host("twinbpf_printf", [addr, addr + 3, 0, 0, 0])
    }

    /// Calls a function with the map that a request names, and its numbers.
    fn on_map(&mut self, function: &str, request: &Request) -> Result<Result<u64, Trap>, Error> {
        let name = String::from_utf8_lossy(&request.format.text);
        let name = name.trim_matches(|c: char| c == '\0' || c == '&' || c.is_whitespace()).to_owned();
        let handle = self.instance.pre().map_handle(&name);
        let handle = handle.ok_or_else(|| Error::NoMap {
            object: Arc::clone(&self.name),
            name,
            function: function.to_owned(),
        })?;
        let [a, b, c, ..] = numbers(request);
        self.host(function, [handle, a, b, c, 0])
    }

    fn host(&mut self, name: &str, args: [u64; 5]) -> Result<Result<u64, Trap>, Error> {
        let function = twinbpf_vm::helper::by_name(name).expect("a function of scripts");
        Ok(function.call(self.instance.machine(), &args))
    }

    /// As [`Records::of`].
    #[inline(always)]
    fn memory(&mut self, size: usize) -> Result<&Block, Error> {
        self.records.of(&self.instance, size)
    }

    fn call(&mut self, entry: Entry) -> Result<Outcome, Error> {
        let result = self.instance.call(entry, &[]);
        self.after(result)
    }

    /// After a call: flushes the output, sets the requested timers, delivers the records that were sent.
    fn after(&mut self, result: Result<u64, Trap>) -> Result<Outcome, Error> {
        match result {
            Ok(_) => self.after_return(),
            Err(trap) => self.ended(trap),
        }
    }

    #[inline(always)]
    fn after_return(&mut self) -> Result<Outcome, Error> {
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
    #[inline(always)]
    fn apply(&mut self) -> Result<(), Error> {
        if self.timers.is_empty() {
            return Ok(());
        }
        if let Some(period) = self.instance.data_mut().period.take() {
            for (_, timer) in self.timers.iter_mut().filter(|(_, timer)| timer.is_settable()) {
                timer.set(period)?;
            }
        }
        Ok(())
    }

    /// Calls EVENT programs for the records that scripts sent to each other, until none is left.
    #[inline(always)]
    fn local_events(&mut self) -> Result<Outcome, Error> {
        if self.local.is_empty() { Ok(Outcome::Done) } else { self.deliver() }
    }

    fn deliver(&mut self) -> Result<Outcome, Error> {
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
