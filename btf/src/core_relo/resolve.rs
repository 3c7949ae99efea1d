//! Which types of the target a relocation may mean, and whether they agree (`bpf_core_calc_relo_insn`).

use std::collections::HashMap;
use std::sync::Arc;

use super::Budget;
use super::error::{CoreCandidate, CoreError, CoreMiss, Mismatch};
use super::find::find;
use super::spec::Spec;
use super::value::{Change, change};
use crate::{Btf, CoreKind, CoreRelo, TypeId};

/// The types of a kernel or module, with its name.
pub type Named<'t> = (Arc<str>, &'t Btf);

/// The target's types. The later ones are searched only where the first has nothing of the name.
pub struct Sources<'t> {
    /// The kernel, and its name in messages.
    pub first: Named<'t>,
    /// Modules, read once something needs them.
    pub rest: Box<dyn Fn() -> Vec<Named<'t>> + 't>,
}

/// Answers the relocations of one object.
pub struct Resolver<'o, 't> {
    local: &'o Btf,
    sources: Sources<'t>,
    rest: Option<Vec<Named<'t>>>,
    /// The candidates of a root type; those that once did not match are out, as in libbpf.
    candidates: HashMap<TypeId, Vec<Candidate<'t>>>,
    budget: Budget,
}

#[derive(Clone)]
struct Candidate<'t> {
    name: Arc<str>,
    btf: &'t Btf,
    id: TypeId,
}

/// What a relocation does to its instruction.
pub struct Outcome {
    /// The old value and the new.
    pub change: Change,
    /// The type was found. Where it was not, `change` may still have an answer (it does not exist).
    pub found: bool,
    /// Description of the relocation, where instructions may be made invalid for it.
    pub local: String,
    /// Why each candidate will not do, where none does.
    pub miss: Option<CoreMiss>,
}

impl<'o, 't> Resolver<'o, 't> {
    /// For relocations of an object with the types `local`.
    pub fn new(local: &'o Btf, sources: Sources<'t>) -> Resolver<'o, 't> {
        Resolver { local, sources, rest: None, candidates: HashMap::new(), budget: Budget::default() }
    }

    /// What one relocation does to its instruction.
    pub fn resolve(&mut self, relo: &CoreRelo) -> Result<Outcome, CoreError> {
        let local = Spec::parse(self.local, relo, &mut self.budget)?;
        if local.kind == CoreKind::TypeIdLocal {
            return Ok(Outcome {
                change: Change::to(local.root.0.into()),
                found: true,
                local: String::new(),
                miss: None,
            });
        }
        if self.local.name(local.root).is_empty() {
            return Err(CoreError::Anonymous { kind: local.kind.name() });
        }
        let mut candidates = match self.candidates.remove(&local.root) {
            Some(candidates) => candidates,
            None => self.search(local.root),
        };
        let result = self.agree(&local, &mut candidates);
        self.candidates.insert(local.root, candidates);
        result
    }

    /// The one change on which all matching candidates agree.
    fn agree(&mut self, local: &Spec<'_>, candidates: &mut Vec<Candidate<'t>>) -> Result<Outcome, CoreError> {
        let mut agreed: Option<(u64, Change)> = None;
        let mut matching = Vec::new();
        let mut misfits = Vec::new();
        for candidate in candidates.iter() {
            let spec = match find(local, candidate.btf, candidate.id, &mut self.budget)? {
                Ok(spec) => spec,
                Err(why) => {
                    misfits.push(candidate.misfit(why));
                    continue;
                }
            };
            let found = change(local, Some(&spec))?;
            if found.new.is_none() {
                misfits.push(candidate.misfit(Mismatch::NoValue));
            }
            match agreed {
                None => agreed = Some((spec.bit_offset, found)),
                Some((first, _)) if first != spec.bit_offset => {
                    return Err(CoreError::OffsetAmbiguous { spec: local.to_string(), first, second: spec.bit_offset });
                }
                Some((_, first)) if first.new != found.new => {
                    let word = |new: Option<u64>| new.map_or("nothing".to_owned(), |value| value.to_string());
                    let (first, second) = (word(first.new), word(found.new));
                    return Err(CoreError::ValueAmbiguous { spec: local.to_string(), first, second });
                }
                Some(_) => {}
            }
            matching.push(candidate.clone());
        }
        let found = agreed.is_some();
        let change = match agreed {
            Some((_, change)) => change,
            None => change(local, None)?,
        };
        let miss = (!found || change.new.is_none()).then(|| {
            let candidates = misfits;
            CoreMiss { kind: local.kind, local: local.to_string(), candidates, sizes: None }
        });
        if found {
            *candidates = matching;
        }
        let local = if change.bad_size { local.to_string() } else { String::new() };
        Ok(Outcome { change, found, local, miss })
    }

    fn search(&mut self, root: TypeId) -> Vec<Candidate<'t>> {
        let (name, kind) = (self.local.name(root), self.local.kind_of(root));
        let in_one = |source: &Named<'t>| {
            let (name_of, btf) = (source.0.clone(), source.1);
            let ids = btf.core_candidates(name, kind);
            ids.map(|id| Candidate { name: name_of.clone(), btf, id }).collect::<Vec<_>>()
        };
        let found = in_one(&self.sources.first);
        if !found.is_empty() {
            return found;
        }
        let rest = self.rest.get_or_insert_with(|| (self.sources.rest)());
        rest.iter().flat_map(in_one).collect()
    }
}

impl Candidate<'_> {
    fn misfit(&self, why: Mismatch) -> CoreCandidate {
        CoreCandidate { btf: self.name.clone(), id: self.id, name: self.btf.type_name(self.id), why }
    }
}
