//! The maps of one instantiated object, and the handles by which programs name them.
//!
//! A handle is an address in the arena's map table, so it cannot be confused with memory. Maps that are made
//! while programs run (inner maps of a map of maps) are added after the object's own; nothing is ever
//! removed, so [`Maps::get`] takes no lock.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};

use super::absent::Absent;
use super::array_table::ArrayTable;
use super::given::check_given;
use super::{Errno, MapError, MapOps, MapSpec, Pointer, Slot, create, kernel_only};
use crate::mem::{Arena, HandleRange, MemError};

/// Slots of the first chunk of added maps; each further one has twice as many.
const ADDED: u32 = 64;
/// Chunks of added maps: enough for every handle an arena has.
const CHUNKS: usize = 10;

/// Supplies a map that exists already for the spec with this index.
pub type Given<'a> = dyn FnMut(usize, &MapSpec) -> Option<Arc<dyn MapOps>> + 'a;

#[derive(Debug)]
struct Chunk {
    handles: HandleRange,
    maps: Box<[OnceLock<Arc<dyn MapOps>>]>,
}

impl Chunk {
    fn new(arena: &Arc<Arena>, count: u32) -> Result<Chunk, MemError> {
        let handles = arena.maps().reserve(count)?;
        Ok(Chunk { handles, maps: (0..count).map(|_| OnceLock::new()).collect() })
    }
}

/// See the module documentation.
#[derive(Debug)]
pub struct Maps {
    arena: Arc<Arena>,
    cpus: u32,
    own: Vec<Arc<dyn MapOps>>,
    /// Why the kind of one of them does not exist here, by index.
    absent: BTreeMap<usize, String>,
    handles: HandleRange,
    chunks: [OnceLock<Chunk>; CHUNKS],
    /// Number of added maps.
    added: Mutex<u32>,
    /// Of all maps, if inner maps may be arrays.
    arrays: Option<ArrayTable>,
}

impl Maps {
    /// Makes the maps of an object and fills their initial slots. `program` gives the index of a program in
    /// the image by name. A map of a kind that exists only in the kernel is one on which every operation fails; see
    /// [`Maps::absent`].
    pub fn new(
        specs: &[MapSpec],
        arena: &Arc<Arena>,
        cpus: u32,
        program: &mut dyn FnMut(&str) -> Option<u32>,
    ) -> Result<Maps, MapError> {
        Maps::with(specs, arena, cpus, &mut |_, _| None, program)
    }

    /// Like [`Maps::new`], but `given` may supply a map that exists already instead of a new one: one of
    /// another object, or one that the host made. Its slots and elements are left as they are.
    pub fn with(
        specs: &[MapSpec],
        arena: &Arc<Arena>,
        cpus: u32,
        given: &mut Given<'_>,
        program: &mut dyn FnMut(&str) -> Option<u32>,
    ) -> Result<Maps, MapError> {
        let count = u32::try_from(specs.len()).unwrap_or(u32::MAX);
        let name = specs.first().map_or_else(|| Arc::from(""), |spec| Arc::clone(&spec.name));
        let handles = arena.maps().reserve(count).map_err(|source| MapError::Memory { map: name, source })?;
        let mut own = Vec::with_capacity(specs.len());
        let (mut fill, mut absent) = (Vec::new(), BTreeMap::new());
        for (index, spec) in specs.iter().enumerate() {
            match given(index, spec) {
                Some(map) => {
                    check_given(spec, &*map, arena, cpus)?;
                    own.push(map);
                }
                None => match kernel_only(spec) {
                    Some(why) => {
                        absent.insert(index, why);
                        own.push(Arc::new(Absent::new(spec.clone())));
                    }
                    None => {
                        own.push(create(spec.clone(), arena, cpus)?);
                        fill.push(index);
                    }
                },
            }
        }
        let chunks = std::array::from_fn(|_| OnceLock::new());
        let arrays = own.iter().any(|map| ArrayTable::serves(&**map)).then(|| ArrayTable::new(arena)).flatten();
        let added = Mutex::new(0);
        let maps = Maps { arena: Arc::clone(arena), cpus, own, absent, handles, chunks, added, arrays };
        maps.own.iter().enumerate().for_each(|(index, map)| maps.enter(maps.handle(index), map));
        for index in fill {
            maps.fill_slots(index, &specs[index], program)?;
            maps.fill_elements(index, &specs[index])?;
        }
        Ok(maps)
    }

