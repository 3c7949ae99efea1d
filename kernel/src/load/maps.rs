//! Creation of an object's maps in the kernel, with libbpf's adjustments.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use twinbpf_loader::kernel::KernelMap;
use twinbpf_vm::map::{MapFlags, MapKind, MapSpec, Slot};

use super::failure::{Failure, Why};
use super::{Loading, Pinning};
use crate::cpu;
use crate::map::{Map, MapBtf, MapCreate, Pinned};
use crate::probe::{Feature, has};
use crate::sys::memory::page_size;

/// Where maps are pinned by name.
const PINS: &str = "/sys/fs/bpf";

/// The name of a data section's map in the kernel (libbpf's `internal_map_name`): as much of the object's as fits before
/// the section's, and nothing of it before a name of the user's own, `.data.mine`.
fn data_name(object: &str, section: &str) -> String {
    let custom = section.get(1..).is_some_and(|rest| rest.contains('.'));
    if custom {
        return section.to_owned();
    }
    let stem = Path::new(object).file_name().map_or(object.into(), |name| name.to_string_lossy());
    let stem = stem.split('.').next().unwrap_or_default();
    let room = 15_usize.saturating_sub(section.len().max(7));
    // The kernel counts bytes, and gets `_` for each that is no ASCII.
    let prefix: String =
        stem.bytes().take(room).map(|byte| if byte.is_ascii() { char::from(byte) } else { '_' }).collect();
    format!("{prefix}{section}")
}

/// A ring's size as the kernel takes it: a power of two and whole pages. 0 stays, which the kernel refuses.
fn ring_size(size: u32) -> u32 {
    let page = page_size() as u32;
    match size {
        0 => 0,
        size => size.checked_next_power_of_two().unwrap_or(1 << 31).max(page),
    }
}

