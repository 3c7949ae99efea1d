//! Kernel maps for programs of user space: [`MapOps`] over `bpf(2)`.
//!
//! An array that the kernel lets processes map, so each global variable, is in the arena itself: both sides have the
//! same memory. Of any other map a lookup gives a copy, which a program can only read: a store traps and says what to
//! use, so that no write is ever lost in silence. A copy stays where it is for its key, and is fresh after each lookup.
//!
//! Maps inside of maps, and programs inside of prog arrays, are not reached from here.

mod snapshots;

use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};

use twinbpf_vm::map::{Entry, Errno, MapFlags, MapKind, MapOps, MapSpec, Ring, Sent};
use twinbpf_vm::mem::{Arena, Block, MemError, RegionKind, RegionSpec};

use crate::cpu;
use crate::error::Error;
use crate::map::Map;
use crate::stream::{PerfReader, RingReader, RingWriter};
use snapshots::Snapshots;

/// Pages for each CPU of a perf event array.
const PERF_PAGES: usize = 64;

/// A map of the kernel, in an arena.
#[derive(Debug)]
pub struct KernelMap {
    spec: MapSpec,
    map: Map,
    values: Values,
}

/// How programs get at values.
#[derive(Debug)]
enum Values {
    /// Its memory is in the arena.
    Memory(Block),
    /// It cannot change, and is in the arena as it is.
    Frozen(Block),
    /// Values are copied by system calls.
    Snapshots(Mutex<Snapshots>),
    /// Records come out of it.
    Ring(Mutex<RingReader>),
    /// Records go into it.
    User(UserRing),
    /// Samples come out of it.
    Perf(Mutex<PerfReader>),
    /// A map type whose elements userspace cannot read.
    None,
}

/// Which samples are taken out of a perf event array. They come by CPU, and are ordered by time once those of all CPUs
/// are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Take {
    /// Those that no sample can come before any more.
    Settled,
    /// All there are: nothing writes any more.
    All,
}

/// Why programs of user space cannot use a map of the kernel.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ShareError {
    /// The arena has no room.
    #[error("map {map}: {error}")]
    Memory {
        /// Name of the map.
        map: Arc<str>,
        /// Error of mapping or allocating memory.
        error: MemError,
    },
    /// The kernel refused.
    #[error(transparent)]
    Kernel(#[from] Error),
}

impl KernelMap {
    /// Puts a map into an arena. `spec` is the object's, with its name and the fields of keys and values.
    ///
    /// # Errors
    /// There is no room, or the kernel refuses.
    pub fn new(map: &Map, spec: &MapSpec, arena: &Arc<Arena>) -> Result<Arc<KernelMap>, ShareError> {
        let map = map.try_clone()?;
        let info = map.info();
        let spec = MapSpec {
            max_entries: info.max_entries,
            key_size: info.key_size,
            value_size: info.value_size,
            flags: info.flags,
            ..spec.clone()
        };
        let values = values(&map, &spec, arena)?;
        Ok(Arc::new(KernelMap { spec, map, values }))
    }

    /// The kernel map that is shared.
    pub fn map(&self) -> &Map {
        &self.map
    }

    /// Samples of a perf event array that were lost so far.
    pub fn lost(&self) -> u64 {
        match &self.values {
            Values::Perf(reader) => reader.lock().expect("no panic while held").lost(),
            Values::Memory(_) | Values::Frozen(_) | Values::Snapshots(_) | Values::Ring(_) | Values::User(_) => 0,
            Values::None => 0,
        }
    }

    /// Gives records to `each`, without keeping them: every one of a ring buffer that is there, of a perf event array those
    /// that [`Take`] says. Nothing for other kinds.
    pub fn consume(&self, take: Take, mut each: impl FnMut(u32, &[u8]) -> ControlFlow<()>) {
        match &self.values {
            Values::Ring(reader) => {
                reader.lock().expect("no panic while held").consume(|bytes| each(0, bytes));
            }
            Values::Perf(reader) => {
                let mut reader = reader.lock().expect("no panic while held");
                let samples = match take {
                    Take::Settled => reader.read(),
                    Take::All => reader.drain(),
                };
                let _ = samples.iter().try_for_each(|sample| each(sample.cpu, &sample.bytes));
            }
            Values::Memory(_) | Values::Frozen(_) | Values::Snapshots(_) | Values::User(_) | Values::None => {}
        }
    }

