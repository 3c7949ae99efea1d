//! Text to bytes by type: what `--set VAR=VALUE` and `--set VAR.member[2]=VALUE` write into a global variable.
//!
//! Nothing is rounded, cut or wrapped: what does not fit is an error that says what would.

use super::order::Order;
use super::{Btf, Composite, Endian, Enum, SetError, Type, TypeId};

/// Members searched for one name, through anonymous structs and unions.
const MAX_SEARCH: usize = 1 << 17;
/// Anonymous structs inside each other that are searched.
const MAX_ANONYMOUS: usize = 16;
/// Names listed in an error.
const MAX_LISTED: usize = 16;

/// Where a member lies inside a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberLocation {
    /// Byte offset; for a bitfield, of its first bit's byte.
    pub off: u32,
    /// Type of the member.
    pub type_id: TypeId,
    /// For a bitfield: first bit, counted inside the byte at `off` as BTF does, and number of bits.
    pub bits: Option<(u32, u32)>,
}

/// Sets the member `path` (see [`locate`]; empty for the whole) of a variable of type `id` that lies in `bytes`.
pub fn set_value(
    btf: &Btf,
    id: TypeId,
    path: &str,
    text: &str,
    bytes: &mut [u8],
    endian: Endian,
) -> Result<(), SetError> {
    let location = locate(btf, id, path)?;
    let (off, have) = (location.off as usize, bytes.len());
    let need = match location.bits {
        Some((first, bits)) => (first.saturating_add(bits)).div_ceil(8),
        None => btf.size_of(location.type_id)?,
    } as usize;
    let end = off.saturating_add(need);
    let Some(target) = bytes.get_mut(off..end) else {
        return Err(SetError::OutOfBounds { type_name: btf.type_name(location.type_id), need, off, have });
    };
    let Some((first, bits)) = location.bits else {
        return encode_value(btf, location.type_id, text, target, endian);
    };
    let value = number(btf, location.type_id, text, Some(bits))?;
    let (Some(shift), 1..=16) = (endian.bit_shift(need, first, bits), need) else {
        return Err(unsettable(btf, location.type_id, "bitfield", "it is too wide"));
    };
    let mask = mask(bits) << shift;
    endian.write(endian.read(target) & !mask | (value << shift & mask), target);
    Ok(())
}

/// Writes the value that `text` means for type `id` to the start of `out`.
///
/// Integers: decimal, `0x`, `0b`, octal with a leading 0, `-`, `'c'`. Enums: enumerators or integers. `bool`:
/// `true`, `false`, `y`, `n`, 1, 0. `char[N]`: the text as it is, which must leave room for the NUL; the rest
/// becomes zero. Structs and other arrays are set member by member.
pub fn encode_value(btf: &Btf, id: TypeId, text: &str, out: &mut [u8], endian: Endian) -> Result<(), SetError> {
    let (need, have) = (btf.size_of(id)? as usize, out.len());
    let Some(out) = out.get_mut(..need) else {
        return Err(SetError::OutOfBounds { type_name: btf.type_name(id), need, off: 0, have });
    };
    let (_, found) = btf.resolve(id)?;
    match found {
        Type::Int(_) | Type::Enum(_) | Type::Enum64(_) => {
            let value = number(btf, id, text, None)?;
            endian.write(value, out);
            Ok(())
        }
        Type::Float { size } => {
            let value = float(btf, id, text, size)?;
            endian.write(value, out);
            Ok(())
        }
        Type::Array(array) if btf.is_char(array.elem) => string(btf, id, text, out),
        Type::Array(_) => Err(unsettable(btf, id, "array", "set its elements one by one, as in name[0]=1")),
        Type::Struct(inside) | Type::Union(inside) => {
            let hint = format!("set one of its members: {}", members(&inside));
            Err(unsettable(btf, id, found.kind_name(), &hint))
        }
        Type::Var { type_id, .. } => encode_value(btf, skip_var(btf, type_id)?, text, out, endian),
        Type::Ptr(_) => Err(unsettable(btf, id, "pointer", "there is nothing a text could point to")),
        Type::Void | Type::Fwd { .. } | Type::Func { .. } | Type::FuncProto(_) | Type::Datasec(_) => {
            Err(unsettable(btf, id, found.kind_name(), "it is no value"))
        }
        Type::DeclTag { .. } | Type::TypeTag(_) | Type::Typedef(_) | Type::Const(_) => {
            Err(unsettable(btf, id, found.kind_name(), "it is no value"))
        }
        Type::Volatile(_) | Type::Restrict(_) => Err(unsettable(btf, id, found.kind_name(), "it is no value")),
    }
}

