//! Units whose DIEs the compiler put into `.dwo` files, or `dwp` into one `.dwp`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::{Dwarf, ReadFile, load};
use crate::elf::{Elf, Slice, slice};
use crate::error::{Error, Tried};
use crate::store::Store;

type Unit<'a> = gimli::Unit<Slice<'a>>;

/// A unit that a skeleton stands for.
pub(super) struct Inner<'a> {
    pub(super) dwarf: Arc<Dwarf<'a>>,
    pub(super) unit: Unit<'a>,
    /// Its location lists, as much of the section as is the unit's.
    pub(super) locations: &'a [u8],
}

/// The sections of a `.dwo` file, or what a `.dwp` has of them.
struct Sections<'a> {
    dwarf: Dwarf<'a>,
    /// `.debug_loc` and `.debug_loclists`.
    locations: [&'a [u8]; 2],
}

struct Package<'a> {
    package: gimli::DwarfPackage<Slice<'a>>,
    locations: [&'a [u8]; 2],
}

pub(super) struct Split<'a> {
    store: &'a Store,
    path: PathBuf,
    files: ReadFile<'a>,
    package: OnceLock<Option<Package<'a>>>,
    missing: Mutex<Vec<Tried>>,
}

impl<'a> Split<'a> {
    pub(super) fn new(store: &'a Store, path: &Path, files: ReadFile<'a>) -> Split<'a> {
        let (package, missing) = (OnceLock::new(), Mutex::new(Vec::new()));
        Split { store, path: path.to_owned(), files, package, missing }
    }

    pub(super) fn missing(&self) -> Vec<Tried> {
        self.missing.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The unit that a skeleton stands for; `None` if it is none, or if the file is not there.
    pub(super) fn find(&self, parent: &Arc<Dwarf<'a>>, skeleton: &Unit<'a>) -> Option<Inner<'a>> {
        let id = skeleton.dwo_id?;
        let name = skeleton.dwo_name().ok().flatten()?;
        let name = parent.attr_string(skeleton, name).ok()?;
        let packed = self.package().and_then(|package| package.find(id, parent));
        let found = match packed {
            Some(sections) => Ok(sections),
            None => self.file(parent, skeleton, Path::new(OsStr::from_bytes(name.slice())), id),
        };
        match found.and_then(|sections| inner(sections, skeleton, id).map_err(|why| self.broken(&name, why))) {
            Ok(found) => Some(found),
            Err(tried) => {
                self.missing.lock().unwrap_or_else(PoisonError::into_inner).push(tried);
                None
            }
        }
    }

    fn broken(&self, name: &Slice<'a>, why: String) -> Tried {
        Tried::Broken { path: PathBuf::from(OsStr::from_bytes(name.slice())), why }
    }

    /// `FILE.dwp`, if it is there.
    fn package(&self) -> Option<&Package<'a>> {
        let package = self.package.get_or_init(|| {
            let mut path = self.path.clone().into_os_string();
            path.push(".dwp");
            let bytes = self.store.keep((self.files)(Path::new(&path))?);
            let elf = Elf::parse(bytes).ok()?;
            let section = |id| elf.dwarf_section(self.store, id, true).or(Err(gimli::Error::Io));
            let package = gimli::DwarfPackage::load(section, slice(&[])).ok()?;
            Some(Package { package, locations: locations(self.store, &elf).ok()? })
        });
        package.as_ref()
    }

    fn file(
        &self,
        parent: &Dwarf<'a>,
        skeleton: &Unit<'a>,
        name: &Path,
        id: gimli::DwoId,
    ) -> Result<Sections<'a>, Tried> {
        let folder = skeleton.comp_dir.map(|dir| Path::new(OsStr::from_bytes(dir.slice())));
        let beside = self.path.parent().unwrap_or(Path::new(""));
        let named = folder.unwrap_or(beside).join(name);
        let places = [named.clone(), beside.join(name), beside.join(name.file_name().unwrap_or_default())];
        let mut tried = Tried::Absent(named);
        for path in places {
            let Some(bytes) = (self.files)(&path) else { continue };
            let broken = |why| Tried::Broken { path: path.clone(), why };
            let elf = Elf::parse(self.store.keep(bytes)).map_err(|error| broken(error.to_string()))?;
            let mut dwarf = load(self.store, &elf, true, 1).map_err(|error| broken(error.to_string()))?;
            dwarf.make_dwo(parent);
            let locations = locations(self.store, &elf).map_err(|error| broken(error.to_string()))?;
            match unit_of(&dwarf, id) {
                Ok(_) => return Ok(Sections { dwarf, locations }),
                Err(what) => tried = Tried::Mismatch { path, what },
            }
        }
        Err(tried)
    }
}

/// The unit with that identity.
fn unit_of<'a>(dwarf: &Dwarf<'a>, id: gimli::DwoId) -> Result<Unit<'a>, String> {
    let mut headers = dwarf.units();
    let mut others = Vec::new();
    while let Some(header) = headers.next().map_err(|error| error.to_string())? {
        let unit = dwarf.unit(header).map_err(|error| error.to_string())?;
        match unit.dwo_id {
            Some(found) if found == id => return Ok(unit),
            Some(found) => others.push(format!("{:#x}", found.0)),
            None => {}
        }
    }
    Err(format!("it has units {}, not {:#x}", others.join(", "), id.0))
}

fn inner<'a>(sections: Sections<'a>, skeleton: &Unit<'a>, id: gimli::DwoId) -> Result<Inner<'a>, String> {
    let Sections { dwarf, locations } = sections;
    let mut unit = unit_of(&dwarf, id)?;
    unit.copy_relocated_attributes(skeleton);
    let locations = locations[usize::from(unit.encoding().version >= 5)];
    Ok(Inner { dwarf: Arc::new(dwarf), unit, locations })
}

/// `.debug_loc.dwo` and `.debug_loclists.dwo`.
fn locations<'a>(store: &'a Store, elf: &Elf<'a>) -> Result<[&'a [u8]; 2], Error> {
    Ok([elf.section(store, ".debug_loc.dwo")?, elf.section(store, ".debug_loclists.dwo")?])
}

impl<'a> Package<'a> {
    /// The parts of the sections that are a unit's.
    fn find(&self, id: gimli::DwoId, parent: &Dwarf<'a>) -> Option<Sections<'a>> {
        let dwarf = self.package.find_cu(id, parent).ok().flatten()?;
        let row = self.package.cu_index.find(id.0)?;
        let mut locations = [&[][..]; 2];
        for part in self.package.cu_index.sections(row).ok()? {
            let which = match part.section {
                gimli::IndexSectionId::DebugLoc => 0,
                gimli::IndexSectionId::DebugLocLists => 1,
                _ => continue,
            };
            let begin = part.offset as usize;
            locations[which] = self.locations[which].get(begin..begin.checked_add(part.size as usize)?)?;
        }
        Some(Sections { dwarf, locations })
    }
}