impl Loading<'_> {
    /// Makes every map, then fills maps of maps.
    pub(super) fn make_maps(&mut self) {
        for (index, map) in self.linked.maps.iter().enumerate() {
            if self.options.absent.contains(&index) {
                self.missing.insert(index, "it was left out".to_owned());
                self.loaded.maps.push(None);
                continue;
            }
            let made = match self.options.given.get(&index) {
                Some(given) => given.try_clone().map_err(Why::Kernel),
                None => self.make(map),
            };
            match made {
                Ok(made) => self.loaded.maps.push(Some(made)),
                Err(why) => {
                    self.missing.insert(index, "it could not be made".to_owned());
                    self.loaded.maps.push(None);
                    self.fail(index, &map.spec.name, why);
                }
            }
        }
        for (index, map) in self.linked.maps.iter().enumerate() {
            if let Err(why) = self.fill_inner(index, &map.spec) {
                self.fail(index, &map.spec.name, why);
            }
        }
    }

    fn fail(&mut self, index: usize, name: &Arc<str>, why: Why) {
        let (object, name) = (self.object.name.clone(), name.clone());
        let view = match &why {
            Why::Kernel(error) => error.log.clone(),
            Why::Linker(_) | Why::Map { .. } | Why::Pinned { .. } | Why::Impossible(_) => String::new(),
        };
        self.loaded.failures.push(Failure {
            object,
            section: None,
            name,
            index: Some(index),
            why,
            line: None,
            view,
            others: 0,
        });
    }

    fn make(&mut self, map: &KernelMap) -> Result<Map, Why> {
        let spec = &map.spec;
        let name = match &spec.data {
            Some(_) if spec.kind != MapKind::Arena => data_name(&self.object.name, &spec.name),
            _ => spec.name.to_string(),
        };
        let inner = self.template(map)?;
        let mut create = create_attributes(spec, &name);
        create.inner = inner.as_ref().map(|inner| inner.as_fd());
        create.btf = self.types(map.key_type.map(|id| id.0), map.value_type.map(|id| id.0));
        let path = self.pin_path(spec);
        if let Some(path) = &path
            && let Some(map) = self.pinned(path, &create)?
        {
            let map = map.named(&spec.name);
            fill_elements(spec, &map)?;
            return Ok(map);
        }
        let made = Map::create(&create).map_err(Why::Kernel)?.named(&spec.name);
        self.prepare(spec, &made)?;
        fill_elements(spec, &made)?;
        if let Some(path) = &path {
            made.pin(path).map_err(Why::Kernel)?;
            self.loaded.new_pins.push(path.clone());
        }
        Ok(made)
    }

    fn types(&self, key: Option<u32>, value: Option<u32>) -> Option<MapBtf<'_>> {
        let btf = self.loaded.btf.as_ref()?.as_fd();
        let (key, value) = (key.unwrap_or(0), value.unwrap_or(0));
        (key != 0 || value != 0).then_some(MapBtf { btf, key, value })
    }

    /// A map of the form that a map of maps wants inside. It need only live while that is made.
    fn template(&self, map: &KernelMap) -> Result<Option<Map>, Why> {
        let Some(inner) = &map.spec.inner else { return Ok(None) };
        let name = format!("{}.inner", map.spec.name);
        let mut create = create_attributes(inner, &name);
        let (key, value) = map.inner_types;
        create.btf = self.types(key.map(|id| id.0), value.map(|id| id.0));
        Map::create(&create).map(Some).map_err(Why::Kernel)
    }

    fn pin_path(&self, spec: &MapSpec) -> Option<PathBuf> {
        if !spec.pinned || self.options.pinning == Pinning::Ignore {
            return None;
        }
        let empty = self.options.pins.as_os_str().is_empty();
        let folder = if empty { Path::new(PINS) } else { &self.options.pins };
        Some(folder.join(&*spec.name))
    }

    /// The map at a path, if it can stand in.
    fn pinned(&self, path: &Path, create: &MapCreate<'_>) -> Result<Option<Map>, Why> {
        match Map::pinned(path, &create.info()).map_err(Why::Kernel)? {
            Pinned::Nothing => Ok(None),
            Pinned::Same(map) => Ok(Some(map)),
            Pinned::Different { differences, .. } => match self.options.pinning {
                Pinning::Replace => {
                    let removed = std::fs::remove_file(path);
                    removed.map_err(|cause| {
                        Why::Kernel(crate::Error::new("unlink", &path.display().to_string(), cause))
                    })?;
                    Ok(None)
                }
                Pinning::Strict | Pinning::Ignore => Err(Why::Pinned { path: path.to_owned(), differences }),
            },
        }
    }

    /// What must be done before programs see the map.
    fn prepare(&mut self, spec: &MapSpec, map: &Map) -> Result<(), Why> {
        if spec.kind == MapKind::Arena {
            return self.map_arena(spec, map);
        }
        if let Some(data) = &spec.data {
            let mut value = vec![0; spec.value_size as usize];
            let len = data.bytes.len().min(value.len());
            value[..len].copy_from_slice(&data.bytes[..len]);
            map.update(&[0; 4], &value, 0).map_err(Why::Kernel)?;
            if data.read_only {
                // Without freezing, which came later, programs still cannot write.
                if let Err(error) = map.freeze() {
                    log::debug!("{error}");
                }
            }
        }
        Ok(())
    }

    /// Maps an arena, which the kernel wants before programs use it, and writes its global variables.
    fn map_arena(&mut self, spec: &MapSpec, map: &Map) -> Result<(), Why> {
        let len = spec.max_entries as usize * page_size();
        let mut memory = map.share(spec.extra as usize, len).map_err(Why::Kernel)?;
        if let Some(data) = &spec.data {
            let start = data.start as usize;
            if start.saturating_add(data.bytes.len()) > len {
                return Err(Why::Impossible(format!("its global variables do not fit into {len} bytes")));
            }
            memory.write(start, &data.bytes);
        }
        self.loaded.arenas.push(memory);
        Ok(())
    }

    /// Puts the maps that the object names into slots.
    fn fill_inner(&self, index: usize, spec: &MapSpec) -> Result<(), Why> {
        let Some(outer) = self.loaded.maps.get(index).and_then(Option::as_ref) else { return Ok(()) };
        for (slot, value) in &spec.slots {
            let Slot::Map(inner) = value else { continue };
            let inner = self.loaded.maps.get(*inner).and_then(Option::as_ref);
            let inner = inner.ok_or_else(|| Why::Impossible(format!("the map for slot {slot} is not there")))?;
            outer.update_fd(*slot, inner.as_fd()).map_err(Why::Kernel)?;
        }
        Ok(())
    }

    /// Puts the programs that the object names into slots of prog arrays.
    pub(super) fn fill_prog_arrays(&mut self) {
        for (index, map) in self.linked.maps.iter().enumerate() {
            for (slot, value) in &map.spec.slots {
                let Slot::Program(name) = value else { continue };
                let Some(array) = self.loaded.maps.get(index).and_then(Option::as_ref) else { continue };
                let why = match self.loaded.program(name) {
                    Some(program) => array.update_fd(*slot, program.prog.as_fd()).err().map(Why::Kernel),
                    None => Some(Why::Impossible(format!("program {name} for slot {slot} is not there"))),
                };
                if let Some(why) = why {
                    self.fail(index, &map.spec.name, why);
                }
            }
        }
    }
}

