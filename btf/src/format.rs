//! Bytes to text by type, in the notation of a C initialiser, `{ .comm = "bash", .count = 3 }`, or as JSON.
//!
//! Bounded in depth and in length, so that a dump of a hostile or huge value stays readable. Bytes that are missing
//! print as `?`, in JSON as `null`.

use std::fmt::Write as _;

use super::order::Order;
use super::query::MAX_DEPTH;
use super::value::mask;
use super::{Array, Btf, Composite, Datasec, Endian, Enum, Int, Member, Type, TypeId};

/// Text past this is cut.
const MAX_TEXT: usize = 64 << 10;
/// The same in JSON, which programs read.
const MAX_JSON: usize = 64 << 20;
/// Elements of an array past this are left out.
const MAX_ELEMENTS: u32 = 1024;
/// Members and (eighths of) enumerators visited; bounds what prints nothing, such as nests of empty structs.
const MAX_WORK: usize = 1 << 17;

/// The value of type `id` at the start of `bytes`. Text is cut, with `...`, after 64 KiB.
pub fn format_value(btf: &Btf, id: TypeId, bytes: &[u8], endian: Endian) -> String {
    let mut printer = Printer { btf, endian, bytes, notation: Notation::C, out: String::new(), work: MAX_WORK };
    printer.value(id, 0, 0);
    if printer.is_full() {
        printer.out.push_str("...");
    }
    printer.out
}

/// The same as JSON: structs are objects, enumerators and pointers strings, `char[N]` too, other arrays arrays.
pub fn json_value(btf: &Btf, id: TypeId, bytes: &[u8], endian: Endian) -> String {
    let mut printer = Printer { btf, endian, bytes, notation: Notation::Json, out: String::new(), work: MAX_WORK };
    printer.value(id, 0, 0);
    printer.out
}

/// How values are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Notation {
    C,
    Json,
}

struct Printer<'a> {
    btf: &'a Btf,
    endian: Endian,
    bytes: &'a [u8],
    notation: Notation,
    out: String,
    /// Left of [`MAX_WORK`].
    work: usize,
}

