//! Programs of tracepoints whose arguments are a struct by `TP` or `SYSCALL` of `<twinbpf/trace.h>`: it was made from the
//! records of the kernel where the object was compiled. Another kernel may have other records. Where its types do not have
//! them, so that CO-RE cannot move what a program reads, the two are compared.

use std::collections::BTreeMap;
use std::ops::Range;

use twinbpf_btf::{Btf, Type};
use twinbpf_kernel::{Target, catalog};
use twinbpf_loader::{Object, ProgramSpec};

use crate::error::Error;
use crate::plan::{ObjectPlan, Planned, wrong};

/// A member of such a struct, with its bytes.
type Member<'a> = (&'a str, Range<usize>);

/// The programs that would read other bytes than those of their arguments.
pub(crate) fn mismatches(plan: &ObjectPlan) -> Vec<Error> {
    let of = |planned: &Planned| {
        let spec = plan.spec(planned);
        let (tag, members) = arguments(&plan.object, spec)?;
        let why = planned.trigger.attachments(0).find_map(|(target, _)| {
            let Target::Tracepoint { category, name } = target else { return None };
            // Attaching reads the same folder, and says what is wrong with it.
            let actual = catalog::event_members(category, name).ok()?;
            let difference = difference(&members, &actual)?;
            Some(format!(
                "its struct {tag} has {difference} in records of {category}:{name} on this kernel: compile the source on \
                 this machine, for that event"
            ))
        });
        why.map(|why| wrong(&plan.object, spec, why))
    };
    plan.programs.iter().filter_map(of).collect()
}

/// Name and members of the struct that a program's argument points to.
fn arguments<'a>(object: &'a Object, spec: &ProgramSpec) -> Option<(&'a str, Vec<Member<'a>>)> {
    let btf: &Btf = object.btf.as_deref()?;
    let Type::Func { proto, .. } = btf.type_by_id(object.func_type(spec)?)? else { return None };
    let Type::FuncProto(proto) = btf.type_by_id(proto)? else { return None };
    let Type::Ptr(to) = btf.resolve(proto.params().next()?.type_id).ok()?.1 else { return None };
    let (id, Type::Struct(found)) = btf.resolve(to).ok()? else { return None };
    let tag = Some(btf.name(id)).filter(|tag| tag.starts_with("tp_"))?;
    let members = found.members().filter(|member| !member.name.starts_with("__pad_")).map(|member| {
        let start = member.bit_offset as usize / 8;
        (member.name, start..start + btf.size_of(member.type_id).map_or(0, |size| size as usize))
    });
    Some((tag, members.collect()))
}

/// The first member that a record has elsewhere or not at all.
fn difference(members: &[Member<'_>], actual: &BTreeMap<String, Range<usize>>) -> Option<String> {
    let bytes = |range: &Range<usize>| format!("{} bytes at offset {}", range.len(), range.start);
    members.iter().find_map(|(name, expected)| match actual.get(*name) {
        Some(found) if found == expected => None,
        Some(found) => Some(format!("{} for {name}, which has {}", bytes(expected), bytes(found))),
        None => Some(format!("{} for {name}, which is not", bytes(expected))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_elsewhere_are_differences() {
        let actual = BTreeMap::from([("common_pid".to_owned(), 4..8), ("prev_comm".to_owned(), 8..24)]);
        let difference = |members: &[Member<'_>]| difference(members, &actual);
        assert_eq!(difference(&[("common_pid", 4..8), ("prev_comm", 8..24)]), None);
        assert_eq!(
            difference(&[("common_pid", 4..8), ("prev_comm", 12..28)]).as_deref(),
            Some("16 bytes at offset 12 for prev_comm, which has 16 bytes at offset 8")
        );
        let missing = difference(&[("prev_prio", 24..28)]);
        assert_eq!(missing.as_deref(), Some("4 bytes at offset 24 for prev_prio, which is not"));
    }
}
