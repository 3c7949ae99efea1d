//! Maps of the kernel.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use crate::error::Error;
use crate::sys::{self, FreezeAttr, LookupAttr, MapCreateAttr, Mapping, UpdateAttr};

/// Kinds of maps; the numbers are `enum bpf_map_type`'s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum MapKind {
    /// `BPF_MAP_TYPE_ARRAY`.
    Array = 2,
    /// `BPF_MAP_TYPE_ARENA`, Linux 6.9.
    Arena = 33,
}

/// Blueprint of a map.
#[derive(Clone, Debug)]
pub struct MapCreate<'a> {
    /// At most 15 letters, digits, `_` and `.`.
    pub name: &'a str,
    /// What it is.
    pub kind: MapKind,
    /// Bytes of a key; 0 for an arena.
    pub key_size: u32,
    /// Bytes of a value; 0 for an arena.
    pub value_size: u32,
    /// Entries; pages for an arena.
    pub max_entries: u32,
    /// `BPF_F_*` of `linux/bpf.h`.
    pub flags: u32,
    /// Meaning depends on the kind: the user address of an arena.
    pub extra: u64,
}

/// A map, as long as this value or a program that uses it lives.
#[derive(Debug)]
pub struct Map {
    fd: OwnedFd,
    name: String,
    key_size: usize,
    value_size: usize,
}

/// The name as the kernel wants it: at most 15 bytes and a zero.
pub(crate) fn kernel_name(name: &str) -> [u8; 16] {
    let mut bytes = [0; 16];
    for (slot, byte) in bytes[..15].iter_mut().zip(name.bytes()) {
        *slot = byte;
    }
    bytes
}

impl Map {
    /// `BPF_MAP_CREATE`.
    pub fn create(spec: &MapCreate<'_>) -> Result<Self, Error> {
        let mut attr = MapCreateAttr {
            map_type: spec.kind as u32,
            key_size: spec.key_size,
            value_size: spec.value_size,
            max_entries: spec.max_entries,
            map_flags: spec.flags,
            map_name: kernel_name(spec.name),
            map_extra: spec.extra,
            ..MapCreateAttr::default()
        };
        let fd = sys::make(&mut attr).map_err(|cause| Error::new("MAP_CREATE", spec.name, cause))?;
        let (key_size, value_size) = (spec.key_size as usize, spec.value_size as usize);
        Ok(Self { fd, name: spec.name.to_owned(), key_size, value_size })
    }

    /// `BPF_MAP_UPDATE_ELEM`; `flags` are `BPF_ANY` and its kin.
    ///
    /// # Panics
    ///
    /// When key or value have not the size they were declared with.
    pub fn update(&self, key: &[u8], value: &[u8], flags: u64) -> Result<(), Error> {
        assert_eq!((key.len(), value.len()), (self.key_size, self.value_size), "the map's own sizes");
        let mut attr = UpdateAttr {
            map_fd: self.fd.as_raw_fd() as u32,
            unused: 0,
            key: key.as_ptr() as u64,
            value: value.as_ptr() as u64,
            flags,
        };
        sys::run(&mut attr).map_err(|cause| self.failed("MAP_UPDATE_ELEM", cause))
    }

    /// `BPF_MAP_LOOKUP_ELEM`: a copy of the value, or `None` where the map has no such key.
    ///
    /// # Panics
    ///
    /// When the key has not the size it was declared with.
    pub fn lookup(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        assert_eq!(key.len(), self.key_size, "the map's own size");
        let mut value = vec![0; self.value_size];
        let mut attr = LookupAttr {
            map_fd: self.fd.as_raw_fd() as u32,
            unused: 0,
            key: key.as_ptr() as u64,
            value: value.as_mut_ptr() as u64,
            flags: 0,
        };
        match sys::run(&mut attr) {
            Ok(()) => Ok(Some(value)),
            Err(cause) if cause.raw_os_error() == Some(libc::ENOENT) => Ok(None),
            Err(cause) => Err(self.failed("MAP_LOOKUP_ELEM", cause)),
        }
    }

    /// `BPF_MAP_FREEZE`: no system call changes the map any more, programs may.
    pub fn freeze(&self) -> Result<(), Error> {
        let mut attr = FreezeAttr { map_fd: self.fd.as_raw_fd() as u32 };
        sys::run(&mut attr).map_err(|cause| self.failed("MAP_FREEZE", cause))
    }

    /// The map's first `len` bytes as memory of this process, at `at` unless that is 0. For arenas, and arrays made
    /// with `BPF_F_MMAPABLE`.
    pub fn share(&self, at: usize, len: usize) -> Result<Shared, Error> {
        let mapping = Mapping::new(self.fd.as_fd(), at, len).map_err(|cause| self.failed("mmap", cause))?;
        Ok(Shared { mapping })
    }

    fn failed(&self, command: &'static str, cause: std::io::Error) -> Error {
        Error::new(command, &self.name, cause)
    }
}

impl AsFd for Map {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Memory of a map that this process and programs share.
#[derive(Debug)]
pub struct Shared {
    mapping: Mapping,
}

impl Shared {
    /// Where it begins in this process.
    pub fn addr(&self) -> usize {
        self.mapping.addr()
    }

    /// Copies bytes to `offset`.
    ///
    /// # Panics
    ///
    /// When they do not fit.
    pub fn write(&mut self, offset: usize, bytes: &[u8]) {
        self.mapping.write(offset, bytes);
    }

    /// Copies bytes from `offset`.
    ///
    /// # Panics
    ///
    /// When there are fewer.
    pub fn read(&self, offset: usize, bytes: &mut [u8]) {
        self.mapping.read(offset, bytes);
    }
}
