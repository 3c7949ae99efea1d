//! Debug information of a file: where it is, and its units, each read when something needs it.

mod search;
mod split;

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use gimli::{Abbreviations, AttributeValue, DebugInfoOffset, SectionId, UnitHeader, UnitOffset, UnitType};

use crate::elf::{Elf, Slice};
use crate::error::{Error, Refusal, Tried};
use crate::store::{Bytes, Store};
pub(crate) use search::{Found, separate};

pub(crate) type Dwarf<'a> = gimli::Dwarf<Slice<'a>>;
pub(crate) type Entry<'a> = gimli::DebuggingInformationEntry<Slice<'a>>;
pub(crate) type Value<'a> = AttributeValue<Slice<'a>>;

/// Reads further files: debug files, `.dwo`, `.dwp`. `None` where there is none.
pub type ReadFile<'f> = &'f (dyn Fn(&Path) -> Option<Bytes> + Sync);

/// A debugging information entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Die {
    /// Index into the units.
    pub(crate) unit: usize,
    pub(crate) offset: UnitOffset,
}

/// Which section of DIEs a unit is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Section {
    Info,
    Types,
    /// `.debug_info` of the file that several debug files share (dwz).
    Shared,
}

/// A unit with all that is needed to read its DIEs.
#[derive(Debug)]
pub(crate) struct Unit<'a> {
    pub(crate) dwarf: Arc<Dwarf<'a>>,
    pub(crate) unit: gimli::Unit<Slice<'a>>,
    /// The unit in the file itself, where the DIEs are in a `.dwo`.
    pub(crate) skeleton: Option<(Arc<Dwarf<'a>>, gimli::Unit<Slice<'a>>)>,
    /// Location lists of a unit in a `.dwo`; those of others are in the file's own section.
    pub(crate) locations: Option<&'a [u8]>,
}

impl<'a> Unit<'a> {
    pub(crate) fn string(&self, value: Value<'a>) -> Option<&'a [u8]> {
        self.dwarf.attr_string(&self.unit, value).ok().map(|text| text.slice())
    }

    /// The unit that has the line table.
    pub(crate) fn lines(&self) -> (&Dwarf<'a>, &gimli::Unit<Slice<'a>>) {
        match &self.skeleton {
            Some((dwarf, unit)) => (dwarf, unit),
            None => (&self.dwarf, &self.unit),
        }
    }
}

#[derive(Debug)]
struct Slot<'a> {
    section: Section,
    begin: usize,
    end: usize,
    header: UnitHeader<Slice<'a>>,
    unit: OnceLock<Result<Unit<'a>, String>>,
}

/// The units of a file.
pub(crate) struct Debug<'a> {
    store: &'a Store,
    dwarf: Arc<Dwarf<'a>>,
    shared: Option<Arc<Dwarf<'a>>>,
    slots: Vec<Slot<'a>>,
    split: split::Split<'a>,
    /// The file that has the debug information, if it is another one.
    pub(crate) path: Option<PathBuf>,
    /// A shared file that was named and could not be used.
    pub(crate) shared_missing: Option<Tried>,
}

