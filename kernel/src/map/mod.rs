//! Kernel maps by file descriptor: create, look up, update, iterate, pin.
//!
//! Sizes of keys and values are the caller's duty and panic when wrong: a map knows its own ([`Map::info`]). Values of
//! per-CPU kinds are as the kernel copies them: one for each possible CPU, each padded to eight bytes.

mod batch;
mod create;
mod find;
mod info;
mod pin;
mod types;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

pub use batch::Entry;
pub use create::{MapBtf, MapCreate};
pub use find::{FindError, Holder, holders, joined};
pub use info::{Difference, MapInfo};
pub use pin::{Pinned, unpin};
pub(crate) use pin::{c_path, pin as pin_fd};
pub use twinbpf_vm::map::{MapFlags, MapKind};
pub use types::MapTypes;

use crate::error::Error;
use crate::sys::attr::{Elem, Freeze};
use crate::sys::memory::Mapping;
use crate::sys::{address, bpf, number};

/// A map, as long as this value or a program that uses it lives.
#[derive(Debug)]
pub struct Map {
    fd: OwnedFd,
    info: MapInfo,
}

/// The name as the kernel wants it: at most 15 bytes and a zero, letters, digits, `_` and `.` only.
pub(crate) fn kernel_name(name: &str) -> [u8; 16] {
    let mut bytes = [0; 16];
    for (slot, byte) in bytes[..15].iter_mut().zip(name.bytes()) {
        *slot = if byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'.' { byte } else { b'_' };
    }
    bytes
}

impl Map {
    pub(crate) fn from_parts(fd: OwnedFd, info: MapInfo) -> Self {
        Self { fd, info }
    }

    /// The same map under another name for messages and lookups here.
    pub(crate) fn named(mut self, name: &str) -> Self {
        name.clone_into(&mut self.info.name);
        self
    }

    /// Attributes of the map, as the kernel reports them, not as they were requested.
    pub fn info(&self) -> &MapInfo {
        &self.info
    }

    /// Bytes of a value as the commands copy it: for per-CPU kinds, of all CPUs together.
    pub fn copy_size(&self) -> usize {
        self.info.kind.copy_size(self.info.value_size, crate::cpu::possible())
    }

    fn check(&self, key: &[u8], value: usize) {
        let sizes = (self.info.key_size as usize, self.copy_size());
        assert_eq!((key.len(), value), sizes, "sizes of key and value of map {}", self.info.name);
    }

    fn elem(&self, key: u64, value: u64, flags: u64) -> Elem {
        Elem { map_fd: number(self.fd.as_fd()), unused: 0, key, value, flags }
    }

    /// `BPF_MAP_UPDATE_ELEM`; `flags` are `BPF_ANY` and its kin.
    ///
    /// # Errors
    /// The kernel's.
    ///
    /// # Panics
    /// When key or value have not the map's sizes.
    pub fn update(&self, key: &[u8], value: &[u8], flags: u64) -> Result<(), Error> {
        self.check(key, value.len());
        let mut attr = self.elem(address(key), value.as_ptr() as u64, flags);
        bpf::map_update(&mut attr).map_err(|cause| self.failed("MAP_UPDATE_ELEM", cause))
    }

    /// Puts a descriptor into a slot of an array of programs, maps, events or sockets.
    ///
    /// # Errors
    /// The kernel's.
    ///
    /// # Panics
    /// When the map's keys and values have not four bytes.
    pub fn update_fd(&self, slot: u32, fd: BorrowedFd<'_>) -> Result<(), Error> {
        self.update(&slot.to_ne_bytes(), &number(fd).to_ne_bytes(), 0)
    }

    /// `BPF_MAP_LOOKUP_ELEM`: a copy of the value, or `None` where the map has no such key.
    ///
    /// # Errors
    /// The kernel's.
    ///
    /// # Panics
    /// When the key has not the map's size.
    pub fn lookup(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let mut value = vec![0; self.copy_size()];
        Ok(self.lookup_into(key, &mut value, 0)?.then_some(value))
    }