impl Printer<'_> {
    fn is_full(&self) -> bool {
        let most = match self.notation {
            Notation::C => MAX_TEXT,
            Notation::Json => MAX_JSON,
        };
        self.out.len() >= most || self.work == 0
    }

    /// What there are no bytes for.
    fn missing(&mut self) {
        self.out.push_str(match self.notation {
            Notation::C => "?",
            Notation::Json => "null",
        });
    }

    /// A name before a value.
    fn name(&mut self, name: &str, first: &mut bool) {
        match self.notation {
            Notation::C => _ = write!(self.out, "{} .{name} = ", if *first { "" } else { "," }),
            Notation::Json => {
                self.out.push_str(if *first { "" } else { "," });
                self.quoted(name.as_bytes());
                self.out.push(':');
            }
        }
        *first = false;
    }

    /// The end of a list of names with values.
    fn close(&mut self, empty: bool) {
        self.out.push_str(if empty || self.notation == Notation::Json { "}" } else { " }" });
    }

    fn take(&self, off: u64, size: u32) -> Option<&[u8]> {
        let start = usize::try_from(off).ok()?;
        self.bytes.get(start..start.checked_add(size as usize)?)
    }

    fn value(&mut self, id: TypeId, off: u64, depth: usize) {
        let (Ok((found_id, found)), true) = (self.btf.resolve(id), depth <= MAX_DEPTH) else {
            return self.missing();
        };
        if off >= self.bytes.len() as u64 && self.btf.size_of(id) != Ok(0) {
            return self.missing();
        }
        match found {
            Type::Int(int) => self.int(found_id, int, off),
            Type::Ptr(_) => match self.take(off, 8).map(|bytes| self.endian.read(bytes)) {
                Some(value) if self.notation == Notation::Json => _ = write!(self.out, "\"{value:#x}\""),
                Some(value) => _ = write!(self.out, "{value:#x}"),
                None => self.missing(),
            },
            Type::Enum(found) | Type::Enum64(found) => match self.take(off, found.size.min(16)) {
                Some(bytes) => {
                    let value = self.endian.read(bytes);
                    self.enumerator(&found, value, found.size.saturating_mul(8));
                }
                None => self.missing(),
            },
            Type::Float { size } => self.float(size, off),
            Type::Array(array) if self.btf.is_char(array.elem) => self.string(off, array.len),
            Type::Array(array) => self.array(&array, off, depth),
            Type::Struct(found) | Type::Union(found) => {
                self.out.push('{');
                let mut first = true;
                self.members(&found, off, depth, &mut first);
                self.close(first);
            }
            Type::Datasec(section) => self.section(&section, off, depth),
            Type::Var { type_id, .. } => self.value(type_id, off, depth + 1),
            Type::Void | Type::Fwd { .. } | Type::Func { .. } | Type::FuncProto(_) => self.missing(),
            Type::DeclTag { .. } => self.missing(),
            Type::Typedef(_) | Type::Const(_) | Type::Volatile(_) | Type::Restrict(_) | Type::TypeTag(_) => {
                unreachable!("resolve went through them")
            }
        }
    }

    fn int(&mut self, id: TypeId, int: Int, off: u64) {
        let bytes = self.take(off, int.size);
        let Some(value) = bytes.filter(|bytes| bytes.len() <= 16).map(|bytes| self.endian.read(bytes)) else {
            self.missing();
            return;
        };
        let is_char = int.size == 1 && self.notation == Notation::C && self.btf.is_char(id);
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
            Some(name) if self.notation == Notation::Json => self.quoted(name.as_bytes()),
            Some(name) => self.out.push_str(name),
            None => _ = write!(self.out, "{wanted}"),
        }
    }

    fn float(&mut self, size: u32, off: u64) {
        let value = self.take(off, size.min(16)).map(|bytes| self.endian.read(bytes));
        let number = match (size, value) {
            (4, Some(value)) => f64::from(f32::from_bits(value as u32)),
            (8, Some(value)) => f64::from_bits(value as u64),
            (_, Some(value)) if self.notation == Notation::C => {
                _ = write!(self.out, "{value:#x}");
                return;
            }
            (_, _) => return self.missing(),
        };
        match self.notation {
            Notation::Json if !number.is_finite() => self.missing(),
            // As short as the type allows.
            Notation::C | Notation::Json if size == 4 => _ = write!(self.out, "{:?}", number as f32),
            Notation::C | Notation::Json => _ = write!(self.out, "{number:?}"),
        }
    }

    fn string(&mut self, off: u64, len: u32) {
        let start = usize::try_from(off).unwrap_or(usize::MAX);
        let Some(rest) = self.bytes.get(start..) else { return self.missing() };
        // A flexible array goes to the end of the value.
        let len = if len == 0 { rest.len() } else { (len as usize).min(rest.len()) };
        let text = &rest[..len.min(MAX_TEXT)];
        let text = text.split(|&byte| byte == 0).next().unwrap_or(&[]).to_vec();
        self.quoted(&text);
    }

    fn quoted(&mut self, text: &[u8]) {
        self.out.push('"');
        for chunk in text.utf8_chunks() {
            for char in chunk.valid().chars() {
                match char {
                    '"' | '\\' => self.out.extend(['\\', char]),
                    '\n' => self.out.push_str("\\n"),
                    '\t' => self.out.push_str("\\t"),
                    '\r' => self.out.push_str("\\r"),
                    control if control.is_control() => match self.notation {
                        Notation::C => _ = write!(self.out, "\\x{:02x}", u32::from(control)),
                        Notation::Json => _ = write!(self.out, "\\u{:04x}", u32::from(control)),
                    },
                    char => self.out.push(char),
                }
            }
            match self.notation {
                Notation::C => chunk.invalid().iter().for_each(|byte| _ = write!(self.out, "\\x{byte:02x}")),
                Notation::Json if chunk.invalid().is_empty() => {}
                Notation::Json => self.out.push(char::REPLACEMENT_CHARACTER),
            }
        }
        self.out.push('"');
    }

    fn array(&mut self, array: &Array, off: u64, depth: usize) {
        let Ok(step) = self.btf.size_of(array.elem) else { return self.missing() };
        let is_byte = matches!(self.btf.resolve(array.elem), Ok((_, Type::Int(int)))
            if int.size == 1 && !int.signed && !int.is_bool);
        let (open, between, close) = match self.notation {
            Notation::C => ("{ ", ", ", " }"),
            Notation::Json => ("[", ",", "]"),
        };
        for index in 0..array.len {
            let at = off.saturating_add(u64::from(step) * u64::from(index));
            let is_missing = step != 0 && at >= self.bytes.len() as u64;
            let is_much = index == MAX_ELEMENTS && (step == 0 || self.notation == Notation::C);
            if self.is_full() || is_much || is_missing {
                self.out.push_str(match self.notation {
                    Notation::C if index == 0 => "{ ...",
                    Notation::C => ", ...",
                    Notation::Json if index == 0 => "[",
                    Notation::Json => "",
                });
                break;
            }
            self.out.push_str(if index == 0 { open } else { between });
            match self.take(at, 1) {
                Some(&[byte]) if is_byte && self.notation == Notation::C => _ = write!(self.out, "{byte:#04x}"),
                _ => self.value(array.elem, at, depth + 1),
            }
        }
        match (self.notation, array.len) {
            (Notation::C, 0) => self.out.push_str("{}"),
            (Notation::Json, 0) => self.out.push_str("[]"),
            (Notation::C | Notation::Json, _) => self.out.push_str(close),
        }
    }

    /// The variables of a data section, where the section says where they are.
    fn section(&mut self, section: &Datasec<'_>, off: u64, depth: usize) {
        self.out.push('{');
        let mut first = true;
        for var in section.vars().filter(|var| !var.is_func) {
            if self.is_full() {
                break;
            }
            self.work = self.work.saturating_sub(1);
            self.name(var.name, &mut first);
            self.value(var.type_id, off.saturating_add(var.offset.into()), depth + 1);
        }
        self.close(first);
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
            self.name(member.name, first);
            if member.bits != 0 || self.btf.is_bitfield_int(member.type_id) {
                self.bitfield(&member, off);
            } else {
                self.value(member.type_id, at, depth + 1);
            }
        }
    }

    fn bitfield(&mut self, member: &Member<'_>, off: u64) {
        let Some((value, bits)) = self.read_bits(member, off) else { return self.missing() };
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
