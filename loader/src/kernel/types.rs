//! The object's own types in the form that a kernel takes, and which of them describe the keys and values of its maps.

use std::collections::HashMap;

use twinbpf_btf::{Datasec, Edit, Endian, Linkage, SectionEntry, Type, TypeId, VarInfo};
use twinbpf_vm::map::{MapKind, MapSpec};

use super::KernelMap;
use crate::kconfig;
use crate::maps::{MapDecl, map_specs};
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
    let declared = map_specs(btf).into_iter().map(|decl| (decl.name.clone(), decl)).collect();
    let section = |id| matches!(btf.type_by_id(id), Some(Type::Datasec(_))).then(|| (btf.name(id), id));
    MapTypes { declared, sections: btf.ids().filter_map(section).collect() }
}

impl MapTypes<'_> {
    pub(super) fn describe(&self, spec: MapSpec) -> KernelMap {
        if spec.data.is_some() && spec.kind != MapKind::Arena {
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

impl Object {
    /// The object's types for `BPF_BTF_LOAD`, with what compilers leave open: sizes of sections, offsets of variables,
    /// undefined symbols as variables that exist, hidden functions as static ones (libbpf's `btf_finalize_data` and
    /// `bpf_object__collect_externs`). Type numbers and string offsets are those of [`Object::btf`]. `None` without
    /// types, or with those of a machine of the other byte order.
    pub fn kernel_btf(&self) -> Option<Vec<u8>> {
        Some(self.kernel_types()?.to_bytes())
    }

    /// [`Object::kernel_btf`], not yet written.
    pub(super) fn kernel_types(&self) -> Option<Edit<'_>> {
        let btf = self.btf.as_deref().filter(|btf| btf.endian() == Endian::Little)?;
        let mut edit = btf.edit();
        for id in btf.ids() {
            let Some(Type::Datasec(section)) = btf.type_by_id(id) else { continue };
            match btf.name(id) {
                ".ksyms" => self.edit_ksyms(&mut edit, id, section),
                kconfig::SECTION => self.edit_kconfig(&mut edit, id, section),
                name => self.edit_data(&mut edit, id, section, name),
            }
        }
        for spec in self.programs.iter().filter(|spec| spec.hidden) {
            if let Some(id) = self.func_type(spec) {
                edit.linkage(id, Linkage::Static);
            }
        }
        Some(edit)
    }

    fn edit_data(&self, edit: &mut Edit<'_>, id: TypeId, section: Datasec<'_>, name: &str) {
        let size = match section.size {
            0 => self.layout.sections.get(name).copied().unwrap_or(0),
            size => size,
        };
        let place = |var: VarInfo<'_>| {
            let placed = self.layout.vars.get(&var.var_id).copied().filter(|_| section.size == 0);
            SectionEntry { var: var.var_id, offset: placed.unwrap_or(var.offset), size: var.size }
        };
        let mut entries: Vec<SectionEntry> = section.vars().map(place).collect();
        entries.sort_by_key(|entry| entry.offset);
        edit.section(id, size, &entries);
        for entry in entries.iter().filter(|entry| self.layout.hidden.contains(&entry.var)) {
            edit.linkage(entry.var, Linkage::Static);
        }
    }

    /// Functions and variables of the kernel become variables of four bytes each.
    fn edit_ksyms(&self, edit: &mut Edit<'_>, id: TypeId, section: Datasec<'_>) {
        let int = edit.int();
        let dummy = section.vars().any(|var| var.is_func).then(|| edit.add_var("dummy_ksym", int));
        let mut entries: Vec<SectionEntry> = Vec::new();
        for var in section.vars() {
            edit.linkage(var.var_id, Linkage::Global);
            let var = match dummy {
                Some((dummy, name)) if var.is_func => {
                    edit.name_parameters(var.type_id, name);
                    dummy
                }
                _ => {
                    edit.retype(var.var_id, int);
                    var.var_id
                }
            };
            entries.push(SectionEntry { var, offset: 4 * entries.len() as u32, size: 4 });
        }
        edit.section(id, 4 * entries.len() as u32, &entries);
    }

    fn edit_kconfig(&self, edit: &mut Edit<'_>, id: TypeId, section: Datasec<'_>) {
        let layout = kconfig::layout(self);
        let mut entries: Vec<SectionEntry> = Vec::new();
        for var in section.vars() {
            edit.linkage(var.var_id, Linkage::Global);
            let (offset, size) = layout.get(var.name).copied().unwrap_or((var.offset, var.size));
            entries.push(SectionEntry { var: var.var_id, offset, size });
        }
        entries.sort_by_key(|entry| entry.offset);
        let size = layout.values().map(|(off, size)| off + size).max().unwrap_or(section.size);
        edit.section(id, size, &entries);
    }
}
