//! A whole value from text: what [`format_value`](super::format_value) prints, C initialisers and JSON.
//!
//! `{ .comm = "bash", .count = 3 }`, `{"comm": "bash", "count": 3}`, `{ "bash", 3 }`, `[1, 2]`, `7`. What is left out is
//! zero. `.count=4` changes one member and leaves the rest. Single numbers, enumerators and strings are
//! [`encode_value`]'s.

use super::query::MAX_DEPTH;
use super::{Btf, Composite, Datasec, Endian, SetError, Type, TypeId, encode_value, locate, set_value};

/// Writes the value of type `id` that `text` means to the start of `out`.
pub fn encode_initialiser(btf: &Btf, id: TypeId, text: &str, out: &mut [u8], endian: Endian) -> Result<(), SetError> {
    let text = text.trim();
    let mut parser = Parser { btf, endian, text, at: 0 };
    if let Type::Array(array) = btf.resolve(id)?.1
        && btf.is_char(array.elem)
        && !text.starts_with(['"', '{', '['])
    {
        return encode_value(btf, id, text, out, endian);
    }
    if text.starts_with('.') {
        parser.named(id, out, 0)?;
    } else {
        if let Ok(size) = btf.size_of(id)
            && let Some(whole) = out.get_mut(..size as usize)
        {
            whole.fill(0);
        }
        parser.value(id, out, 0)?;
    }
    parser.blanks();
    if parser.at < text.len() { Err(parser.expected("the end")) } else { Ok(()) }
}

struct Parser<'a> {
    btf: &'a Btf,
    endian: Endian,
    text: &'a str,
    at: usize,
}

