//! Names in C's two name spaces: tags of structs, unions and enums; and all other names of a file.
//!
//! A name is taken by the first type that is written with it, later ones get `___2`, `___3` and so on. What is no C
//! identifier becomes one.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use super::super::{Btf, TypeId};

/// Where a name has to be the only one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Space {
    /// `struct`, `union`, `enum`.
    Tag,
    /// Typedefs, enumerators, functions.
    Ordinary,
}

/// Names that were given out.
#[derive(Debug, Default)]
pub(super) struct Names<'a> {
    /// Number of requests, by name.
    tags: HashMap<&'a str, u32>,
    ordinary: HashMap<&'a str, u32>,
    /// Names that this module has made up.
    made: HashSet<(Space, String)>,
    of_type: HashMap<TypeId, Cow<'a, str>>,
}

impl<'a> Names<'a> {
    /// Takes a name for something that is written once.
    pub(super) fn take(&mut self, space: Space, name: &'a str) -> Cow<'a, str> {
        let used = match space {
            Space::Tag => &mut self.tags,
            Space::Ordinary => &mut self.ordinary,
        };
        let count = used.entry(name).or_insert(0);
        *count += 1;
        let clean = clean(name);
        if *count == 1 && matches!(clean, Cow::Borrowed(_)) && (self.made.is_empty() || !self.is_made(space, name)) {
            return clean;
        }
        let mut number = self.queries(space, name);
        loop {
            let made = if number == 1 { clean.to_string() } else { format!("{clean}___{number}") };
            number += 1;
            if self.queries(space, &made) == 0 && !self.is_made(space, &made) {
                self.made.insert((space, made.clone()));
                return Cow::Owned(made);
            }
        }
    }

    fn queries(&self, space: Space, name: &str) -> u32 {
        let used = if space == Space::Tag { &self.tags } else { &self.ordinary };
        used.get(name).copied().unwrap_or(0)
    }

    fn is_made(&self, space: Space, name: &str) -> bool {
        self.made.contains(&(space, name.to_owned()))
    }

    /// Whether a typedef, an enumerator or a function has the name by now.
    pub(super) fn is_ordinary(&self, name: &str) -> bool {
        self.ordinary.contains_key(name)
    }

    /// The name of a type, the same each time.
    pub(super) fn of(&mut self, btf: &'a Btf, id: TypeId, space: Space) -> Cow<'a, str> {
        if let Some(known) = self.of_type.get(&id) {
            return known.clone();
        }
        let name = self.take(space, btf.name(id));
        self.of_type.insert(id, name.clone());
        name
    }
}

/// `name` as an identifier that is no keyword.
pub(super) fn clean(name: &str) -> Cow<'_, str> {
    let start = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    let bytes = name.as_bytes();
    let fine = bytes.first().is_some_and(|&byte| start(byte))
        && bytes.iter().all(|&byte| start(byte) || byte.is_ascii_digit());
    if !fine {
        let mut text = String::with_capacity(name.len() + 1);
        if bytes.first().is_none_or(u8::is_ascii_digit) {
            text.push('_');
        }
        text.extend(name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }));
        return Cow::Owned(text);
    }
    if is_keyword(name) { Cow::Owned(format!("{name}_")) } else { Cow::Borrowed(name) }
}

/// Words that C17 with GNU's extensions keeps for itself, and the typedef that every compiler has of its own.
fn is_keyword(name: &str) -> bool {
    matches!(
        name,
        "auto"
            | "break"
            | "case"
            | "char"
            | "const"
            | "continue"
            | "default"
            | "do"
            | "double"
            | "else"
            | "enum"
            | "extern"
            | "float"
            | "for"
            | "goto"
            | "if"
            | "inline"
            | "int"
            | "long"
            | "register"
            | "restrict"
            | "return"
            | "short"
            | "signed"
            | "sizeof"
            | "static"
            | "struct"
            | "switch"
            | "typedef"
            | "union"
            | "unsigned"
            | "void"
            | "volatile"
            | "while"
            | "_Alignas"
            | "_Alignof"
            | "_Atomic"
            | "_Bool"
            | "_Complex"
            | "_Float16"
            | "_Generic"
            | "_Imaginary"
            | "_Noreturn"
            | "_Static_assert"
            | "_Thread_local"
            | "asm"
            | "typeof"
            | "__int128"
            | "__builtin_va_list"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_is_given_once() {
        let mut names = Names::default();
        let mut take = |name| names.take(Space::Tag, name).into_owned();
        assert_eq!([take("a"), take("a"), take("a")], ["a", "a___2", "a___3"]);
        assert_eq!([take("b___2"), take("b"), take("b")], ["b___2", "b", "b___3"]);
        assert_eq!([take("a___2"), take("int"), take("int")], ["a___2___2", "int_", "int____2"]);
        assert_eq!([take("x y"), take("x-y"), take("9")], ["x_y", "x_y___2", "_9"]);
        assert_eq!(names.take(Space::Ordinary, "a"), "a");
    }
}
