//! Evaluation of a CO-RE relocation for one set of types (`bpf_core_calc_relo`).

use super::error::CoreError;
use super::spec::{Spec, Subject, subject};
use crate::{CoreKind, Member, Type, TypeId};

/// Value of a relocation for one set of types.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) value: u64,
    /// Bytes and type of the field, where a load or store of it may change its size.
    field: Option<(u32, TypeId)>,
    /// Whether the compiler must have come to the same value for its own types.
    certain: bool,
}

/// Both answers: the value that the instruction holds and the one that it must hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Change {
    pub(super) old: u64,
    /// `None`: there is nothing that the instruction could hold.
    pub(super) new: Option<u64>,
    pub(super) validate: bool,
    pub(super) old_size: u32,
    pub(super) new_size: u32,
    /// Sizes differ and a load or store of the new one would not give the same value.
    pub bad_size: bool,
}

impl Change {
    /// Of an instruction that gets `value` whatever it held (`BPF_CORE_TYPE_ID_LOCAL`).
    pub(super) fn to(value: u64) -> Change {
        Change { old: value, new: Some(value), ..Change::default() }
    }

    /// Bytes of the field in the object and in the target.
    pub fn sizes(&self) -> (u32, u32) {
        (self.old_size, self.new_size)
    }

    /// What the instruction held by the object's types, and what it gets by the target's.
    pub fn values(&self) -> (u64, Option<u64>) {
        (self.old, self.new)
    }
}

/// Compares the answers for both sides. Without a target there may still be one (0 for "does it exist").
pub(super) fn change(local: &Spec<'_>, target: Option<&Spec<'_>>) -> Result<Change, CoreError> {
    let missing = |_| CoreError::Access { access: String::new(), type_id: local.root, why: "its kind has no value" };
    let old = answer(local)?.ok_or(()).map_err(missing)?;
    let new = match target {
        Some(spec) => answer(spec)?,
        None => absent(local.kind),
    };
    let mut change = Change { old: old.value, validate: old.certain, ..Change::default() };
    let Some(new) = new else { return Ok(change) };
    change.new = Some(new.value);
    let size = |answer: Answer| answer.field.map_or(0, |(size, _)| size);
    (change.old_size, change.new_size) = (size(old), size(new));
    change.bad_size = change.old_size != change.new_size && !resizable((local, old), (target, new));
    Ok(change)
}

/// A pointer may shrink, and an unsigned integer may be of any size: a load extends both with zeroes.
fn resizable((local, old): (&Spec<'_>, Answer), (target, new): (Option<&Spec<'_>>, Answer)) -> bool {
    let (Some((_, old)), Some((_, new)), Some(target)) = (old.field, new.field, target) else { return false };
    match (local.btf.type_by_id(old), target.btf.type_by_id(new)) {
        (Some(Type::Ptr(_)), Some(Type::Ptr(_))) => true,
        (Some(Type::Int(old)), Some(Type::Int(new))) => {
            let only_signed = |int: crate::Int| int.signed && !int.is_char && !int.is_bool;
            !only_signed(old) && !only_signed(new)
        }
        _ => false,
    }
}

/// What holds where the target has nothing of the kind.
fn absent(kind: CoreKind) -> Option<Answer> {
    match kind {
        CoreKind::FieldExists
        | CoreKind::TypeExists
        | CoreKind::TypeMatches
        | CoreKind::TypeSize
        | CoreKind::TypeIdTarget
        | CoreKind::TypeIdLocal
        | CoreKind::EnumvalExists => Some(Answer::default()),
        CoreKind::FieldByteOffset
        | CoreKind::FieldByteSize
        | CoreKind::FieldSigned
        | CoreKind::FieldLshift
        | CoreKind::FieldRshift
        | CoreKind::EnumvalValue => None,
    }
}

fn answer(spec: &Spec<'_>) -> Result<Option<Answer>, CoreError> {
    let certain = |value: u64| Answer { value, field: None, certain: true };
    match subject(spec.kind) {
        Subject::Type => Ok(Some(match spec.kind {
            CoreKind::TypeSize => certain(spec.btf.size_of(spec.root)?.into()),
            CoreKind::TypeIdTarget | CoreKind::TypeIdLocal => {
                // Linking objects renumbers types; what the compiler put there says nothing.
                Answer { certain: false, ..certain(spec.root.0.into()) }
            }
            _ => certain(1),
        })),
        Subject::Constant if spec.kind == CoreKind::EnumvalExists => Ok(Some(certain(1))),
        Subject::Constant => Ok(constant(spec).map(certain)),
        Subject::Field if spec.kind == CoreKind::FieldExists => Ok(Some(certain(1))),
        Subject::Field => field(spec).map(Some),
    }
}

