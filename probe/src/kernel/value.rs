//! Values of arguments by BTF: registers by the calling convention, then members and elements.

use twinbpf_btf::{Btf, Composite, FuncProto, Type, TypeId};

use super::{KernelTypes, differently};
use crate::definition::{Cast, Step};
use crate::error::{Refusal, nearest_first};
use crate::expr::Expr;
use crate::machine::{Machine, Register};
use crate::types::Encoding;
use crate::value::{Bits, Value};
use crate::walk::{number, unit_of};

/// Most members and elements of a result that count.
const MOST_PARTS: u32 = 256;
/// Most anonymous structures in each other.
const MOST_NESTED: u32 = 32;

/// A parameter, and its register or why it is in none that is sure.
pub(super) struct Parameter<'a> {
    pub(super) name: &'a str,
    pub(super) ty: TypeId,
    pub(super) place: Result<Register, Refusal>,
}

/// The parameters of a function, in order.
pub(super) fn parameters<'a>(btf: &'a Btf, machine: Machine, proto: &FuncProto<'a>) -> Vec<Parameter<'a>> {
    let registers = machine.passes();
    let (mut used, mut unsure) = match result_in_memory(btf, machine, proto.result) {
        Some(in_memory) => (usize::from(in_memory), None),
        None => (0, Some(format!("how {}, the result, is returned", btf.type_name(proto.result)))),
    };
    let mut place = |ty: TypeId| {
        if let Some(before) = &unsure {
            return Err(Refusal::Passed(format!("in a register that depends on {before}")));
        }
        let by_value = |name: &str| Some(format!("{name}, which comes before it by value"));
        let (name, size) = (btf.type_name(ty), btf.size_of(ty).unwrap_or(0));
        match btf.resolve(ty) {
            Ok((id, plain)) if is_float(btf, id, &plain) => {
                // On x86-64 it takes no general register from those that come after it.
                if machine != Machine::X86_64 {
                    unsure = by_value(&name);
                }
                Err(Refusal::Passed(format!("in a floating-point register, as {name}")))
            }
            Ok((_, Type::Int(_) | Type::Ptr(_) | Type::Enum(_) | Type::Enum64(_))) if size <= 8 => {
                used += 1;
                registers
                    .get(used - 1)
                    .map(|number| Register(*number))
                    .ok_or_else(|| Refusal::Passed("on the stack".to_owned()))
            }
            Ok((_, Type::Int(_))) => {
                unsure = by_value(&name);
                Err(Refusal::Wide { ty: name, size: size.into() })
            }
            _ => {
                unsure = by_value(&name);
                Err(Refusal::Passed(format!("by value, where the members of {name} decide")))
            }
        }
    };
    proto.params().map(|param| Parameter { name: param.name, ty: param.type_id, place: place(param.type_id) }).collect()
}

/// Whether callers pass the address of the result in the first register; `None` where the members decide.
fn result_in_memory(btf: &Btf, machine: Machine, result: TypeId) -> Option<bool> {
    let Ok((_, Type::Struct(whole) | Type::Union(whole))) = btf.resolve(result) else { return Some(false) };
    match machine {
        // It has a register of its own.
        Machine::Aarch64 => Some(false),
        Machine::Riscv64 => Some(whole.size > 16),
        Machine::X86_64 if whole.size > 16 => Some(true),
        Machine::X86_64 => is_aligned(btf, result, 0, &mut { MOST_PARTS }).then_some(false),
    }
}

/// Whether what a type of at most 16 bytes consists of, from a bit on, is aligned: System V's classification returns other
/// structures in memory, and those with numbers of 16 bytes in ways of their own. It counts down what it reads, to at most `left` parts.
fn is_aligned(btf: &Btf, ty: TypeId, at: u32, left: &mut u32) -> bool {
    let Some(less) = left.checked_sub(1) else { return false };
    *left = less;
    let size = btf.size_of(ty).unwrap_or(u32::MAX);
    match btf.resolve(ty) {
        Ok((_, Type::Struct(whole) | Type::Union(whole))) => whole.members().all(|member| {
            let Some(at) = at.checked_add(member.bit_offset) else { return false };
            let is_bits = member.bits != 0 && at % 64 + member.bits <= 64;
            is_bits || is_aligned(btf, member.type_id, at, left)
        }),
        Ok((_, Type::Array(_))) if size == 0 => true,
        Ok((_, Type::Array(array))) if size <= 16 => {
            let bits = size / array.len.max(1) * 8;
            (0..array.len).all(|index| is_aligned(btf, array.elem, at.saturating_add(index * bits), left))
        }
        Ok(_) => (1..=8).contains(&size) && at.is_multiple_of(size * 8),
        Err(_) => false,
    }
}

