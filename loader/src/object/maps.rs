//! Maps of an object: definitions in `.maps` and `maps`, and one map for each data section.
//!
//! A definition that makes no map fails the programs that refer to it, not the object.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use twinbpf_vm::map::{Data, MapKind, MapSpec, Slot};

use super::legacy;
use super::spec::Notes;
use super::types::Types;
use crate::elf::{Elf, Section, SectionType};
use crate::error::Cause;
use crate::maps::{MapDecl, map_specs};

/// `BPF_F_RDONLY_PROG`.
const RDONLY_PROG: u32 = 1 << 7;
/// `BPF_F_MMAPABLE`.
const MMAPABLE: u32 = 1 << 10;

/// The maps, and where relocations find them.
#[derive(Debug, Default)]
pub(super) struct Maps {
    pub(super) specs: Vec<MapSpec>,
    /// (section, byte offset) of each definition.
    pub(super) defined: BTreeMap<usize, BTreeMap<u64, Result<usize, Cause>>>,
    /// Data section to map, or why it has none.
    data: BTreeMap<usize, Result<usize, Cause>>,
    /// Definitions with initial slots: where slot 0 lies, the map, and the number of slots.
    pub(super) slots: BTreeMap<(usize, u64), (usize, u32)>,
    /// `id` of iproute2's definitions to map.
    pub(super) ids: BTreeMap<u32, usize>,
}

impl Maps {
    /// Reads every definition and data section.
    pub(super) fn collect(elf: &Elf, types: &Types, notes: &mut Notes) -> Result<Maps, Cause> {
        let mut maps = Maps::default();
        let mut seen = None;
        for (index, section) in elf.sections.iter().enumerate().filter(|(_, section)| section.size > 0) {
            match &*section.name {
                ".maps" if seen.replace(index).is_some() => notes.skipped(&section.name, "a second section of maps"),
                ".maps" => maps.add_declared(elf, index, types, notes),
                "maps" => maps.add_legacy(elf, index, notes),
                name if name.starts_with("maps/") => maps.add_legacy(elf, index, notes),
                _ => {}
            }
        }
        maps.add_arena_data(elf);
        maps.add_data(elf)?;
        Ok(maps)
    }

    /// The map of a data section.
    pub(super) fn data_of(&self, section: usize) -> Option<&Result<usize, Cause>> {
        self.data.get(&section)
    }

    pub(super) fn add_data_section(&mut self, section: usize, map: Result<usize, Cause>) {
        self.data.insert(section, map);
    }

    /// Whether a section holds map definitions.
    pub(super) fn has_section(&self, section: usize) -> bool {
        self.defined.contains_key(&section)
    }

    /// The map that is defined at a place.
    pub(super) fn at(&self, section: usize, offset: u64) -> Option<&Result<usize, Cause>> {
        self.defined.get(&section)?.get(&offset)
    }

    /// Index of a data map, and the ELF section it comes from.
    pub(super) fn data_sections(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.data.iter().filter_map(|(section, map)| Some((*section, *map.as_ref().ok()?)))
    }

    fn add_declared(&mut self, elf: &Elf, index: usize, types: &Types, notes: &mut Notes) {
        let Some(section) = elf.sections.get(index) else { return };
        let offsets = symbols_of(elf, index);
        let defined = self.defined.entry(index).or_default();
        let btf = match &types.btf {
            Ok(Some(btf)) => btf,
            Ok(None) => {
                notes.skipped(&section.name, "its maps need BTF and the object has none");
                let missing = |name: &Arc<str>| Cause::NoBtf { what: format!("map '{name}'") };
                defined.extend(offsets.iter().map(|(name, offset)| (*offset, Err(missing(name)))));
                return;
            }
            Err(error) => {
                notes.skipped(&section.name, format!("its maps need BTF: {error}"));
                defined.extend(offsets.values().map(|offset| (*offset, Err(Cause::Btf(error.clone())))));
                return;
            }
        };
        for decl in map_specs(btf) {
            let offset = offsets.get(&*decl.name).copied().unwrap_or(u64::from(decl.offset));
            match finish(&decl).and_then(|spec| only_arena(spec, &self.specs)) {
                Ok(spec) => {
                    let map = self.specs.len();
                    self.specs.push(spec);
                    defined.insert(offset, Ok(map));
                    let slots = decl.slots.map(|slots| ((index, offset + u64::from(slots.offset)), (map, slots.count)));
                    self.slots.extend(slots);
                }
                Err(cause) => {
                    notes.skipped(&section.name, cause.to_string());
                    defined.insert(offset, Err(cause));
                }
            }
        }
        for (name, offset) in &offsets {
            let unknown = || Err(Cause::Map { map: name.clone(), why: "BTF does not describe it".into() });
            defined.entry(*offset).or_insert_with(unknown);
        }
    }

