//! Types: one enum over all kinds, borrowing from the [`Btf`] they came from.

use std::fmt;

use super::Btf;
use super::raw::{RawEnum, RawEnum64, RawMember, RawParam, RawSecinfo};

/// Number of a type inside a [`Btf`]. 0 is `void`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TypeId(pub u32);

impl TypeId {
    /// The type without a record.
    pub const VOID: TypeId = TypeId(0);
}

impl fmt::Display for TypeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}]", self.0)
    }
}

/// One type, without its name (see [`Btf::name`]). The kinds are those of `include/uapi/linux/btf.h`.
#[derive(Clone, Copy, Debug)]
pub enum Type<'a> {
    /// `void`, the type with id 0.
    Void,
    /// Integer, `char` or `bool`.
    Int(Int),
    /// Pointer to a type.
    Ptr(TypeId),
    /// Array: element type, index type, length.
    Array(Array),
    /// `struct` with its members.
    Struct(Composite<'a>),
    /// `union` with its members.
    Union(Composite<'a>),
    /// `enum` whose enumerators have up to 32 bits.
    Enum(Enum<'a>),
    /// `struct x;` or `union x;`
    Fwd {
        /// Whether it is a union.
        is_union: bool,
    },
    /// `typedef` of a type.
    Typedef(TypeId),
    /// `volatile` applied to a type.
    Volatile(TypeId),
    /// `const` applied to a type.
    Const(TypeId),
    /// `restrict` applied to a type.
    Restrict(TypeId),
    /// A function: its prototype and linkage.
    Func {
        /// Id of its prototype, a [`Type::FuncProto`].
        proto: TypeId,
        /// Static, global or extern.
        linkage: Linkage,
    },
    /// The type of functions.
    FuncProto(FuncProto<'a>),
    /// A global variable.
    Var {
        /// Type of the variable.
        type_id: TypeId,
        /// Static, global or extern.
        linkage: Linkage,
    },
    /// The variables of an ELF section.
    Datasec(Datasec<'a>),
    /// A floating-point number: `float`, `double` or `long double`.
    Float {
        /// Size in bytes: 2, 4, 8, 12 or 16.
        size: u32,
    },
    /// `btf_decl_tag("...")` on something; the tag is the name.
    DeclTag {
        /// What is tagged.
        target: TypeId,
        /// Member or parameter, or -1 for the whole.
        component: i32,
    },
    /// `btf_type_tag("...")` on a type; the tag is the name.
    TypeTag(TypeId),
    /// `enum` with 64-bit enumerators.
    Enum64(Enum<'a>),
}

impl Type<'_> {
    /// What a typedef, qualifier or type tag stands for; `None` for all other types.
    pub fn modifies(&self) -> Option<TypeId> {
        match *self {
            Type::Typedef(to) | Type::Volatile(to) | Type::Const(to) | Type::Restrict(to) => Some(to),
            Type::TypeTag(to) => Some(to),
            Type::Void | Type::Int(_) | Type::Ptr(_) | Type::Array(_) | Type::Struct(_) | Type::Union(_) => None,
            Type::Enum(_) | Type::Enum64(_) | Type::Fwd { .. } | Type::Func { .. } | Type::FuncProto(_) => None,
            Type::Var { .. } | Type::Datasec(_) | Type::Float { .. } | Type::DeclTag { .. } => None,
        }
    }

    /// The kind in C's words, for messages.
    pub fn kind_name(&self) -> &'static str {
        match self {
            Type::Void => "void",
            Type::Int(_) => "integer",
            Type::Ptr(_) => "pointer",
            Type::Array(_) => "array",
            Type::Struct(_) => "struct",
            Type::Union(_) => "union",
            Type::Enum(_) | Type::Enum64(_) => "enum",
            Type::Fwd { .. } => "forward declaration",
            Type::Typedef(_) => "typedef",
            Type::Volatile(_) => "volatile",
            Type::Const(_) => "const",
            Type::Restrict(_) => "restrict",
            Type::Func { .. } => "function",
            Type::FuncProto(_) => "function type",
            Type::Var { .. } => "variable",
            Type::Datasec(_) => "section",
            Type::Float { .. } => "float",
            Type::DeclTag { .. } => "declaration tag",
            Type::TypeTag(_) => "type tag",
        }
    }
}

/// An integer type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Int {
    /// Bytes of storage.
    pub size: u32,
    /// Significant bits; fewer than `8 * size` only in bitfields of old compilers.
    pub bits: u32,
    /// Where those bits start, in the same case.
    pub bit_offset: u32,
    /// Whether it is signed (`BTF_INT_SIGNED`).
    pub signed: bool,
    /// `char`. clang does not set it; see [`Btf::is_char`].
    pub is_char: bool,
    /// Whether it is `bool` (`BTF_INT_BOOL`).
    pub is_bool: bool,
}

/// An array type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Array {
    /// Type of an element.
    pub elem: TypeId,
    /// Type of an index.
    pub index: TypeId,
    /// Number of elements.
    pub len: u32,
}

/// Linkage of a function or variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Linkage {
    /// Visible in its own file only.
    Static,
    /// Defined here, visible outside.
    Global,
    /// Declared here, defined elsewhere.
    Extern,
}