/// A variable's type; hostile BTF may have variables of variables, which C has not.
fn skip_var(btf: &Btf, id: TypeId) -> Result<TypeId, SetError> {
    match btf.resolve(id)? {
        (_, Type::Var { .. }) => Err(unsettable(btf, id, "variable", "its type is a variable")),
        (id, _) => Ok(id),
    }
}

fn unsettable(btf: &Btf, id: TypeId, kind: &'static str, hint: &str) -> SetError {
    SetError::Unsettable { kind, type_name: btf.type_name(id), hint: hint.to_owned() }
}

/// Finds `.a.b[2]` (the first dot may be left out) in a value of type `id`. Members of anonymous structs and unions
/// count as members of the struct around them, as in C.
pub fn locate(btf: &Btf, id: TypeId, path: &str) -> Result<MemberLocation, SetError> {
    let mut location = MemberLocation { off: 0, type_id: id, bits: None };
    if let Type::Var { type_id, .. } = btf.get(id)? {
        location.type_id = skip_var(btf, type_id)?;
    }
    let bad_path = || SetError::Path { path: path.to_owned() };
    let mut rest = path;
    while !rest.is_empty() {
        if let Some(inside) = rest.strip_prefix('[') {
            let (index, after) = inside.split_once(']').ok_or_else(bad_path)?;
            let index = index.trim().parse().map_err(|_| bad_path())?;
            location = element(btf, location, index)?;
            rest = after;
        } else {
            let name = match rest.strip_prefix('.') {
                Some(name) => name,
                None if rest.len() == path.len() => rest,
                None => return Err(bad_path()),
            };
            let end = name.find(['.', '[']).unwrap_or(name.len());
            let (name, after) = name.split_at(end);
            if name.is_empty() {
                return Err(bad_path());
            }
            location = member(btf, location, name)?;
            rest = after;
        }
    }
    Ok(location)
}

fn element(btf: &Btf, location: MemberLocation, index: u32) -> Result<MemberLocation, SetError> {
    let (_, found) = btf.resolve(location.type_id)?;
    let Type::Array(array) = found else {
        let type_name = btf.type_name(location.type_id);
        return Err(SetError::NotArray { index, type_name, kind: found.kind_name() });
    };
    // A flexible array has no length; its bytes bound it.
    if index >= array.len && array.len != 0 {
        return Err(SetError::Index { index, type_name: btf.type_name(location.type_id) });
    }
    let off = btf.size_of(array.elem)?.checked_mul(index).and_then(|off| off.checked_add(location.off));
    let off = off.ok_or_else(|| SetError::Index { index, type_name: btf.type_name(location.type_id) })?;
    Ok(MemberLocation { off, type_id: array.elem, bits: None })
}

fn member(btf: &Btf, location: MemberLocation, name: &str) -> Result<MemberLocation, SetError> {
    let (_, found) = btf.resolve(location.type_id)?;
    let (Type::Struct(inside) | Type::Union(inside)) = found else {
        let (type_name, kind) = (btf.type_name(location.type_id), found.kind_name());
        return Err(SetError::NotStruct { member: name.to_owned(), type_name, kind });
    };
    let mut budget = MAX_SEARCH;
    search(btf, &inside, name, u64::from(location.off) * 8, 0, &mut budget).ok_or_else(|| SetError::NoMember {
        member: name.to_owned(),
        type_name: btf.type_name(location.type_id),
        known: members(&inside),
    })
}

