//! A relocation read against the types it was compiled with, or against those of the target.

use std::fmt::{self, Write as _};

use super::error::CoreError;
use super::{Budget, MAX_PATH};
use crate::{Array, Btf, CoreKind, CoreRelo, Type, TypeId};

/// A type, field or constant in one set of types.
#[derive(Clone, Debug)]
pub(super) struct Spec<'a> {
    pub(super) btf: &'a Btf,
    pub(super) kind: CoreKind,
    pub(super) root: TypeId,
    /// Every index of the access, those of anonymous members included.
    pub(super) raw: Vec<u32>,
    /// The meaningful ones.
    pub(super) steps: Vec<Step<'a>>,
    /// Bits from the start of the root.
    pub(super) bit_offset: u64,
}

/// One named member, array element, or constant.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step<'a> {
    /// The struct of a member; the type of an element; the enum of a constant.
    pub(super) type_id: TypeId,
    pub(super) index: u32,
    /// `None` for an element.
    pub(super) name: Option<&'a str>,
}

/// What a kind of relocation refers to: a field, a type or an enumerator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    Field,
    Type,
    Constant,
}

pub(super) fn subject(kind: CoreKind) -> Subject {
    match kind {
        CoreKind::FieldByteOffset
        | CoreKind::FieldByteSize
        | CoreKind::FieldExists
        | CoreKind::FieldSigned
        | CoreKind::FieldLshift
        | CoreKind::FieldRshift => Subject::Field,
        CoreKind::TypeIdLocal
        | CoreKind::TypeIdTarget
        | CoreKind::TypeExists
        | CoreKind::TypeSize
        | CoreKind::TypeMatches => Subject::Type,
        CoreKind::EnumvalExists | CoreKind::EnumvalValue => Subject::Constant,
    }
}