    fn fill_slots(
        &self,
        index: usize,
        spec: &MapSpec,
        program: &mut dyn FnMut(&str) -> Option<u32>,
    ) -> Result<(), MapError> {
        let map = &self.own[index];
        for (slot, content) in &spec.slots {
            let fail = |reason: String| MapError::Slot { map: Arc::clone(&spec.name), slot: *slot, reason };
            match content {
                Slot::Map(inner) => {
                    let found = self.own.get(*inner).ok_or_else(|| fail(format!("there is no map number {inner}")))?;
                    let name = &found.spec().name;
                    let set = map.set_inner(&slot.to_le_bytes(), Arc::clone(found), self.handle(*inner));
                    set.map_err(|errno| fail(refused_inner(name, errno)))?;
                }
                Slot::Program(name) => {
                    let found = program(name).ok_or_else(|| fail(format!("there is no program {name}")))?;
                    let set = map.set_program(*slot, found);
                    set.map_err(|errno| fail(format!("program {name} refused: {errno}")))?;
                }
            }
        }
        Ok(())
    }

    fn fill_elements(&self, index: usize, spec: &MapSpec) -> Result<(), MapError> {
        let map = &self.own[index];
        for (key, value) in &spec.entries {
            let set = map.update(key, value, 0, 0);
            set.map_err(|errno| MapError::Entry { map: Arc::clone(&spec.name), key: Arc::clone(key), errno })?;
        }
        for (slots, value) in &spec.elements {
            for slot in slots.clone() {
                let fail = |reason: String| MapError::Slot { map: Arc::clone(&spec.name), slot, reason };
                let (have, need) = (value.len(), spec.value_size as usize);
                if have != need {
                    return Err(fail(format!("its value has {have} bytes, those of the map have {need}")));
                }
                let set = map.update(&slot.to_le_bytes(), value, 0, 0);
                set.map_err(|errno| fail(format!("its value is refused: {errno}")))?;
            }
        }
        Ok(())
    }

    /// The arena the values are in.
    pub fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    /// How many CPUs per-CPU maps are made for.
    pub fn cpus(&self) -> u32 {
        self.cpus
    }

    /// The object's own maps, in the order of their specs.
    pub fn own(&self) -> &[Arc<dyn MapOps>] {
        &self.own
    }

    /// Index of one of the object's own maps by name.
    pub fn by_name(&self, name: &str) -> Option<usize> {
        self.own.iter().position(|map| &*map.spec().name == name)
    }

    /// Handle of one of the object's own maps.
    pub fn handle(&self, index: usize) -> u64 {
        self.handles.addr(u32::try_from(index).unwrap_or(u32::MAX))
    }

    /// Why programs cannot use the map that a handle means: its kind exists only in the kernel.
    pub fn absent(&self, handle: u64) -> Option<&str> {
        let index = self.handles.index(handle)?;
        self.absent.get(&(index as usize)).map(String::as_str)
    }

    /// The map a handle means, if programs can use it.
    pub fn get(&self, handle: u64) -> Option<&Arc<dyn MapOps>> {
        if let Some(index) = self.handles.index(handle) {
            let index = index as usize;
            return self.own.get(index).filter(|_| !self.absent.contains_key(&index));
        }
        let mut chunks = self.chunks.iter().map_while(OnceLock::get);
        let (chunk, index) = chunks.find_map(|chunk| Some((chunk, chunk.handles.index(handle)?)))?;
        chunk.maps[index as usize].get()
    }

    /// Address of the value of one of the object's own maps, if it is an array: of its data section.
    pub fn addr_of_value(&self, index: usize) -> Option<u64> {
        self.own.get(index)?.memory().map(|block| block.addr())
    }

