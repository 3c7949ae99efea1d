//! Questions to a [`Btf`]: types by id and name, what a type is once its typedefs are gone, how large it is, and
//! the prototype of a function as the VM takes it.

use std::fmt::Write as _;
use std::sync::Arc;

use twinbpf_isa::program::{Signature, ValType};

use super::raw::{self, RawType, kind};
use super::types::{Array, Composite, Datasec, Enum, FuncProto, Int, Linkage, Member, RawEnums, Type, TypeId, VarInfo};
use super::{Btf, BtfError, Endian};

/// Longest chain of typedefs, qualifiers, pointers and arrays that is followed. (libbpf's limit is 32.)
pub const MAX_DEPTH: usize = 64;
/// Longest string that is returned, so that no walk over names is quadratic in the input.
/// The kernel's own limit for names is the same (`KSYM_NAME_LEN`).
const MAX_STR: usize = 511;
/// Longest list of parameters that is turned into a [`Signature`]; registers hold five.
const MAX_PARAMS: usize = 32;

impl Btf {
    /// Byte order of the object, and of values of these types.
    pub fn endian(&self) -> Endian {
        self.endian
    }

    /// Largest type id; 0 if there are no types.
    pub fn last_id(&self) -> u32 {
        (self.first_id - 1).saturating_add(self.starts.len() as u32)
    }

    /// The types that this one continues from, for the BTF of a module.
    pub fn base(&self) -> Option<&Arc<Btf>> {
        self.base.as_ref()
    }

    /// Every id with a record, without those of [`Btf::base`].
    pub fn ids(&self) -> impl Iterator<Item = TypeId> + use<> {
        (self.first_id..=self.last_id()).map(TypeId)
    }

    /// The string at an offset of the string section; empty if there is none.
    pub fn str(&self, offset: u32) -> &str {
        let Some(own) = offset.checked_sub(self.first_str) else {
            return self.base.as_ref().map_or("", |base| base.str(offset));
        };
        let Some(rest) = self.strings.get(own as usize..) else { return "" };
        let bytes = rest.as_bytes();
        let cap = bytes.len().min(MAX_STR);
        let mut end = bytes[..cap].iter().position(|&byte| byte == 0).unwrap_or(cap);
        while !rest.is_char_boundary(end) {
            end -= 1;
        }
        &rest[..end]
    }

    /// Bytes of the string section.
    pub(super) fn strings_len(&self) -> usize {
        self.strings.len()
    }

    /// Offset of the byte after the last string.
    pub(super) fn strings_end(&self) -> u32 {
        self.first_str.saturating_add(self.strings.len() as u32)
    }

    pub(super) fn raw(&self, id: TypeId) -> Option<(RawType, &[u32])> {
        let Some(index) = id.0.checked_sub(self.first_id) else { return self.base.as_ref()?.raw(id) };
        let start = *self.starts.get(index as usize)?;
        Some(self.record(start as usize))
    }

    /// Name of a type; empty for anonymous ones, and for ids that do not exist.
    pub fn name(&self, id: TypeId) -> &str {
        self.raw(id).map_or("", |(head, _)| self.str(head.name_off))
    }

