//! Terms of an object in its plan: values of elements, and the events that a session opens for slots of its maps.

use std::ops::RangeInclusive;

use twinbpf_kernel::cpu;
use twinbpf_kernel::link::Clock;

use super::{ObjectPlan, Trigger};
use crate::options::Options;
use crate::target::threads;
use crate::terms::{MapEvent, SlotEvent, TermError, TermErrorKind as Kind, Terms};

/// An event for slots of a perf event array: each slot gets that of the CPU of its number.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Index of the map in [`Object::maps`](twinbpf_loader::Object::maps).
    pub map: usize,
    /// The slots, which are the CPUs.
    pub cpus: Vec<u32>,
    /// What is counted.
    pub clock: Clock,
    /// The name of the event, as the user wrote it.
    pub event: String,
    /// Only of this task; of all without one.
    pub task: Option<u32>,
}

/// Slots of a map for an event of the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OwnSlots {
    /// Name of the map.
    pub(crate) map: String,
    /// Numbers of CPUs; `None`: all.
    pub(crate) slots: Option<Vec<RangeInclusive<u32>>>,
    /// Name of the event.
    pub(crate) event: String,
}

impl ObjectPlan {
    /// Applies the terms of maps: elements get their values, and slots their events when the session starts.
    ///
    /// # Errors
    /// A term that does not fit the object or the session.
    pub fn add_terms(&mut self, terms: &Terms, options: &Options) -> Result<(), TermError> {
        self.add_terms_with(terms, options, &[]).map(drop)
    }

    /// The same for a caller that has events itself, by name. Returns the slots that these go into.
    pub(crate) fn add_terms_with(
        &mut self,
        terms: &Terms,
        options: &Options,
        own: &[&str],
    ) -> Result<Vec<OwnSlots>, TermError> {
        let mut found = Vec::new();
        for event in terms.apply(&mut self.object, own)? {
            match event.event {
                MapEvent::Own(name) => {
                    let map = self.object.maps[event.map].name.to_string();
                    found.push(OwnSlots { map, slots: event.slots, event: name });
                }
                MapEvent::Output | MapEvent::Counter(_) => self.add_event(terms, event, options)?,
            }
        }
        Ok(found)
    }

    fn add_event(&mut self, terms: &Terms, event: SlotEvent, options: &Options) -> Result<(), TermError> {
        let SlotEvent { map, slots, event, span } = event;
        let wrong = |kind, detail: String| Err(terms.error(kind, detail, span.clone()));
        let spec = &self.object.maps[map];
        if !self.in_kernel {
            let detail = format!("map {} is in userspace, where no events are", spec.name);
            return wrong(Kind::NotHere, detail);
        }
        let is_read = |trigger: &Trigger| matches!(trigger, Trigger::Event { map: of } if *of == map);
        let reader = self.programs.iter().find(|program| is_read(&program.trigger));
        let reader = reader.map(|program| &self.object.programs[program.spec].name);
        let clock = match (event, reader) {
            // The session puts these there.
            (MapEvent::Output, Some(_)) if slots.is_none() => return Ok(()),
            (MapEvent::Output, Some(reader)) => {
                let detail = format!("{reader} gets the records of every CPU: leave the indices out");
                return wrong(Kind::NotHere, detail);
            }
            (MapEvent::Output, None) => {
                let detail = format!("no EVENT program reads the records of {}: SEC(\"EVENT/{0}\")", spec.name);
                return wrong(Kind::NotHere, detail);
            }
            (MapEvent::Counter(_), Some(reader)) => {
                let detail = format!("the slots of {} are for the records that {reader} gets", spec.name);
                return wrong(Kind::NotHere, detail);
            }
            (MapEvent::Own(name), _) => return wrong(Kind::NoEvent, format!("the session has no event {name}")),
            (MapEvent::Counter(clock), None) => clock,
        };
        let task = match (options.tid, options.pid.map(threads)) {
            (Some(tid), _) => Some(tid),
            (None, None) => None,
            (None, Some(Ok(threads))) if threads.len() == 1 => Some(threads[0]),
            (None, Some(Ok(threads))) => {
                let detail = format!("the process of -p has {} threads: choose one by -t", threads.len());
                return wrong(Kind::Threads, detail);
            }
            (None, Some(Err(why))) => return wrong(Kind::NotHere, why),
        };
        let cpus = match slots {
            None => online(spec.max_entries, &options.cpus),
            Some(ranges) => match chosen(&ranges) {
                Ok(cpus) => cpus,
                Err(last) => {
                    let detail = format!("there is no CPU {last}, and each slot is for the CPU of its number");
                    return wrong(Kind::MapSize, detail);
                }
            },
        };
        let event = terms.text[span].to_owned();
        self.counters.push(Counters { map, cpus, clock, event, task });
        Ok(())
    }
}

/// The CPUs that run and are chosen, as far as the map has slots for them.
fn online(entries: u32, chosen: &[u32]) -> Vec<u32> {
    let has_slot = |cpu: &u32| entries == 0 || *cpu < entries;
    let is_chosen = |cpu: &u32| chosen.is_empty() || chosen.contains(cpu);
    cpu::online().into_iter().filter(|cpu| has_slot(cpu) && is_chosen(cpu)).collect()
}

/// The CPUs of these slots, each once. An error is a slot without a CPU.
fn chosen(ranges: &[RangeInclusive<u32>]) -> Result<Vec<u32>, u32> {
    let count = u32::try_from(cpu::possible()).unwrap_or(u32::MAX);
    if let Some(range) = ranges.iter().find(|range| *range.end() >= count) {
        return Err(*range.end());
    }
    let mut cpus: Vec<u32> = ranges.iter().cloned().flatten().collect();
    cpus.sort_unstable();
    cpus.dedup();
    Ok(cpus)
}
