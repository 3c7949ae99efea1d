//! Whether two types are the same for `bpf_core_type_matches`: the deep rules, member by member.

use super::compat::Pair;
use super::error::CoreError;
use super::{Budget, MAX_LEVEL};
use crate::{Composite, Enum, Type, essential_name};

/// Whether every member, constant and parameter of the local type has its like in the target type
/// (`__bpf_core_types_match`).
pub(super) fn types_match(pair: Pair<'_>, budget: &mut Budget) -> Result<bool, CoreError> {
    matches(pair, false, budget, MAX_LEVEL)
}

fn matches(
    ((local, local_id), (target, target_id)): Pair<'_>,
    behind_pointer: bool,
    budget: &mut Budget,
    level: u32,
) -> Result<bool, CoreError> {
    if level == 0 {
        return Err(CoreError::Depth);
    }
    let (mut local_id, mut target_id, mut behind_pointer) = (local_id, target_id, behind_pointer);
    for _ in 0..MAX_LEVEL {
        budget.spend(1)?;
        let (local_at, ours) = local.resolve(local_id)?;
        let (target_at, theirs) = target.resolve(target_id)?;
        if !names_match(local.name(local_at), target.name(target_at)) {
            return Ok(false);
        }
        match (ours, theirs) {
            (Type::Void, Type::Void) => return Ok(true),
            (Type::Fwd { is_union: mine }, Type::Fwd { is_union: other }) => return Ok(mine == other),
            (Type::Fwd { is_union }, Type::Struct(_)) => return Ok(behind_pointer && !is_union),
            (Type::Fwd { is_union }, Type::Union(_)) => return Ok(behind_pointer && is_union),
            (Type::Enum(mine) | Type::Enum64(mine), Type::Enum(other) | Type::Enum64(other)) => {
                return enums_match(mine, other, budget);
            }
            (Type::Struct(_), Type::Struct(_)) | (Type::Union(_), Type::Union(_)) if behind_pointer => {
                return Ok(true);
            }
            (Type::Struct(_), Type::Fwd { is_union }) => return Ok(behind_pointer && !is_union),
            (Type::Union(_), Type::Fwd { is_union }) => return Ok(behind_pointer && is_union),
            (Type::Struct(mine), Type::Struct(other)) | (Type::Union(mine), Type::Union(other)) => {
                return members_match(mine, other, budget, level);
            }
            (Type::Int(mine), Type::Int(other)) => {
                return Ok(mine.size == other.size && mine.signed == other.signed);
            }
            (Type::Ptr(mine), Type::Ptr(other)) => {
                behind_pointer = true;
                (local_id, target_id) = (mine, other);
            }
            (Type::Array(mine), Type::Array(other)) if mine.len == other.len => {
                (local_id, target_id) = (mine.elem, other.elem);
            }
            (Type::FuncProto(mine), Type::FuncProto(other)) => {
                if mine.all_params().len() != other.all_params().len() {
                    return Ok(false);
                }
                for (mine, other) in mine.all_params().zip(other.all_params()) {
                    let pair = ((local, mine.type_id), (target, other.type_id));
                    if !matches(pair, behind_pointer, budget, level - 1)? {
                        return Ok(false);
                    }
                }
                (local_id, target_id) = (mine.result, other.result);
            }
            _ => return Ok(false),
        }
    }
    Err(CoreError::Depth)
}

fn members_match(
    mine: Composite<'_>,
    other: Composite<'_>,
    budget: &mut Budget,
    level: u32,
) -> Result<bool, CoreError> {
    if mine.len() > other.len() {
        return Ok(false);
    }
    for member in mine.members() {
        let mut found = false;
        for like in other.members() {
            budget.spend(1)?;
            let pair = ((mine.btf(), member.type_id), (other.btf(), like.type_id));
            if names_match(member.name, like.name) && matches(pair, false, budget, level - 1)? {
                found = true;
                break;
            }
        }
        if !found {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Constants count by name, their values do not.
fn enums_match(mine: Enum<'_>, other: Enum<'_>, budget: &mut Budget) -> Result<bool, CoreError> {
    if mine.size != other.size || mine.len() > other.len() {
        return Ok(false);
    }
    for constant in mine.enumerators() {
        budget.spend(other.len())?;
        if !other.enumerators().any(|like| names_match(constant.name, like.name)) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether names are the same but for their flavours (`bpf_core_names_match`).
fn names_match(local: &str, target: &str) -> bool {
    essential_name(local) == essential_name(target)
}
