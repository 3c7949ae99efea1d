//! Bytes to text by type, in the notation of a C initialiser: `{ .comm = "bash", .count = 3 }`.
//!
//! Bounded in depth and in length, so that a dump of a hostile or huge value stays readable. Bytes that are missing
//! print as `?`.

use std::fmt::Write as _;

use super::order::Order;
use super::query::MAX_DEPTH;
use super::value::mask;
use super::{Array, Btf, Composite, Endian, Enum, Int, Member, Type, TypeId};

/// Text past this is cut.
const MAX_TEXT: usize = 64 << 10;
/// Elements of an array past this are left out.
const MAX_ELEMENTS: u32 = 1024;
/// Members and (eighths of) enumerators looked at; bounds what prints nothing, such as nests of empty structs.
const MAX_WORK: usize = 1 << 17;

/// The value of type `id` at the start of `bytes`. Text is cut, with `...`, after 64 KiB.
pub fn format_value(btf: &Btf, id: TypeId, bytes: &[u8], endian: Endian) -> String {
    let mut printer = Printer { btf, endian, bytes, out: String::new(), work: MAX_WORK };
    printer.value(id, 0, 0);
    if printer.is_full() {
        printer.out.push_str("...");
    }
    printer.out
}

struct Printer<'a> {
    btf: &'a Btf,
    endian: Endian,
    bytes: &'a [u8],
    out: String,
    /// Left of [`MAX_WORK`].
    work: usize,
}

