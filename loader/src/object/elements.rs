//! Elements of maps, and setting them before a program runs: of arrays by index, of hashes and tries by key.

use std::collections::HashMap;
use std::sync::Arc;

use twinbpf_btf::{Btf, TypeId, encode_initialiser, set_value};
use twinbpf_isa::Endian;
use twinbpf_vm::map::{MapKind, MapSpec};

use super::Object;
use crate::error::Cause;
use crate::maps::map_specs;

/// Bytes of the largest element that is set.
const MOST: u32 = 1 << 24;

/// Types of keys and values by the names of maps, as `.maps` declares them: read once for each type data, not for each element.
#[derive(Clone, Debug, Default)]
pub(super) struct ElementTypes {
    of: Option<Arc<Btf>>,
    known: HashMap<String, [Option<TypeId>; 2]>,
}

impl ElementTypes {
    /// Those of one map.
    fn of(&mut self, btf: &Arc<Btf>, map: &str) -> [Option<TypeId>; 2] {
        if !self.of.as_ref().is_some_and(|of| Arc::ptr_eq(of, btf)) {
            let declared = map_specs(btf).into_iter().rev();
            self.known = declared.map(|decl| (decl.name, [decl.key_type, decl.value_type])).collect();
            self.of = Some(Arc::clone(btf));
        }
        self.known.get(map).copied().unwrap_or_default()
    }
}

impl Object {
    /// Sets an element of a map, or a member of one; `place` is what follows the map's name in `path`.
    pub(super) fn set_element(&mut self, map: usize, path: &str, place: &str, text: &str) -> Result<(), Cause> {
        let fail = |why: String| Cause::Variable { name: path.into(), why };
        let spec = &self.maps[map];
        let (inside, member) = in_brackets(spec, place).map_err(fail)?;
        let btf = self.btf.as_ref();
        let btf = btf.ok_or_else(|| Cause::NoBtf { what: format!("setting an element of map '{}'", spec.name) })?;
        let untyped = |what: &str| {
            fail(format!("the type of its {what}s is not known: declare {} with __type({what}, ...)", spec.name))
        };
        let [key_type, value_type] = self.element_types.of(btf, &spec.name);
        if spec.value_size.max(spec.key_size) > MOST {
            return Err(Cause::TooLarge {
                what: format!("'{path}'"),
                size: spec.value_size.max(spec.key_size).into(),
                limit: MOST.into(),
            });
        }
        let value_type = value_type.ok_or_else(|| untyped("value"))?;
        let place = match spec.kind {
            MapKind::Array => ElementKey::Slot(slot(spec, inside).map_err(fail)?),
            _ => {
                let key_type = key_type.ok_or_else(|| untyped("key"))?;
                let mut key = vec![0; spec.key_size as usize];
                let set = encode_initialiser(btf, key_type, inside, &mut key, Endian::Little);
                set.map_err(|error| fail(format!("as a key, {error}")))?;
                if spec.kind == MapKind::LpmTrie {
                    clear_what_does_not_count(&mut key);
                }
                ElementKey::Key(key.into())
            }
        };
        let mut bytes = initial(spec, &place);
        // Whatever the object was compiled for, programs read memory in little-endian order.
        let set = match member {
            "" => encode_initialiser(btf, value_type, text, &mut bytes, Endian::Little),
            member => set_value(btf, value_type, member, text, &mut bytes, Endian::Little),
        };
        set.map_err(|error| fail(error.to_string()))?;
        match place {
            ElementKey::Slot(slot) => self.maps[map].elements.push((slot..slot + 1, bytes.into())),
            ElementKey::Key(key) => drop(self.maps[map].entries.insert(key, bytes.into())),
        }
        Ok(())
    }
}

/// Which element of a map.
enum ElementKey {
    Slot(u32),
    Key(Arc<[u8]>),
}

/// Makes keys of one prefix, `struct bpf_lpm_trie_key`, the same.
fn clear_what_does_not_count(key: &mut [u8]) {
    let Some((bits, data)) = key.split_first_chunk_mut() else { return };
    let bits = u32::from_le_bytes(*bits) as usize;
    for (at, byte) in data.iter_mut().enumerate() {
        let count = bits.saturating_sub(8 * at).min(8) as u32;
        *byte &= !0xff_u8.checked_shr(count).unwrap_or(0);
    }
}

