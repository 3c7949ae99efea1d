//! Maps that a source uses in aggregations and does not declare: they are declared from the types of keys and values there.
//!
//! `<twinbpf/trace.h>` notes them when it is compiled with `__TWIN_NOTE_MAPS`: each call leaves a constant in a section of
//! its own, with the kind and name of the map as text and pointers to the types.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail};
use twinbpf::Object;
use twinbpf_btf::{Btf, Type, TypeId};

use super::tokens::{Token, arguments};

/// Functions that name a map first.
pub(super) const CALLS: [&str; 10] =
    ["count", "sum", "avg", "stats", "min", "max", "hist", "lhist", "set", "print_map"];
const NOTES: &str = ".rodata.twinnotes";

/// Maps that aggregations name and nothing declares.
pub(super) fn undeclared(all: &[Token<'_>]) -> BTreeSet<String> {
    let text = |at: usize| all.get(at).map(|token| token.text);
    let mut names = BTreeSet::new();
    for (index, token) in all.iter().enumerate() {
        let call = token.text.strip_prefix("twinbpf_").unwrap_or(token.text);
        if CALLS.contains(&call) && text(index + 1) == Some("(") && text(index + 2) == Some("&") {
            names.extend(text(index + 3).map(str::to_owned));
        }
    }
    for (index, token) in all.iter().enumerate() {
        if token.text.starts_with("MAP_")
            && let Some(name) = arguments(all, index).first()
        {
            names.remove(name.text);
        }
        // `} name SEC(".maps")`, `int name;`
        if index > 0 && text(index + 1).is_some_and(|next| ["SEC", ";", "=", "["].contains(&next)) {
            let before = all[index - 1].text;
            if before == "}" || before.starts_with(|c: char| c.is_ascii_alphabetic()) {
                names.remove(token.text);
            }
        }
    }
    names
}

/// Lines that declare maps, from the object of the first compilation.
pub(super) fn declare(object: &Object, wanted: &BTreeSet<String>) -> Result<String> {
    let btf = object.btf.as_deref().context("clang wrote no types")?;
    let map = object.maps.iter().find(|map| &*map.name == NOTES);
    let data = map.and_then(|map| map.data.as_ref()).map(|data| data.bytes.as_slice()).unwrap_or_default();
    let mut declared: BTreeMap<String, String> = BTreeMap::new();
    // Symbols say where they are; types have no places yet.
    for var in object.variables.iter().filter(|var| object.maps[var.map].name.as_ref() == NOTES) {
        let Some(type_id) = var.type_id else { continue };
        let text = data.get(var.off as usize..).unwrap_or_default();
        let text = String::from_utf8_lossy(text.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned();
        let mut words = text.split_whitespace();
        let (kind, name) = (words.next().unwrap_or_default(), words.next().unwrap_or_default().trim_start_matches('&'));
        if !wanted.contains(name) {
            continue;
        }
        let mut arguments: Vec<String> = words.map(str::to_owned).collect();
        for (member, types) in
            ["key", "value"].into_iter().filter_map(|member| Some((member, pointee(btf, type_id, member)?)))
        {
            match btf.type_by_id(types) {
                Some(Type::Void) => {}
                _ => arguments.push(
                    spell(btf, types)
                        .with_context(|| format!("{name}: its {member} has a type that no map can have"))?,
                ),
            }
        }
        arguments.insert(0, name.to_owned());
        let line = format!("MAP_{kind}({});", arguments.join(", "));
        match declared.get(name) {
            Some(other) if *other != line => bail!(
                "map {name} is used with different types, as\n  {other}\n  {line}\ndeclare the one that is meant, or give the keys one type"
            ),
            _ => declared.insert(name.to_owned(), line),
        };
    }
    if let Some(name) = wanted.iter().find(|name| !declared.contains_key(*name)) {
        bail!(
            "map {name} is not declared, and no aggregation says what is in it; write MAP_COUNT({name}, KEY TYPE); or the like"
        );
    }
    Ok(declared.into_values().collect::<Vec<_>>().join(" "))
}

/// What a pointer member of a struct points to.
fn pointee(btf: &Btf, id: TypeId, member: &str) -> Option<TypeId> {
    let (id, _) = btf.resolve(id).ok()?;
    let Some(Type::Struct(of)) = btf.type_by_id(id) else { return None };
    let found = of.members().find(|found| found.name == member)?;
    let (pointer, _) = btf.resolve(found.type_id).ok()?;
    match btf.type_by_id(pointer) {
        Some(Type::Ptr(to)) => Some(to),
        _ => None,
    }
}

/// A type as C writes it. Structs without a name are written out.
fn spell(btf: &Btf, id: TypeId) -> Option<String> {
    let (plain, _) = btf.resolve(id).ok()?;
    match btf.type_by_id(plain) {
        Some(Type::Struct(of)) if btf.name(plain).is_empty() => {
            let members = of
                .members()
                .map(|member| Some(format!("__typeof__({}) {};", spell(btf, member.type_id)?, member.name)));
            Some(format!("struct {{ {} }}", members.collect::<Option<Vec<_>>>()?.join(" ")))
        }
        Some(Type::Union(_)) if btf.name(plain).is_empty() => None,
        // Typedefs of the headers are not needed, and qualifiers are not part of a map's type.
        _ => Some(btf.type_name(plain)),
    }
}

#[cfg(test)]
mod tests {
    use super::undeclared;
    use crate::source::tokens::tokens;

    #[test]
    fn maps_that_nothing_declares_are_found() {
        let names = |text| undeclared(&tokens(text)).into_iter().collect::<Vec<_>>();
        assert_eq!(names("count(&calls, comm()); hist(&sizes, n); count(&calls, 1);"), ["calls", "sizes"]);
        assert_eq!(names("MAP_COUNT(calls, int); x { count(&calls, 1); sum(&b, 2); }"), ["b"]);
        assert_eq!(
            names("struct { __uint(type, 1); } calls SEC(\".maps\"); f() { count(&calls, 1); }"),
            Vec::<String>::new()
        );
        assert_eq!(names("// count(&a, 1)\n count(map, 1)"), Vec::<String>::new());
    }
}