fn constant(spec: &Spec<'_>) -> Option<u64> {
    let step = spec.steps.first()?;
    let (Type::Enum(found) | Type::Enum64(found)) = spec.btf.type_by_id(step.type_id)? else { return None };
    let wide = matches!(spec.btf.type_by_id(step.type_id)?, Type::Enum64(_));
    let value = found.get(step.index as usize)?.value;
    // libbpf reads an `enum` of 32 bits as signed, whatever it says of itself.
    Some(if wide { value as u64 } else { i64::from(value as i32).cast_unsigned() })
}

fn field(spec: &Spec<'_>) -> Result<Answer, CoreError> {
    let Some(step) = spec.steps.last() else { return Err(CoreError::Depth) };
    if step.name.is_none() {
        return element(spec, step.type_id);
    }
    let member = match spec.btf.type_by_id(step.type_id) {
        Some(Type::Struct(of) | Type::Union(of)) => of.member(step.index as usize),
        _ => None,
    };
    let member = member.ok_or(CoreError::Depth)?;
    let (type_id, found) = spec.btf.resolve(member.type_id)?;
    let extent = match member.bits {
        0 => {
            let size = spec.btf.size_of(type_id)?;
            let (first, bits) = (spec.bit_offset / 8, u64::from(size) * 8);
            Extent { first, size, bits }
        }
        _ => container(spec, &member, type_id)?,
    };
    let is_bitfield = member.bits != 0;
    let plain = |value: u64| Answer { value, field: None, certain: !is_bitfield };
    Ok(match spec.kind {
        CoreKind::FieldByteOffset => {
            Answer { field: (!is_bitfield).then_some((extent.size, type_id)), ..plain(extent.first) }
        }
        CoreKind::FieldByteSize => plain(extent.size.into()),
        CoreKind::FieldSigned => {
            let signed = match found {
                Type::Int(int) => int.signed,
                Type::Enum(of) | Type::Enum64(of) => of.signed,
                _ => false,
            };
            Answer { certain: true, ..plain(signed.into()) }
        }
        CoreKind::FieldLshift => {
            plain(64_u64.wrapping_sub((spec.bit_offset + extent.bits).wrapping_sub(extent.first * 8)))
        }
        CoreKind::FieldRshift => Answer { certain: true, ..plain(64_u64.wrapping_sub(extent.bits)) },
        CoreKind::FieldExists
        | CoreKind::TypeIdLocal
        | CoreKind::TypeIdTarget
        | CoreKind::TypeExists
        | CoreKind::TypeSize
        | CoreKind::EnumvalExists
        | CoreKind::EnumvalValue
        | CoreKind::TypeMatches => return Err(CoreError::Kind(spec.kind as u32)),
    })
}

/// The bytes that hold a field.
struct Extent {
    first: u64,
    size: u32,
    /// Bits of the field itself.
    bits: u64,
}

/// The smallest aligned load that covers a bitfield, at least as large as its type.
fn container(spec: &Spec<'_>, member: &Member<'_>, type_id: TypeId) -> Result<Extent, CoreError> {
    let unreadable = || CoreError::Bitfield { spec: spec.to_string() };
    let mut size = spec.btf.size_of(type_id)?;
    if size == 0 {
        return Err(unreadable());
    }
    loop {
        let first = spec.bit_offset / 8 / u64::from(size) * u64::from(size);
        let bits = u64::from(member.bits);
        if spec.bit_offset + bits - first * 8 <= u64::from(size) * 8 {
            return Ok(Extent { first, size, bits });
        }
        if size >= 8 {
            return Err(unreadable());
        }
        size *= 2;
    }
}

fn element(spec: &Spec<'_>, type_id: TypeId) -> Result<Answer, CoreError> {
    let size = spec.btf.size_of(type_id)?;
    match spec.kind {
        CoreKind::FieldByteOffset => {
            Ok(Answer { value: spec.bit_offset / 8, field: Some((size, type_id)), certain: true })
        }
        CoreKind::FieldByteSize => Ok(Answer { value: size.into(), field: None, certain: true }),
        _ => Err(CoreError::Element { spec: spec.to_string() }),
    }
}
