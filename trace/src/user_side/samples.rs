//! Samples that a host feeds: timers that are over by then, and the EVENT programs of their event.

use std::sync::Arc;

use super::{Outcome, UserSide};
use crate::error::Error;

/// A sample as programs get it.
#[derive(Clone, Copy, Debug)]
pub struct Sample<'a> {
    /// Name of its event.
    pub event: &'a str,
    /// When it was taken, in nanoseconds.
    pub time: u64,
    /// Bytes of the struct at the start of [`Sample::bytes`]: the second argument of EVENT.
    pub size: usize,
    /// The struct, followed by what its pointers lead to.
    pub bytes: &'a [u8],
    /// Pointers in it: where each is, and where what it points to is, both as offsets into [`Sample::bytes`].
    pub pointers: &'a [(u32, u32)],
}

/// Sizes of records are rounded up to this, so that few blocks serve them all.
const GRAIN: usize = 64;

impl UserSide {
    /// Calls what a sample runs. With [`Outcome::Done`], whether all EVENT programs keep it.
    pub(crate) fn on_sample(&mut self, sample: &Sample<'_>) -> Result<(Outcome, bool), Error> {
        for index in 0..self.timers.len() {
            if self.timers[index].1.expires(sample.time)
                && let Outcome::Exit(status) = self.on_timer(index)?
            {
                return Ok((Outcome::Exit(status), false));
            }
        }
        if !self.of_event.contains_key(sample.event) {
            let all = self.samples.iter().enumerate();
            let wants = |of: &Option<Arc<str>>| of.as_deref().is_none_or(|name| name == sample.event);
            let programs = all.filter(|(_, (_, of))| wants(of)).map(|(index, _)| index).collect();
            self.of_event.insert(sample.event.into(), programs);
        }
        let count = self.of_event[sample.event].len();
        if count == 0 {
            return Ok((Outcome::Done, true));
        }
        let block = self.memory(sample.bytes.len().next_multiple_of(GRAIN))?;
        let addr = block.addr();
        block.write(0, sample.bytes);
        // What an earlier sample left in the rest of the block is not of this one.
        let rest = block.len() - sample.bytes.len() as u32;
        block.write(sample.bytes.len() as u32, &[0; GRAIN][..rest as usize]);
        for (at, to) in sample.pointers {
            block.write(*at, &(addr + u64::from(*to)).to_ne_bytes());
        }
        let mut kept = true;
        for nth in 0..count {
            let index = self.of_event[sample.event][nth];
            let (entry, returns) = (self.samples[index].0.entry, self.samples[index].0.returns);
            match self.instance.call(entry, &[addr, sample.size as u64]) {
                // It is an `int` in C: the upper 32 bits are undefined.
                Ok(r0) => kept &= !returns || r0 as i32 != 0,
                Err(trap) => return Ok((self.ended(trap)?, false)),
            }
        }
        Ok((self.after(Ok(0))?, kept))
    }

    /// Programs for events of which there was no sample, each with its event.
    pub(crate) fn unmet(&self) -> impl Iterator<Item = (&str, &str)> {
        let named = self.samples.iter().filter_map(|(step, event)| Some((&*step.name, event.as_deref()?)));
        named.filter(|(_, event)| !self.of_event.contains_key(*event))
    }

    /// Names of the events that had samples, sorted.
    pub(crate) fn events(&self) -> Vec<&str> {
        let mut events: Vec<&str> = self.of_event.keys().map(|event| &**event).collect();
        events.sort_unstable();
        events
    }

    /// Name of its object.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}
