//! Operations of every map, whichever process or kernel holds its memory.

use std::fmt;
use std::sync::Arc;

use super::{Entry, MapSpec, SlotWords};
use crate::mem::{Arena, Block};

/// A map operation failed: one of the kernel's errno values, positive.
///
/// ```
/// use twinbpf_vm::map::Errno;
///
/// assert_eq!(Errno::ENOENT.to_r0() as i64, -2);
/// assert_eq!(Errno::ENOENT.to_string(), "no such element (ENOENT)");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(pub i32);

impl Errno {
    /// Whether it says that a map had no room for what it was given.
    pub(crate) fn is_loss(self) -> bool {
        [Errno::E2BIG, Errno::ENOMEM, Errno::EBUSY, Errno::ENOSPC, Errno::EAGAIN].contains(&self)
    }

    /// As helpers return it: negative, in 64 bits.
    pub fn to_r0(self) -> u64 {
        i64::from(-self.0) as u64
    }
}

macro_rules! errnos {
    ($($NAME:ident $text:literal;)*) => {
        impl Errno {
            $(#[doc = $text] pub const $NAME: Errno = Errno(libc::$NAME);)*

            /// `ENOENT` and so on.
            pub fn name(self) -> Option<&'static str> {
                match self.0 { $(libc::$NAME => Some(stringify!($NAME)),)* _ => None }
            }

            /// What it means.
            pub fn text(self) -> &'static str {
                match self.0 { $(libc::$NAME => $text,)* _ => "unknown error" }
            }
        }
    };
}

errnos! {
    EPERM "operation not permitted";
    ENOENT "no such element";
    E2BIG "the map is full, or the index or argument is too large";
    EACCES "permission denied";
    EAGAIN "no space or no data at the moment";
    ENOMEM "out of memory";
    EFAULT "bad address";
    EBUSY "resource busy";
    EEXIST "the element exists already";
    EINVAL "invalid argument";
    ENOSPC "no space left in the map or ring buffer";
    EDOM "argument out of domain";
    ERANGE "result out of range";
    EOPNOTSUPP "operation not supported";
    ELOOP "too many nested calls";
    ENODEV "no such device";
}

impl Errno {
    /// "Operation not supported by this map type": kernel-internal, but helpers return it.
    pub const ENOTSUPP: Errno = Errno(524);
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None if *self == Errno::ENOTSUPP => f.write_str("ENOTSUPP"),
            None => write!(f, "errno {}", self.0),
        }
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({self:?})", self.text())
    }
}

impl std::error::Error for Errno {}

/// `BPF_ANY`: create or replace.
pub const BPF_ANY: u64 = 0;
/// `BPF_NOEXIST`: create only.
pub const BPF_NOEXIST: u64 = 1;
/// `BPF_EXIST`: replace only.
pub const BPF_EXIST: u64 = 2;
/// `BPF_F_LOCK`: take the value's spin lock.
pub const BPF_F_LOCK: u64 = 4;

/// Something a program sent out through a map: a perf event, or a redirected frame.
///
/// ```
/// use twinbpf_vm::map::{MapKind, MapOps, MapSpec, create};
/// use twinbpf_vm::mem::Arena;
///
/// let map = create(MapSpec::new("events", MapKind::PerfEventArray, 4, 4, 2), &Arena::new(1 << 20)?, 2)?;
/// map.send(1, b"event")?;
/// let sent = map.take_sent();
/// assert_eq!((sent[0].slot, &*sent[0].bytes), (1, &b"event"[..]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// CPU or slot it was sent to.
    pub slot: u32,
    /// The bytes that were sent.
    pub bytes: Vec<u8>,
}

/// Values at equal distances: that of index `i` and CPU `c` is at `addr + i * stride + c * cpu_stride`.
///
/// ```
/// use twinbpf_vm::map::{ArrayLayout, MapKind, MapOps, MapSpec, create};
/// use twinbpf_vm::mem::Arena;
///
/// let map = create(MapSpec::new("counts", MapKind::PercpuArray, 4, 8, 16), &Arena::new(1 << 20)?, 2)?;
/// let ArrayLayout { addr, stride, count, cpus, cpu_stride } = map.layout().expect("it is an array");
/// assert_eq!(map.lookup(&3_u32.to_le_bytes(), 1), Some(addr + u64::from(3 * stride + cpu_stride)));
/// assert_eq!((count, cpus), (16, 2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArrayLayout {
    /// Address of the first.
    pub addr: u64,
    /// Bytes from one to the next.
    pub stride: u32,
    /// Number of indices.
    pub count: u32,
    /// Values under an index; 1 unless the map is per-CPU.
    pub cpus: u32,
    /// Bytes from one CPU's values to the next one's.
    pub cpu_stride: u32,
}

