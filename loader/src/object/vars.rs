//! Variables in data sections, and setting them before a program runs.

use std::collections::HashMap;
use std::sync::Arc;

use twinbpf_btf::{Btf, TypeId, set_value};
use twinbpf_isa::Endian;

use super::Object;
use super::maps::Maps;
use super::types::Types;
use crate::elf::{DefinedIn, Elf, SymbolKind};
use crate::error::{Cause, Error};

/// A variable of the object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Name of its ELF symbol.
    pub name: Arc<str>,
    /// Index of the data map that holds it.
    pub map: usize,
    /// Byte offset inside the section: the map's value, but in an arena, where [`Data::start`](twinbpf_vm::map::Data) says
    /// where the section is.
    pub off: u32,
    /// Size of the variable in bytes.
    pub size: u32,
    /// Visible outside its file.
    pub global: bool,
    /// BTF type, where the object has BTF for it.
    pub type_id: Option<TypeId>,
}

/// Every object symbol of a data section.
pub(super) fn collect(elf: &Elf, maps: &Maps, types: &Types) -> Vec<Variable> {
    let btf = types.btf.as_ref().ok().and_then(|btf| btf.as_deref());
    let mut types: HashMap<&str, HashMap<&str, TypeId>> = HashMap::new();
    let mut sections: HashMap<usize, (usize, &str)> = HashMap::new();
    for (index, map) in maps.data_sections() {
        let Some(section) = elf.sections.get(index) else { continue };
        sections.insert(index, (map, &section.name));
        if let Some(btf) = btf {
            types.entry(&section.name).or_insert_with(|| types_of(btf, &section.name));
        }
    }
    let mut found = Vec::new();
    for symbol in elf.symbols.iter().filter(|symbol| symbol.kind == SymbolKind::Object) {
        let DefinedIn::Section(section_index) = symbol.defined_in else { continue };
        let Some((map, section)) = sections.get(&section_index) else { continue };
        let (Ok(off), Ok(size)) = (u32::try_from(symbol.value), u32::try_from(symbol.size)) else { continue };
        found.push(Variable {
            name: symbol.name.clone(),
            map: *map,
            off,
            size,
            global: symbol.bind != crate::elf::Bind::Local,
            type_id: types.get(section).and_then(|types| types.get(&*symbol.name)).copied(),
        });
    }
    found
}

fn types_of<'a>(btf: &'a Btf, section: &'a str) -> HashMap<&'a str, TypeId> {
    let vars = btf.datasec(section).into_iter().flat_map(|section| section.vars());
    vars.map(|var| (var.name, var.type_id)).collect()
}

impl Object {
    /// Sets a variable, or a member of one: `limit`, `config.names[2]`. The type decides how `text` is read. Where no
    /// variable has the name, an array may: `counts[3]` is an element of it, `limits[3].most` a member of one.
    ///
    /// # Errors
    ///
    /// [`Cause::NoVariable`] if there is neither variable nor map, [`Cause::Variable`] if the map is no array, the index is
    /// too large, or `text` is no value of the type, [`Cause::NoBtf`] if the type is unknown.
    pub fn set_variable(&mut self, path: &str, text: &str) -> Result<(), Error> {
        self.try_set(path, text).map_err(|cause| Error::new(&self.name, cause))
    }

    fn try_set(&mut self, path: &str, text: &str) -> Result<(), Cause> {
        let (name, member) = path.split_at(path.find(['.', '[']).unwrap_or(path.len()));
        let fail = |why: String| Cause::Variable { name: path.into(), why };
        let named = |global: bool| self.variables.iter().find(|var| &*var.name == name && var.global == global);
        let Some(var) = named(true).or_else(|| named(false)) else {
            if let Some(map) = self.maps.iter().position(|map| &*map.name == name && map.data.is_none()) {
                return self.set_element(map, path, member, text);
            }
            return Err(Cause::NoVariable { name: path.into(), known: self.no_variable() });
        };
        let (Some(btf), Some(type_id)) = (&self.btf, var.type_id) else {
            return Err(Cause::NoBtf { what: format!("setting '{name}'") });
        };
        let range = var.off as usize..(var.off as usize).saturating_add(var.size as usize);
        let data = self.maps.get_mut(var.map).and_then(|map| map.data.as_mut());
        let data = data.filter(|data| range.end <= data.size as usize);
        let bytes = data.and_then(|data| {
            if data.bytes.len() < range.end {
                // Zeroes that come from the system take no memory before they are written.
                let mut longer = vec![0; range.end];
                longer[..data.bytes.len()].copy_from_slice(&data.bytes);
                data.bytes = longer;
            }
            data.bytes.get_mut(range)
        });
        let bytes = bytes.ok_or_else(|| fail("it lies outside its section".into()))?;
        // Whatever the object was compiled for, the machine reads its memory in little-endian order.
        set_value(btf, type_id, member, text, bytes, Endian::Little).map_err(|error| fail(error.to_string()))
    }

    fn no_variable(&self) -> String {
        let mut names: Vec<&str> = self.variables.iter().filter(|var| var.global).map(|var| &*var.name).collect();
        names.sort_unstable();
        names.dedup();
        let more = if names.len() > 16 { ", and more" } else { "" };
        names.truncate(16);
        match names.is_empty() {
            true => "the object has no variables".into(),
            false => format!("there is none; the object has {}{more}", names.join(", ")),
        }
    }
}
