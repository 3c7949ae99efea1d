//! Samples that a host feeds: timers that are over by then, and the EVENT programs of their event.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use twinbpf::Entry;

use super::{Outcome, Step, UserSide};
use crate::error::Error;

/// A sample as programs get it.
#[derive(Clone, Copy, Debug)]
pub struct Sample<'a> {
    /// Name of its event. Samples of one event best share it: they need no search by name then.
    pub event: &'a Arc<str>,
    /// When it was taken, in nanoseconds.
    pub time: u64,
    /// Bytes of the struct at the start of [`Sample::bytes`]: the second argument of EVENT.
    pub size: usize,
    /// The struct, followed by what its pointers lead to.
    pub bytes: &'a [u8],
    /// Pointers in it: where each is, and where what it points to is, both as offsets into [`Sample::bytes`].
    pub pointers: &'a [(u32, u32)],
}

/// What gives a sample to the programs of an object.
pub(crate) type Give = fn(&mut UserSide, &Sample<'_>) -> Result<(Outcome, bool), Error>;

/// What a sample of an event calls: entries, and whether each says by its result whether it keeps the sample.
type Calls = Rc<[(Entry, bool)]>;

/// Programs that samples run.
#[derive(Debug, Default)]
pub(super) struct Samples {
    /// Each with its event, where it names one.
    programs: Vec<(Step, Option<Arc<str>>)>,
    of_event: HashMap<Arc<str>, Calls>,
    /// The entry of the last sample, whose event most samples share.
    last: Option<(Arc<str>, Calls)>,
}

impl Samples {
    pub(super) fn add(&mut self, step: Step, event: Option<Arc<str>>) {
        self.programs.push((step, event));
    }

    #[inline]
    fn of(&mut self, event: &Arc<str>) -> Calls {
        match &self.last {
            Some((last, calls)) if Arc::ptr_eq(last, event) => Rc::clone(calls),
            _ => self.search(event),
        }
    }

    fn search(&mut self, event: &Arc<str>) -> Calls {
        let calls = self.of_event.get(event).map(Rc::clone).unwrap_or_else(|| self.first(event));
        self.last = Some((Arc::clone(event), Rc::clone(&calls)));
        calls
    }

    /// At the first sample of an event.
    fn first(&mut self, event: &Arc<str>) -> Calls {
        let wants = |of: &Option<Arc<str>>| of.as_ref().is_none_or(|name| name == event);
        let steps = self.programs.iter().filter(|(_, of)| wants(of)).map(|(step, _)| step);
        let calls: Calls = steps.map(|step| (step.entry, step.returns)).collect();
        self.of_event.insert(Arc::clone(event), Rc::clone(&calls));
        calls
    }

    /// Programs for events of which there was no sample, each with its event.
    fn unmet(&self) -> impl Iterator<Item = (&str, &str)> {
        let named = self.programs.iter().filter_map(|(step, event)| Some((&*step.name, event.as_deref()?)));
        named.filter(|(_, event)| !self.of_event.contains_key(*event))
    }
}

/// Sizes of records are rounded up to this, so that few blocks serve them all.
const GRAIN: usize = 64;

impl UserSide {
    /// Whether programs run before the host has chosen samples.
    pub(crate) fn has_early(&self) -> bool {
        !self.early.programs.is_empty()
    }

    /// Calls the programs that run before the host has chosen. With [`Outcome::Done`], whether all of them keep the sample.
    pub(crate) fn on_early(&mut self, sample: &Sample<'_>) -> Result<(Outcome, bool), Error> {
        let calls = self.early.of(sample.event);
        self.run(sample, &calls)
    }

    /// Calls what a sample runs. With [`Outcome::Done`], whether all EVENT programs keep it.
    pub(crate) fn on_sample(&mut self, sample: &Sample<'_>) -> Result<(Outcome, bool), Error> {
        for index in 0..self.timers.len() {
            if self.timers[index].1.expires(sample.time)
                && let Outcome::Exit(status) = self.on_timer(index)?
            {
                return Ok((Outcome::Exit(status), false));
            }
        }
        self.displays.on_sample(sample.time, &self.output)?;
        let calls = self.samples.of(sample.event);
        self.run(sample, &calls)
    }

    fn run(&mut self, sample: &Sample<'_>, calls: &[(Entry, bool)]) -> Result<(Outcome, bool), Error> {
        if calls.is_empty() {
            return Ok((Outcome::Done, true));
        }
        let block = self.memory(sample.bytes.len().next_multiple_of(GRAIN))?;
        let addr = block.addr();
        // Less than a grain of the block is not this sample's: what an earlier one left there goes.
        if let Some(last) = block.len().checked_sub(GRAIN as u32) {
            block.write(last, &[0; GRAIN]);
        }
        block.write(0, sample.bytes);
        for (at, to) in sample.pointers {
            block.write(*at, &(addr + u64::from(*to)).to_ne_bytes());
        }
        let mut kept = true;
        for (entry, returns) in calls {
            match self.instance.call(*entry, &[addr, sample.size as u64]) {
                // It is an `int` in C: the upper 32 bits are undefined.
                Ok(r0) => kept &= !returns || r0 as i32 != 0,
                Err(trap) => return Ok((self.ended(trap)?, false)),
            }
        }
        Ok((self.after_return()?, kept))
    }

    /// Programs for events of which there was no sample, each with its event.
    pub(crate) fn unmet(&self) -> impl Iterator<Item = (&str, &str)> {
        self.samples.unmet().chain(self.early.unmet())
    }

    /// Names of the events that had samples, sorted.
    pub(crate) fn events(&self) -> Vec<&str> {
        let all = self.samples.of_event.keys().chain(self.early.of_event.keys());
        let mut events: Vec<&str> = all.map(|event| &**event).collect();
        events.sort_unstable();
        events.dedup();
        events
    }

    /// Name of its object.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}