/// Whether a type is a floating-point number. Without `--btf_gen_floats` pahole makes integers of them, which only their
/// names tell apart.
fn is_float(btf: &Btf, id: TypeId, plain: &Type<'_>) -> bool {
    let is_named = |name: &str| {
        let base = name.strip_prefix("complex ").unwrap_or(name);
        matches!(base, "float" | "double" | "long double" | "__float128" | "__bf16") || base.starts_with("_Float")
    };
    match plain {
        Type::Float { .. } => true,
        Type::Int(_) => is_named(btf.name(id)),
        _ => false,
    }
}

/// The place that the steps of an argument have led to.
enum Spot {
    /// It is this.
    Value(Expr),
    /// In memory, at this address.
    Memory(Expr),
    /// Bits from an address on: a bit-field of so many.
    Field { address: Expr, at: u64, width: u64, whole: u64 },
}

struct Walk<'a> {
    btf: &'a Btf,
    place: Spot,
    /// `None`: 64 bits without a type.
    ty: Option<TypeId>,
}

impl<'a> KernelTypes<'a> {
    pub(super) fn argument(
        &self,
        function: &str,
        name: &str,
        steps: &[Step],
        cast: Option<Cast>,
    ) -> Result<Value, Refusal> {
        let parameters = self.parameters(function);
        let Some(parameter) = parameters.iter().find(|parameter| parameter.name == name) else {
            let names = parameters.iter().map(|parameter| parameter.name.to_owned()).collect();
            return Err(Refusal::NoVariable { name: name.to_owned(), available: nearest_first(name, names) });
        };
        let register = parameter.place.clone()?;
        self.walk(Expr::Register(register), Some(parameter.ty), steps, cast)
    }

    pub(super) fn result(&self, function: &str, steps: &[Step], cast: Option<Cast>) -> Result<Value, Refusal> {
        let protos = self.protos(function);
        let ty = protos.first().map_or(TypeId::VOID, |proto| proto.result);
        if protos.iter().any(|proto| proto.result != ty) {
            return Err(Refusal::Return(differently(protos.len())));
        }
        match self.btf.resolve(ty) {
            Ok((_, Type::Void)) | Err(_) => return Err(Refusal::Void),
            Ok((id, plain)) if is_float(self.btf, id, &plain) => {
                return Err(Refusal::Return(format!("in a floating-point register, as {}", self.btf.type_name(ty))));
            }
            Ok((_, Type::Int(_) | Type::Ptr(_) | Type::Enum(_) | Type::Enum64(_))) => {}
            Ok(_) => return Err(Refusal::Return(format!("by value, as {}", self.btf.type_name(ty)))),
        }
        let [first, _] = self.machine.returns();
        self.walk(Expr::Register(first), Some(ty), steps, cast)
    }

    pub(super) fn register(&self, name: &str, steps: &[Step], cast: Option<Cast>) -> Result<Value, Refusal> {
        let register = self.machine.register(name).ok_or_else(|| Refusal::NoRegister(name.to_owned()))?;
        self.walk(Expr::Register(register), None, steps, cast)
    }

    fn walk(&self, from: Expr, ty: Option<TypeId>, steps: &[Step], cast: Option<Cast>) -> Result<Value, Refusal> {
        let mut walk = Walk { btf: self.btf, place: Spot::Value(from), ty };
        for step in steps {
            match step {
                Step::Member(name) => walk.member(name, false)?,
                Step::Arrow(name) => walk.member(name, true)?,
                Step::Index(index) => walk.index(*index)?,
            }
        }
        walk.value(cast)
    }
}

impl<'a> Walk<'a> {
    fn name(&self) -> String {
        self.ty.map_or_else(|| "a register".to_owned(), |ty| self.btf.type_name(ty))
    }

