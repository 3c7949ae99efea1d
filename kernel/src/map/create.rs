//! Creation of kernel maps (`BPF_MAP_CREATE`), with BTF and inner maps.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::{Map, MapInfo, MapKind, kernel_name};
use crate::error::Error;
use crate::probe::{self, Feature};
use crate::sys::{attr, bpf, number_or_zero};

/// Types of key and value.
#[derive(Clone, Copy, Debug)]
pub struct MapBtf<'a> {
    /// The BTF object.
    pub btf: BorrowedFd<'a>,
    /// Type of the key; 0 for none.
    pub key: u32,
    /// Type of the value; 0 for none.
    pub value: u32,
}

/// Blueprint of a map.
#[derive(Clone, Debug)]
pub struct MapCreate<'a> {
    /// The kernel keeps 15 letters, digits, `_` and `.`.
    pub name: &'a str,
    /// What it is.
    pub kind: MapKind,
    /// Bytes of a key; 0 for kinds without.
    pub key_size: u32,
    /// Bytes of a value; 0 for kinds without.
    pub value_size: u32,
    /// Entries; pages for an arena, bytes for ring buffers.
    pub max_entries: u32,
    /// `BPF_F_*` of `linux/bpf.h`.
    pub flags: u32,
    /// Meaning depends on the kind: the user address of an arena, hash functions of a bloom filter.
    pub extra: u64,
    /// NUMA node of its memory, if `flags` has `BPF_F_NUMA_NODE`.
    pub numa_node: u32,
    /// For a map of maps, a map with the type and sizes of the inner maps.
    pub inner: Option<BorrowedFd<'a>>,
    /// Types of key and value.
    pub btf: Option<MapBtf<'a>>,
    /// The kernel's type that the value of a struct_ops map has.
    pub kernel_value: u32,
    /// The module whose type that is, by its BTF; of vmlinux without.
    pub module: Option<BorrowedFd<'a>>,
}

/// `BPF_F_VTYPE_BTF_OBJ_FD`.
const VALUE_TYPE_OF_MODULE: u32 = 1 << 15;

impl<'a> MapCreate<'a> {
    /// A map without flags and types.
    pub fn new(name: &'a str, kind: MapKind, key_size: u32, value_size: u32, max_entries: u32) -> MapCreate<'a> {
        MapCreate {
            name,
            kind,
            key_size,
            value_size,
            max_entries,
            flags: 0,
            extra: 0,
            numa_node: 0,
            inner: None,
            btf: None,
            kernel_value: 0,
            module: None,
        }
    }

    /// What the map will be, to compare with one that exists.
    pub fn info(&self) -> MapInfo {
        MapInfo {
            name: self.name.to_owned(),
            kind: self.kind,
            id: 0,
            key_size: self.key_size,
            value_size: self.value_size,
            max_entries: self.max_entries,
            flags: self.flags,
            extra: self.extra,
            btf_id: 0,
            btf_key: 0,
            btf_value: 0,
        }
    }
}

/// Kinds for which the kernel refuses types of key and value.
fn takes_types(kind: MapKind) -> bool {
    !matches!(
        kind,
        MapKind::PerfEventArray
            | MapKind::CgroupArray
            | MapKind::StackTrace
            | MapKind::ArrayOfMaps
            | MapKind::HashOfMaps
            | MapKind::Devmap
            | MapKind::DevmapHash
            | MapKind::Cpumap
            | MapKind::Xskmap
            | MapKind::Sockmap
            | MapKind::Sockhash
            | MapKind::Queue
            | MapKind::Stack
            | MapKind::Arena
    )
}

impl Map {
    /// `BPF_MAP_CREATE`. Where the kernel does not like the types of key and value, the map is made without them, as
    /// they only serve those who print it, unless the kernel needs them for locks and the like in the value, when the
    /// second attempt leads to a program that the verifier refuses.
    ///
    /// # Errors
    /// The kernel's.
    pub fn create(spec: &MapCreate<'_>) -> Result<Self, Error> {
        let fd = match attempt(spec, spec.btf.filter(|_| takes_types(spec.kind))) {
            Err(error) if spec.btf.is_some() && spec.kernel_value == 0 => {
                log::debug!("map {} without the types of key and value: {error}", spec.name);
                attempt(spec, None)
            }
            result => result,
        };
        let failed = |cause| {
            let mut error = Error::new("MAP_CREATE", &format!("map {} ({})", spec.name, spec.kind.name()), cause);
            error.detail = refusal(spec);
            error
        };
        let fd = fd.map_err(failed)?;
        let info = MapInfo::of(fd.as_fd()).unwrap_or_else(|_| spec.info());
        Ok(Map::from_parts(fd, MapInfo { name: spec.name.to_owned(), ..info }))
    }
}

/// Evidence for why a map was refused: what is missing or too much in its definition, whether this kernel has the kind at
/// all.
fn refusal(spec: &MapCreate<'_>) -> Option<String> {
    let is_ring = matches!(spec.kind, MapKind::Ringbuf | MapKind::UserRingbuf);
    let keyless =
        is_ring || matches!(spec.kind, MapKind::Queue | MapKind::Stack | MapKind::BloomFilter | MapKind::Arena);
    if is_ring && (spec.key_size, spec.value_size) != (0, 0) {
        return Some(
            "a ring buffer has neither keys nor values: leave out __type(key, ...) and __type(value, ...)".to_owned(),
        );
    }
    if spec.max_entries == 0
        && !matches!(spec.kind, MapKind::StructOps | MapKind::CgroupStorage | MapKind::PercpuCgroupStorage)
    {
        return Some("it has no size: give it __uint(max_entries, N)".to_owned());
    }
    if spec.key_size == 0 && !keyless {
        return Some("it has no key: give it __type(key, T), or __uint(key_size, N)".to_owned());
    }
    match probe::map_kind(spec.kind) {
        Ok(true) => None,
        Ok(false) => Some(format!("this kernel has no maps of kind {}", spec.kind.name())),
        Err(_) => None,
    }
}

fn attempt(spec: &MapCreate<'_>, btf: Option<MapBtf<'_>>) -> std::io::Result<OwnedFd> {
    let name = if probe::has(Feature::ProgName) { kernel_name(spec.name) } else { [0; 16] };
    let module = if spec.module.is_some() { VALUE_TYPE_OF_MODULE } else { 0 };
    let mut attr = attr::MapCreate {
        map_type: spec.kind as u32,
        key_size: spec.key_size,
        value_size: spec.value_size,
        max_entries: spec.max_entries,
        map_flags: spec.flags | module,
        inner_map_fd: number_or_zero(spec.inner),
        numa_node: spec.numa_node,
        map_name: name,
        btf_fd: number_or_zero(btf.map(|btf| btf.btf)),
        btf_key_type_id: btf.map_or(0, |btf| btf.key),
        btf_value_type_id: btf.map_or(0, |btf| btf.value),
        btf_vmlinux_value_type_id: spec.kernel_value,
        map_extra: spec.extra,
        value_type_btf_fd: number_or_zero(spec.module),
        ..attr::MapCreate::default()
    };
    bpf::map_create(&mut attr)
}
