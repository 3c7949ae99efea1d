//! Attributes of a kernel map, and differences between two.

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;

use super::{MapFlags, MapKind};
use crate::sys::{attr, bpf, text};

/// What the kernel says of a map.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MapInfo {
    /// At most 15 bytes, unless this process made the map and knows more.
    pub name: String,
    /// Map type (`BPF_MAP_TYPE_*`).
    pub kind: MapKind,
    /// Map id in the kernel.
    pub id: u32,
    /// Bytes of a key.
    pub key_size: u32,
    /// Bytes of a value.
    pub value_size: u32,
    /// Entries; bytes for ring buffers, pages for arenas.
    pub max_entries: u32,
    /// Flags it was created with (`BPF_F_*`).
    pub flags: u32,
    /// Depends on the kind.
    pub extra: u64,
    /// Number of the BTF object that describes key and value; 0 without.
    pub btf_id: u32,
    /// Type of the key there.
    pub btf_key: u32,
    /// Type of the value there.
    pub btf_value: u32,
}

/// One attribute in which a map is not what an object declares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Its name in the definition of a map.
    pub attribute: &'static str,
    /// What the map has.
    pub found: String,
    /// The attribute as the object declares it.
    pub wanted: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {}, the object says {}", self.attribute, self.found, self.wanted)
    }
}

impl MapInfo {
    /// Reads it from the kernel (`BPF_OBJ_GET_INFO_BY_FD`).
    pub(crate) fn of(fd: BorrowedFd<'_>) -> io::Result<MapInfo> {
        let mut info = attr::MapInfo::default();
        bpf::info(fd, &mut info)?;
        let unknown = || io::Error::new(io::ErrorKind::Unsupported, format!("a map of kind {}", info.kind));
        Ok(MapInfo {
            name: text(&info.name),
            kind: MapKind::new(info.kind).ok_or_else(unknown)?,
            id: info.id,
            key_size: info.key_size,
            value_size: info.value_size,
            max_entries: info.max_entries,
            flags: info.map_flags,
            extra: info.map_extra,
            btf_id: info.btf_id,
            btf_key: info.btf_key_type_id,
            btf_value: info.btf_value_type_id,
        })
    }

    /// How this map differs from one that an object wants; empty when it can stand in for it. The kernel sets
    /// `BPF_F_RDONLY_PROG` for device maps by itself.
    pub fn differences(&self, wanted: &MapInfo) -> Vec<Difference> {
        let forgiven = match self.kind {
            MapKind::Devmap | MapKind::DevmapHash => MapFlags::RDONLY_PROG.bits(),
            _ => 0,
        };
        let flags = |flags: u32| MapFlags::from_bits_retain(flags & !forgiven).to_string();
        let pairs = [
            ("type", self.kind.name().to_owned(), wanted.kind.name().to_owned()),
            ("key_size", self.key_size.to_string(), wanted.key_size.to_string()),
            ("value_size", self.value_size.to_string(), wanted.value_size.to_string()),
            ("max_entries", self.max_entries.to_string(), wanted.max_entries.to_string()),
            ("map_flags", flags(self.flags), flags(wanted.flags)),
            ("map_extra", format!("{:#x}", self.extra), format!("{:#x}", wanted.extra)),
        ];
        let different = pairs.into_iter().filter(|(_, found, wanted)| found != wanted);
        different.map(|(attribute, found, wanted)| Difference { attribute, found, wanted }).collect()
    }
}