    fn resolved(&self) -> Result<(TypeId, Type<'a>), Refusal> {
        let ty = self.ty.ok_or_else(|| Refusal::NoStep { ty: self.name(), what: "members" })?;
        self.btf.resolve(ty).map_err(|error| Refusal::Damaged(error.to_string()))
    }

    /// The pointer that the value is.
    fn pointer(&self) -> Result<Expr, Refusal> {
        match &self.place {
            Spot::Value(expr) => Ok(expr.clone()),
            Spot::Memory(address) => Ok(address.clone().load(8)),
            Spot::Field { .. } => Err(Refusal::NoStep { ty: self.name(), what: "members" }),
        }
    }

    fn member(&mut self, name: &str, by_arrow: bool) -> Result<(), Refusal> {
        let wrong = |pointer| Refusal::Arrow { ty: self.name(), pointer, name: name.to_owned() };
        let (id, record, address) = match (self.resolved()?, by_arrow) {
            ((_, Type::Ptr(to)), true) => match self.btf.resolve(to) {
                Ok((id, Type::Struct(record) | Type::Union(record))) => (id, record, self.pointer()?),
                Ok((_, Type::Fwd { .. })) => return Err(Refusal::Incomplete(self.btf.type_name(to))),
                _ => return Err(Refusal::NoStep { ty: self.btf.type_name(to), what: "members" }),
            },
            ((_, Type::Ptr(_)), false) => return Err(wrong(true)),
            ((_, Type::Struct(_) | Type::Union(_)), true) => return Err(wrong(false)),
            ((id, Type::Struct(record) | Type::Union(record)), false) => match &self.place {
                Spot::Memory(address) => (id, record, address.clone()),
                _ => return Err(Refusal::NoStep { ty: self.name(), what: "members in memory" }),
            },
            _ => return Err(Refusal::NoStep { ty: self.name(), what: "members" }),
        };
        let Some((ty, at, bits)) = find(self.btf, record, name, 0, MOST_NESTED) else {
            let ty = self.btf.type_name(id);
            let names = record.members().map(|member| member.name).filter(|name| !name.is_empty());
            let members = nearest_first(name, names.map(str::to_owned).collect());
            return Err(Refusal::NoMember { ty, name: name.to_owned(), members });
        };
        self.ty = Some(ty);
        let whole = u64::from(record.size);
        self.place = match bits {
            0 => Spot::Memory(address.add(i64::from(at / 8))),
            width => Spot::Field { address, at: at.into(), width: width.into(), whole },
        };
        Ok(())
    }

    fn index(&mut self, index: u64) -> Result<(), Refusal> {
        let beyond = |walk: &Walk<'_>| Refusal::Index { index, ty: walk.name() };
        let (element, address) = match (self.resolved()?, &self.place) {
            ((_, Type::Array(array)), Spot::Memory(address)) => {
                // The last array of a structure may have no length.
                if array.len > 0 && index >= array.len.into() {
                    return Err(beyond(self));
                }
                (array.elem, address.clone())
            }
            ((_, Type::Ptr(to)), _) => (to, self.pointer()?),
            _ => return Err(Refusal::NoStep { ty: self.name(), what: "elements" }),
        };
        let size = self.btf.size_of(element).ok().filter(|size| *size > 0);
        let size = size.ok_or_else(|| Refusal::Incomplete(self.btf.type_name(element)))?;
        let offset = index.checked_mul(size.into()).and_then(|offset| i64::try_from(offset).ok());
        let offset = offset.ok_or_else(|| beyond(self))?;
        (self.ty, self.place) = (Some(element), Spot::Memory(address.add(offset)));
        Ok(())
    }