    /// Gives a map made elsewhere a handle here. The same map always gets the same handle.
    pub fn add(&self, map: Arc<dyn MapOps>) -> Result<u64, MapError> {
        if let Some(index) = self.own.iter().position(|own| Arc::ptr_eq(own, &map)) {
            return Ok(self.handle(index));
        }
        let mut added = self.added.lock().expect("no panic while held");
        if let Some(handle) = self.find_added(&map) {
            return Ok(handle);
        }
        let (chunk, index) = match (*added / ADDED).checked_ilog2() {
            None => (0, *added),
            Some(log) => (log as usize + 1, *added - (ADDED << log)),
        };
        let name = Arc::clone(&map.spec().name);
        let full = || MapError::Memory { map: name, source: MemError::Handles("maps") };
        let Some(cell) = self.chunks.get(chunk) else { return Err(full()) };
        if cell.get().is_none() {
            let count = (ADDED << chunk) / if chunk == 0 { 1 } else { 2 };
            cell.set(Chunk::new(&self.arena, count).map_err(|_| full())?).expect("only set under the lock");
        }
        let chunk = cell.get().expect("just set");
        let handle = chunk.handles.addr(index);
        self.enter(handle, &map);
        chunk.maps[index as usize].set(map).expect("each index is used once");
        *added += 1;
        Ok(handle)
    }

    /// Has generated code find a map that gets a handle.
    fn enter(&self, handle: u64, map: &Arc<dyn MapOps>) {
        if let Some(arrays) = &self.arrays {
            arrays.add(handle, &**map);
        }
    }

    /// Where arrays are, by handle, if inner maps may be arrays.
    pub fn array_table(&self) -> Option<&ArrayTable> {
        self.arrays.as_ref()
    }

    fn find_added(&self, map: &Arc<dyn MapOps>) -> Option<u64> {
        let mut chunks = self.chunks.iter().map_while(OnceLock::get);
        chunks.find_map(|chunk| {
            let same = |cell: &OnceLock<Arc<dyn MapOps>>| cell.get().is_some_and(|other| Arc::ptr_eq(other, map));
            chunk.maps.iter().position(same).map(|index| chunk.handles.addr(index as u32))
        })
    }

    /// Makes one more map, for instance an inner map.
    pub fn create(&self, spec: MapSpec) -> Result<(u64, Arc<dyn MapOps>), MapError> {
        let map = create(spec, &self.arena, self.cpus)?;
        Ok((self.add(Arc::clone(&map))?, map))
    }

    /// Puts a map into a slot of a map of maps, as `BPF_MAP_UPDATE_ELEM` with its descriptor.
    pub fn set_inner(&self, outer: &dyn MapOps, key: &[u8], inner: &Arc<dyn MapOps>) -> Result<(), Errno> {
        let handle = self.add(Arc::clone(inner)).map_err(|error| error.errno())?;
        outer.set_inner(key, Arc::clone(inner), handle)
    }

    /// Writes the pointers of the object's data sections. Those to maps and data are known here; `other` gives
    /// the address of a function or an extern.
    pub fn write_pointers<E>(&self, mut other: impl FnMut(&Pointer) -> Result<u64, E>) -> Result<(), E> {
        for map in &self.own {
            let (Some(block), Some(data)) = (map.memory(), &map.spec().data) else { continue };
            for (off, pointer) in &data.pointers {
                let known = match pointer {
                    Pointer::MapValue { map, off } => self.addr_of_value(*map).map(|addr| addr + u64::from(*off)),
                    Pointer::Map(map) => (*map < self.own.len()).then(|| self.handle(*map)),
                    Pointer::Function { .. } | Pointer::Extern(_) => None,
                };
                let value = match known {
                    Some(value) => value,
                    None => other(pointer)?,
                };
                assert!(*off <= block.len() && block.len() - *off >= 8, "pointer inside its data section");
                block.write(*off, &value.to_le_bytes());
            }
        }
        Ok(())
    }
}

fn refused_inner(name: &str, errno: Errno) -> String {
    match errno {
        Errno::EINVAL => format!("map {name} differs from the template of the inner maps"),
        errno => format!("map {name} refused: {errno}"),
    }
}