/// A map at run time. All methods may be called from several threads at once. Keys and values are exactly
/// `key_size` and `value_size` bytes; for per-CPU maps, `cpu` says whose value a *program* means, and the
/// host sees all CPUs through [`MapOps::lookup_copy`] with `cpu`.
///
/// Errno values and flags are those of the kernel's `map_ops` (kernel/bpf/*map*.c).
///
/// ```
/// use twinbpf_vm::map::{BPF_ANY, Errno, MapKind, MapSpec, create};
/// use twinbpf_vm::mem::Arena;
///
/// let map = create(MapSpec::new("counts", MapKind::Hash, 4, 8, 16), &Arena::new(1 << 20)?, 1)?;
/// map.update(&1_u32.to_le_bytes(), &7_u64.to_le_bytes(), BPF_ANY, 0)?;
/// let mut value = [0; 8];
/// map.lookup_copy(&1_u32.to_le_bytes(), 0, &mut value)?;
/// assert_eq!((u64::from_le_bytes(value), map.keys().len()), (7, 1));
/// assert_eq!(map.delete(&2_u32.to_le_bytes()), Err(Errno::ENOENT));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait MapOps: Send + Sync + fmt::Debug {
    /// Its definition, after the kernel's own adjustments (ring buffer size, value size of maps of maps).
    fn spec(&self) -> &MapSpec;

    /// Address of the value in the arena, for programs; `None` if there is no such element. Kinds whose
    /// values programs cannot point to return `None`.
    fn lookup(&self, key: &[u8], cpu: u32) -> Option<u64>;

    /// Address of the value of the element with exactly this key, also where [`MapOps::lookup`] searches for a prefix of it. `None`
    /// too where that is not known.
    fn lookup_exact(&self, key: &[u8], cpu: u32) -> Option<u64> {
        self.lookup(key, cpu)
    }

    /// Copies a value out, as `BPF_MAP_LOOKUP_ELEM` for one CPU. Does not count as a use for LRU.
    fn lookup_copy(&self, key: &[u8], cpu: u32, value: &mut [u8]) -> Result<(), Errno>;

    /// Creates or replaces an element. A program's update of a per-CPU map writes the value of `cpu`.
    fn update(&self, key: &[u8], value: &[u8], flags: u64, cpu: u32) -> Result<(), Errno>;

    /// Removes an element.
    fn delete(&self, key: &[u8]) -> Result<(), Errno>;

    /// `BPF_MAP_GET_NEXT_KEY`: the first key without `key` or when `key` is gone, else the one after it.
    fn next_key(&self, key: Option<&[u8]>, next: &mut [u8]) -> Result<(), Errno>;

    /// All keys at this moment: a walk over them may update and delete. Stops after as many keys as the map
    /// can hold, so that concurrent changes cannot keep it going. Arrays of programs, maps or targets list the
    /// slots that are set, since an empty one has no value.
    fn keys(&self) -> Vec<Vec<u8>> {
        let mut keys = Vec::new();
        each_key(self, &mut |key| {
            keys.push(key.to_vec());
            true
        });
        keys
    }

    /// Gives a copy of each element to `each`, until that gives false. Elements that go away meanwhile are left out.
    ///
    /// # Errors
    /// The map cannot be read; what was copied until then was given.
    fn entries(&self, each: &mut dyn FnMut(Entry<'_>) -> bool) -> Result<(), Errno> {
        let (size, cpus) = (self.spec().value_size, self.cpus());
        let mut copied = vec![0; self.spec().kind.copy_size(size, cpus as usize)];
        let stride = copied.len() / cpus.max(1) as usize;
        each_key(self, &mut |key| {
            let mut copy = |cpu: u32| {
                let start = cpu as usize * stride;
                self.lookup_copy(key, cpu, &mut copied[start..start + size as usize]).is_ok()
            };
            !(0..cpus).all(&mut copy) || each(Entry::new(key, &copied, size))
        });
        Ok(())
    }

    /// How many slots elements lie in, if [`MapOps::element`] finds them there: arrays and hash maps. It grows while a map fills.
    fn slots(&self) -> Option<u32> {
        None
    }

    /// Copies the key of the element in a slot, and gives the address of its value. `None` if there is none.
    fn element(&self, _slot: u32, _cpu: u32, _key: &mut [u8]) -> Option<u64> {
        None
    }

    /// A number that changes whenever an element comes into a slot, of maps whose elements may do so.
    fn additions(&self) -> Option<u32> {
        None
    }

    /// Values under one key: the number of CPUs in per-CPU maps, else 1.
    fn cpus(&self) -> u32 {
        1
    }

    /// The memory of an array's values, element by index (per-CPU: as [`MapOps::layout`] says), for hosts that fill or
    /// watch it as mmap would allow. Data sections are arrays of one element.
    fn memory(&self) -> Option<&Block> {
        None
    }

    /// Where the values of an array are, as long as the map lives, so that generated code finds them itself.
    fn layout(&self) -> Option<ArrayLayout> {
        None
    }

    /// The memory that it lies in, of maps that [`Maps`](super::Maps) made.
    #[doc(hidden)]
    fn arena(&self) -> Option<&Arc<Arena>> {
        None
    }

    /// Number of elements in it now (arrays: their size).
    fn len(&self) -> u32;

    /// Whether there is no element.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Queue, stack, bloom filter: adds a value. `BPF_EXIST` makes room by dropping the oldest.
    fn push(&self, _value: &[u8], _flags: u64) -> Result<(), Errno> {
        Err(Errno::ENOTSUPP)
    }

    /// Queue and stack: takes the next value out.
    fn pop(&self, _value: &mut [u8]) -> Result<(), Errno> {
        Err(Errno::ENOTSUPP)
    }

    /// Queue and stack: the next value; bloom filter: whether `value` may be in it (`ENOENT` if not).
    fn peek(&self, _value: &mut [u8]) -> Result<(), Errno> {
        Err(Errno::ENOTSUPP)
    }

    /// The map as a ring buffer, if it is one.
    fn ring(&self) -> Option<&dyn Ring> {
        None
    }

    /// [`Ring::reserve`] of such a map: `EAGAIN` when full. In the table of a ring buffer it is one call.
    #[doc(hidden)]
    fn reserve_sample(&self, size: u64) -> Result<u64, Errno> {
        self.ring().ok_or(Errno::ENOTSUPP)?.reserve(size).ok_or(Errno::EAGAIN)
    }

    /// [`Ring::commit`] of such a map.
    #[doc(hidden)]
    fn commit_sample(&self, sample: u64, discard: bool) -> Result<(), Errno> {
        self.ring().ok_or(Errno::ENOTSUPP)?.commit(sample, discard)
    }

    /// The pages of an arena, if it is one.
    fn pages(&self) -> Option<&dyn Pages> {
        None
    }

    /// The inner map in a slot of a map of maps: its handle is what a lookup gives a program.
    fn inner(&self, _key: &[u8]) -> Option<Arc<dyn MapOps>> {
        None
    }

    /// Puts an inner map with its handle (see `Maps`) into a slot of a map of maps.
    fn set_inner(&self, _key: &[u8], _map: Arc<dyn MapOps>, _handle: u64) -> Result<(), Errno> {
        Err(Errno::ENOTSUPP)
    }

    /// The program index in a slot of a prog array.
    fn program(&self, _index: u32) -> Option<u32> {
        None
    }

    /// Where a prog array or an array of maps keeps what its slots have, so that generated code finds it without asking
    /// [`MapOps::program`] or [`MapOps::lookup`], which must give the same.
    fn slot_words(&self) -> Option<SlotWords> {
        None
    }

    /// Puts a program of the same image into a slot of a prog array.
    fn set_program(&self, _index: u32, _program: u32) -> Result<(), Errno> {
        Err(Errno::ENOTSUPP)
    }

    /// Perf event array, devmap, cpumap, xskmap: records what a program sends.
    fn send(&self, _slot: u32, _bytes: &[u8]) -> Result<(), Errno> {
        Err(Errno::ENOTSUPP)
    }

    /// Takes what programs have sent so far, in order. Ring buffers: the records a consumer would get.
    fn take_sent(&self) -> Vec<Sent> {
        Vec::new()
    }
}