/// What `[3].member` has in its brackets, and the member.
fn in_brackets<'a>(spec: &MapSpec, place: &'a str) -> Result<(&'a str, &'a str), String> {
    let name = &spec.name;
    if !matches!(spec.kind, MapKind::Array | MapKind::Hash | MapKind::LruHash | MapKind::LpmTrie) {
        return Err(format!(
            "{name} is a map of type {}, and elements are set of arrays, hashes and tries only",
            spec.kind.name()
        ));
    }
    let what = if spec.kind == MapKind::Array { "INDEX" } else { "KEY" };
    let end = closing(place).ok_or_else(|| format!("{name} is a map: write {name}[{what}]=VALUE"))?;
    Ok((&place[1..end], &place[end + 1..]))
}

/// The name and the value of a setting, `NAME=VALUE`. The name may have a key in brackets, and an `=` in that.
///
/// ```
/// use twinbpf_loader::split_setting;
///
/// assert_eq!(split_setting("limit=3"), Some(("limit", "3")));
/// assert_eq!(split_setting(r#"flows[{"name":"a=b"}].count=3"#), Some((r#"flows[{"name":"a=b"}].count"#, "3")));
/// ```
pub fn split_setting(text: &str) -> Option<(&str, &str)> {
    let equals = text.find('=')?;
    let end = match text.find('[').filter(|open| *open < equals) {
        Some(open) => open + closing(&text[open..])?,
        None => 0,
    };
    let equals = end + text[end..].find('=')?;
    Some((text[..equals].trim_end(), &text[equals + 1..]))
}

/// Where the bracket is that closes the one at the start.
fn closing(text: &str) -> Option<usize> {
    let (bytes, mut open, mut quoted, mut at) = (text.as_bytes(), 0, false, 0);
    while at < bytes.len() {
        match &bytes[at..] {
            [b'\\', ..] if quoted => at += 1,
            // A character.
            [b'\'', _, b'\'', ..] if !quoted => at += 2,
            [b'"', ..] => quoted = !quoted,
            [b'[', ..] if !quoted => open += 1,
            [b']', ..] if !quoted => open -= 1,
            _ => {}
        }
        if open == 0 {
            return (at > 0).then_some(at);
        }
        at += 1;
    }
    None
}

/// The slot of an index.
fn slot(spec: &MapSpec, index: &str) -> Result<u32, String> {
    let (name, entries, index) = (&spec.name, spec.max_entries, index.trim());
    let number = match index.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => index.parse().ok(),
    };
    let number = number.ok_or_else(|| format!("'{index}' is no index"))?;
    let slot = u32::try_from(number).ok().filter(|slot| *slot < entries);
    slot.ok_or_else(|| format!("index {number} is too large: {name} has {entries} elements"))
}

/// The value of an element before programs run.
fn initial(spec: &MapSpec, place: &ElementKey) -> Vec<u8> {
    let set = match place {
        ElementKey::Slot(slot) => {
            spec.elements.iter().rev().find(|(slots, _)| slots.contains(slot)).map(|(_, value)| value)
        }
        ElementKey::Key(key) => spec.entries.get(key),
    };
    let mut bytes = set.map(|value| value.to_vec()).unwrap_or_default();
    bytes.resize(spec.value_size as usize, 0);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_one_prefix_are_the_same() {
        for (bits, address, wanted) in [
            (24, [10, 0, 0, 1], [10, 0, 0, 0]),
            (25, [10, 0, 0, 0xff], [10, 0, 0, 0x80]),
            (0, [10, 1, 2, 3], [0; 4]),
            (32, [10, 1, 2, 3], [10, 1, 2, 3]),
            (99, [10, 1, 2, 3], [10, 1, 2, 3]),
        ] {
            let mut key = [&u32::to_le_bytes(bits)[..], &address].concat();
            clear_what_does_not_count(&mut key);
            assert_eq!(key[4..], wanted, "{bits} bits");
        }
    }

    #[test]
    fn brackets_close_outside_of_text() {
        for (text, at) in [("[1]", 2), ("[{[2]}].a", 6), (r#"["]\""]"#, 6), ("[']'] ", 4), ("['\"']", 4)] {
            assert_eq!(closing(text), Some(at), "{text}");
        }
        for text in ["", "[", "[[]", "]", "x", "[\"]"] {
            assert_eq!(closing(text), None, "{text}");
        }
    }
}