    fn add_legacy(&mut self, elf: &Elf, index: usize, notes: &mut Notes) {
        let Some(section) = elf.sections.get(index) else { return };
        notes.accepted(&section.name, "map definitions without BTF, which libbpf refuses since 1.0");
        let definitions = legacy::read(elf, index);
        let defined = self.defined.entry(index).or_default();
        let mut first = BTreeMap::new();
        for definition in &definitions {
            let spec = match &definition.spec {
                Ok(spec) => spec.clone(),
                Err(cause) => {
                    notes.skipped(&section.name, cause.to_string());
                    defined.insert(definition.offset, Err(cause.clone()));
                    continue;
                }
            };
            let map = self.specs.len();
            self.specs.push(spec);
            defined.insert(definition.offset, Ok(map));
            if let Some(extra) = definition.extra.filter(|extra| extra.id != 0) {
                first.entry(extra.id).or_insert(map);
            }
        }
        let made = |offset: u64| defined.get(&offset).and_then(|found| found.clone().ok());
        for (outer, inner, slot) in legacy::nested(&definitions) {
            let (Some(outer), Some(inner)) = (made(outer), made(inner)) else { continue };
            let template = self.specs.get(inner).cloned();
            let Some(outer) = self.specs.get_mut(outer) else { continue };
            if outer.inner.is_none() {
                outer.inner = template.map(Box::new);
            }
            outer.slots.extend(slot.map(|slot| (slot, Slot::Map(inner))));
        }
        self.ids.extend(first);
    }

    /// Zeroes take no memory here, however many: `Data::bytes` may end before the value does.
    fn add_data(&mut self, elf: &Elf) -> Result<(), Cause> {
        for (index, section) in elf.sections.iter().enumerate() {
            let Some(read_only) = data_kind(section) else { continue };
            let too_large = |_| {
                let what = format!("section '{}'", section.name);
                Cause::TooLarge { what, size: section.size, limit: u32::MAX.into() }
            };
            let size = u32::try_from(section.size).map_err(too_large)?;
            self.data.insert(index, Ok(self.specs.len()));
            self.specs.push(data_map(&section.name, section.data.to_vec(), size, read_only));
        }
        Ok(())
    }
}

/// Name to offset of the variables in a section of definitions.
fn symbols_of(elf: &Elf, section: usize) -> HashMap<Arc<str>, u64> {
    elf.symbols_in(section)
        .filter(|symbol| !symbol.name.is_empty())
        .map(|symbol| (symbol.name.clone(), symbol.value))
        .collect()
}

fn finish(decl: &MapDecl) -> Result<MapSpec, Cause> {
    let spec = decl.spec.clone().map_err(Cause::MapDef)?;
    match &decl.unknown {
        Some(unknown) => {
            let why = format!("unknown key '{}' in its definition", unknown.key);
            Err(Cause::Map { map: decl.name.as_str().into(), why })
        }
        None => Ok(spec),
    }
}

/// libbpf takes one arena.
fn only_arena(spec: MapSpec, before: &[MapSpec]) -> Result<MapSpec, Cause> {
    let other = before.iter().find(|other| other.kind == MapKind::Arena && spec.kind == MapKind::Arena);
    match other.map(|other| format!("only single ARENA map is supported (map '{}' is also ARENA)", other.name)) {
        Some(why) => Err(Cause::Map { map: spec.name, why }),
        None => Ok(spec),
    }
}

/// Whether a section becomes a data map, and whether programs may only read it.
fn data_kind(section: &Section) -> Option<bool> {
    let is = |name: &str| section.name.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    match section.kind {
        _ if section.size == 0 || section.exec => None,
        SectionType::ProgBits | SectionType::NoBits if is(".rodata") => Some(true),
        SectionType::ProgBits | SectionType::NoBits if is(".data") || is(".bss") => Some(false),
        SectionType::ProgBits | SectionType::NoBits | SectionType::Other => None,
    }
}

fn data_map(name: &Arc<str>, bytes: Vec<u8>, size: u32, read_only: bool) -> MapSpec {
    MapSpec {
        flags: MMAPABLE | if read_only { RDONLY_PROG } else { 0 },
        data: Some(Data { read_only, ..Data::new(bytes, size) }),
        ..MapSpec::new(name.clone(), MapKind::Array, 4, size, 1)
    }
}
