//! Finds a local type, field or constant in a type of the target (`bpf_core_spec_match`).

use super::compat::{fields_are_compatible, types_are_compatible};
use super::error::{CoreError, Mismatch};
use super::matching::types_match;
use super::spec::{Spec, Step, Subject, subject};
use super::{Budget, MAX_LEVEL, MAX_PATH};
use crate::{Btf, CoreKind, Type, TypeId, essential_name};

/// The place in the target, or why there is none.
type Found<T> = Result<Result<T, Mismatch>, CoreError>;

/// Finds what the local access `local` refers to in the type `id` of the target.
pub(super) fn find<'t>(local: &Spec<'_>, target: &'t Btf, id: TypeId, budget: &mut Budget) -> Found<Spec<'t>> {
    let mut spec = Spec::new(target, local.kind, id);
    budget.spend(1)?;
    match subject(local.kind) {
        Subject::Type => {
            let pair = ((local.btf, local.root), (target, id));
            let same = match local.kind {
                CoreKind::TypeMatches => types_match(pair, budget)?,
                _ => types_are_compatible(pair, budget)?,
            };
            Ok(if same { Ok(spec) } else { Err(Mismatch::Type { found: target.type_name(id) }) })
        }
        Subject::Constant => Ok(constant(local, &mut spec, budget)?.map(|()| spec)),
        Subject::Field => Ok(field(local, &mut spec, budget)?.map(|()| spec)),
    }
}

fn constant(local: &Spec<'_>, spec: &mut Spec<'_>, budget: &mut Budget) -> Found<()> {
    let btf = spec.btf;
    let name = local.steps.first().and_then(|step| step.name).unwrap_or("");
    let (id, Type::Enum(found) | Type::Enum64(found)) = btf.resolve(spec.root)? else {
        return Ok(Err(Mismatch::NotEnum { found: btf.type_name(spec.root) }));
    };
    budget.spend(found.len())?;
    for (index, constant) in found.enumerators().enumerate() {
        if essential_name(constant.name) == essential_name(name) {
            let index = index as u32;
            spec.steps.push(Step { type_id: id, index, name: Some(constant.name) });
            spec.raw.push(index);
            return Ok(Ok(()));
        }
    }
    Ok(Err(Mismatch::NoConstant { within: btf.type_name(spec.root), name: name.to_owned() }))
}

fn field(local: &Spec<'_>, spec: &mut Spec<'_>, budget: &mut Budget) -> Found<()> {
    let btf = spec.btf;
    let mut at = spec.root;
    for (level, step) in local.steps.iter().enumerate() {
        let (id, found) = btf.resolve(at)?;
        if let Some(name) = step.name {
            let Some(Type::Struct(of) | Type::Union(of)) = local.btf.type_by_id(step.type_id) else {
                return Err(CoreError::Depth);
            };
            let member_type = of.member(step.index as usize).map_or(TypeId::VOID, |member| member.type_id);
            let wanted = Wanted { name, btf: local.btf, type_id: member_type };
            match wanted.search(spec, id, budget, MAX_LEVEL)? {
                Search::Found(next) => at = next,
                Search::Other(target) => {
                    let (local, target) = (local.btf.type_name(member_type), btf.type_name(target));
                    return Ok(Err(Mismatch::MemberType { member: name.to_owned(), local, target }));
                }
                Search::Absent => {
                    let (within, member) = (btf.type_name(id), name.to_owned());
                    return Ok(Err(match found {
                        Type::Struct(_) | Type::Union(_) => Mismatch::NoMember { within, member },
                        _ => Mismatch::NoMembers { within, member },
                    }));
                }
            }
            continue;
        }
        // The root is an element of an array already; further down there must be one.
        at = match found {
            _ if level == 0 => id,
            Type::Array(array) => {
                if step.index >= array.len && !spec.is_flexible(&array) {
                    return Ok(Err(Mismatch::TooShort { found: btf.type_name(id), index: step.index }));
                }
                btf.resolve(array.elem)?.0
            }
            _ => return Ok(Err(Mismatch::NotArray { found: btf.type_name(id) })),
        };
        push_index(spec, step.index)?;
        spec.steps.push(Step { type_id: at, index: step.index, name: None });
        spec.add_elements(step.index, at)?;
    }
    Ok(Ok(()))
}

fn push_index(spec: &mut Spec<'_>, index: u32) -> Result<(), CoreError> {
    if spec.raw.len() == MAX_PATH {
        return Err(CoreError::Depth);
    }
    spec.raw.push(index);
    Ok(())
}

/// A member of the object's type.
struct Wanted<'a> {
    name: &'a str,
    btf: &'a Btf,
    type_id: TypeId,
}

enum Search {
    /// The type of the member.
    Found(TypeId),
    /// There is one of another type.
    Other(TypeId),
    Absent,
}

impl Wanted<'_> {
    /// Searches all members of a type, and those of its anonymous members (`bpf_core_match_member`).
    fn search(&self, spec: &mut Spec<'_>, id: TypeId, budget: &mut Budget, level: u32) -> Result<Search, CoreError> {
        let btf = spec.btf;
        let level = level.checked_sub(1).ok_or(CoreError::Depth)?;
        let (id, Type::Struct(of) | Type::Union(of)) = btf.resolve(id)? else { return Ok(Search::Absent) };
        budget.spend(of.len())?;
        for (index, member) in of.members().enumerate() {
            if !member.name.is_empty() && member.name != self.name {
                continue;
            }
            let before = spec.bit_offset;
            spec.bit_offset += u64::from(member.bit_offset);
            push_index(spec, index as u32)?;
            if member.name.is_empty() {
                match self.search(spec, member.type_id, budget, level)? {
                    Search::Absent => {}
                    other => return Ok(other),
                }
            } else {
                let pair = ((self.btf, self.type_id), (btf, member.type_id));
                if !fields_are_compatible(pair)? {
                    return Ok(Search::Other(member.type_id));
                }
                spec.steps.push(Step { type_id: id, index: index as u32, name: Some(member.name) });
                return Ok(Search::Found(member.type_id));
            }
            spec.bit_offset = before;
            spec.raw.pop();
        }
        Ok(Search::Absent)
    }
}