/// The member called `name` of a struct that starts at bit `base`.
fn search(
    btf: &Btf,
    inside: &Composite<'_>,
    name: &str,
    base: u64,
    depth: usize,
    budget: &mut usize,
) -> Option<MemberLocation> {
    for member in inside.members() {
        *budget = budget.checked_sub(1)?;
        let start = base + u64::from(member.bit_offset);
        if member.name.is_empty() {
            let Ok((_, Type::Struct(deeper) | Type::Union(deeper))) = btf.resolve(member.type_id) else { continue };
            if depth < MAX_ANONYMOUS
                && let Some(location) = search(btf, &deeper, name, start, depth + 1, budget)
            {
                return Some(location);
            }
        } else if member.name == name {
            let is_bitfield = member.bits != 0 || btf.is_bitfield_int(member.type_id);
            let first = base + u64::from(if is_bitfield { btf.bits_of(&member)?.0 } else { member.bit_offset });
            let bits = if is_bitfield { Some(((first % 8) as u32, btf.bits_of(&member)?.1)) } else { None };
            return Some(MemberLocation { off: u32::try_from(first / 8).ok()?, type_id: member.type_id, bits });
        }
    }
    None
}

fn members(inside: &Composite<'_>) -> String {
    let names = inside.members().map(|member| if member.name.is_empty() { "(anonymous)" } else { member.name });
    list(names, inside.len())
}

/// Some names for an error.
fn list<'a>(names: impl Iterator<Item = &'a str>, len: usize) -> String {
    let mut text = names.take(MAX_LISTED).collect::<Vec<_>>().join(", ");
    match len {
        0 => text.push_str("nothing"),
        1..=MAX_LISTED => (),
        _ => text.push_str(&format!(" and {} more", len - MAX_LISTED)),
    }
    text
}

fn string(btf: &Btf, id: TypeId, text: &str, out: &mut [u8]) -> Result<(), SetError> {
    if text.as_bytes().contains(&0) {
        return Err(SetError::Nul);
    }
    let (len, max) = (text.len(), out.len().saturating_sub(1));
    if len > max || out.is_empty() {
        return Err(SetError::TooLong { len, type_name: btf.type_name(id), max });
    }
    let (start, rest) = out.split_at_mut(len);
    start.copy_from_slice(text.as_bytes());
    rest.fill(0);
    Ok(())
}

/// The bits of `text` as an integer or enum of type `id`; of `bits` bits if it is a bitfield.
fn number(btf: &Btf, id: TypeId, text: &str, bits: Option<u32>) -> Result<u128, SetError> {
    let (_, found) = btf.resolve(id)?;
    let text = text.trim();
    let syntax = |hint| SetError::Syntax { text: text.to_owned(), type_name: btf.type_name(id), hint };
    let width = bits.unwrap_or(btf.size_of(id)?.saturating_mul(8));
    if !(1..=128).contains(&width) {
        return Err(unsettable(btf, id, found.kind_name(), "integers have 1 to 16 bytes"));
    }
    match found {
        Type::Int(int) if int.is_bool => match text {
            "true" | "1" | "y" | "yes" => Ok(1),
            "false" | "0" | "n" | "no" => Ok(0),
            _ => Err(syntax("write true or false")),
        },
        Type::Int(int) => {
            let mut chars = text.chars();
            if let (true, Some(only), None) = (btf.is_char(id), chars.next(), chars.next())
                && only.is_ascii()
                && !only.is_ascii_digit()
            {
                return Ok(u128::from(u32::from(only)));
            }
            let parsed = parse_integer(text).ok_or_else(|| syntax("write 42, -42, 0x2a, 052, 0b101010 or '*'"))?;
            parsed.fit(btf, id, text, width, int.signed)
        }
        Type::Enum(found) | Type::Enum64(found) => enumerator(btf, id, text, width, &found),
        Type::Void | Type::Ptr(_) | Type::Array(_) | Type::Struct(_) | Type::Union(_) | Type::Fwd { .. } => {
            Err(unsettable(btf, id, found.kind_name(), "it is no number"))
        }
        Type::Func { .. } | Type::FuncProto(_) | Type::Var { .. } | Type::Datasec(_) | Type::Float { .. } => {
            Err(unsettable(btf, id, found.kind_name(), "it is no number"))
        }
        Type::Typedef(_) | Type::Const(_) | Type::Volatile(_) | Type::Restrict(_) => {
            Err(unsettable(btf, id, found.kind_name(), "it is no number"))
        }
        Type::DeclTag { .. } | Type::TypeTag(_) => Err(unsettable(btf, id, found.kind_name(), "it is no number")),
    }
}