/// Gives elements their initial values.
fn fill_elements(spec: &MapSpec, map: &Map) -> Result<(), Why> {
    for (key, value) in &spec.entries {
        if (key.len(), value.len()) != (spec.key_size as usize, map.copy_size()) {
            return Err(Why::Impossible("an initial entry has another size than those of the map".to_owned()));
        }
        map.update(key, value, 0).map_err(Why::Kernel)?;
    }
    for (slots, value) in &spec.elements {
        let (have, need) = ((4, value.len()), (spec.key_size, map.copy_size()));
        if have != need {
            let why = format!("an initial value has {} bytes, those of the map have {}", have.1, need.1);
            return Err(Why::Impossible(why));
        }
        for slot in slots.clone() {
            map.update(&slot.to_ne_bytes(), value, 0).map_err(Why::Kernel)?;
        }
    }
    Ok(())
}

/// The attributes by which this kernel creates a map.
fn create_attributes<'a>(spec: &MapSpec, name: &'a str) -> MapCreate<'a> {
    let mut flags = spec.flags();
    if spec.data.is_some() && spec.kind != MapKind::Arena && !has(Feature::ArrayMmap) {
        flags.remove(MapFlags::MMAPABLE);
    }
    let max_entries = match spec.kind {
        MapKind::PerfEventArray if spec.max_entries == 0 => cpu::possible() as u32,
        MapKind::Ringbuf | MapKind::UserRingbuf => ring_size(spec.max_entries),
        _ => spec.max_entries,
    };
    MapCreate {
        flags: flags.bits(),
        extra: spec.extra,
        numa_node: spec.numa_node,
        ..MapCreate::new(name, spec.kind, spec.key_size, spec.value_size, max_entries)
    }
}

#[cfg(test)]
mod tests {
    use super::{data_name, ring_size};

    #[test]
    fn names_and_sizes_are_libbpfs() {
        assert_eq!(data_name("/x/my_long_tool.bpf.o", ".bss"), "my_long_.bss");
        assert_eq!(data_name("tool.o", ".rodata"), "tool.rodata");
        assert_eq!(data_name("my_long_tool.o", ".rodata.str1.1"), ".rodata.str1.1");
        assert_eq!(data_name("tool.o", ".data.mine"), ".data.mine");
        assert_eq!(data_name("tool.o", ".kconfig"), "tool.kconfig");
        assert_eq!(data_name("a_long_tool.o", ".kconfig"), "a_long_.kconfig");
        assert_eq!([0, 1, 4096, 5000].map(ring_size), [0, 4096, 4096, 8192]);
    }
}
