//! Whether two types are near enough to stand for each other: the loose rules, by kind.

use super::error::CoreError;
use super::{Budget, MAX_LEVEL};
use crate::{Btf, Type, TypeId, essential_name};

/// Two types in two sets: local first.
pub type Pair<'a> = ((&'a Btf, TypeId), (&'a Btf, TypeId));

/// Whether a field of the target type may stand for one of the local type (`bpf_core_fields_are_compat`).
pub(super) fn fields_are_compatible(((local, local_id), (target, target_id)): Pair<'_>) -> Result<bool, CoreError> {
    let (mut local_id, mut target_id) = (local_id, target_id);
    for _ in 0..=MAX_LEVEL {
        let (local_at, local_type) = local.resolve(local_id)?;
        let (target_at, target_type) = target.resolve(target_id)?;
        let composite = |found: &Type<'_>| matches!(found, Type::Struct(_) | Type::Union(_));
        if composite(&local_type) && composite(&target_type) {
            return Ok(true);
        }
        if !local.kind_of(local_at).is_like(target.kind_of(target_at)) {
            return Ok(false);
        }
        match (local_type, target_type) {
            (Type::Ptr(_) | Type::Float { .. }, _) => return Ok(true),
            (Type::Fwd { .. } | Type::Enum(_) | Type::Enum64(_), _) => {
                let (ours, theirs) = (essential_name(local.name(local_at)), essential_name(target.name(target_at)));
                return Ok(ours.is_empty() || theirs.is_empty() || ours == theirs);
            }
            (Type::Int(ours), Type::Int(theirs)) => return Ok(ours.bit_offset == 0 && theirs.bit_offset == 0),
            (Type::Array(ours), Type::Array(theirs)) => (local_id, target_id) = (ours.elem, theirs.elem),
            _ => return Ok(false),
        }
    }
    Err(CoreError::Depth)
}

/// Whether the target type may stand for the local one (`bpf_core_types_are_compat`). The caller has compared their
/// names.
pub fn types_are_compatible(pair: Pair<'_>, budget: &mut Budget) -> Result<bool, CoreError> {
    compatible(pair, budget, MAX_LEVEL)
}

fn compatible(
    ((local, local_id), (target, target_id)): Pair<'_>,
    budget: &mut Budget,
    level: u32,
) -> Result<bool, CoreError> {
    if !local.kind_of(local_id).is_like(target.kind_of(target_id)) {
        return Ok(false);
    }
    let (mut local_id, mut target_id) = (local_id, target_id);
    for _ in 0..MAX_LEVEL {
        budget.spend(1)?;
        let (local_at, local_type) = local.resolve(local_id)?;
        let (target_at, target_type) = target.resolve(target_id)?;
        if !local.kind_of(local_at).is_like(target.kind_of(target_at)) {
            return Ok(false);
        }
        match (local_type, target_type) {
            (Type::Void | Type::Struct(_) | Type::Union(_) | Type::Fwd { .. }, _) => return Ok(true),
            (Type::Enum(_) | Type::Enum64(_), _) => return Ok(true),
            (Type::Int(ours), Type::Int(theirs)) => return Ok(ours.bit_offset == 0 && theirs.bit_offset == 0),
            (Type::Ptr(ours), Type::Ptr(theirs)) => (local_id, target_id) = (ours, theirs),
            (Type::Array(ours), Type::Array(theirs)) => (local_id, target_id) = (ours.elem, theirs.elem),
            (Type::FuncProto(ours), Type::FuncProto(theirs)) => {
                if ours.all_params().len() != theirs.all_params().len() {
                    return Ok(false);
                }
                for (mine, other) in ours.all_params().zip(theirs.all_params()) {
                    let level = level.checked_sub(1).ok_or(CoreError::Depth)?;
                    let (mine, other) = (local.resolve(mine.type_id)?.0, target.resolve(other.type_id)?.0);
                    if !compatible(((local, mine), (target, other)), budget, level)? {
                        return Ok(false);
                    }
                }
                (local_id, target_id) = (ours.result, theirs.result);
            }
            _ => return Ok(false),
        }
    }
    Err(CoreError::Depth)
}