    /// Registers the descriptor that records come from with a waiter. False: the map has none.
    ///
    /// # Errors
    /// The kernel's.
    pub fn watch(&self, waiter: &crate::stream::Waiter, token: u64) -> Result<bool, Error> {
        match &self.values {
            Values::Ring(reader) => waiter.add(reader.lock().expect("no panic while held").as_fd(), token)?,
            Values::Perf(reader) => {
                let reader = reader.lock().expect("no panic while held");
                reader.sources().try_for_each(|source| waiter.add(source, token))?;
            }
            Values::Memory(_) | Values::Frozen(_) | Values::Snapshots(_) | Values::User(_) | Values::None => {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The part of a copied value that is one CPU's.
    fn part(&self, cpu: u32) -> Option<std::ops::Range<usize>> {
        let size = self.spec.value_size as usize;
        if !self.spec.kind.is_per_cpu() {
            return Some(0..size);
        }
        let start = (cpu as usize) * size.next_multiple_of(8);
        ((cpu as usize) < cpu::possible()).then_some(start..start + size)
    }

    fn copied(&self, key: &[u8], cpu: u32) -> Result<Vec<u8>, Errno> {
        let part = self.part(cpu).ok_or(Errno::ERANGE)?;
        check(key, self.spec.key_size)?;
        let whole = self.map.lookup(key).map_err(|error| errno(&error))?.ok_or(Errno::ENOENT)?;
        Ok(whole[part].to_vec())
    }

    fn keyless(&self, value: &[u8]) -> Result<(), Errno> {
        let kind = matches!(self.spec.kind, MapKind::Queue | MapKind::Stack | MapKind::BloomFilter);
        if kind { check(value, self.spec.value_size) } else { Err(Errno::ENOTSUPP) }
    }
}

fn check(bytes: &[u8], size: u32) -> Result<(), Errno> {
    if bytes.len() == size as usize { Ok(()) } else { Err(Errno::EINVAL) }
}

fn errno(error: &Error) -> Errno {
    error.errno().map_or(Errno::EINVAL, Errno)
}

#[expect(unsafe_code, reason = "maps the memory of a kernel map")]
fn values(map: &Map, spec: &MapSpec, arena: &Arc<Arena>) -> Result<Values, ShareError> {
    // exhaustive match
    let memory = |error| ShareError::Memory { map: spec.name.clone(), error };
    Ok(match spec.kind {
        MapKind::Array if spec.flags().contains(MapFlags::MMAPABLE) && spec.program_writable() => {
            let region = region(spec);
            // SAFETY: the memory of a map has all its values, page-aligned, as long as a mapping exists.
            Values::Memory(unsafe { arena.alloc_shared(region, map.as_fd()) }.map_err(memory)?)
        }
        MapKind::Array if spec.data.as_ref().is_some_and(|data| data.read_only) => {
            let block = arena.alloc(RegionSpec { writable: false, ..region(spec) }).map_err(memory)?;
            block.write(0, &map.lookup(&[0; 4])?.unwrap_or_default());
            Values::Frozen(block)
        }
        MapKind::Ringbuf => Values::Ring(Mutex::new(RingReader::new(map)?)),
        MapKind::UserRingbuf => Values::User(UserRing(Mutex::new(RingWriter::new(map)?))),
        MapKind::PerfEventArray => Values::Perf(Mutex::new(PerfReader::new(map, PERF_PAGES)?)),
        MapKind::Array
        | MapKind::Hash
        | MapKind::PercpuHash
        | MapKind::PercpuArray
        | MapKind::LruHash
        | MapKind::LruPercpuHash
        | MapKind::LpmTrie
        | MapKind::StackTrace
        | MapKind::CgroupStorage
        | MapKind::PercpuCgroupStorage
        | MapKind::Devmap
        | MapKind::DevmapHash
        | MapKind::Cpumap => Values::Snapshots(Mutex::new(Snapshots::new(spec, arena))),
        MapKind::ProgArray
        | MapKind::CgroupArray
        | MapKind::ArrayOfMaps
        | MapKind::HashOfMaps
        | MapKind::Sockmap
        | MapKind::Xskmap
        | MapKind::Sockhash
        | MapKind::ReuseportSockarray
        | MapKind::Queue
        | MapKind::Stack
        | MapKind::SkStorage
        | MapKind::StructOps
        | MapKind::InodeStorage
        | MapKind::TaskStorage
        | MapKind::BloomFilter
        | MapKind::CgrpStorage
        | MapKind::Arena
        | MapKind::InsnArray => Values::None,
    })
}

/// An array's values as the kernel lays them out.
fn region(spec: &MapSpec) -> RegionSpec {
    let (label, kind) = match &spec.data {
        Some(_) => (spec.name.clone(), RegionKind::Data),
        None => (format!("value of map {}", spec.name).into(), RegionKind::Map),
    };
    RegionSpec {
        stride: spec.value_size.next_multiple_of(8),
        count: spec.max_entries,
        ..RegionSpec::new(label, kind, spec.value_size)
    }
}

impl MapOps for KernelMap {
    fn spec(&self) -> &MapSpec {
        &self.spec
    }

    fn lookup(&self, key: &[u8], cpu: u32) -> Option<u64> {
        match &self.values {
            Values::Memory(block) | Values::Frozen(block) => {
                let index = u32::from_ne_bytes(key.try_into().ok()?);
                (index < self.spec.max_entries).then(|| block.element(index))
            }
            Values::Snapshots(snapshots) => {
                // The lock is held meanwhile, so that an older value does not overwrite a newer one.
                let mut snapshots = snapshots.lock().expect("no panic while held");
                let value = self.copied(key, cpu).ok()?;
                snapshots.put(key, cpu, &value)
            }
            Values::Ring(_) | Values::User(_) | Values::Perf(_) | Values::None => None,
        }
    }

    /// The kernel has no look-up of exactly a prefix.
    fn lookup_exact(&self, key: &[u8], cpu: u32) -> Option<u64> {
        if self.spec.kind == MapKind::LpmTrie { None } else { self.lookup(key, cpu) }
    }

    fn lookup_copy(&self, key: &[u8], cpu: u32, value: &mut [u8]) -> Result<(), Errno> {
        check(value, self.spec.value_size)?;
        value.copy_from_slice(&self.copied(key, cpu)?);
        Ok(())
    }

    fn update(&self, key: &[u8], value: &[u8], flags: u64, cpu: u32) -> Result<(), Errno> {
        check(key, self.spec.key_size)?;
        check(value, self.spec.value_size)?;
        let result = if self.spec.kind.is_per_cpu() {
            let part = self.part(cpu).ok_or(Errno::ERANGE)?;
            let before = self.map.lookup(key).map_err(|error| errno(&error))?;
            let mut whole = before.unwrap_or_else(|| vec![0; self.map.copy_size()]);
            whole[part].copy_from_slice(value);
            self.map.update(key, &whole, flags)
        } else {
            self.map.update(key, value, flags)
        };
        result.map_err(|error| errno(&error))
    }

    fn delete(&self, key: &[u8]) -> Result<(), Errno> {
        check(key, self.spec.key_size)?;
        match self.map.delete(key) {
            Ok(true) => Ok(()),
            Ok(false) => Err(Errno::ENOENT),
            Err(error) => Err(errno(&error)),
        }
    }

    fn next_key(&self, key: Option<&[u8]>, next: &mut [u8]) -> Result<(), Errno> {
        check(next, self.spec.key_size)?;
        key.map_or(Ok(()), |key| check(key, self.spec.key_size))?;
        let found = self.map.next_key(key).map_err(|error| errno(&error))?;
        next.copy_from_slice(&found.ok_or(Errno::ENOENT)?);
        Ok(())
    }

    fn keys(&self) -> Vec<Vec<u8>> {
        match &self.values {
            Values::Memory(_) | Values::Frozen(_) => {
                (0..self.spec.max_entries).map(|index| index.to_ne_bytes().to_vec()).collect()
            }
            Values::Snapshots(_) => {
                let mut keys = Vec::new();
                let read = self.map.visit(&mut |key, _| {
                    keys.push(key.to_vec());
                    true
                });
                read.map_or_else(|_| Vec::new(), |()| keys)
            }
            Values::Ring(_) | Values::User(_) | Values::Perf(_) | Values::None => Vec::new(),
        }
    }

    fn entries(&self, each: &mut dyn FnMut(Entry<'_>) -> bool) -> Result<(), Errno> {
        let size = self.spec.value_size;
        match &self.values {
            Values::Memory(_) | Values::Frozen(_) | Values::Snapshots(_) => {
                let visit = self.map.visit(&mut |key, copied| each(Entry::new(key, copied, size)));
                visit.map_err(|error| errno(&error))
            }
            Values::Ring(_) | Values::User(_) | Values::Perf(_) | Values::None => Ok(()),
        }
    }

    fn cpus(&self) -> u32 {
        if self.spec.kind.is_per_cpu() { cpu::possible() as u32 } else { 1 }
    }

    fn memory(&self) -> Option<&Block> {
        match &self.values {
            Values::Memory(block) | Values::Frozen(block) => Some(block),
            Values::Snapshots(_) | Values::Ring(_) | Values::User(_) | Values::Perf(_) | Values::None => None,
        }
    }

    fn len(&self) -> u32 {
        match self.spec.kind {
            MapKind::Array | MapKind::PercpuArray => self.spec.max_entries,
            _ => self.keys().len() as u32,
        }
    }

    fn push(&self, value: &[u8], flags: u64) -> Result<(), Errno> {
        self.keyless(value)?;
        self.map.update(&[], value, flags).map_err(|error| errno(&error))
    }

    fn pop(&self, value: &mut [u8]) -> Result<(), Errno> {
        self.keyless(value)?;
        let found = self.map.take(&[]).map_err(|error| errno(&error))?;
        value.copy_from_slice(&found.ok_or(Errno::ENOENT)?);
        Ok(())
    }

    fn peek(&self, value: &mut [u8]) -> Result<(), Errno> {
        self.keyless(value)?;
        let found = self.map.lookup_into(&[], value, 0).map_err(|error| errno(&error))?;
        if found { Ok(()) } else { Err(Errno::ENOENT) }
    }

    fn ring(&self) -> Option<&dyn Ring> {
        match &self.values {
            Values::User(ring) => Some(ring),
            Values::Memory(_) | Values::Frozen(_) | Values::Snapshots(_) | Values::Ring(_) | Values::Perf(_) => None,
            Values::None => None,
        }
    }

    fn take_sent(&self) -> Vec<Sent> {
        let mut sent = Vec::new();
        self.consume(Take::All, |slot, bytes| {
            sent.push(Sent { slot, bytes: bytes.to_vec() });
            ControlFlow::Continue(())
        });
        sent
    }
}

/// The producer's side of a user ring buffer. Records are sent whole; there is no memory of it in the arena.
#[derive(Debug)]
struct UserRing(Mutex<RingWriter>);

impl Ring for UserRing {
    fn reserve(&self, _size: u64) -> Option<u64> {
        None
    }

    fn commit(&self, _sample: u64, _discard: bool) -> Result<(), Errno> {
        Err(Errno::EINVAL)
    }

    fn output(&self, bytes: &[u8]) -> Result<(), Errno> {
        let sent = self.0.lock().expect("no panic while held").send(bytes);
        if sent { Ok(()) } else { Err(Errno::EAGAIN) }
    }

    fn query(&self, flags: u64) -> u64 {
        let writer = self.0.lock().expect("no panic while held");
        let [consumer, producer] = writer.positions();
        match flags {
            0 => producer.saturating_sub(consumer),
            1 => writer.size() as u64,
            2 => consumer,
            3 => producer,
            _ => 0,
        }
    }
}