    fn value(&self, cast: Option<Cast>) -> Result<Value, Refusal> {
        let ty = self.name();
        if let Some(Cast::String { user }) = cast {
            return self.string(user, ty);
        }
        let (size, encoding, signed) = match self.ty.map(|ty| self.btf.resolve(ty)) {
            None => (8, Encoding::Hex, false),
            Some(Ok((_, Type::Int(int)))) if int.is_bool => (int.size, Encoding::Bool, false),
            Some(Ok((_, Type::Int(int)))) if int.signed => (int.size, Encoding::Signed, true),
            Some(Ok((_, Type::Int(int)))) => (int.size, Encoding::Unsigned, false),
            Some(Ok((_, Type::Enum(list) | Type::Enum64(list)))) => (list.size, Encoding::Unsigned, list.signed),
            Some(Ok((_, Type::Ptr(_)))) => (8, Encoding::Pointer, false),
            Some(Ok((_, Type::Struct(record) | Type::Union(record)))) => {
                let members = record.members().map(|member| format!(".{}", member.name)).collect();
                return Err(Refusal::Aggregate { ty, members });
            }
            Some(Ok((_, Type::Array(_)))) => return Err(Refusal::Array { ty }),
            Some(Ok((_, Type::Fwd { .. }))) => return Err(Refusal::Incomplete(ty)),
            Some(_) => return Err(Refusal::NoStep { ty, what: "value" }),
        };
        if !(1..=8).contains(&size) {
            return Err(Refusal::Wide { ty, size: size.into() });
        }
        let own = size as u8;
        let (expr, bits, size) = match &self.place {
            Spot::Value(expr) => (expr.clone(), None, own),
            Spot::Memory(address) => (address.clone().load(own), None, own),
            Spot::Field { address, at, width, whole } => field(address, (*at, *width), own.into(), *whole)?,
        };
        let letter = if signed { 's' } else { 'x' };
        let value = Value { expr, bits, size, encoding, signed, letter, ty, is_piece: false, is_implicit: false };
        match cast {
            Some(Cast::Number { kind, bits }) => Ok(number(value, kind, bits)),
            Some(Cast::String { .. }) | None => Ok(value),
        }
    }

    /// Bytes up to a zero: at the address that a pointer has, or in an array.
    fn string(&self, user: bool, ty: String) -> Result<Value, Refusal> {
        let cast = if user { "ustring" } else { "string" };
        let refuse = |ty, why| Err(Refusal::Cast { ty, cast: cast.to_owned(), why });
        let expr = match (self.ty.map(|ty| self.btf.resolve(ty)), &self.place) {
            (None | Some(Ok((_, Type::Ptr(_)))), _) => self.pointer()?,
            (Some(Ok((_, Type::Array(_)))), Spot::Memory(address)) => address.clone(),
            _ => return refuse(ty, "it is neither a pointer nor an array"),
        };
        let encoding = Encoding::String { user };
        let (is_piece, is_implicit) = (false, false);
        Ok(Value { expr, bits: None, size: 8, encoding, signed: false, letter: 'x', ty, is_piece, is_implicit })
    }
}

/// The load that has a bit-field, its bits in that, and the bytes of the load.
fn field(
    address: &Expr,
    (at, width): (u64, u64),
    storage: u64,
    whole: u64,
) -> Result<(Expr, Option<Bits>, u8), Refusal> {
    let (begin, bytes) = unit_of(at, width, storage, whole);
    let damaged = || Refusal::Damaged("a bit-field that no load has whole".to_owned());
    let (offset, bytes) = (at - begin, u8::try_from(bytes).ok().filter(|bytes| (1..=8).contains(bytes)));
    let bytes = bytes.filter(|bytes| offset + width <= u64::from(*bytes) * 8).ok_or_else(damaged)?;
    let start = i64::try_from(begin / 8).map_err(|_| damaged())?;
    let bits = Bits { offset: offset as u8, width: width as u8 };
    Ok((address.clone().add(start).load(bytes), Some(bits), bytes))
}

/// Type, first bit and bits of a bit-field of a member, those of anonymous structures included.
fn find(btf: &Btf, record: Composite<'_>, name: &str, from: u32, left: u32) -> Option<(TypeId, u32, u32)> {
    let left = left.checked_sub(1)?;
    record.members().find_map(|member| {
        let at = from.checked_add(member.bit_offset)?;
        if member.name == name && !name.is_empty() {
            let (bits, shift) = match btf.bits_of(&member) {
                Some((first, bits)) if member.bits != 0 || btf.is_bitfield_int(member.type_id) => {
                    (bits, first - member.bit_offset)
                }
                _ => (0, 0),
            };
            return Some((member.type_id, at + shift, bits));
        }
        match btf.resolve(member.type_id) {
            Ok((_, Type::Struct(inner) | Type::Union(inner))) if member.name.is_empty() => {
                find(btf, inner, name, at, left)
            }
            _ => None,
        }
    })
}
