//! Initial slots of maps of maps and of prog arrays.

use twinbpf_vm::map::Slot;

use super::code::{Targets, address, reloc_cause};
use super::externs::Externs;
use super::functions::Functions;
use super::maps::Maps;
use super::spec::{Notes, Reference};
use crate::elf::{DefinedIn, Elf, Reloc};
use crate::error::{Cause, RelocFault};
use crate::section::SectionKind;

impl Maps {
    /// Fills in `.values` of maps of maps and prog arrays, from the relocations of `.maps`, and the tail call
    /// sections of iproute2.
    pub(super) fn initialise(&mut self, elf: &Elf, functions: &Functions, externs: &Externs, notes: &mut Notes) {
        let mut found = Vec::new();
        for section in self.defined.keys() {
            for reloc in elf.relocs_of(*section).flat_map(|table| &table.relocs) {
                let targets = Targets { elf, maps: self, externs };
                match self.slot(&targets, functions, *section, reloc) {
                    Ok(slot) => found.extend(slot),
                    Err(cause) => {
                        let Some(section) = elf.sections.get(*section) else { continue };
                        notes.skipped(&section.name, cause.to_string());
                    }
                }
            }
        }
        for spec in &functions.specs {
            let SectionKind::TailCall { map, key } = spec.attach.kind else { continue };
            let map = self.ids.get(&map).copied();
            found.extend(map.map(|map| (map, key, Slot::Program(spec.name.clone()))));
        }
        for (map, slot, value) in found {
            if let Some(spec) = self.specs.get_mut(map) {
                spec.slots.push((slot, value));
            }
        }
    }

    fn slot(
        &self,
        targets: &Targets,
        functions: &Functions,
        section: usize,
        reloc: &Reloc,
    ) -> Result<Option<(usize, u32, Slot)>, Cause> {
        let before = self.slots.range(..=(section, reloc.offset)).next_back();
        let holder = before.and_then(|((section_index, start), (map, count))| {
            let within = reloc.offset.checked_sub(*start)?;
            let inside = *section_index == section && within % 8 == 0 && within / 8 < u64::from(*count);
            inside.then_some((*map, (within / 8) as u32))
        });
        let Some((map, slot)) = holder else { return Ok(None) };
        let fail = |why| reloc_cause(targets.elf, section, reloc, why);
        let symbol = targets.elf.symbols.get(reloc.symbol).ok_or_else(|| fail(RelocFault::Symbol(reloc.symbol)))?;
        let DefinedIn::Section(section_index) = symbol.defined_in else { return Err(fail(RelocFault::NoSection)) };
        let offset = i128::from(symbol.value) + i128::from(reloc.addend.unwrap_or(0));
        match address(functions, targets, section_index, offset).map_err(|fault| fault.cause(fail))? {
            Reference::Map(inner) => Ok(Some((map, slot, Slot::Map(inner)))),
            Reference::Address(function) | Reference::Call(function) => {
                let name = functions.specs.get(function).map(|spec| spec.name.clone());
                Ok(name.map(|name| (map, slot, Slot::Program(name))))
            }
            Reference::MapValue { .. } | Reference::Extern(_) => {
                Err(fail(RelocFault::Unsupported("map slots that are neither maps nor programs")))
            }
        }
    }
}
