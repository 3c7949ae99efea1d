//! Elements of array maps, and setting them before a program runs.

use std::sync::Arc;

use twinbpf_btf::{Btf, TypeId, encode_initialiser, set_value};
use twinbpf_isa::Endian;
use twinbpf_vm::map::{MapKind, MapSpec};

use super::Object;
use crate::error::Cause;
use crate::maps::map_specs;

/// Bytes of the largest element that is set.
const MOST: u32 = 1 << 24;

impl Object {
    /// Sets an element of a map, or a member of one; `place` is what follows the map's name in `path`.
    pub(super) fn set_element(&mut self, map: usize, path: &str, place: &str, text: &str) -> Result<(), Cause> {
        let fail = |why: String| Cause::Variable { name: path.into(), why };
        let spec = &self.maps[map];
        let (slot, member) = slot(spec, place).map_err(fail)?;
        let btf = self.btf.as_ref();
        let btf = btf.ok_or_else(|| Cause::NoBtf { what: format!("setting an element of map '{}'", spec.name) })?;
        let untyped =
            || fail(format!("the type of its values is not known: declare {} with __type(value, ...)", spec.name));
        let value_type = value_type(btf, &spec.name).ok_or_else(untyped)?;
        if spec.value_size > MOST {
            return Err(Cause::TooLarge {
                what: format!("'{path}'"),
                size: spec.value_size.into(),
                limit: MOST.into(),
            });
        }
        let mut bytes = initial(spec, slot);
        // Whatever the object was compiled for, programs read memory in little-endian order.
        let set = match member {
            "" => encode_initialiser(btf, value_type, text, &mut bytes, Endian::Little),
            member => set_value(btf, value_type, member, text, &mut bytes, Endian::Little),
        };
        set.map_err(|error| fail(error.to_string()))?;
        self.maps[map].elements.push((slot..slot + 1, bytes.into()));
        Ok(())
    }
}

/// The slot that `[3].member` names, and the member.
fn slot<'a>(spec: &MapSpec, place: &'a str) -> Result<(u32, &'a str), String> {
    let (name, entries) = (&spec.name, spec.max_entries);
    if spec.kind != MapKind::Array {
        return Err(format!("{name} is a map of type {}, and elements are set of arrays only", spec.kind.name()));
    }
    let parts = place.strip_prefix('[').and_then(|inside| inside.split_once(']'));
    let (index, member) = parts.ok_or_else(|| format!("{name} is a map: write {name}[INDEX]=VALUE"))?;
    let index = index.trim();
    let number = match index.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => index.parse().ok(),
    };
    let number = number.ok_or_else(|| format!("'{index}' is no index"))?;
    let slot = u32::try_from(number).ok().filter(|slot| *slot < entries);
    let slot = slot.ok_or_else(|| format!("index {number} is too large: {name} has {entries} elements"))?;
    Ok((slot, member))
}

/// The value of an element before programs run.
fn initial(spec: &MapSpec, slot: u32) -> Vec<u8> {
    let set: Option<&Arc<[u8]>> =
        spec.elements.iter().rev().find(|(slots, _)| slots.contains(&slot)).map(|(_, value)| value);
    let mut bytes = set.map(|value| value.to_vec()).unwrap_or_default();
    bytes.resize(spec.value_size as usize, 0);
    bytes
}

/// Type of the values of a map that `.maps` declares.
fn value_type(btf: &Btf, name: &str) -> Option<TypeId> {
    map_specs(btf).into_iter().find(|decl| decl.name == name)?.value_type
}