/// Gives keys to `each`, one after the other, until that gives false: as many as the map can hold at most.
fn each_key(map: &(impl MapOps + ?Sized), each: &mut dyn FnMut(&[u8]) -> bool) {
    let size = map.spec().key_size as usize;
    let (mut key, mut next, mut is_first) = (vec![0; size], vec![0; size], true);
    for _ in 0..map.spec().max_entries {
        let before = (!is_first).then_some(&key[..]);
        if map.next_key(before, &mut next).is_err() || !each(&next) {
            break;
        }
        std::mem::swap(&mut key, &mut next);
        is_first = false;
    }
}

/// What programs do with the pages of an arena, kernel/bpf/arena.c. Of addresses only the lower half counts.
pub trait Pages: Send + Sync {
    /// Address of the first of `count` zeroed pages: at `addr`, or anywhere for 0. `None` where they are not free.
    fn alloc(&self, addr: u64, count: u32) -> Option<u64>;

    /// Gives pages back. What is not in the arena does not count.
    fn free(&self, addr: u64, count: u32);

    /// Keeps free pages from being allocated.
    fn reserve(&self, addr: u64, count: u32) -> Result<(), Errno>;
}

/// The producer side of a ring buffer, kernel/bpf/ringbuf.c.
pub trait Ring: Send + Sync {
    /// Reserves `size` bytes; the address of the sample, or `None` when full.
    fn reserve(&self, size: u64) -> Option<u64>;

    /// Ends a reservation: `discard` or submit. `EINVAL` if `sample` is not an open reservation. Two threads that end the same
    /// one at once may end the next one there too.
    fn commit(&self, sample: u64, discard: bool) -> Result<(), Errno>;

    /// Reserve, copy, submit.
    fn output(&self, bytes: &[u8]) -> Result<(), Errno>;

    /// `bpf_ringbuf_query`: available data, ring size, consumer position, producer position (0 to 3).
    fn query(&self, flags: u64) -> u64;
}