impl<'a> Parser<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn blanks(&mut self) {
        self.at = self.text.len() - self.rest().trim_start().len();
    }

    fn expected(&self, expected: &'static str) -> SetError {
        SetError::Initialiser { rest: self.rest().chars().take(32).collect(), expected }
    }

    /// Goes over one of these characters, if it is next.
    fn eat(&mut self, any: &[char]) -> bool {
        self.blanks();
        let found = self.rest().chars().next().filter(|next| any.contains(next));
        self.at += found.map_or(0, char::len_utf8);
        found.is_some()
    }

    fn value(&mut self, id: TypeId, out: &mut [u8], depth: usize) -> Result<(), SetError> {
        self.blanks();
        if depth > MAX_DEPTH {
            return Err(self.expected("fewer brackets inside each other"));
        }
        if self.eat(&['{', '[']) {
            return self.list(id, out, depth);
        }
        let scalar = self.scalar()?;
        encode_value(self.btf, id, &scalar, out, self.endian)
    }

    /// A string without its quotes, or the text before the next comma or bracket.
    fn scalar(&mut self) -> Result<String, SetError> {
        self.blanks();
        if self.rest().starts_with('"') {
            return self.string();
        }
        // A character may be a comma.
        let quoted = self.rest().strip_prefix('\'').and_then(|rest| rest.get(1..)?.find('\'').map(|at| at + 3));
        let len = quoted.or_else(|| self.rest().find([',', '}', ']'])).unwrap_or(self.rest().len());
        let token = self.rest()[..len].trim();
        if token.is_empty() {
            return Err(self.expected("a value"));
        }
        self.at += len;
        Ok(token.to_owned())
    }

    /// A string with the escapes of C and of JSON. What is no UTF-8 cannot be written.
    fn string(&mut self) -> Result<String, SetError> {
        let mut text = String::new();
        let mut chars = self.rest().char_indices().skip(1);
        while let Some((at, char)) = chars.next() {
            match char {
                '"' => {
                    self.at += at + 1;
                    return Ok(text);
                }
                '\\' => {
                    let escaped = chars.next().ok_or_else(|| self.expected("a string with an end"))?.1;
                    let digits = match escaped {
                        'x' => 2,
                        'u' => 4,
                        _ => 0,
                    };
                    let hex: String = chars.by_ref().take(digits).map(|(_, digit)| digit).collect();
                    text.push(match escaped {
                        'n' => '\n',
                        't' => '\t',
                        'r' => '\r',
                        'x' | 'u' => u32::from_str_radix(&hex, 16)
                            .ok()
                            .and_then(char::from_u32)
                            .filter(|found| escaped == 'u' || found.is_ascii())
                            .ok_or_else(|| self.expected("an escape of ASCII"))?,
                        other => other,
                    });
                }
                plain => text.push(plain),
            }
        }
        Err(self.expected("a string with an end"))
    }

    /// Members or elements, after the opening bracket.
    fn list(&mut self, id: TypeId, out: &mut [u8], depth: usize) -> Result<(), SetError> {
        let mut index = 0;
        while !self.eat(&['}', ']']) {
            let before = self.at;
            // `.5` is a number.
            let dotted =
                self.rest().strip_prefix('.').is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_digit()));
            if self.name()?.is_some() || dotted {
                self.at = before;
                self.named(id, out, depth)?;
            } else {
                self.numbered(id, out, index, depth)?;
            }
            index += 1;
            if !self.eat(&[',']) && !self.rest().starts_with(['}', ']']) {
                return Err(self.expected("a comma or a closing bracket"));
            }
        }
        Ok(())
    }

    /// `.a.b[2] =`, `a:`, `"a":`, if there is such a thing here.
    fn name(&mut self) -> Result<Option<String>, SetError> {
        self.blanks();
        let start = self.at;
        let name = if self.rest().starts_with('"') {
            self.string()?
        } else {
            let path = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '[' | ']');
            let name = self.rest().split(|c| !path(c)).next().unwrap_or_default();
            self.at += name.len();
            name.trim_start_matches('.').to_owned()
        };
        if !name.is_empty() && self.eat(&['=', ':']) {
            return Ok(Some(name));
        }
        self.at = start;
        Ok(None)
    }

    /// A member with its name.
    fn named(&mut self, id: TypeId, out: &mut [u8], depth: usize) -> Result<(), SetError> {
        let path = self.name()?.ok_or_else(|| self.expected(".MEMBER=VALUE"))?;
        if let Type::Datasec(section) = self.btf.resolve(id)?.1 {
            return self.variable(&section, &path, out, depth);
        }
        let place = locate(self.btf, id, &path)?;
        if place.bits.is_some() {
            let scalar = self.scalar()?;
            return set_value(self.btf, id, &path, &scalar, out, self.endian);
        }
        let rest = out.get_mut(place.off as usize..).unwrap_or_default();
        self.value(place.type_id, rest, depth + 1)
    }

    /// A variable of a data section, or something inside of it.
    fn variable(&mut self, section: &Datasec<'_>, path: &str, out: &mut [u8], depth: usize) -> Result<(), SetError> {
        let (name, inside) = path.split_at(path.find(['.', '[']).unwrap_or(path.len()));
        let var = section.vars().find(|var| var.name == name && !var.is_func);
        let var = var.ok_or_else(|| SetError::NoMember {
            member: name.to_owned(),
            type_name: "the section".to_owned(),
            known: section.vars().map(|var| var.name).take(16).collect::<Vec<_>>().join(", "),
        })?;
        let place = locate(self.btf, var.type_id, inside)?;
        let rest = out.get_mut(var.offset as usize..).unwrap_or_default();
        if place.bits.is_some() {
            let scalar = self.scalar()?;
            return set_value(self.btf, var.type_id, inside, &scalar, rest, self.endian);
        }
        let rest = rest.get_mut(place.off as usize..).unwrap_or_default();
        self.value(place.type_id, rest, depth + 1)
    }

    /// A member or element by its number.
    fn numbered(&mut self, id: TypeId, out: &mut [u8], index: u32, depth: usize) -> Result<(), SetError> {
        let (_, found) = self.btf.resolve(id)?;
        if let Type::Struct(inside) | Type::Union(inside) = found {
            return self.member(id, &inside, out, index, depth);
        }
        let place = locate(self.btf, id, &format!("[{index}]"))?;
        let rest = out.get_mut(place.off as usize..).unwrap_or_default();
        self.value(place.type_id, rest, depth + 1)
    }

    fn member(
        &mut self,
        id: TypeId,
        inside: &Composite<'_>,
        out: &mut [u8],
        index: u32,
        depth: usize,
    ) -> Result<(), SetError> {
        let index_error = || SetError::Index { index, type_name: self.btf.type_name(id) };
        let member = inside.member(index as usize).ok_or_else(index_error)?;
        if member.bits != 0 || self.btf.is_bitfield_int(member.type_id) {
            let scalar = self.scalar()?;
            return set_value(self.btf, id, member.name, &scalar, out, self.endian);
        }
        let rest = out.get_mut((member.bit_offset / 8) as usize..).unwrap_or_default();
        self.value(member.type_id, rest, depth + 1)
    }
}