    /// The type with number `id`.
    pub fn type_by_id(&self, id: TypeId) -> Option<Type<'_>> {
        if id == TypeId::VOID {
            return Some(Type::Void);
        }
        let (head, extra) = self.raw(id)?;
        let size = head.size_or_type;
        let target = TypeId(head.size_or_type);
        let first = extra.first().copied().unwrap_or(0);
        let composite = || Composite { size, btf: self, bitfields: head.kflag(), raw: raw::records(extra) };
        let enumeration = |raw| Enum { size, signed: head.kflag(), btf: self, raw };
        Some(match head.kind() {
            kind::INT => Type::Int(int(size, first)),
            kind::PTR => Type::Ptr(target),
            kind::ARRAY => {
                let raw = raw::record::<raw::RawArray>(extra);
                Type::Array(Array { elem: TypeId(raw.elem), index: TypeId(raw.index), len: raw.len })
            }
            kind::STRUCT => Type::Struct(composite()),
            kind::UNION => Type::Union(composite()),
            kind::ENUM => Type::Enum(enumeration(RawEnums::Narrow(raw::records(extra)))),
            kind::FWD => Type::Fwd { is_union: head.kflag() },
            kind::TYPEDEF => Type::Typedef(target),
            kind::VOLATILE => Type::Volatile(target),
            kind::CONST => Type::Const(target),
            kind::RESTRICT => Type::Restrict(target),
            kind::FUNC => Type::Func { proto: target, linkage: Linkage::new(head.vlen() as u32)? },
            kind::FUNC_PROTO => Type::FuncProto(FuncProto { result: target, btf: self, raw: raw::records(extra) }),
            kind::VAR => Type::Var { type_id: target, linkage: Linkage::new(first)? },
            kind::DATASEC => Type::Datasec(Datasec { size, btf: self, raw: raw::records(extra) }),
            kind::FLOAT => Type::Float { size },
            kind::DECL_TAG => Type::DeclTag { target, component: first.cast_signed() },
            kind::TYPE_TAG => Type::TypeTag(target),
            kind::ENUM64 => Type::Enum64(enumeration(RawEnums::Wide(raw::records(extra)))),
            _ => return None,
        })
    }

    /// [`Btf::type_by_id`], or an error that says how many types there are.
    pub fn get(&self, id: TypeId) -> Result<Type<'_>, BtfError> {
        self.type_by_id(id).ok_or(BtfError::NoType { id, last: self.last_id() })
    }

    /// The first type called `name` that `want` accepts. [`Btf::func`], [`Btf::var`] and [`Btf::datasec`] are faster
    /// where many types share a name.
    pub fn find(&self, name: &str, mut want: impl FnMut(&Type<'_>) -> bool) -> Option<TypeId> {
        self.ids_by_name(name).find(|&id| self.type_by_id(id).is_some_and(|found| want(&found)))
    }

    /// The function called `name`, whether defined here or extern.
    pub fn func(&self, name: &str) -> Option<TypeId> {
        self.funcs(name).next()
    }

    /// All functions called `name`, by rising id: those of a kernel are several where files have static ones.
    pub fn funcs<'a>(&'a self, name: &'a str) -> impl Iterator<Item = TypeId> + use<'a> {
        self.named(name, Some(kind::FUNC))
    }

    /// The section called `name`.
    pub fn datasec(&self, name: &str) -> Option<Datasec<'_>> {
        self.named(name, Some(kind::DATASEC)).find_map(|id| self.as_datasec(id))
    }

    /// Names and contents of all sections.
    pub fn datasecs(&self) -> impl Iterator<Item = (&str, Datasec<'_>)> {
        self.ids().filter_map(|id| Some((self.name(id), self.as_datasec(id)?)))
    }

    fn as_datasec(&self, id: TypeId) -> Option<Datasec<'_>> {
        if let Some(Type::Datasec(found)) = self.type_by_id(id) { Some(found) } else { None }
    }

    /// The variable called `name`, without its place in a section.
    pub fn var(&self, name: &str) -> Option<VarInfo<'_>> {
        self.named(name, Some(kind::VAR)).find_map(|id| self.var_info(id))
    }

    pub(super) fn var_info(&self, var_id: TypeId) -> Option<VarInfo<'_>> {
        let found = self.type_by_id(var_id)?;
        let is_func = matches!(found, Type::Func { .. });
        let (Type::Var { type_id, linkage } | Type::Func { proto: type_id, linkage }) = found else { return None };
        Some(VarInfo { name: self.name(var_id), var_id, type_id, linkage, is_func, offset: 0, size: 0 })
    }

    /// The underlying type, without typedefs, qualifiers and type tags.
    pub fn resolve(&self, id: TypeId) -> Result<(TypeId, Type<'_>), BtfError> {
        let mut at = id;
        for _ in 0..MAX_DEPTH {
            let found = self.get(at)?;
            match found.modifies() {
                Some(to) => at = to,
                None => return Ok((at, found)),
            }
        }
        Err(BtfError::TooDeep { id, limit: MAX_DEPTH })
    }

    /// Bytes of a value of the type, as `sizeof` says.
    pub fn size_of(&self, id: TypeId) -> Result<u32, BtfError> {
        let mut at = id;
        let mut count = 1_u64;
        for _ in 0..MAX_DEPTH {
            let size = match self.get(at)? {
                Type::Int(int) => int.size,
                Type::Ptr(_) => 8,
                Type::Enum(found) | Type::Enum64(found) => found.size,
                Type::Struct(found) | Type::Union(found) => found.size,
                Type::Float { size } => size,
                Type::Datasec(found) => found.size,
                Type::Array(array) => {
                    count = count.checked_mul(u64::from(array.len)).ok_or(BtfError::TooLarge { id })?;
                    at = array.elem;
                    continue;
                }
                Type::Typedef(to) | Type::Const(to) | Type::Volatile(to) | Type::Restrict(to) | Type::TypeTag(to) => {
                    at = to;
                    continue;
                }
                Type::Var { type_id, .. } => {
                    at = type_id;
                    continue;
                }
                Type::Void | Type::Fwd { .. } | Type::Func { .. } | Type::FuncProto(_) | Type::DeclTag { .. } => {
                    return Err(BtfError::Unsized { id: at, name: self.type_name(id) });
                }
            };
            let total = count.checked_mul(u64::from(size)).and_then(|total| u32::try_from(total).ok());
            return total.ok_or(BtfError::TooLarge { id });
        }
        Err(BtfError::TooDeep { id, limit: MAX_DEPTH })
    }

    /// Whether the type, once resolved, is C's `char`: clang encodes it as a signed byte called `char`.
    pub fn is_char(&self, id: TypeId) -> bool {
        let Ok((id, Type::Int(int))) = self.resolve(id) else { return false };
        int.size == 1 && (int.is_char || self.name(id) == "char")
    }

    /// The type as C writes it, for messages: `struct flow *`, `char[16]`, `const u32`.
    pub fn type_name(&self, id: TypeId) -> String {
        let mut suffix = String::new();
        let mut prefix = String::new();
        let mut at = id;
        for _ in 0..MAX_DEPTH {
            let word = |word: &str| format!("{prefix}{word}{suffix}");
            let name = self.name(at);
            let tagged = |tag: &str| word(&format!("{tag} {}", if name.is_empty() { "(anonymous)" } else { name }));
            match self.type_by_id(at) {
                None => return word(&format!("type {at}")),
                Some(Type::Void) => return word("void"),
                Some(Type::Struct(_) | Type::Fwd { is_union: false }) => return tagged("struct"),
                Some(Type::Union(_) | Type::Fwd { is_union: true }) => return tagged("union"),
                Some(Type::Enum(_) | Type::Enum64(_)) => return tagged("enum"),
                Some(Type::FuncProto(_)) => return word("function"),
                Some(Type::Ptr(to)) => {
                    at = to;
                    suffix = format!(" *{}", suffix.trim_start());
                }
                Some(Type::Array(array)) => {
                    at = array.elem;
                    // A pointer to this array was met before, an element array comes after.
                    match suffix.starts_with(" *") {
                        true => suffix = format!(" ({})[{}]", suffix.trim_start(), array.len),
                        false => _ = write!(suffix, "[{}]", array.len),
                    }
                }
                Some(Type::Const(to)) => (at, prefix) = (to, format!("{prefix}const ")),
                Some(Type::Volatile(to)) => (at, prefix) = (to, format!("{prefix}volatile ")),
                Some(Type::Restrict(to) | Type::TypeTag(to)) => at = to,
                Some(Type::DeclTag { target, .. }) => at = target,
                Some(Type::Int(_) | Type::Float { .. } | Type::Typedef(_) | Type::Func { .. }) => return word(name),
                Some(Type::Var { .. } | Type::Datasec(_)) => return word(name),
            }
        }
        format!("{prefix}...{suffix}")
    }

    /// Prototype of the function called `name`, whether defined here or extern.
    pub fn func_signature(&self, name: &str) -> Option<Signature> {
        self.signature(self.func(name)?)
    }

    /// Prototype of a function, of a variable of function type, or of a function type. `None` for other types.
    pub fn signature(&self, id: TypeId) -> Option<Signature> {
        let mut at = id;
        if let Type::Func { proto: to, .. } | Type::Var { type_id: to, .. } = self.type_by_id(at)? {
            at = to;
        }
        let (_, Type::FuncProto(proto)) = self.resolve(at).ok()? else { return None };
        if proto.params().len() > MAX_PARAMS {
            return None;
        }
        let params = proto.params().map(|param| self.val_type(param.type_id)).collect();
        Some(Signature { params, variadic: proto.is_variadic(), result: self.val_type(proto.result) })
    }

    /// How a value of the type travels in a register.
    pub fn val_type(&self, id: TypeId) -> ValType {
        let Ok((_, found)) = self.resolve(id) else { return ValType::Unsupported };
        let int = |size: u32, signed| match size {
            1 | 2 | 4 | 8 => ValType::Int { size: size as u8, signed },
            _ => ValType::Unsupported,
        };
        match found {
            Type::Void => ValType::Void,
            Type::Int(found) => int(found.size, found.signed && !found.is_bool),
            Type::Enum(found) | Type::Enum64(found) => int(found.size, found.signed),
            Type::Ptr(_) | Type::Array(_) => ValType::Pointer,
            Type::Float { size: 4 } => ValType::Float { size: 4 },
            Type::Float { size: 8 } => ValType::Float { size: 8 },
            Type::Float { .. } | Type::Struct(_) | Type::Union(_) | Type::Fwd { .. } => ValType::Unsupported,
            Type::Func { .. } | Type::FuncProto(_) | Type::Var { .. } => ValType::Unsupported,
            Type::Datasec(_) | Type::DeclTag { .. } => ValType::Unsupported,
            Type::Typedef(_) | Type::Const(_) | Type::Volatile(_) | Type::Restrict(_) | Type::TypeTag(_) => {
                unreachable!("resolve went through them")
            }
        }
    }

    /// Whether this is the bitfield type of an old compiler: an integer with fewer bits than its bytes hold.
    pub fn is_bitfield_int(&self, id: TypeId) -> bool {
        let Ok((_, Type::Int(int))) = self.resolve(id) else { return false };
        !int.is_bool && int.bits != 0 && (int.bits != int.size.saturating_mul(8) || int.bit_offset != 0)
    }

    /// First bit and number of bits of a bitfield, either encoding.
    pub fn bits_of(&self, member: &Member<'_>) -> Option<(u32, u32)> {
        if member.bits != 0 {
            return Some((member.bit_offset, member.bits));
        }
        let (_, found) = self.resolve(member.type_id).ok()?;
        if let Type::Int(int) = found {
            return Some((member.bit_offset.checked_add(int.bit_offset)?, int.bits));
        }
        Some((member.bit_offset, self.size_of(member.type_id).ok()?.checked_mul(8)?))
    }
}

fn int(size: u32, encoding: u32) -> Int {
    Int {
        size,
        bits: encoding & 0xff,
        bit_offset: (encoding >> 16) & 0xff,
        signed: encoding & (1 << 24) != 0,
        is_char: encoding & (1 << 25) != 0,
        is_bool: encoding & (1 << 26) != 0,
    }
}
