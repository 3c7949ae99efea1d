//! Keys and values as bpftrace writes them: integers in decimal, strings as they are, structs `{ .a = 1 }`, arrays
//! `[1,2]`; and the same in JSON.

use std::io::Write;

use crate::map::{Field, FieldKind};

/// How to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notation {
    /// As bpftrace writes text.
    Text,
    /// JSON, RFC 8259.
    Json,
}

/// Appends a value.
pub fn value(out: &mut Vec<u8>, fields: &[Field], data: &[u8], notation: Notation) {
    let fields = Field::or_whole(fields, data.len() as u32);
    let named: Vec<Named<'_>> = fields.iter().map(|field| (&*field.name, field)).collect();
    Writer { out, data, notation }.node(&named);
}

/// Appends a key: the members of a struct are the keys of a table with several. In JSON it still needs [`quote`].
pub fn key(out: &mut Vec<u8>, fields: &[Field], data: &[u8], notation: Notation) {
    let fields = Field::or_whole(fields, data.len() as u32);
    let named: Vec<Named<'_>> = fields.iter().map(|field| (&*field.name, field)).collect();
    let between: &[u8] = match notation {
        Notation::Text => b", ",
        Notation::Json => b",",
    };
    // Inside of the quotes of a JSON key there is no JSON.
    let mut writer = Writer { out, data, notation: Notation::Text };
    if is_struct(&named) {
        writer.list(&members(&named), between, |writer, (_, inside)| writer.node(inside));
    } else {
        writer.node(&named);
    }
}

/// A field, and the part of its name that is not printed yet.
type Named<'a> = (&'a str, &'a Field);

/// Fields under a common name.
type Group<'a> = (&'a str, Vec<Named<'a>>);

fn is_struct(fields: &[Named<'_>]) -> bool {
    fields.first().is_some_and(|(name, _)| !name.is_empty() && !name.starts_with('['))
}

/// Splits fields by the first part of their names, `member` or `[0]`.
fn members<'a>(fields: &[Named<'a>]) -> Vec<Group<'a>> {
    let mut groups: Vec<Group<'a>> = Vec::new();
    for (name, field) in fields {
        let (part, rest) = match name.strip_prefix('[').and_then(|inside| inside.split_once(']')) {
            Some(split) => split,
            None => name.split_at(name.find(['.', '[']).unwrap_or(name.len())),
        };
        let rest = rest.strip_prefix('.').unwrap_or(rest);
        match groups.last_mut() {
            Some((last, inside)) if *last == part => inside.push((rest, *field)),
            _ => groups.push((part, vec![(rest, *field)])),
        }
    }
    groups
}

struct Writer<'a> {
    out: &'a mut Vec<u8>,
    data: &'a [u8],
    notation: Notation,
}

impl Writer<'_> {
    fn node(&mut self, fields: &[Named<'_>]) {
        match fields {
            [] => {}
            [("", field), ..] => self.scalar(field),
            fields if is_struct(fields) => self.members(fields),
            fields => {
                self.out.push(b'[');
                self.list(&members(fields), b",", |writer, (_, inside)| writer.node(inside));
                self.out.push(b']');
            }
        }
    }

    fn members(&mut self, fields: &[Named<'_>]) {
        let (open, close): (&[u8], &[u8]) = match self.notation {
            Notation::Text => (b"{ ", b" }"),
            Notation::Json => (b"{", b"}"),
        };
        self.out.extend(open);
        self.list(&members(fields), b", ", |writer, (name, inside)| {
            match writer.notation {
                Notation::Text => writer.out.extend(format!(".{name} = ").bytes()),
                Notation::Json => {
                    quote(writer.out, name.as_bytes());
                    writer.out.extend(b": ");
                }
            }
            writer.node(inside);
        });
        self.out.extend(close);
    }

    fn list<T>(&mut self, items: &[T], between: &[u8], mut each: impl FnMut(&mut Self, &T)) {
        for (index, item) in items.iter().enumerate() {
            if index > 0 {
                self.out.extend(between);
            }
            each(self, item);
        }
    }

    fn scalar(&mut self, field: &Field) {
        if let Some(number) = field.integer(self.data) {
            return push(self.out, number);
        }
        match (field.float(self.data), self.notation) {
            // JSON has no others.
            (Some(number), Notation::Json) if !number.is_finite() => {
                return quote(self.out, number.to_string().as_bytes());
            }
            // The shortest that reads as the same `float`.
            (Some(number), _) if field.size == 4 => return push(self.out, number as f32),
            (Some(number), _) => return push(self.out, number),
            (None, _) => {}
        }
        match (field.kind, self.notation) {
            (FieldKind::String, Notation::Text) => self.out.extend(field.text(self.data)),
            (FieldKind::String, Notation::Json) => quote(self.out, field.text(self.data)),
            (FieldKind::Bytes | FieldKind::Float | FieldKind::Unsigned | FieldKind::Signed, _) => {
                self.out.push(b'[');
                self.list(field.bytes(self.data), b",", |writer, byte| push(writer.out, *byte));
                self.out.push(b']');
            }
        }
    }
}

fn push(out: &mut Vec<u8>, number: impl std::fmt::Display) {
    write!(out, "{number}").expect("a vector takes everything");
}

/// Appends a JSON string. What is not UTF-8 becomes U+FFFD.
pub fn quote(out: &mut Vec<u8>, text: &[u8]) {
    out.push(b'"');
    for char in String::from_utf8_lossy(text).chars() {
        match char {
            '"' | '\\' => out.extend([b'\\', char as u8]),
            '\n' => out.extend(b"\\n"),
            '\t' => out.extend(b"\\t"),
            '\r' => out.extend(b"\\r"),
            '\0'..=' ' if char != ' ' => push(out, format_args!("\\u{:04x}", u32::from(char))),
            char => out.extend(char.encode_utf8(&mut [0; 4]).bytes()),
        }
    }
    out.push(b'"');
}