fn enumerator(btf: &Btf, id: TypeId, text: &str, width: u32, found: &Enum<'_>) -> Result<u128, SetError> {
    if let Some(hit) = found.enumerators().find(|enumerator| enumerator.name == text) {
        let (negative, magnitude) = (hit.value < 0, hit.value.unsigned_abs());
        return Integer { negative, magnitude }.fit(btf, id, text, width, found.signed);
    }
    match parse_integer(text) {
        Some(parsed) => parsed.fit(btf, id, text, width, found.signed),
        None => {
            let known = list(found.enumerators().map(|enumerator| enumerator.name), found.len());
            Err(SetError::Enumerator { text: text.to_owned(), type_name: btf.type_name(id), known })
        }
    }
}

/// An integer as it was written, up to 128 bits and a sign.
#[derive(Clone, Copy)]
struct Integer {
    negative: bool,
    magnitude: u128,
}

impl Integer {
    /// Two's complement of `width` bits, if the number is in range.
    fn fit(self, btf: &Btf, id: TypeId, text: &str, width: u32, signed: bool) -> Result<u128, SetError> {
        let max = if signed { mask(width) >> 1 } else { mask(width) };
        let min = if signed { max + 1 } else { 0 };
        let limit = if self.negative { min } else { max };
        if self.magnitude <= limit {
            return Ok(if self.negative { self.magnitude.wrapping_neg() & mask(width) } else { self.magnitude });
        }
        let min = if signed { format!("-{min}") } else { min.to_string() };
        Err(SetError::Range { text: text.to_owned(), type_name: btf.type_name(id), min, max: max.to_string() })
    }
}

fn parse_integer(text: &str) -> Option<Integer> {
    if let Some(magnitude) = parse_char(text) {
        return Some(Integer { negative: false, magnitude: u128::from(magnitude) });
    }
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let lower = digits.to_ascii_lowercase();
    let (radix, digits) = match lower.as_bytes() {
        [b'0', b'x', ..] => (16, &lower[2..]),
        [b'0', b'b', ..] => (2, &lower[2..]),
        [b'0', b'o', ..] => (8, &lower[2..]),
        [b'0', _, ..] => (8, &lower[1..]),
        _ => (10, &lower[..]),
    };
    if !digits.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return None;
    }
    let magnitude = u128::from_str_radix(digits, radix).ok()?;
    Some(Integer { negative, magnitude })
}

/// `'c'`, `'\n'`, `'\x1b'`.
fn parse_char(text: &str) -> Option<u8> {
    let inside = text.strip_prefix('\'')?.strip_suffix('\'')?;
    match inside.as_bytes() {
        [b'\\', b'x', digits @ ..] if (1..=2).contains(&digits.len()) => {
            u8::from_str_radix(inside.get(2..)?, 16).ok().filter(|_| digits.iter().all(u8::is_ascii_hexdigit))
        }
        [b'\\', letter] => Some(match letter {
            b'0' => 0,
            b'a' => 7,
            b'b' => 8,
            b't' => 9,
            b'n' => 10,
            b'v' => 11,
            b'f' => 12,
            b'r' => 13,
            b'\\' | b'\'' | b'"' => *letter,
            _ => return None,
        }),
        [only] if *only != b'\\' => Some(*only),
        _ => None,
    }
}

fn float(btf: &Btf, id: TypeId, text: &str, size: u32) -> Result<u128, SetError> {
    let hint = "write 1.5, -2e10, inf or nan";
    let syntax = || SetError::Syntax { text: text.to_owned(), type_name: btf.type_name(id), hint };
    let value: f64 = text.trim().parse().map_err(|_| syntax())?;
    let narrow = value as f32;
    match size {
        8 => Ok(u128::from(value.to_bits())),
        4 if value.is_finite() && !narrow.is_finite() => Err(SetError::Range {
            text: text.to_owned(),
            type_name: btf.type_name(id),
            min: format!("{:e}", f32::MIN),
            max: format!("{:e}", f32::MAX),
        }),
        4 => Ok(u128::from(narrow.to_bits())),
        _ => Err(unsettable(btf, id, "float", "floats have 4 or 8 bytes")),
    }
}

/// The low `bits` bits (1 to 128) set.
pub(super) fn mask(bits: u32) -> u128 {
    u128::MAX.checked_shr(128 - bits.min(128)).unwrap_or(0)
}
