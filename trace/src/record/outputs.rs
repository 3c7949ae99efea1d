//! Events of perf that carry what programs send (`bpf_perf_event_output`), and the maps that they go into.

use std::ops::RangeInclusive;
use std::os::fd::AsFd;

use twinbpf_kernel::{Map, cpu};
use twinbpf_vm::map::MapKind;

use super::perf::Perf;
use crate::error::Error;
use crate::options::Options;
use crate::plan::{ObjectPlan, OwnSlots, Plan, Trigger};
use crate::terms::Terms;

/// The map whose records perf writes where no EVENT program reads them.
const STDOUT: &str = "__bpf_stdout__";
/// What such an event begins with.
const OUTPUT: &str = "bpf-output";

/// An event, by its name and as perf takes it.
#[derive(Debug)]
struct Output {
    name: String,
    event: String,
    slots: Vec<Slots>,
}

/// Where an event goes.
#[derive(Debug)]
struct Slots {
    /// Index of the object.
    object: usize,
    /// Name of the map.
    map: String,
    /// Numbers of CPUs; `None`: all.
    slots: Option<Vec<RangeInclusive<u32>>>,
}

/// The events that carry records. perf opens them before all others.
#[derive(Debug, Default)]
pub(super) struct Outputs(Vec<Output>);

impl Outputs {
    /// Those among the user's events, which are taken out of them, and one for the maps that have none.
    ///
    /// # Errors
    /// A term that does not fit its object.
    pub(super) fn new(plan: &mut Plan, terms: &[Option<Terms>], events: &mut Vec<String>) -> Result<Outputs, Error> {
        let mut outputs = Outputs::default();
        events.retain(|event| match named(event) {
            Some(name) => {
                outputs.0.push(Output { name, event: event.clone(), slots: Vec::new() });
                false
            }
            None => true,
        });
        for (index, object) in plan.objects.iter_mut().enumerate() {
            let names: Vec<String> = outputs.0.iter().map(|output| output.name.clone()).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let mut found = Vec::new();
            if let Some(terms) = terms.get(index).and_then(Option::as_ref) {
                found = object.add_terms_with(terms, &Options::default(), &names)?;
            }
            if sends_by_itself(object) && !found.iter().any(|slots| slots.map == STDOUT) {
                found.push(OwnSlots { map: STDOUT.to_owned(), slots: None, event: STDOUT.to_owned() });
            }
            for OwnSlots { map, slots, event } in found {
                outputs.by_name(event).slots.push(Slots { object: index, map, slots });
            }
        }
        Ok(outputs)
    }

    fn by_name(&mut self, name: String) -> &mut Output {
        let at = self.0.iter().position(|output| output.name == name).unwrap_or(self.0.len());
        if at == self.0.len() {
            let event = format!("{OUTPUT}/no-inherit=1,name={name}/");
            self.0.push(Output { name, event, slots: Vec::new() });
        }
        &mut self.0[at]
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// As perf takes them.
    pub(super) fn events(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(|output| output.event.clone())
    }

    /// Their names.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|output| output.name.as_str())
    }

    /// Puts perf's events into the maps of programs, one for each CPU. `cpus`: those that are recorded; empty: all.
    ///
    /// # Errors
    /// The kernel does not let this process have them, or a map has too few slots.
    pub(super) fn connect(
        &self,
        perf: &Perf,
        cpus: &[u32],
        maps: &dyn Fn(usize, &str) -> Option<Map>,
    ) -> Result<(), Error> {
        if self.is_empty() {
            return Ok(());
        }
        let failed = |cause| Error::System { what: "take the events of perf record", cause };
        let cpus = if cpus.is_empty() { cpu::online() } else { cpus.to_vec() };
        let events = perf.events().map_err(failed)?;
        for (output, events) in self.0.iter().zip(events.chunks(cpus.len())) {
            for Slots { object, map, slots } in &output.slots {
                let Some(map) = maps(*object, map) else { continue };
                let is_slot = |cpu: u32| slots.as_ref().is_none_or(|all| all.iter().any(|range| range.contains(&cpu)));
                for (cpu, event) in cpus.iter().zip(events).filter(|(cpu, _)| is_slot(**cpu)) {
                    map.update_fd(*cpu, event.as_fd())?;
                }
            }
        }
        Ok(())
    }
}

/// The name of an event that carries records, if it is one: `bpf-output/no-inherit=1,name=evt/`.
fn named(event: &str) -> Option<String> {
    let terms = event.strip_prefix(OUTPUT)?;
    let terms = terms.strip_prefix('/').and_then(|terms| terms.strip_suffix('/')).unwrap_or_default();
    let name = terms.split(',').find_map(|term| term.trim().strip_prefix("name="));
    Some(name.unwrap_or(OUTPUT).to_owned())
}

/// Whether an object has the map that perf knows by its name, and nothing of its own reads that.
fn sends_by_itself(object: &ObjectPlan) -> bool {
    let map = object.object.maps.iter().position(|map| *map.name == *STDOUT && map.kind == MapKind::PerfEventArray);
    let is_read = |map: usize| {
        object.programs.iter().any(|planned| matches!(planned.trigger, Trigger::Event { map: read } if read == map))
    };
    map.is_some_and(|map| !is_read(map))
}

#[cfg(test)]
mod tests {
    use super::named;

    #[test]
    fn events_that_carry_records_have_names() {
        assert_eq!(named("bpf-output/no-inherit=1,name=evt/").as_deref(), Some("evt"));
        assert_eq!(named("bpf-output").as_deref(), Some("bpf-output"));
        assert_eq!(named("cycles/name=evt/"), None);
    }
}
