//! What scripts read of samples. The rest is not made: the name of a thread, for one, is a search of perf's for each sample.

use std::ops::Range;

use twinbpf::Object;
use twinbpf_loader::section::{Script, SectionKind};

use crate::functions;
use crate::sample::{Needs, members};

/// As of a script of which nothing is known.
const ALL: Needs = Needs { event: true, raw: true, chain: true, branches: true, comm: true, numbers: true };

impl Needs {
    /// What any program of these objects reads.
    pub(crate) fn of(objects: &[Object]) -> Needs {
        objects.iter().map(Needs::of_object).fold(Needs::default(), Needs::or)
    }

    fn of_object(object: &Object) -> Needs {
        let calls = |names: &[&str]| object.externs.iter().any(|symbol| names.contains(&&*symbol.name));
        let called = Needs { raw: calls(&functions::BY_NAME), chain: calls(&functions::OF_CHAINS), ..Needs::default() };
        let gets_samples =
            |kind: &SectionKind| matches!(kind, SectionKind::Script(Script::Event { .. } | Script::Early { .. }));
        let programs = object.programs.iter().filter(|spec| gets_samples(&spec.attach.kind));
        let read = programs.map(|spec| spec.context_reads().map_or(ALL, |reads| Needs::of_reads(&reads)));
        read.fold(called, Needs::or)
    }

    fn of_reads(reads: &[Range<i32>]) -> Needs {
        let reads_of = |member: Range<usize>| {
            let (start, end) = (member.start as i32, member.end as i32);
            reads.iter().any(|read| read.start < end && start < read.end)
        };
        Needs {
            event: reads_of(members::EVENT),
            raw: reads_of(members::RAW),
            chain: reads_of(members::CALLCHAIN) || reads_of(members::CALLCHAIN_NR),
            branches: reads_of(members::BRANCHES),
            comm: reads_of(members::COMM),
            numbers: reads.iter().any(|read| {
                !members::MADE.iter().any(|made| made.start as i32 <= read.start && read.end <= made.end as i32)
            }),
        }
    }

    fn or(self, other: Needs) -> Needs {
        Needs {
            event: self.event | other.event,
            raw: self.raw | other.raw,
            chain: self.chain | other.chain,
            branches: self.branches | other.branches,
            comm: self.comm | other.comm,
            numbers: self.numbers | other.numbers,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Needs;

    #[test]
    fn members_are_needed_where_a_byte_of_them_is_read() {
        let none = Needs::default();
        assert_eq!(Needs::of_reads(&[]), none);
        let numbers = Needs { numbers: true, ..none };
        assert_eq!(Needs::of_reads(&[8..16, 32..36]), Needs { raw: true, ..numbers });
        assert_eq!(Needs::of_reads(&[70..71, 23..24]), Needs { comm: true, chain: true, ..none });
        assert_eq!(Needs::of_reads(&[72..80, -8..0, 40..56]), numbers);
        assert_eq!(Needs::of_reads(&[56..72, 56..57]), Needs { comm: true, ..none });
        assert_eq!(Needs::of_reads(&[56..80, 0..0]), Needs { comm: true, ..numbers });
        assert_eq!(Needs::of_reads(&[36..40, 200..204]), Needs { chain: true, ..numbers });
        assert_eq!(Needs::of_reads(&[0..1, 31..32]), Needs { event: true, branches: true, ..none });
    }
}
