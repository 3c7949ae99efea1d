//! Types of DWARF: sizes, members, and how a value of one is taken.

use gimli::AttributeValue;
use gimli::constants as dw;

use crate::binary::Binary;
use crate::debug::{Die, Entry};
use crate::error::{Refusal, nearest_first};

/// Most qualifiers, typedefs, bases or anonymous members in each other.
const MOST_NESTED: usize = 32;

/// How the bits of a value are to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// An integer in two's complement.
    Signed,
    /// An unsigned integer.
    Unsigned,
    /// Unsigned, shown in hexadecimal.
    Hex,
    /// 0 or 1.
    Bool,
    /// A letter, in a signed or unsigned byte, or a code point.
    Char,
    /// An address of memory.
    Pointer,
    /// IEEE 754, by size.
    Float,
    /// Bytes up to a zero; the value is their address.
    String {
        /// In user memory, as `:ustring` says, wherever the probe is.
        user: bool,
    },
}

/// A value's type, by what can be done with it.
#[derive(Clone, Debug)]
pub(crate) enum Shape {
    Scalar {
        size: u64,
        encoding: Encoding,
        signed: bool,
    },
    /// A pointer or reference, to a type or `void`.
    Pointer {
        to: Option<Die>,
        is_reference: bool,
    },
    /// Structure, class or union.
    Record(Die),
    Array(Die),
    /// Only declared; its name.
    Declared(String),
    Other(String),
}

/// A member: where it is in its structure, in bits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Member {
    pub(crate) at: u64,
    /// Bits, if it is a bit-field.
    pub(crate) bits: Option<u64>,
    pub(crate) ty: Option<Die>,
}

/// What two definitions of one type have in common.
#[derive(PartialEq, Eq)]
struct Layout {
    size: Option<u64>,
    /// Name and place of each member.
    members: Vec<(String, u64)>,
}

pub(crate) struct Types<'b, 'a> {
    pub(crate) binary: &'b Binary<'a>,
}

fn number(entry: &Entry<'_>, name: gimli::DwAt) -> Option<u64> {
    entry.attr(name).and_then(|attribute| attribute.udata_value())
}

