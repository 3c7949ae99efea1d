//! Loss of data between kernel programs and userspace, by map, program and helper: read from the counters, and reported.

use std::sync::Arc;

use serde_json::json;
use twinbpf_kernel::Loaded;
use twinbpf_loader::kernel::{Counters, Dropped, KernelLinked, dropped_by};
use twinbpf_vm::host::Loss;

use crate::errln;
use crate::error::Error;
use crate::output::Output;

/// The counters of an object. Empty where none of its programs can lose anything, or nothing is counted.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    counters: Option<Counters>,
    object: Arc<str>,
    /// Names of maps, by index.
    maps: Vec<Arc<str>>,
}

impl Losses {
    pub(crate) fn new(object: &Arc<str>, linked: &KernelLinked, counters: Option<Counters>) -> Losses {
        let maps = linked.maps.iter().map(|map| Arc::clone(&map.spec.name)).collect();
        Losses { counters, object: Arc::clone(object), maps }
    }

    /// Whether nothing is counted.
    pub(crate) fn is_empty(&self) -> bool {
        self.counters.is_none()
    }

    /// Reports what was lost, a line for each map, program and helper. Returns how much that is. `sources` are the maps that
    /// count themselves: they are reported where no code counts.
    pub(crate) fn report<'a>(
        &self,
        loaded: &Loaded,
        sources: impl Iterator<Item = (&'a Arc<str>, u64)>,
        output: &Output,
    ) -> Result<u64, Error> {
        let Some(counters) = &self.counters else { return Ok(report_sources(sources, output)) };
        let Some(map) = loaded.maps.get(counters.map).and_then(Option::as_ref) else { return Ok(0) };
        let value = map.lookup(&[0; 4])?.unwrap_or_default();
        let mut total = 0;
        for (counter, word) in counters.counters.iter().zip(value.chunks_exact(8)) {
            let count = u64::from_ne_bytes(word.try_into().expect("eight bytes"));
            if count == 0 {
                continue;
            }
            total += count;
            let (map, helper) = (counter.map.and_then(|map| self.maps.get(map)), counter.helper);
            let place = map.map_or_else(|| "a map that is chosen at run time".to_owned(), |map| format!("map {map}"));
            let (what, why, remedy) = words(helper.dropped);
            errln!(
                "twinbpf: {}: {count} {what} of {place} were lost: {why} ({} in program {}); {remedy}",
                self.object,
                helper.name,
                counter.program,
            );
            object(output, map.map(|map| &**map), Some(&counter.program), Some(helper.name), count);
        }
        Ok(total)
    }
}

fn report_sources<'a>(sources: impl Iterator<Item = (&'a Arc<str>, u64)>, output: &Output) -> u64 {
    let mut total = 0;
    for (name, count) in sources.filter(|(_, count)| *count > 0) {
        total += count;
        let (what, why, remedy) = words(Dropped::Record);
        errln!("twinbpf: {count} {what} of map {name} were lost: {why}; {remedy}");
        object(output, Some(name), None, None, count);
    }
    total
}

/// Reports what programs in userspace lost. Returns how much that is.
pub(crate) fn of_scripts(name: &str, losses: &[Loss], output: &Output) -> u64 {
    for Loss { map, function, count } in losses {
        // Functions that are no helpers of the kernel change elements.
        let (what, why, remedy) = words(dropped_by(function).unwrap_or(Dropped::Element));
        errln!("twinbpf: {name}: {count} {what} of map {map} were lost: {why} ({function} in userspace); {remedy}");
        object(output, Some(map), None, Some(function), *count);
    }
    losses.iter().map(|loss| loss.count).sum()
}

/// Reports samples that a recording lacks.
pub(crate) fn samples(output: &Output, count: u64) {
    if count > 0 {
        errln!(
            "twinbpf: the recording lacks {count} samples: perf record had no room for them; a larger -m or a lower \
             frequency makes that rarer"
        );
        object(output, None, None, None, count);
    }
}

/// In JSON: what was lost of a map, with the program and its helper where they are known.
pub(crate) fn object(output: &Output, map: Option<&str>, program: Option<&str>, helper: Option<&str>, count: u64) {
    output.object("lost", &json!({ "map": map, "program": program, "helper": helper, "count": count }));
}

/// What was dropped, why, and what to do.
fn words(dropped: Dropped) -> (&'static str, &'static str, &'static str) {
    match dropped {
        Dropped::Record => ("records", "it had no room", "a larger buffer holds more"),
        Dropped::Element => ("elements", "it was full or busy", "a larger max_entries holds more"),
        Dropped::Stack => ("stacks", "another one had the slot", "a larger max_entries makes that rarer"),
    }
}