impl<'a> Spec<'a> {
    pub(super) fn new(btf: &'a Btf, kind: CoreKind, root: TypeId) -> Spec<'a> {
        Spec { btf, kind, root, raw: Vec::new(), steps: Vec::new(), bit_offset: 0 }
    }

    /// Reads a relocation of the object (`bpf_core_parse_spec`).
    pub(super) fn parse(btf: &'a Btf, relo: &CoreRelo, budget: &mut Budget) -> Result<Spec<'a>, CoreError> {
        let kind = CoreKind::new(relo.kind).ok_or(CoreError::Kind(relo.kind))?;
        let access = btf.str(relo.access_off);
        let bad = |why| CoreError::Access { access: access.to_owned(), type_id: relo.type_id, why };
        let mut spec = Spec::new(btf, kind, relo.type_id);
        btf.get(relo.type_id)?;
        if subject(kind) == Subject::Type {
            return if access == "0" { Ok(spec) } else { Err(bad("a type has no parts")) };
        }
        for part in access.split(':') {
            if spec.raw.len() == MAX_PATH {
                return Err(bad("it is too long"));
            }
            let index: i32 = part.parse().map_err(|_| bad("it is no list of numbers"))?;
            spec.raw.push(u32::try_from(index).map_err(|_| bad("an index is negative"))?);
        }
        budget.spend(spec.raw.len())?;
        let (id, found) = btf.resolve(relo.type_id)?;
        let first = spec.raw[0];
        spec.steps.push(Step { type_id: id, index: first, name: None });
        if subject(kind) == Subject::Constant {
            let (Type::Enum(found) | Type::Enum64(found)) = found else { return Err(bad("it is no enum")) };
            if spec.raw.len() > 1 {
                return Err(bad("a constant has no parts"));
            }
            spec.steps[0].name = Some(found.get(first as usize).ok_or_else(|| bad("there is no such constant"))?.name);
            return Ok(spec);
        }
        spec.add_elements(first, id)?;
        let mut at = id;
        for level in 1..spec.raw.len() {
            at = spec.descend(at, spec.raw[level]).map_err(|fault| fault.error(bad))?;
        }
        Ok(spec)
    }

    /// Goes into one member or element of `from`; gives its type.
    fn descend(&mut self, from: TypeId, index: u32) -> Result<TypeId, Fault> {
        let (id, found) = self.btf.resolve(from)?;
        match found {
            Type::Struct(found) | Type::Union(found) => {
                let member = found.member(index as usize).ok_or(Fault::Bad("there is no such member"))?;
                self.bit_offset += u64::from(member.bit_offset);
                if !member.name.is_empty() {
                    self.steps.push(Step { type_id: id, index, name: Some(member.name) });
                }
                Ok(member.type_id)
            }
            Type::Array(array) => {
                if index >= array.len && !self.is_flexible(&array) {
                    return Err(Fault::Bad("the array is shorter"));
                }
                let (elem, _) = self.btf.resolve(array.elem)?;
                self.steps.push(Step { type_id: elem, index, name: None });
                self.add_elements(index, elem)?;
                Ok(elem)
            }
            _ => Err(Fault::Bad("it goes into something without parts")),
        }
    }

    /// Whether an array of no elements at the end of a struct may be read at any index.
    pub(super) fn is_flexible(&self, array: &Array) -> bool {
        let Some(Step { type_id, index, name: Some(_) }) = self.steps.last() else { return false };
        let Some(Type::Struct(of) | Type::Union(of)) = self.btf.type_by_id(*type_id) else { return false };
        array.len == 0 && *index as usize + 1 == of.len()
    }

    /// Adds `count` elements of a type to the offset.
    pub(super) fn add_elements(&mut self, count: u32, elem: TypeId) -> Result<(), CoreError> {
        let bits = u64::from(self.btf.size_of(elem)?) * 8;
        let total = bits.checked_mul(u64::from(count)).and_then(|bits| bits.checked_add(self.bit_offset));
        self.bit_offset = total.filter(|bits| *bits <= u64::from(u32::MAX)).ok_or(CoreError::Offset)?;
        Ok(())
    }
}

/// Why a step of an access fails.
enum Fault {
    Bad(&'static str),
    Core(CoreError),
}

impl Fault {
    fn error(self, bad: impl Fn(&'static str) -> CoreError) -> CoreError {
        match self {
            Fault::Bad(why) => bad(why),
            Fault::Core(error) => error,
        }
    }
}

impl<T: Into<CoreError>> From<T> for Fault {
    fn from(error: T) -> Fault {
        Fault::Core(error.into())
    }
}

/// The form of libbpf's `bpf_core_format_spec`.
impl fmt::Display for Spec<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.btf.name(self.root);
        let name = if name.is_empty() { "<anon>" } else { name };
        write!(f, "<{}> {} {} {name}", self.kind.name(), self.root, kind_word(self.btf, self.root))?;
        match subject(self.kind) {
            Subject::Type => Ok(()),
            Subject::Constant => {
                let Ok((_, Type::Enum(found) | Type::Enum64(found))) = self.btf.resolve(self.root) else {
                    return Ok(());
                };
                match self.raw.first().and_then(|index| found.get(*index as usize)) {
                    Some(constant) => write!(f, "::{} = {}", constant.name, constant.value),
                    None => Ok(()),
                }
            }
            Subject::Field => {
                for (level, step) in self.steps.iter().enumerate() {
                    match step.name {
                        Some(name) => write!(f, ".{name}")?,
                        None if level > 0 || step.index > 0 => write!(f, "[{}]", step.index)?,
                        None => {}
                    }
                }
                let mut path = String::new();
                for index in &self.raw {
                    let colon = if path.is_empty() { "" } else { ":" };
                    write!(path, "{colon}{index}")?;
                }
                match (self.bit_offset / 8, self.bit_offset % 8) {
                    (bytes, 0) => write!(f, " ({path} @ offset {bytes})"),
                    (bytes, bits) => write!(f, " ({path} @ offset {bytes}.{bits})"),
                }
            }
        }
    }
}

/// The kind in libbpf's words, which are those of C where C has one.
fn kind_word(btf: &Btf, id: TypeId) -> &'static str {
    match btf.type_by_id(id) {
        Some(Type::Fwd { .. }) => "fwd",
        Some(Type::Int(_)) => "int",
        Some(Type::Ptr(_)) => "ptr",
        Some(Type::FuncProto(_)) => "func_proto",
        Some(found) => found.kind_name(),
        None => "unknown",
    }
}
