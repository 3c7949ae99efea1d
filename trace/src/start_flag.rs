//! The start flag of a session: a word in a map, which programs read first. They are attached before BEGIN runs. While the word
//! is 0 they return at once what lets the kernel go on as if they were not attached: what it refuses is known in time, and all
//! begin and end at one moment.

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
    /// Adds it to every program of `attached` with a [neutral](neutral_result) result. `None`: there is none. Where the value
    /// in `attached` is `true`, all that watch an event get its samples only if the program does not return 0.
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
            let Some((shared, neutral)) = attached.get(&program.spec).zip(neutral_result(program)) else { continue };
            let result = if *shared { 1 } else { neutral };
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

/// The result with which the kernel goes on as if the program were not attached (`include/uapi/linux/bpf.h`). None for security
/// hooks, whose result without a program differs from hook to hook, socket options, which old kernels refuse above a
/// page if any program is attached, and what replaces a function.
fn neutral_result(program: &KernelProgram) -> Option<i32> {
    const XDP_PASS: i32 = 2;
    // Also `TC_ACT_UNSPEC` and `NETKIT_NEXT`: the next program decides.
    const TCX_NEXT: i32 = -1;
    const SK_PASS: i32 = 1;
    const NF_ACCEPT: i32 = 1;
    const ALLOWED_BY_CGROUP: i32 = 1;
    let SectionKind::Known { row, .. } = &program.attach.kind else { return None };
    Some(match row.prog {
        ProgType::Tracepoint | ProgType::Kprobe | ProgType::RawTracepoint | ProgType::RawTracepointWritable => 0,
        ProgType::Tracing => match row.attach? {
            // A modified function runs if the result is 0.
            AttachType::TraceRawTp
            | AttachType::TraceFentry
            | AttachType::TraceFexit
            | AttachType::TraceFentryMulti
            | AttachType::TraceFexitMulti
            | AttachType::ModifyReturn => 0,
            _ => return None,
        },
        ProgType::Xdp => XDP_PASS,
        ProgType::SchedCls => TCX_NEXT,
        ProgType::SkLookup => SK_PASS,
        ProgType::Netfilter => NF_ACCEPT,
        ProgType::CgroupSkb
        | ProgType::CgroupSock
        | ProgType::CgroupSockAddr
        | ProgType::CgroupDevice
        | ProgType::CgroupSysctl
        | ProgType::SockOps => ALLOWED_BY_CGROUP,
        _ => return None,
    })
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
    fn programs_with_a_neutral_result_read_it() {
        let sections = [
            ("tp/a/b", Some(1)),
            ("xdp", Some(2)),
            ("fentry/f", Some(0)),
            ("fmod_ret/f", Some(0)),
            ("lsm/file_open", None),
            ("perf_event", None),
            ("uprobe", Some(0)),
            ("raw_tp/a", Some(0)),
            ("tcx/egress", Some(-1)),
            ("cgroup/connect4", Some(1)),
            ("cgroup/setsockopt", None),
            ("netfilter", Some(1)),
            // Not attached.
            ("kprobe/f", None),
        ];
        let mut linked = linked(&sections.map(|(section, _)| section));
        let attached = (0..sections.len() - 1).map(|spec| (spec, spec == 0)).collect();
        let flag = StartFlag::add(&mut linked, &attached).unwrap().unwrap();
        assert_eq!(linked.maps.len(), 1);
        for (program, (section, result)) in linked.programs.iter().zip(sections) {
            let head = |result: i32| {
                format!("r0 = map_value(0, 0) ll\nr0 = *(u64 *)(r0 + 0)\nif r0 != 0 goto +2\nr0 = {result}\nexit\n")
            };
            let head = result.map(head).unwrap_or_default();
            assert_eq!(program.insns, code(&format!("{head}r0 = 7\nexit\n")), "{section}");
            assert_eq!(program.fixups.get(&0), result.map(|_| &Fixup::MapValue(0)), "{section}");
            assert_eq!(flag.is_read_by(program.spec), result.is_some(), "{section}");
        }
    }

    #[test]
    fn none_that_reads_it_needs_no_flag() {
        let mut linked = linked(&["lsm/file_open"]);
        assert_eq!(StartFlag::add(&mut linked, &BTreeMap::from([(0, false)])), Ok(None));
        assert!(linked.maps.is_empty());
    }
}