    /// The same into a buffer, with flags; whether there was a value.
    ///
    /// # Errors
    /// The kernel's.
    ///
    /// # Panics
    /// When key or value have not the map's sizes.
    pub fn lookup_into(&self, key: &[u8], value: &mut [u8], flags: u64) -> Result<bool, Error> {
        self.check(key, value.len());
        let mut attr = self.elem(address(key), value.as_mut_ptr() as u64, flags);
        self.found("MAP_LOOKUP_ELEM", bpf::map_lookup(&mut attr))
    }

    /// `BPF_MAP_LOOKUP_AND_DELETE_ELEM`: takes a value out. Queues and stacks have empty keys.
    ///
    /// # Errors
    /// The kernel's.
    ///
    /// # Panics
    /// When the key has not the map's size.
    pub fn take(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let mut value = vec![0; self.copy_size()];
        self.check(key, value.len());
        let mut attr = self.elem(address(key), value.as_mut_ptr() as u64, 0);
        let found = self.found("MAP_LOOKUP_AND_DELETE_ELEM", bpf::map_lookup_and_delete(&mut attr))?;
        Ok(found.then_some(value))
    }

    /// `BPF_MAP_DELETE_ELEM`: whether there was such an element.
    ///
    /// # Errors
    /// The kernel's.
    ///
    /// # Panics
    /// When the key has not the map's size.
    pub fn delete(&self, key: &[u8]) -> Result<bool, Error> {
        self.check(key, self.copy_size());
        self.found("MAP_DELETE_ELEM", bpf::map_delete(&mut self.elem(key.as_ptr() as u64, 0, 0)))
    }

    /// `BPF_MAP_GET_NEXT_KEY`: the key after `key`, or the first one.
    ///
    /// # Errors
    /// The kernel's.
    ///
    /// # Panics
    /// When the key has not the map's size.
    pub fn next_key(&self, key: Option<&[u8]>) -> Result<Option<Vec<u8>>, Error> {
        let mut next = vec![0; self.info.key_size as usize];
        assert!(key.is_none_or(|key| key.len() == next.len()), "size of the key of map {}", self.info.name);
        let address = key.map_or(0, |key| key.as_ptr() as u64);
        let mut attr = self.elem(address, next.as_mut_ptr() as u64, 0);
        Ok(self.found("MAP_GET_NEXT_KEY", bpf::map_next_key(&mut attr))?.then_some(next))
    }

    /// `BPF_MAP_FREEZE`: no system call changes the map any more, programs may.
    ///
    /// # Errors
    /// The kernel's.
    pub fn freeze(&self) -> Result<(), Error> {
        let mut attr = Freeze { map_fd: number(self.fd.as_fd()) };
        bpf::map_freeze(&mut attr).map_err(|cause| self.failed("MAP_FREEZE", cause))
    }

    /// The map's first `len` bytes as memory of this process, at `at` unless that is 0. For arenas, and arrays made
    /// with `BPF_F_MMAPABLE`.
    ///
    /// # Errors
    /// The kernel's.
    pub fn share(&self, at: usize, len: usize) -> Result<Shared, Error> {
        let mapping = Mapping::new(self.fd.as_fd(), at, len).map_err(|cause| self.failed("mmap", cause))?;
        Ok(Shared { mapping })
    }

    /// One more descriptor of the same map.
    ///
    /// # Errors
    /// This process has too many.
    pub fn try_clone(&self) -> Result<Map, Error> {
        let fd = self.fd.try_clone().map_err(|cause| self.failed("dup", cause))?;
        Ok(Map { fd, info: self.info.clone() })
    }

    fn found(&self, command: &'static str, result: io::Result<()>) -> Result<bool, Error> {
        match result {
            Ok(()) => Ok(true),
            Err(cause) if cause.raw_os_error() == Some(libc::ENOENT) => Ok(false),
            Err(cause) => Err(self.failed(command, cause)),
        }
    }

    pub(crate) fn failed(&self, command: &'static str, cause: io::Error) -> Error {
        Error::new(command, &format!("map {}", self.info.name), cause)
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
    /// When they do not fit.
    pub fn write(&mut self, offset: usize, bytes: &[u8]) {
        self.mapping.write(offset, bytes);
    }

    /// Copies bytes from `offset`.
    ///
    /// # Panics
    /// When there are fewer.
    pub fn read(&self, offset: usize, bytes: &mut [u8]) {
        self.mapping.read(offset, bytes);
    }
}
