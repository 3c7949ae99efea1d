//! The verdicts of an object's programs in a session: everything is kept, or they decide and are counted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use twinbpf_isa::SpliceError;
use twinbpf_kernel::{Loaded, Map};
use twinbpf_loader::kernel::{Attaching, KernelLinked, KernelProgram};
use twinbpf_loader::section::ProgType;
use twinbpf_vm::map::{MapKind, MapSpec};

use crate::error::Error;
use crate::plan::{ObjectPlan, Trigger, wrong};
use crate::target::decides;
use crate::verdict::{self, Judged, THREADS};

/// What becomes of the results of programs on events of perf.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ruling<'a> {
    /// They count, for everybody.
    AsTheyAre,
    /// Programs return 1.
    KeepAll,
    /// Programs decide about samples of these threads on these CPUs; `None` and empty: of all.
    Judge {
        /// The map with a byte for each thread.
        threads: Option<&'a Map>,
        /// Numbers of the CPUs.
        cpus: &'a [u32],
    },
}

/// The counters of an object's verdicts.
#[derive(Debug, Default)]
pub(crate) struct Verdicts {
    /// Index of the map.
    map: usize,
    /// Index of the map of threads, which is not made but given.
    threads: Option<usize>,
    /// Names of the programs, by slot.
    programs: Vec<Arc<str>>,
    /// Those that attachments run, by index in the object.
    entries: BTreeSet<usize>,
}

/// What a program decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Decided {
    pub(crate) program: Arc<str>,
    pub(crate) kept: u64,
    pub(crate) dropped: u64,
}

impl Ruling<'_> {
    /// Changes the linked programs. `None`: nothing is counted.
    ///
    /// # Errors
    /// A program is too long for it.
    pub(crate) fn apply(&self, plan: &ObjectPlan, linked: &mut KernelLinked) -> Result<Option<Verdicts>, Error> {
        match self {
            Ruling::AsTheyAre => Ok(None),
            Ruling::KeepAll => {
                let all = linked.programs.iter_mut();
                let mut on_tracepoints = all.filter(|program| program.attach.prog_type() == Some(ProgType::Tracepoint));
                on_tracepoints.try_for_each(|program| {
                    verdict::keep_all(program)
                        .map_err(|cause| too_long(plan, program, cause, "; --filter leaves it as it is"))
                })?;
                Ok(None)
            }
            Ruling::Judge { threads, cpus } => judge(plan, linked, threads.is_some(), cpus),
        }
    }

    /// The maps that are given to an object.
    pub(crate) fn given(&self, verdicts: Option<&Verdicts>) -> BTreeMap<usize, &Map> {
        match (self, verdicts.and_then(|verdicts| verdicts.threads)) {
            (Ruling::Judge { threads: Some(threads), .. }, Some(index)) => BTreeMap::from([(index, *threads)]),
            _ => BTreeMap::new(),
        }
    }
}

fn too_long(plan: &ObjectPlan, program: &KernelProgram, cause: SpliceError, remedy: &str) -> Error {
    let why = format!("it is too long for the code by which samples are kept: {cause}{remedy}");
    wrong(&plan.object, &plan.object.programs[program.spec], why)
}

fn judge(plan: &ObjectPlan, linked: &mut KernelLinked, threads: bool, cpus: &[u32]) -> Result<Option<Verdicts>, Error> {
    let roles: Vec<Option<bool>> = linked.programs.iter().map(|program| role(plan, program)).collect();
    let count = roles.iter().flatten().count();
    if count == 0 {
        return Ok(None);
    }
    let threads = threads.then(|| linked.add_map(MapSpec::new("twinbpf_threads", MapKind::Array, 4, THREADS, 1)));
    let map = linked.add_map(MapSpec::new("twinbpf_verdicts", MapKind::Array, 4, 8 + 16 * count as u32, 1));
    let (mut programs, mut entries) = (Vec::new(), BTreeSet::new());
    for (program, role) in linked.programs.iter_mut().zip(roles) {
        let Some(is_entry) = role else { continue };
        let judged = Judged { verdicts: map, slot: programs.len(), threads, cpus, is_entry };
        verdict::judge(program, &judged).map_err(|cause| too_long(plan, program, cause, ""))?;
        programs.push(Arc::clone(&program.name));
        entries.extend(is_entry.then_some(program.spec));
    }
    Ok(Some(Verdicts { map, threads, programs, entries }))
}

/// Whether a program decides about samples: `Some(false)` where only others call it by tail calls.
fn role(plan: &ObjectPlan, program: &KernelProgram) -> Option<bool> {
    let planned = plan.programs.iter().find(|planned| planned.spec == program.spec)?;
    match &planned.trigger {
        Trigger::Probe(_) => (program.attaching == Attaching::ByEvents).then_some(true),
        Trigger::Kernel { targets } if targets.is_empty() => {
            matches!(program.attach.prog_type(), Some(ProgType::Tracepoint | ProgType::Kprobe)).then_some(false)
        }
        Trigger::Kernel { targets } => targets.iter().any(decides).then_some(true),
        _ => None,
    }
}

impl Verdicts {
    /// Lets programs decide from now on: before, they return 1.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn begin(&self, loaded: &Loaded) -> Result<(), Error> {
        let Some(map) = loaded.maps.get(self.map).and_then(Option::as_ref) else { return Ok(()) };
        let mut value = vec![0; 8 + 16 * self.programs.len()];
        value[0] = 1;
        Ok(map.update(&[0; 4], &value, 0)?)
    }

    /// Whether a program is attached, and does nothing before [`Verdicts::begin`].
    pub(crate) fn begin_later(&self, program: usize) -> bool {
        self.entries.contains(&program)
    }

    /// What the programs decided, each once: the instances of one are counted together.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn decided(&self, loaded: &Loaded) -> Result<Vec<Decided>, Error> {
        let Some(map) = loaded.maps.get(self.map).and_then(Option::as_ref) else { return Ok(Vec::new()) };
        let value = map.lookup(&[0; 4])?.unwrap_or_default();
        let words: Vec<u64> =
            value.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().expect("eight bytes"))).collect();
        let mut all: Vec<Decided> = Vec::new();
        for (program, pair) in self.programs.iter().zip(words[1..].chunks_exact(2)) {
            match all.iter_mut().find(|decided| decided.program == *program) {
                Some(decided) => {
                    decided.dropped += pair[0];
                    decided.kept += pair[1];
                }
                None => all.push(Decided { program: Arc::clone(program), dropped: pair[0], kept: pair[1] }),
            }
        }
        Ok(all)
    }
}
