//! The start flag of a session: a word in a map, which programs that only observe read first. They are attached before BEGIN
//! runs, and return at once while it is 0: what the kernel refuses is known in time, and all begin and end at one moment.

use std::collections::{BTreeMap, BTreeSet};

use twinbpf_isa::SpliceError;
use twinbpf_kernel::Loaded;
use twinbpf_loader::kernel::{Fixup, KernelLinked, KernelProgram};
use twinbpf_loader::section::{AttachType, ProgType, SectionKind};
use twinbpf_vm::map::{MapKind, MapSpec};

use crate::code::code;
use crate::error::Error;

/// Name of the map with the word that programs read.
const NAME: &str = "twinbpf_started";

/// See the module documentation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StartFlag {
    /// Index of the map.
    map: usize,
    /// The programs that read it, by index in the object.
    programs: BTreeSet<usize>,
}

impl StartFlag {
    /// Adds it to every program of `attached` that only observes. `None`: there is none. The value of `attached` says
    /// what a program returns: where it is `true`, all that watch an event get its samples only if that is not 0.
    ///
    /// # Errors
    /// A program is too long for it; some programs may have been changed.
    pub(crate) fn add(
        linked: &mut KernelLinked,
        attached: &BTreeMap<usize, bool>,
    ) -> Result<Option<StartFlag>, SpliceError> {
        let map = linked.maps.len();
        let mut programs = BTreeSet::new();
        for program in &mut linked.programs {
            let Some(result) =
                attached.get(&program.spec).filter(|_| observes(program)).map(|shared| i32::from(*shared))
            else {
                continue;
            };
            let text = format!(
                "r0 = map_value({map}, 0) ll\nr0 = *(u64 *)(r0 + 0)\nif r0 != 0 goto +2\nr0 = {result}\nexit\n"
            );
            program.splice(0, 0, &code(&text))?;
            program.fixups.insert(0, Fixup::MapValue(map));
            programs.insert(program.spec);
        }
        if programs.is_empty() {
            return Ok(None);
        }
        linked.add_map(MapSpec::new(NAME, MapKind::Array, 4, 8, 1));
        Ok(Some(StartFlag { map, programs }))
    }

    /// Whether all instances of a program read it.
    pub(crate) fn is_read_by(&self, program: usize) -> bool {
        self.programs.contains(&program)
    }

    /// Lets programs run from now on, or no longer.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn set(&self, loaded: &Loaded, started: bool) -> Result<(), Error> {
        let Some(map) = loaded.maps.get(self.map).and_then(Option::as_ref) else { return Ok(()) };
        Ok(map.update(&[0; 4], &u64::from(started).to_ne_bytes(), 0)?)
    }
}

/// Whether nothing but its own effects makes a difference: the kernel does what it does, whatever the program returns.
fn observes(program: &KernelProgram) -> bool {
    let attach = match &program.attach.kind {
        SectionKind::Known { row, .. } => row.attach,
        _ => None,
    };
    match program.attach.prog_type() {
        Some(ProgType::Tracepoint | ProgType::Kprobe | ProgType::RawTracepoint | ProgType::RawTracepointWritable) => {
            true
        }
        Some(ProgType::Tracing) => matches!(
            attach,
            Some(
                AttachType::TraceRawTp
                    | AttachType::TraceFentry
                    | AttachType::TraceFexit
                    | AttachType::TraceFentryMulti
                    | AttachType::TraceFexitMulti
            )
        ),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use twinbpf_loader::section::Attach;

    use super::*;

    fn program(spec: usize, section: &str) -> KernelProgram {
        let names: [Arc<str>; 2] = ["f".into(), section.into()];
        let mut program = KernelProgram::new(spec, names.each_ref(), Attach::parse(section));
        program.set_insns(code("r0 = 7\nexit\n"));
        program.functions = vec![(0, names[0].clone())];
        program
    }

    fn linked(sections: &[&str]) -> KernelLinked {
        let mut linked = KernelLinked::default();
        linked.programs = sections.iter().enumerate().map(|(spec, section)| program(spec, section)).collect();
        linked
    }

    #[test]
    fn programs_that_only_observe_read_it() {
        let sections = ["tp/a/b", "xdp", "fentry/f", "fmod_ret/f", "perf_event", "uprobe", "raw_tp/a", "kprobe/f"];
        let mut linked = linked(&sections);
        // The last one is not attached.
        let attached = (0..7).map(|spec| (spec, spec == 0)).collect();
        let flag = StartFlag::add(&mut linked, &attached).unwrap().unwrap();
        let readers: Vec<usize> = (0..sections.len()).filter(|spec| flag.is_read_by(*spec)).collect();
        assert_eq!((readers, linked.maps.len()), (vec![0, 2, 5, 6], 1));
        for program in &linked.programs {
            let result = flag.is_read_by(program.spec).then_some(i32::from(program.spec == 0));
            let head = |result: i32| {
                format!("r0 = map_value(0, 0) ll\nr0 = *(u64 *)(r0 + 0)\nif r0 != 0 goto +2\nr0 = {result}\nexit\n")
            };
            let head = result.map(head).unwrap_or_default();
            assert_eq!(program.insns, code(&format!("{head}r0 = 7\nexit\n")), "{}", program.section);
            assert_eq!(program.fixups.get(&0), result.map(|_| &Fixup::MapValue(0)));
        }
    }

    #[test]
    fn no_observer_needs_no_flag() {
        let mut linked = linked(&["xdp"]);
        assert_eq!(StartFlag::add(&mut linked, &BTreeMap::from([(0, false)])), Ok(None));
        assert!(linked.maps.is_empty());
    }
}
