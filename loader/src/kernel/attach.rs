//! What a program attaches to, for kinds that the kernel must know it of at load (`libbpf_find_attach_btf_id`).

use std::sync::Arc;

use twinbpf_btf::{Btf, Type, TypeId};

use super::{AttachBtf, AttachTarget, Kernel};
use crate::error::Cause;
use crate::section::{Attach, AttachType, Flag, ProgType, Row, SectionKind};

/// The target that the section's name or `given` says; `None` for kinds of programs without one.
pub(super) fn target(
    attach: &Attach,
    given: Option<&Arc<str>>,
    kernel: &dyn Kernel,
) -> Result<Option<AttachTarget>, Cause> {
    let SectionKind::Known { row, target, .. } = &attach.kind else { return Ok(None) };
    if !row.has(Flag::AttachBtf) {
        return Ok(None);
    }
    let fail = |name: &str, why: &str| Err(Cause::AttachTarget { name: name.into(), why: why.to_owned() });
    let Some(target) = given.or(target.as_ref()) else {
        return fail("", "neither the section nor the options name one");
    };
    if row.prog == ProgType::Ext {
        return Ok(Some(AttachTarget { name: target.clone(), btf: AttachBtf::Program }));
    }
    let (module, name) = match target.split_once(':') {
        Some((module, name)) => (Some(module), name),
        None => (None, &**target),
    };
    let Some(btf) = kernel.btf() else {
        return Err(Cause::NoTypes { what: format!("programs of section kind '{}'", row.pattern) });
    };
    let found = |btf| Ok(Some(AttachTarget { name: name.into(), btf }));
    if module.is_none_or(|module| module == "vmlinux")
        && let Some(id) = lookup(btf, row, name)
    {
        return found(AttachBtf::Kernel(id));
    }
    // libbpf takes a prefix of a module's name for the module.
    let modules = kernel.modules().iter().filter(|of| module.is_none_or(|module| of.name.starts_with(module)));
    for of in modules {
        if let Some(id) = lookup(&of.btf, row, name) {
            return found(AttachBtf::Module { module: of.name.clone(), id });
        }
    }
    let (prefix, kind) = naming(row);
    let kind = if kind == Naming::Typedef { "typedef" } else { "function" };
    fail(target, &format!("the kernel and its modules have no {kind} '{prefix}{name}'"))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Naming {
    Function,
    Typedef,
}

/// Prefix of the kernel's BTF types for a kind of attachment (`bpf_lsm_`, `btf_trace_`, ...).
fn naming(row: &Row) -> (&'static str, Naming) {
    match row.attach {
        Some(AttachType::TraceRawTp) => ("btf_trace_", Naming::Typedef),
        Some(AttachType::LsmMac | AttachType::LsmCgroup) => ("bpf_lsm_", Naming::Function),
        Some(AttachType::TraceIter) => ("bpf_iter_", Naming::Function),
        _ => ("", Naming::Function),
    }
}

fn lookup(btf: &Btf, row: &Row, name: &str) -> Option<TypeId> {
    let (prefix, kind) = naming(row);
    let name = format!("{prefix}{name}");
    match kind {
        Naming::Function => btf.func(&name),
        Naming::Typedef => btf.find(&name, |found| matches!(found, Type::Typedef(_))),
    }
}
