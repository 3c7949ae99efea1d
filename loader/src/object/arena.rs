//! Global variables of an arena, section `.addr_space.1`: libbpf's `init_arena_map_data`, with its words.

use twinbpf_vm::map::{Data, MapKind, MapSpec};

use super::Object;
use super::maps::Maps;
use crate::elf::{Elf, Section, SectionType};
use crate::error::Cause;

/// libbpf's `ARENA_SEC`.
pub(crate) const SECTION: &str = ".addr_space.1";

/// Where the global variables of an object's arena lie.
#[derive(Clone, Debug)]
pub(crate) struct ArenaData {
    /// Index of the arena.
    pub(crate) map: usize,
    /// Offset of the section in it, or why the section is not in it.
    pub(crate) start: Result<u32, Cause>,
}

/// Offset of the global variables in an arena (libbpf's `arena_data_off`): at its end, so that the pages at its start,
/// which programs allocate first, do not change with them; at 0 for a kernel whose instructions do not take every offset.
fn start(spec: &MapSpec, size: u32, page: u32, at_end: bool) -> Result<u32, Cause> {
    let arena = u64::from(spec.max_entries) * u64::from(page);
    let free = arena.checked_sub(u64::from(size).next_multiple_of(page.into()));
    let start = free.and_then(|free| u32::try_from(free).ok());
    let why = format!(
        "sec '{SECTION}': declared ARENA map size ({arena}) is too small to hold global __arena variables of size {size}"
    );
    start.map(|start| if at_end { start } else { 0 }).ok_or(Cause::Libbpf(why))
}

fn is_arena_data(section: &Section) -> bool {
    let data = matches!(section.kind, SectionType::ProgBits | SectionType::NoBits);
    &*section.name == SECTION && data && !section.exec && section.size > 0
}

impl Maps {
    /// Gives the section of global variables to the arena.
    pub(super) fn add_arena_data(&mut self, elf: &Elf) {
        let found = elf.sections.iter().enumerate().find(|(_, section)| is_arena_data(section));
        let Some((index, section)) = found else { return };
        let arena = self.specs.iter().position(|spec| spec.kind == MapKind::Arena);
        let placed = arena.ok_or_else(|| {
            let why = "to use global __arena variables the ARENA map should be explicitly declared in SEC(\".maps\")";
            Cause::Libbpf(format!("sec '{SECTION}': {why}"))
        });
        let placed = placed.and_then(|map| {
            let size = u32::try_from(section.size).unwrap_or(u32::MAX);
            start(&self.specs[map], size, twinbpf_vm::map::ARENA_PAGE, true)?;
            self.specs[map].data = Some(Data::new(section.data.to_vec(), size));
            Ok(map)
        });
        self.add_data_section(index, placed);
    }
}

impl Object {
    /// Where the global variables of the arena lie for a target with pages of this size, if there are any.
    pub(crate) fn arena_data(&self, page: u32, at_end: bool) -> Option<ArenaData> {
        let is_it = |spec: &MapSpec| spec.kind == MapKind::Arena && spec.data.is_some();
        let map = self.maps.iter().position(is_it)?;
        let spec = &self.maps[map];
        let size = spec.data.as_ref().map_or(0, |data| data.size);
        Some(ArenaData { map, start: start(spec, size, page, at_end) })
    }
}

impl ArenaData {
    /// The offset in a map's memory of what is `off` bytes into its section.
    pub(crate) fn offset(this: Option<&ArenaData>, map: usize, off: u32) -> Result<u32, Cause> {
        match this.filter(|data| data.map == map) {
            // A section ends in its arena, so that nothing overflows.
            Some(data) => data.start.clone().map(|start| start.saturating_add(off)),
            None => Ok(off),
        }
    }

    /// Says in the maps that are linked where the section is.
    pub(crate) fn apply(this: Option<&ArenaData>, maps: &mut [MapSpec]) {
        let Some(ArenaData { map, start }) = this else { return };
        let Some(data) = maps.get_mut(*map).map(|spec| &mut spec.data) else { return };
        match (start, data.as_mut()) {
            (Ok(start), Some(data)) => data.start = *start,
            // Whatever names it has failed; the arena itself is there for the others.
            _ => *data = None,
        }
    }
}
