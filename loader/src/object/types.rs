//! Type data of an object: `.BTF`, and per section the records of `.BTF.ext`.

use std::collections::HashMap;
use std::sync::Arc;

use twinbpf_btf::{Btf, BtfError, BtfExt, CoreRelo, ExtSection, LineInfo, TypeId};
use twinbpf_isa::program::Signature;

use super::spec::Notes;
use crate::elf::Elf;

/// What the object says about types and lines.
#[derive(Debug)]
pub(super) struct Types {
    /// `None` without a `.BTF` section.
    pub(super) btf: Result<Option<Arc<Btf>>, BtfError>,
    pub(super) records: Records,
}

/// `.BTF.ext`, each list sorted by offset with one record an offset.
#[derive(Clone, Debug, Default)]
pub(crate) struct Records {
    sections: HashMap<Arc<str>, ExtSection>,
    /// Position of each section in the file's list.
    ranks: HashMap<Arc<str>, usize>,
}

impl Types {
    /// Reads both sections. Nothing here fails an object: what needs the types does.
    pub(super) fn read(elf: &Elf, notes: &mut Notes) -> Types {
        let none = |btf| Types { btf, records: Records::default() };
        let Some(section) = elf.section(".BTF") else { return none(Ok(None)) };
        let btf = match Btf::parse(section.data, elf.endian) {
            Ok(btf) => Arc::new(btf),
            Err(error) => {
                notes.skipped(&section.name, error.to_string());
                return none(Err(error));
            }
        };
        let Some(section) = elf.section(".BTF.ext") else { return none(Ok(Some(btf))) };
        let ext = BtfExt::parse(&btf, section.data).unwrap_or_else(|error| {
            notes.skipped(&section.name, error.to_string());
            BtfExt::default()
        });
        for found in ext.sections.iter().filter(|found| !found.relos.is_empty()) {
            let count = found.relos.len();
            let text =
                format!("{count} CO-RE relocations; in the VM the compiled offsets hold, unless it is given types");
            notes.kept(&found.name, text);
        }
        Types { btf: Ok(Some(btf)), records: Records::new(ext) }
    }

    /// Prototype of a function, by its place or else by its name.
    pub(super) fn signature(&self, section: &str, start: usize, name: &str) -> Option<Signature> {
        let btf = self.btf.as_ref().ok()?.as_ref()?;
        let by_place = self.records.function(section, start).and_then(|id| btf.signature(id));
        by_place.or_else(|| btf.func_signature(name))
    }
}

impl Records {
    fn new(ext: BtfExt) -> Records {
        let mut sections = HashMap::new();
        let ranks = ext.sections.iter().enumerate().map(|(rank, section)| (section.name.clone(), rank)).collect();
        for mut section in ext.sections {
            section.funcs.sort_by_key(|record| record.insn_off);
            section.lines.sort_by_key(|record| record.insn_off);
            section.lines.dedup_by_key(|record| record.insn_off);
            section.relos.sort_by_key(|record| record.insn_off);
            sections.entry(section.name.clone()).or_insert(section);
        }
        Records { sections, ranks }
    }

    /// The `FUNC` of the function that starts at a slot of a section.
    pub(crate) fn function(&self, section: &str, start: usize) -> Option<TypeId> {
        let funcs = &self.sections.get(section)?.funcs;
        let offset = u32::try_from(start.checked_mul(8)?).ok()?;
        let at = funcs.partition_point(|record| record.insn_off < offset);
        funcs.get(at).filter(|record| record.insn_off == offset).map(|record| record.type_id)
    }

    /// Where a section stands among those with records.
    pub(crate) fn rank(&self, section: &str) -> usize {
        self.ranks.get(section).copied().unwrap_or(usize::MAX)
    }

    /// Line records of some slots of a section.
    pub(crate) fn lines(&self, section: &str, start: usize, slots: usize) -> &[LineInfo] {
        let lines = self.sections.get(section).map(|section| section.lines.as_slice());
        range(lines.unwrap_or_default(), start, slots, |record| record.insn_off)
    }

    /// Line records of all sections.
    pub(super) fn all_lines(&mut self) -> impl Iterator<Item = &mut LineInfo> {
        self.sections.values_mut().flat_map(|section| &mut section.lines)
    }

    /// CO-RE records of some slots of a section.
    pub(crate) fn relos(&self, section: &str, start: usize, slots: usize) -> &[CoreRelo] {
        let relos = self.sections.get(section).map(|section| section.relos.as_slice());
        range(relos.unwrap_or_default(), start, slots, |record| record.insn_off)
    }
}

fn range<T>(sorted: &[T], start: usize, slots: usize, offset: impl Fn(&T) -> u32) -> &[T] {
    let byte = |slot: usize| (slot as u64).saturating_mul(8);
    let from = sorted.partition_point(|record| u64::from(offset(record)) < byte(start));
    let to = sorted.partition_point(|record| u64::from(offset(record)) < byte(start.saturating_add(slots)));
    sorted.get(from..to).unwrap_or_default()
}