impl<'a> Debug<'a> {
    pub(crate) fn open(
        store: &'a Store,
        path: &Path,
        found: Found<'a, '_>,
        files: ReadFile<'a>,
        threads: usize,
    ) -> Result<Debug<'a>, Error> {
        let mut dwarf = load(store, found.elf, false, threads)?;
        let (shared, shared_missing) =
            match search::shared(store, found.path.as_deref().unwrap_or(path), found.elf, files) {
                Ok(shared) => (shared, None),
                Err(tried) => (None, Some(tried)),
            };
        if let Some(shared) = &shared {
            dwarf.set_sup(load(store, shared, false, threads)?);
        }
        let shared = dwarf.sup.clone();
        let dwarf = Arc::new(dwarf);
        let mut slots = Vec::new();
        collect(&dwarf, Section::Info, &mut slots)?;
        if let Some(shared) = &shared {
            collect(shared, Section::Shared, &mut slots)?;
        }
        let mut types = dwarf.type_units();
        while let Some(header) = types.next().map_err(damaged)? {
            let begin = header.debug_types_offset().map_or(0, |offset| offset.0);
            slots.push(slot(Section::Types, begin, header));
        }
        slots.sort_by_key(|slot| (slot.section, slot.begin));
        let split = split::Split::new(store, path, files);
        Ok(Debug { store, dwarf, shared, slots, split, path: found.path, shared_missing })
    }

    /// No debug information.
    pub(crate) fn none(store: &'a Store, path: &Path, files: ReadFile<'a>) -> Debug<'a> {
        let dwarf = Arc::new(Dwarf::default());
        let split = split::Split::new(store, path, files);
        Debug { store, dwarf, shared: None, slots: Vec::new(), split, path: None, shared_missing: None }
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn unit(&self, index: usize) -> Result<&Unit<'a>, Refusal> {
        let slot = self.slot(index)?;
        slot.unit.get_or_init(|| self.read(slot)).as_ref().map_err(|why| Refusal::Damaged(why.clone()))
    }

    fn slot(&self, index: usize) -> Result<&Slot<'a>, Refusal> {
        self.slots.get(index).ok_or_else(|| Refusal::Damaged("a unit that is not there".to_owned()))
    }

    /// Reads a unit for one use: each that is kept has tables of some ten kilobytes.
    pub(crate) fn visit<T>(&self, index: usize, visit: impl FnOnce(&Unit<'a>) -> T) -> Result<T, Refusal> {
        match self.slots.get(index) {
            Some(slot) if slot.unit.get().is_none() => {
                let unit = self.read(slot).map_err(Refusal::Damaged)?;
                let visited = visit(&unit);
                // What was searched for among files is not searched again.
                if unit.skeleton.is_some() {
                    let _ = slot.unit.set(Ok(unit));
                }
                Ok(visited)
            }
            _ => Ok(visit(self.unit(index)?)),
        }
    }

    fn read(&self, slot: &Slot<'a>) -> Result<Unit<'a>, String> {
        let dwarf = match (slot.section, &self.shared) {
            (Section::Shared, Some(shared)) => shared,
            _ => &self.dwarf,
        };
        let unit = dwarf.unit(slot.header).map_err(|error| error.to_string())?;
        match self.split.find(dwarf, &unit) {
            Some(split::Inner { dwarf: split, unit: inner, locations }) => Ok(Unit {
                dwarf: split,
                unit: inner,
                skeleton: Some((Arc::clone(dwarf), unit)),
                locations: Some(locations),
            }),
            None => Ok(Unit { dwarf: Arc::clone(dwarf), unit, skeleton: None, locations: None }),
        }
    }

    /// Units that have code at an address, by `.debug_aranges`, which a file need not have.
    pub(crate) fn units_at(&self, address: u64) -> Vec<usize> {
        let mut found = Vec::new();
        let mut headers = self.dwarf.debug_aranges.headers();
        while let Ok(Some(header)) = headers.next() {
            let mut ranges = header.entries();
            while let Ok(Some(range)) = ranges.next() {
                if address.checked_sub(range.address()).is_some_and(|at| at < range.length()) {
                    found.extend(self.at(Section::Info, header.debug_info_offset()).ok().map(|die| die.unit));
                }
            }
        }
        found
    }

    /// The sections of the file's own units, and where each unit's DIEs and abbreviations begin; `None` if there are units
    /// elsewhere, too.
    pub(crate) fn own_units(&self) -> Option<(&Dwarf<'a>, impl Iterator<Item = (Range<usize>, usize)>)> {
        if self.shared.is_some() || self.slots.iter().any(|slot| slot.section != Section::Info) {
            return None;
        }
        let units = self.slots.iter().map(|slot| (slot.begin..slot.end, slot.header.debug_abbrev_offset().0));
        Some((&self.dwarf, units))
    }

    /// What the DIEs of one of the file's own units are read with; [`Debug::unit`] has its line table, too.
    pub(crate) fn own_unit(&self, index: usize) -> Result<(UnitHeader<Slice<'a>>, Arc<Abbreviations>), Refusal> {
        let header = self.slot(index)?.header;
        Ok((header, self.dwarf.abbreviations(&header)?))
    }

    /// Says that bytes of units have been searched.
    pub(crate) fn searched(&self, bytes: &[u8]) {
        self.store.searched(bytes);
    }

    /// `.dwo` files that are not there, or that are of another build.
    pub(crate) fn missing_splits(&self) -> Vec<Tried> {
        self.split.missing()
    }

    pub(crate) fn entry(&self, die: Die) -> Result<Entry<'a>, Refusal> {
        Ok(self.unit(die.unit)?.unit.entry(die.offset)?)
    }

    /// The DIE that an attribute refers to.
    pub(crate) fn refer(&self, from: usize, value: Value<'a>) -> Result<Die, Refusal> {
        match value {
            AttributeValue::UnitRef(offset) => Ok(Die { unit: from, offset }),
            AttributeValue::DebugInfoRef(offset) => {
                let section = self.slots.get(from).map_or(Section::Info, |slot| slot.section);
                if self.unit(from)?.skeleton.is_some() {
                    return self.inside_split(from, offset);
                }
                let section = if section == Section::Shared { section } else { Section::Info };
                self.at(section, offset)
            }
            AttributeValue::DebugInfoRefSup(offset) if self.shared.is_some() => self.at(Section::Shared, offset),
            AttributeValue::DebugInfoRefSup(_) => Err(Refusal::Damaged(match &self.shared_missing {
                Some(tried) => format!("it refers to a shared file (dwz): {tried}"),
                None => "it refers to a shared file (dwz), and names none".to_owned(),
            })),
            AttributeValue::DebugTypesRef(signature) => self.type_unit(signature),
            other => Err(Refusal::Damaged(format!("{other:?} is no reference"))),
        }
    }

    fn inside_split(&self, from: usize, offset: DebugInfoOffset) -> Result<Die, Refusal> {
        let unit = &self.unit(from)?.unit;
        let offset = offset.to_unit_offset(&unit.header);
        let offset =
            offset.ok_or_else(|| Refusal::Operation("a reference from one .dwo unit to another".to_owned()))?;
        Ok(Die { unit: from, offset })
    }

    fn at(&self, section: Section, offset: DebugInfoOffset) -> Result<Die, Refusal> {
        let after = self.slots.partition_point(|slot| (slot.section, slot.begin) <= (section, offset.0));
        let index = after.checked_sub(1).filter(|index| {
            let slot = &self.slots[*index];
            slot.section == section && offset.0 < slot.end
        });
        let index = index.ok_or_else(|| Refusal::Damaged("a reference to no unit".to_owned()))?;
        Ok(Die { unit: index, offset: UnitOffset(offset.0 - self.slots[index].begin) })
    }

    fn type_unit(&self, wanted: gimli::DebugTypeSignature) -> Result<Die, Refusal> {
        let found = self.slots.iter().enumerate().find_map(|(unit, slot)| match slot.header.type_() {
            UnitType::Type { type_signature, type_offset } if type_signature == wanted => {
                Some(Die { unit, offset: type_offset })
            }
            _ => None,
        });
        found.ok_or_else(|| Refusal::Operation("its type is in a type unit of a .dwo file".to_owned()))
    }
}

