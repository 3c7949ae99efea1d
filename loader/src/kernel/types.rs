//! Which types of the object describe the keys and values of its maps.

use std::collections::HashMap;

use twinbpf_vm::map::MapSpec;

use super::KernelMap;
use crate::btf::{self, MapDecl, Type, TypeId};
use crate::object::Object;

/// The descriptions, by name.
pub(super) struct MapTypes<'a> {
    declared: HashMap<String, MapDecl>,
    sections: HashMap<&'a str, TypeId>,
}

pub(super) fn map_types(object: &Object) -> MapTypes<'_> {
    let Some(btf) = object.btf.as_deref() else {
        return MapTypes { declared: HashMap::new(), sections: HashMap::new() };
    };
    let declared = btf::map_specs(btf).into_iter().map(|decl| (decl.name.clone(), decl)).collect();
    let section = |id| matches!(btf.type_by_id(id), Some(Type::Datasec(_))).then(|| (btf.name(id), id));
    MapTypes { declared, sections: btf.ids().filter_map(section).collect() }
}

impl MapTypes<'_> {
    pub(super) fn describe(&self, spec: MapSpec) -> KernelMap {
        if spec.data.is_some() {
            let value_type = self.sections.get(&*spec.name).copied();
            return KernelMap { spec, key_type: None, value_type, inner_types: (None, None) };
        }
        let (key_type, value_type, inner_types) = match self.declared.get(&*spec.name) {
            Some(decl) => (decl.key_type, decl.value_type, decl.inner_types),
            None => (None, None, (None, None)),
        };
        KernelMap { spec, key_type, value_type, inner_types }
    }
}