impl Linkage {
    pub(super) fn new(number: u32) -> Option<Linkage> {
        match number {
            0 => Some(Linkage::Static),
            1 => Some(Linkage::Global),
            2 => Some(Linkage::Extern),
            _ => None,
        }
    }
}

/// Struct or union.
#[derive(Clone, Copy)]
pub struct Composite<'a> {
    /// Size in bytes, padding included.
    pub size: u32,
    pub(super) btf: &'a Btf,
    pub(super) bitfields: bool,
    pub(super) raw: &'a [RawMember],
}

/// Member of a struct or union.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member<'a> {
    /// Empty for an anonymous struct or union.
    pub name: &'a str,
    /// Type of the member.
    pub type_id: TypeId,
    /// Bits from the start of the struct.
    pub bit_offset: u32,
    /// Bits of a bitfield, else 0.
    pub bits: u32,
}

impl<'a> Composite<'a> {
    /// Whether members say how many bits they have: those that are no bitfields say 0.
    pub fn has_bitfields(&self) -> bool {
        self.bitfields
    }

    /// Number of members.
    pub fn len(&self) -> usize {
        self.raw.len()
    }

    /// Whether there are no members.
    pub fn is_empty(&self) -> bool {
        self.raw.is_empty()
    }

    /// The members in the order of the declaration.
    pub fn members(&self) -> impl ExactSizeIterator<Item = Member<'a>> + use<'a> {
        let this = *self;
        self.raw.iter().map(move |raw| this.read(raw))
    }

    /// The member at `index`.
    pub fn member(&self, index: usize) -> Option<Member<'a>> {
        self.raw.get(index).map(|raw| self.read(raw))
    }

    /// The types that this one is among.
    pub fn btf(&self) -> &'a Btf {
        self.btf
    }

    fn read(&self, raw: &RawMember) -> Member<'a> {
        let (bit_offset, bits) = match self.bitfields {
            true => (raw.offset & 0x00ff_ffff, raw.offset >> 24),
            false => (raw.offset, 0),
        };
        Member { name: self.btf.str(raw.name_off), type_id: TypeId(raw.type_id), bit_offset, bits }
    }
}

impl fmt::Debug for Composite<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Composite").field("size", &self.size).field("members", &self.raw).finish()
    }
}

/// An enum of either width.
#[derive(Clone, Copy)]
pub struct Enum<'a> {
    /// Size in bytes: 1, 2, 4 or 8.
    pub size: u32,
    /// Whether enumerators are signed.
    pub signed: bool,
    pub(super) btf: &'a Btf,
    pub(super) raw: RawEnums<'a>,
}

#[derive(Clone, Copy)]
pub(super) enum RawEnums<'a> {
    Narrow(&'a [RawEnum]),
    Wide(&'a [RawEnum64]),
}

/// One named constant of an enum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Enumerator<'a> {
    /// Name of the constant.
    pub name: &'a str,
    /// Value; wide enough for both signs of 64 bits.
    pub value: i128,
}

impl<'a> Enum<'a> {
    /// Number of enumerators.
    pub fn len(&self) -> usize {
        match self.raw {
            RawEnums::Narrow(raw) => raw.len(),
            RawEnums::Wide(raw) => raw.len(),
        }
    }

