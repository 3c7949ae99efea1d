//! `exception_callback:NAME` tags of programs: libbpf's `bpf_prog_assign_exc_cb`, with its words.
//!
//! Nothing calls the function that handles `bpf_throw`: the tag alone makes it part of the program, after everything
//! that is called.

use twinbpf_btf::{Btf, Linkage, Type};

use crate::error::Cause;
use crate::object::{Object, ProgramSpec};

const PREFIX: &str = "exception_callback:";

/// Index of the function that handles the exceptions of a program, if a tag names one.
pub(super) fn callback(object: &Object, program: &ProgramSpec) -> Result<Option<usize>, Cause> {
    let Some(btf) = object.btf.as_deref() else { return Ok(None) };
    let fail = |why: String| Err(Cause::Libbpf(why));
    let mut found = None;
    for (name, target) in tags(btf) {
        let (Some(Type::Func { linkage: Linkage::Global, .. }), owner) = (btf.type_by_id(target), btf.name(target))
        else {
            return fail("exception_callback:<value> decl tag not applied to the main program".into());
        };
        if *owner != *program.name {
            continue;
        }
        // Of several the verifier sees the tags, and refuses them.
        if found.is_some() {
            return Ok(None);
        }
        if name.is_empty() {
            return fail("exception_callback:<value> decl tag contains empty value".into());
        }
        let is_it = |(_, spec): &(usize, &ProgramSpec)| *spec.name == *name && spec.section.starts_with(".text");
        let Some((index, spec)) = object.programs.iter().enumerate().find(is_it) else {
            return fail(format!("cannot find exception callback '{name}'"));
        };
        if !spec.global || spec.hidden {
            return fail(format!("exception callback {name} must be a global non-hidden function"));
        }
        found = Some(index);
    }
    Ok(found)
}

/// The names after the prefix, and what they are tags of; of parameters and members there are none.
fn tags(btf: &Btf) -> impl Iterator<Item = (&str, twinbpf_btf::TypeId)> {
    btf.ids().filter_map(|id| match btf.type_by_id(id) {
        Some(Type::DeclTag { target, component: -1 }) => Some((btf.name(id).strip_prefix(PREFIX)?, target)),
        _ => None,
    })
}