impl<'a> Types<'_, 'a> {
    pub(crate) fn type_of(&self, unit: usize, entry: &Entry<'a>) -> Result<Option<Die>, Refusal> {
        entry.attr_value(dw::DW_AT_type).map(|value| self.binary.debug().refer(unit, value)).transpose()
    }

    fn text(&self, at: Die, entry: &Entry<'a>) -> Option<String> {
        let name = self.binary.debug().unit(at.unit).ok()?.string(entry.attr_value(dw::DW_AT_name)?)?;
        Some(String::from_utf8_lossy(name).into_owned())
    }

    /// Without names and qualifiers.
    pub(crate) fn plain(&self, ty: Die) -> Result<Option<(Die, Entry<'a>)>, Refusal> {
        let mut at = ty;
        for _ in 0..MOST_NESTED {
            let entry = self.binary.debug().entry(at)?;
            match entry.tag() {
                dw::DW_TAG_typedef
                | dw::DW_TAG_const_type
                | dw::DW_TAG_volatile_type
                | dw::DW_TAG_restrict_type
                | dw::DW_TAG_atomic_type
                | dw::DW_TAG_template_alias
                | dw::DW_TAG_immutable_type
                | dw::DW_TAG_packed_type => match self.type_of(at.unit, &entry)? {
                    Some(next) => at = next,
                    None => return Ok(None),
                },
                _ => return Ok(Some((at, entry))),
            }
        }
        Err(Refusal::TooComplex("types"))
    }

    /// Its C name.
    pub(crate) fn name(&self, ty: Option<Die>) -> String {
        self.name_of(ty, MOST_NESTED).unwrap_or_else(|| "a type without name".to_owned())
    }

    fn name_of(&self, ty: Option<Die>, left: usize) -> Option<String> {
        let Some(at) = ty else { return Some("void".to_owned()) };
        let left = left.checked_sub(1)?;
        let entry = self.binary.debug().entry(at).ok()?;
        let inner = || self.name_of(self.type_of(at.unit, &entry).ok()?, left);
        let named =
            |kind: &str| Some(format!("{kind}{}", self.text(at, &entry).unwrap_or_else(|| "{unnamed}".to_owned())));
        let is_c = !self.binary.is_scoped(at.unit);
        match entry.tag() {
            dw::DW_TAG_pointer_type => match self.text(at, &entry) {
                // Rust gives its pointers names.
                Some(name) => Some(name),
                None => Some(star(&inner()?, '*')),
            },
            dw::DW_TAG_reference_type => Some(star(&inner()?, '&')),
            dw::DW_TAG_rvalue_reference_type => Some(format!("{}&", star(&inner()?, '&'))),
            dw::DW_TAG_const_type => Some(format!("const {}", inner()?)),
            dw::DW_TAG_volatile_type => Some(format!("volatile {}", inner()?)),
            dw::DW_TAG_restrict_type => inner(),
            dw::DW_TAG_structure_type if is_c => named("struct "),
            dw::DW_TAG_union_type if is_c => named("union "),
            dw::DW_TAG_enumeration_type if is_c => named("enum "),
            dw::DW_TAG_array_type => Some(format!("{}[]", inner()?)),
            dw::DW_TAG_subroutine_type => Some("a function".to_owned()),
            _ => named(""),
        }
    }

    pub(crate) fn size(&self, ty: Die) -> Result<Option<u64>, Refusal> {
        let Some((at, entry)) = self.plain(ty)? else { return Ok(None) };
        if let Some(size) = number(&entry, dw::DW_AT_byte_size) {
            return Ok(Some(size));
        }
        match entry.tag() {
            dw::DW_TAG_pointer_type | dw::DW_TAG_reference_type | dw::DW_TAG_rvalue_reference_type => Ok(Some(8)),
            dw::DW_TAG_enumeration_type => match self.type_of(at.unit, &entry)? {
                Some(inner) => self.size(inner),
                None => Ok(None),
            },
            dw::DW_TAG_array_type => {
                let Some(element) = self.type_of(at.unit, &entry)? else { return Ok(None) };
                let Some(mut size) = self.size(element)? else { return Ok(None) };
                for count in self.dimensions(at)? {
                    size = size.saturating_mul(count.unwrap_or(0));
                }
                Ok(Some(size))
            }
            _ => Ok(None),
        }
    }

    pub(crate) fn shape(&self, ty: Die) -> Result<Shape, Refusal> {
        let Some((at, entry)) = self.plain(ty)? else { return Ok(Shape::Other("void".to_owned())) };
        let size = || self.size(at).map(|size| size.unwrap_or(0));
        Ok(match entry.tag() {
            dw::DW_TAG_base_type => {
                let (encoding, signed) = base(&entry);
                match entry.attr_value(dw::DW_AT_encoding) {
                    Some(AttributeValue::Encoding(dw::DW_ATE_complex_float)) => Shape::Other(self.name(Some(ty))),
                    _ => Shape::Scalar { size: size()?, encoding, signed },
                }
            }
            dw::DW_TAG_enumeration_type => {
                let size = size()?;
                match self.type_of(at.unit, &entry)?.map(|inner| self.shape(inner)).transpose()? {
                    Some(Shape::Scalar { signed, .. }) => {
                        let encoding = if signed { Encoding::Signed } else { Encoding::Unsigned };
                        Shape::Scalar { size, encoding, signed }
                    }
                    // Without an underlying type (DWARF 2 to 4): signed if one of its values is.
                    _ => self.enumeration(at, size)?,
                }
            }
            dw::DW_TAG_pointer_type => Shape::Pointer { to: self.type_of(at.unit, &entry)?, is_reference: false },
            dw::DW_TAG_reference_type | dw::DW_TAG_rvalue_reference_type => {
                Shape::Pointer { to: self.type_of(at.unit, &entry)?, is_reference: true }
            }
            dw::DW_TAG_structure_type | dw::DW_TAG_class_type | dw::DW_TAG_union_type => self.record(at, &entry)?,
            dw::DW_TAG_array_type => Shape::Array(at),
            dw::DW_TAG_unspecified_type => {
                // nullptr_t is a null pointer; others are void.
                Shape::Other(self.text(at, &entry).unwrap_or_else(|| "void".to_owned()))
            }
            _ => Shape::Other(self.name(Some(ty))),
        })
    }

    fn enumeration(&self, at: Die, size: u64) -> Result<Shape, Refusal> {
        let signed = self.children(at)?.iter().any(|(_, child)| {
            matches!(child.attr_value(dw::DW_AT_const_value), Some(AttributeValue::Sdata(value)) if value < 0)
        });
        let encoding = if signed { Encoding::Signed } else { Encoding::Unsigned };
        Ok(Shape::Scalar { size, encoding, signed })
    }

    fn record(&self, at: Die, entry: &Entry<'a>) -> Result<Shape, Refusal> {
        if let Some(signature) = entry.attr_value(dw::DW_AT_signature) {
            return Ok(Shape::Record(self.binary.debug().refer(at.unit, signature)?));
        }
        if !matches!(entry.attr_value(dw::DW_AT_declaration), Some(AttributeValue::Flag(true))) {
            return Ok(Shape::Record(at));
        }
        let name = self.text(at, entry).unwrap_or_default();
        let found = self.binary.definitions(entry.tag(), name.as_bytes());
        let Some(first) = found.first() else { return Ok(Shape::Declared(self.name(Some(at)))) };
        let layout = self.layout(*first)?;
        for other in &found[1..] {
            if self.layout(*other)? != layout {
                return Err(Refusal::Different(self.name(Some(at))));
            }
        }
        Ok(Shape::Record(*first))
    }

    fn layout(&self, record: Die) -> Result<Layout, Refusal> {
        let members = self.children(record)?;
        let mut found = Vec::new();
        for (at, entry) in members.iter().filter(|(_, entry)| entry.tag() == dw::DW_TAG_member) {
            let place = number(entry, dw::DW_AT_data_member_location).unwrap_or(0);
            found.push((self.text(*at, entry).unwrap_or_default(), place));
        }
        Ok(Layout { size: self.size(record)?, members: found })
    }

    pub(crate) fn children(&self, of: Die) -> Result<Vec<(Die, Entry<'a>)>, Refusal> {
        let unit = &self.binary.debug().unit(of.unit)?.unit;
        let mut tree = unit.entries_tree(Some(of.offset))?;
        let mut children = tree.root()?.children();
        let mut found = Vec::new();
        while let Some(child) = children.next()? {
            let entry = child.entry();
            found.push((Die { unit: of.unit, offset: entry.offset() }, entry.clone()));
        }
        Ok(found)
    }

    /// Elements in each dimension, as far as they are known.
    pub(crate) fn dimensions(&self, array: Die) -> Result<Vec<Option<u64>>, Refusal> {
        let of = |(_, entry): &(Die, Entry<'a>)| {
            let upper = || number(entry, dw::DW_AT_upper_bound).map(|upper| upper.wrapping_add(1));
            number(entry, dw::DW_AT_count).or_else(upper)
        };
        let children = self.children(array)?;
        let ranges = children.iter().filter(|(_, entry)| entry.tag() == dw::DW_TAG_subrange_type);
        Ok(ranges.map(of).collect())
    }

    /// The element type of an array and the bytes between its elements, if they are as usual.
    pub(crate) fn element(&self, array: Die) -> Result<(Die, u64), Refusal> {
        let entry = self.binary.debug().entry(array)?;
        let element =
            self.type_of(array.unit, &entry)?.ok_or_else(|| Refusal::Damaged("an array of void".to_owned()))?;
        let stride = [dw::DW_AT_byte_stride, dw::DW_AT_bit_stride, dw::DW_AT_data_location];
        if stride.iter().any(|name| entry.has_attr(*name)) {
            return Err(Refusal::Operation("its elements are not one after the other".to_owned()));
        }
        match self.size(element)? {
            Some(size) if size > 0 => Ok((element, size)),
            _ => Err(Refusal::Incomplete(self.name(Some(element)))),
        }
    }

    /// The member of that name, also in anonymous members and base classes.
    pub(crate) fn member(&self, record: Die, name: &str) -> Result<Member, Refusal> {
        if let Some(member) = self.find(record, name, 0, MOST_NESTED)? {
            return Ok(member);
        }
        let members = nearest_first(name, self.members(record)?);
        Err(Refusal::NoMember { ty: self.name(Some(record)), name: name.to_owned(), members })
    }

    /// Names of members, those of anonymous ones as well.
    pub(crate) fn members(&self, record: Die) -> Result<Vec<String>, Refusal> {
        let mut members = Vec::new();
        self.names(record, &mut members, MOST_NESTED)?;
        Ok(members)
    }

    fn find(&self, record: Die, name: &str, base: u64, left: usize) -> Result<Option<Member>, Refusal> {
        let left = left.checked_sub(1).ok_or(Refusal::TooComplex("types"))?;
        for (at, entry) in self.children(record)? {
            let is_base = entry.tag() == dw::DW_TAG_inheritance;
            if entry.tag() != dw::DW_TAG_member && !is_base {
                continue;
            }
            let found = self.text(at, &entry);
            if found.as_deref() == Some(name) && !is_base {
                if entry.has_attr(dw::DW_AT_external) {
                    continue; // A static member of C++ before DWARF 5 is no part of the structure.
                }
                let (place, bits) = self.bits(at, &entry)?;
                let ty = self.type_of(at.unit, &entry)?;
                return Ok(Some(Member { at: base.saturating_add(place), bits, ty }));
            }
            if found.is_some() && !is_base {
                continue;
            }
            let Some(inner) = self.type_of(at.unit, &entry)? else { continue };
            if let Shape::Record(inner) = self.shape(inner)? {
                // A virtual base is somewhere else in each object.
                let place = match self.bits(at, &entry) {
                    Ok((place, _)) => place,
                    Err(_) if self.find(inner, name, 0, left)?.is_none() => continue,
                    Err(refusal) => return Err(refusal),
                };
                if let Some(member) = self.find(inner, name, base.saturating_add(place), left)? {
                    return Ok(Some(member));
                }
            }
        }
        Ok(None)
    }

    fn names(&self, record: Die, names: &mut Vec<String>, left: usize) -> Result<(), Refusal> {
        let left = left.checked_sub(1).ok_or(Refusal::TooComplex("types"))?;
        for (at, entry) in self.children(record)? {
            match (entry.tag(), self.text(at, &entry)) {
                (dw::DW_TAG_member, Some(name)) => names.push(name),
                (dw::DW_TAG_member | dw::DW_TAG_inheritance, _) => {
                    if let Some(inner) = self.type_of(at.unit, &entry)?
                        && let Shape::Record(inner) = self.shape(inner)?
                    {
                        self.names(inner, names, left)?;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Where a member is, in bits from the start of its structure, and how many if it is a bit-field.
    pub(crate) fn bits(&self, at: Die, entry: &Entry<'a>) -> Result<(u64, Option<u64>), Refusal> {
        let width = number(entry, dw::DW_AT_bit_size);
        if let (Some(place), Some(width)) = (number(entry, dw::DW_AT_data_bit_offset), width) {
            return Ok((place, Some(width)));
        }
        let bytes = match entry.attr_value(dw::DW_AT_data_member_location) {
            None => 0,
            Some(value) => match (value.udata_value(), value.exprloc_value()) {
                (Some(place), _) => place,
                (None, Some(expression)) => {
                    let encoding = self.binary.debug().unit(at.unit)?.unit.encoding();
                    let mut ops = expression.operations(encoding);
                    match (ops.next()?, ops.next()?) {
                        (Some(gimli::Operation::PlusConstant { value }), None) => value,
                        _ => {
                            return Err(Refusal::Operation(
                                "a member (of a virtual base) whose place is computed".to_owned(),
                            ));
                        }
                    }
                }
                _ => return Err(Refusal::Operation("a member whose place is in a list".to_owned())),
            },
        };
        let place = bytes.checked_mul(8).ok_or_else(|| Refusal::Damaged("a member beyond all memory".to_owned()))?;
        let Some(width) = width else { return Ok((place, None)) };
        // DWARF 2 to 4: from the most significant bit of a unit of storage.
        let Some(from_top) = number(entry, dw::DW_AT_bit_offset) else { return Ok((place, Some(width))) };
        let storage = match number(entry, dw::DW_AT_byte_size) {
            Some(size) => size,
            None => self.type_of(at.unit, entry)?.map(|ty| self.size(ty)).transpose()?.flatten().unwrap_or(0),
        };
        let signed = entry.attr(dw::DW_AT_bit_offset).and_then(|value| value.sdata_value()).unwrap_or(0);
        let from_top = if signed < 0 { signed } else { i64::try_from(from_top).unwrap_or(i64::MAX) };
        let end = i128::from(place) + i128::from(storage) * 8 - i128::from(from_top);
        match u64::try_from(end - i128::from(width)) {
            Ok(place) => Ok((place, Some(width))),
            Err(_) => Err(Refusal::Damaged("a bit-field outside of its storage".to_owned())),
        }
    }
}

fn base(entry: &Entry<'_>) -> (Encoding, bool) {
    let Some(AttributeValue::Encoding(encoding)) = entry.attr_value(dw::DW_AT_encoding) else {
        return (Encoding::Hex, false);
    };
    match encoding {
        dw::DW_ATE_signed => (Encoding::Signed, true),
        dw::DW_ATE_unsigned => (Encoding::Unsigned, false),
        dw::DW_ATE_boolean => (Encoding::Bool, false),
        dw::DW_ATE_signed_char => (Encoding::Char, true),
        dw::DW_ATE_unsigned_char | dw::DW_ATE_UTF | dw::DW_ATE_UCS | dw::DW_ATE_ASCII => (Encoding::Char, false),
        dw::DW_ATE_address => (Encoding::Pointer, false),
        dw::DW_ATE_float => (Encoding::Float, false),
        _ => (Encoding::Hex, false),
    }
}

fn star(inner: &str, mark: char) -> String {
    let space = if inner.ends_with(['*', '&']) { "" } else { " " };
    format!("{inner}{space}{mark}")
}