    /// Whether there are no enumerators.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The enumerator at `index`.
    pub fn get(&self, index: usize) -> Option<Enumerator<'a>> {
        let (name_off, value) = self.raw(index)?;
        Some(Enumerator { name: self.btf.str(name_off), value })
    }

    fn raw(&self, index: usize) -> Option<(u32, i128)> {
        Some(match self.raw {
            RawEnums::Narrow(raw) => {
                let raw = raw.get(index)?;
                let value = if self.signed { i128::from(raw.value.cast_signed()) } else { i128::from(raw.value) };
                (raw.name_off, value)
            }
            RawEnums::Wide(raw) => {
                let raw = raw.get(index)?;
                let value = u64::from(raw.high) << 32 | u64::from(raw.low);
                (raw.name_off, if self.signed { i128::from(value.cast_signed()) } else { i128::from(value) })
            }
        })
    }

    /// Name of the first enumerator with this value.
    pub fn name_of(&self, value: i128) -> Option<&'a str> {
        let found = (0..self.len()).filter_map(|index| self.raw(index)).find(|&(_, other)| other == value);
        found.map(|(name_off, _)| self.btf.str(name_off))
    }

    /// The enumerators in the order of the declaration.
    pub fn enumerators(&self) -> impl Iterator<Item = Enumerator<'a>> + use<'a> {
        let this = *self;
        (0..this.len()).map_while(move |index| this.get(index))
    }
}

impl fmt::Debug for Enum<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Enum").field("size", &self.size).field("len", &self.len()).finish()
    }
}

/// Parameters and result of functions.
#[derive(Clone, Copy)]
pub struct FuncProto<'a> {
    /// Type of the result.
    pub result: TypeId,
    pub(super) btf: &'a Btf,
    pub(super) raw: &'a [RawParam],
}

/// A parameter. The last one is `...` if it has type 0 (and no name).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Param<'a> {
    /// May be empty.
    pub name: &'a str,
    /// Type of the parameter.
    pub type_id: TypeId,
}

impl<'a> FuncProto<'a> {
    /// Whether `...` ends the parameters.
    pub fn is_variadic(&self) -> bool {
        self.raw.last().is_some_and(|last| last.type_id == 0)
    }

    /// The parameters; `...` is one of type 0.
    pub fn all_params(&self) -> impl ExactSizeIterator<Item = Param<'a>> + use<'a> {
        let btf = self.btf;
        self.raw.iter().map(|raw| Param { name: btf.str(raw.name_off), type_id: TypeId(raw.type_id) })
    }

    /// The parameters without `...`.
    pub fn params(&self) -> impl ExactSizeIterator<Item = Param<'a>> + use<'a> {
        let btf = self.btf;
        let fixed = self.raw.len() - usize::from(self.is_variadic());
        self.raw.iter().take(fixed).map(|raw| Param { name: btf.str(raw.name_off), type_id: TypeId(raw.type_id) })
    }
}

impl fmt::Debug for FuncProto<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FuncProto").field("result", &self.result).field("params", &self.raw).finish()
    }
}

/// The variables (and, for `.ksyms`, functions) of a section.
#[derive(Clone, Copy)]
pub struct Datasec<'a> {
    /// Bytes; 0 in what clang writes, the ELF section knows.
    pub size: u32,
    pub(super) btf: &'a Btf,
    pub(super) raw: &'a [RawSecinfo],
}

/// A variable of a section, or a function of `.ksyms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VarInfo<'a> {
    /// Name of the variable's ELF symbol.
    pub name: &'a str,
    /// The `VAR` or `FUNC` itself.
    pub var_id: TypeId,
    /// Type of the variable, or prototype of the function.
    pub type_id: TypeId,
    /// Static, global or extern.
    pub linkage: Linkage,
    /// Whether it is a function.
    pub is_func: bool,
    /// Offset in the section; 0 for every variable in what clang writes (the symbol knows).
    pub offset: u32,
    /// Bytes, including a flexible array's initialiser; 0 for externs.
    pub size: u32,
}

impl<'a> Datasec<'a> {
    /// The entries in the order of the section. Entries that are neither variable nor function are left out.
    pub fn vars(&self) -> impl Iterator<Item = VarInfo<'a>> + use<'a> {
        let (btf, raw) = (self.btf, self.raw);
        raw.iter().filter_map(move |raw| {
            let info = btf.var_info(TypeId(raw.type_id))?;
            Some(VarInfo { offset: raw.offset, size: raw.size, ..info })
        })
    }
}

impl fmt::Debug for Datasec<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Datasec").field("size", &self.size).field("vars", &self.raw).finish()
    }
}