impl Printer<'_> {
    fn is_full(&self) -> bool {
        self.out.len() >= MAX_TEXT || self.work == 0
    }

    fn take(&self, off: u64, size: u32) -> Option<&[u8]> {
        let start = usize::try_from(off).ok()?;
        self.bytes.get(start..start.checked_add(size as usize)?)
    }

    fn value(&mut self, id: TypeId, off: u64, depth: usize) {
        let (Ok((found_id, found)), true) = (self.btf.resolve(id), depth <= MAX_DEPTH) else {
            return self.out.push('?');
        };
        if off >= self.bytes.len() as u64 && self.btf.size_of(id) != Ok(0) {
            return self.out.push('?');
        }
        match found {
            Type::Int(int) => self.int(found_id, int, off),
            Type::Ptr(_) => match self.take(off, 8).map(|bytes| self.endian.read(bytes)) {
                Some(value) => _ = write!(self.out, "{value:#x}"),
                None => self.out.push('?'),
            },
            Type::Enum(found) | Type::Enum64(found) => match self.take(off, found.size.min(16)) {
                Some(bytes) => {
                    let value = self.endian.read(bytes);
                    self.enumerator(&found, value, found.size.saturating_mul(8));
                }
                None => self.out.push('?'),
            },
            Type::Float { size } => self.float(size, off),
            Type::Array(array) if self.btf.is_char(array.elem) => self.string(off, array.len),
            Type::Array(array) => self.array(&array, off, depth),
            Type::Struct(found) | Type::Union(found) => {
                self.out.push('{');
                let mut first = true;
                self.members(&found, off, depth, &mut first);
                self.out.push_str(if first { "}" } else { " }" });
            }
            Type::Var { type_id, .. } => self.value(type_id, off, depth + 1),
            Type::Void | Type::Fwd { .. } | Type::Func { .. } | Type::FuncProto(_) => self.out.push('?'),
            Type::Datasec(_) | Type::DeclTag { .. } => self.out.push('?'),
            Type::Typedef(_) | Type::Const(_) | Type::Volatile(_) | Type::Restrict(_) | Type::TypeTag(_) => {
                unreachable!("resolve went through them")
            }
        }
    }

    fn int(&mut self, id: TypeId, int: Int, off: u64) {
        let bytes = self.take(off, int.size);
        let Some(value) = bytes.filter(|bytes| bytes.len() <= 16).map(|bytes| self.endian.read(bytes)) else {
            self.out.push('?');
            return;
        };
        let is_char = int.size == 1 && self.btf.is_char(id);
        self.number(int, is_char, value, int.size.saturating_mul(8));
    }

    fn number(&mut self, int: Int, is_char: bool, value: u128, bits: u32) {
        let printable = u8::try_from(value).ok().filter(|byte| is_char && (byte.is_ascii_graphic() || *byte == b' '));
        if let (true, 0 | 1) = (int.is_bool, value) {
            self.out.push_str(if value == 1 { "true" } else { "false" });
        } else if let Some(byte) = printable {
            _ = write!(self.out, "'{}'", char::from(byte).escape_default());
        } else if int.signed && !int.is_bool {
            _ = write!(self.out, "{}", sign_extend(value, bits));
        } else {
            _ = write!(self.out, "{value}");
        }
    }

    fn enumerator(&mut self, found: &Enum<'_>, value: u128, bits: u32) {
        let signed = sign_extend(value, bits);
        let wanted = if found.signed { signed } else { value.cast_signed() };
        self.work = self.work.saturating_sub(1 + found.len() / 8);
        match found.name_of(wanted) {
            Some(name) => self.out.push_str(name),
            None => _ = write!(self.out, "{wanted}"),
        }
    }

    fn float(&mut self, size: u32, off: u64) {
        let value = self.take(off, size.min(16)).map(|bytes| self.endian.read(bytes));
        match (size, value) {
            (4, Some(value)) => _ = write!(self.out, "{:?}", f32::from_bits(value as u32)),
            (8, Some(value)) => _ = write!(self.out, "{:?}", f64::from_bits(value as u64)),
            (_, Some(value)) => _ = write!(self.out, "{value:#x}"),
            (_, None) => self.out.push('?'),
        }
    }

    fn string(&mut self, off: u64, len: u32) {
        let start = usize::try_from(off).unwrap_or(usize::MAX);
        let Some(rest) = self.bytes.get(start..) else { return self.out.push('?') };
        // A flexible array goes to the end of the value.
        let len = if len == 0 { rest.len() } else { (len as usize).min(rest.len()) };
        let text = &rest[..len.min(MAX_TEXT)];
        let text = text.split(|&byte| byte == 0).next().unwrap_or(&[]);
        self.out.push('"');
        for chunk in text.utf8_chunks() {
            for char in chunk.valid().chars() {
                match char {
                    '"' | '\\' => self.out.extend(['\\', char]),
                    '\n' => self.out.push_str("\\n"),
                    '\t' => self.out.push_str("\\t"),
                    '\r' => self.out.push_str("\\r"),
                    control if control.is_control() => _ = write!(self.out, "\\x{:02x}", u32::from(control)),
                    char => self.out.push(char),
                }
            }
            for byte in chunk.invalid() {
                _ = write!(self.out, "\\x{byte:02x}");
            }
        }
        self.out.push('"');
    }

    fn array(&mut self, array: &Array, off: u64, depth: usize) {
        let Ok(step) = self.btf.size_of(array.elem) else { return self.out.push('?') };
        let is_byte = matches!(self.btf.resolve(array.elem), Ok((_, Type::Int(int)))
            if int.size == 1 && !int.signed && !int.is_bool);
        self.out.push('{');
        for index in 0..array.len {
            self.out.push_str(if index == 0 { " " } else { ", " });
            let at = off.saturating_add(u64::from(step) * u64::from(index));
            let is_missing = step != 0 && at >= self.bytes.len() as u64;
            if self.is_full() || index == MAX_ELEMENTS || is_missing {
                self.out.push_str("...");
                break;
            }
            match self.take(at, 1) {
                Some(&[byte]) if is_byte => _ = write!(self.out, "{byte:#04x}"),
                _ => self.value(array.elem, at, depth + 1),
            }
        }
        self.out.push_str(if array.len == 0 { "}" } else { " }" });
    }

    /// The members; those of anonymous structs and unions as if they were members of the struct around them.
    fn members(&mut self, found: &Composite<'_>, off: u64, depth: usize, first: &mut bool) {
        for member in found.members() {
            if self.is_full() {
                return;
            }
            self.work = self.work.saturating_sub(1);
            let at = off.saturating_add(u64::from(member.bit_offset / 8));
            if member.name.is_empty() {
                if let Ok((_, Type::Struct(deeper) | Type::Union(deeper))) = self.btf.resolve(member.type_id)
                    && depth <= MAX_DEPTH
                {
                    self.members(&deeper, at, depth + 1, first);
                }
                continue;
            }
            self.out.push_str(if *first { " ." } else { ", ." });
            *first = false;
            self.out.push_str(member.name);
            self.out.push_str(" = ");
            if member.bits != 0 || self.btf.is_bitfield_int(member.type_id) {
                self.bitfield(&member, off);
            } else {
                self.value(member.type_id, at, depth + 1);
            }
        }
    }

    fn bitfield(&mut self, member: &Member<'_>, off: u64) {
        let Some((value, bits)) = self.read_bits(member, off) else { return self.out.push('?') };
        match self.btf.resolve(member.type_id) {
            Ok((_, Type::Int(int))) => self.number(int, false, value, bits),
            Ok((_, Type::Enum(found) | Type::Enum64(found))) => self.enumerator(&found, value, bits),
            Ok(_) | Err(_) => _ = write!(self.out, "{value}"),
        }
    }

    fn read_bits(&self, member: &Member<'_>, off: u64) -> Option<(u128, u32)> {
        let (first, bits) = self.btf.bits_of(member)?;
        let within = first % 8;
        let size = within.checked_add(bits)?.div_ceil(8);
        let bytes = self.take(off.checked_add(u64::from(first / 8))?, size).filter(|bytes| bytes.len() <= 16)?;
        let shift = self.endian.bit_shift(bytes.len(), within, bits)?;
        Some((self.endian.read(bytes) >> shift & mask(bits), bits))
    }
}

/// The low `bits` bits as a signed number.
fn sign_extend(value: u128, bits: u32) -> i128 {
    match 128_u32.checked_sub(bits) {
        Some(unused @ 0..128) => (value << unused).cast_signed() >> unused,
        Some(_) | None => value.cast_signed(),
    }
}