fn damaged(error: gimli::Error) -> Error {
    Error::Damaged(error.to_string())
}

/// The sections of a file. Those that are compressed take a quarter of the time of one definition, the DIEs half of that: they
/// have a thread of their own where there may be several.
fn load<'a>(store: &'a Store, elf: &Elf<'a>, dwo: bool, threads: usize) -> Result<Dwarf<'a>, Error> {
    let section = |id| elf.dwarf_section(store, id, dwo);
    let info = || section(SectionId::DebugInfo);
    std::thread::scope(|scope| {
        let beside = (threads > 1).then(|| std::thread::Builder::new().spawn_scoped(scope, info).ok()).flatten();
        let mut dwarf = gimli::Dwarf::load(|id| match id {
            SectionId::DebugInfo => Ok(Slice::default()),
            id => section(id),
        })?;
        let info = match beside {
            Some(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?,
            None => info()?,
        };
        dwarf.debug_info = info.into();
        Ok(dwarf)
    })
}

fn slot<'a>(section: Section, begin: usize, header: UnitHeader<Slice<'a>>) -> Slot<'a> {
    let end = begin.saturating_add(header.length_including_self());
    Slot { section, begin, end, header, unit: OnceLock::new() }
}

fn collect<'a>(dwarf: &Dwarf<'a>, section: Section, slots: &mut Vec<Slot<'a>>) -> Result<(), Error> {
    let mut headers = dwarf.units();
    while let Some(header) = headers.next().map_err(damaged)? {
        let begin = header.debug_info_offset().map_or(0, |offset| offset.0);
        slots.push(slot(section, begin, header));
    }
    Ok(())
}
