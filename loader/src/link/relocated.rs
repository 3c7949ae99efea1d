//! The functions of an object with their CO-RE relocations applied, before they are put together.

use std::collections::HashMap;
use std::sync::Arc;

use twinbpf_btf::core_relo::{self, CoreMiss, Resolver, Sources};
use twinbpf_btf::{Btf, CoreKind, TypeId};
use twinbpf_isa::Raw;
use twinbpf_isa::opcode::LDDW;

use crate::error::Cause;
use crate::kernel::target::Module;
use crate::object::{Object, ProgramSpec};

/// Where CO-RE finds the target's types.
pub(crate) enum CoreTypes<'t> {
    /// The object's own are the target's: nothing changes.
    Own,
    /// There are none, an error only for objects that need them.
    None,
    /// These, and where they have nothing of a name, those of the modules.
    Some(&'t Btf, Arc<str>, Box<dyn Fn() -> &'t [Module] + 't>),
}

/// A CO-RE relocation that was applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoreApplied {
    /// Index of the instruction slot.
    pub pc: usize,
    /// Kind of the relocation.
    pub kind: CoreKind,
    /// Root type, among the object's.
    pub type_id: TypeId,
    /// What the compiler put there.
    pub old: u64,
    /// What is there now; `None` if the instruction was made invalid.
    pub new: Option<u64>,
    /// Whether the target has it.
    pub found: bool,
}

/// A function with its relocations applied.
#[derive(Debug, Default)]
pub(crate) struct Relocated {
    pub(crate) insns: Vec<Raw>,
    pub(crate) applied: Vec<CoreApplied>,
    /// Instructions that were made invalid.
    pub(crate) misses: Vec<(usize, Missing)>,
    /// The first relocation that could not be applied.
    pub(crate) error: Option<(usize, Cause)>,
}

/// An instruction that was made invalid.
#[derive(Debug)]
pub(crate) struct Missing {
    /// Slots that it takes.
    pub(crate) slots: usize,
    /// Why the relocation failed.
    pub(crate) why: CoreMiss,
}

/// The functions that have relocations.
#[derive(Debug, Default)]
pub(crate) struct Functions(HashMap<usize, Relocated>);

impl Functions {
    /// Applies the relocations of some functions, in the order of the object. Types are only read where there are
    /// any: a kernel's are megabytes to be read.
    pub(crate) fn relocate<'t>(
        object: &Object,
        wanted: impl IntoIterator<Item = usize>,
        types: impl FnOnce() -> CoreTypes<'t>,
    ) -> Functions {
        let Some(btf) = object.btf.as_deref() else { return Functions::default() };
        let relocated = |index: &usize| !object.core_relocs(&object.programs[*index]).is_empty();
        let mut wanted: Vec<usize> = wanted.into_iter().filter(relocated).collect();
        if wanted.is_empty() {
            return Functions::default();
        }
        let mut resolver = match types() {
            CoreTypes::Own => return Functions::default(),
            CoreTypes::None => None,
            CoreTypes::Some(first, name, modules) => {
                let rest = Box::new(move || {
                    let modules = modules().iter();
                    modules.map(|module| (Arc::clone(&module.name), &*module.btf)).collect()
                });
                Some(Resolver::new(btf, Sources { first: (name, first), rest }))
            }
        };
        wanted.sort_by_key(|index| object.records.rank(&object.programs[*index].section));
        let mut found = HashMap::new();
        for index in wanted {
            found.insert(index, apply(object, &object.programs[index], resolver.as_mut()));
        }
        Functions(found)
    }

    /// The instructions of a function.
    pub(crate) fn insns<'a>(&'a self, index: usize, spec: &'a ProgramSpec) -> &'a [Raw] {
        self.0.get(&index).map_or(&spec.insns, |found| &found.insns)
    }

    /// What became of its relocations, if it has any.
    pub(crate) fn get(&self, index: usize) -> Option<&Relocated> {
        self.0.get(&index)
    }
}

fn apply(object: &Object, spec: &ProgramSpec, mut resolver: Option<&mut Resolver<'_, '_>>) -> Relocated {
    let mut result = Relocated { insns: spec.insns.clone(), ..Relocated::default() };
    for relo in object.core_relocs(spec) {
        let pc = (relo.insn_off as usize / 8).saturating_sub(spec.start);
        let insns = result.insns.get_mut(pc..).unwrap_or_default();
        let outcome = match &mut resolver {
            Some(resolver) => resolver.resolve(relo),
            None => {
                result.error = Some((pc, Cause::NoTypes { what: "CO-RE relocations".into() }));
                return result;
            }
        };
        let done = outcome.and_then(|outcome| Ok((core_relo::patch(insns, &outcome.change)?, outcome)));
        let (poisoned, outcome) = match done {
            Ok(done) => done,
            Err(error) => {
                result.error = Some((pc, Cause::Core(error)));
                return result;
            }
        };
        let (old, new) = outcome.change.values();
        let kind = CoreKind::new(relo.kind).expect("the resolver knew it");
        let new = new.filter(|_| !poisoned);
        result.applied.push(CoreApplied { pc, kind, type_id: relo.type_id, old, new, found: outcome.found });
        if poisoned {
            let of_size = || CoreMiss::of_size(kind, outcome.local, outcome.change.sizes());
            let slots = if spec.insns.get(pc).is_some_and(|insn| insn.opcode == LDDW) { 2 } else { 1 };
            result.misses.push((pc, Missing { slots, why: outcome.miss.unwrap_or_else(of_size) }));
        }
    }
    result
}
