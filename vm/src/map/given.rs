//! Maps that an object is given in place of its own: they must be what it declares, as libbpf's `bpf_map__reuse_fd` wants it.

use std::sync::Arc;

use super::check::{check, only_in_kernel};
use super::{MapError, MapKind, MapOps, MapSpec};
use crate::mem::Arena;

/// Refuses a map in whose place programs of `arena` would use other memory than the map's.
pub(super) fn check_given(declared: &MapSpec, map: &dyn MapOps, arena: &Arc<Arena>, cpus: u32) -> Result<(), MapError> {
    let refuse = |reason: String| Err(MapError::Given { map: Arc::clone(&declared.name), reason });
    if let Some(of) = map.arena() {
        if !Arc::ptr_eq(of, arena) {
            return refuse("lies in the memory of another engine; make both with one engine".to_owned());
        }
        match map.spec().kind {
            MapKind::ProgArray => return refuse("has programs of the object that it was made for".to_owned()),
            MapKind::ArrayOfMaps | MapKind::HashOfMaps => {
                return refuse("has maps that only programs of the object that it was made for know".to_owned());
            }
            _ => {}
        }
    }
    // What the VM does not have, it does not have as declared.
    if only_in_kernel(declared.kind).is_some() {
        return Ok(());
    }
    // libbpf adjusts what is declared.
    let (wanted, given) = (check(declared.clone(), cpus).unwrap_or_else(|_| declared.clone()), map.spec());
    if wanted.kind != given.kind {
        return refuse(format!("is of type {}, but is declared as {}", given.kind.name(), wanted.kind.name()));
    }
    let attributes = [
        ("key_size", given.key_size, wanted.key_size),
        ("value_size", given.value_size, wanted.value_size),
        ("max_entries", given.max_entries, wanted.max_entries),
        ("map_flags", given.flags, wanted.flags),
    ];
    match attributes.into_iter().find(|(_, given, wanted)| given != wanted) {
        Some((name, given, wanted)) => refuse(format!("has {name} {given}, but is declared with {wanted}")),
        None => Ok(()),
    }
}
