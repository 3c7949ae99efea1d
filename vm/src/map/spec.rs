//! Map definitions: type, sizes, flags and initial contents, without memory.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

macro_rules! map_kinds {
    ($($(#[$doc:meta])* $Name:ident = $number:literal $text:literal;)*) => {
        /// Map type, numbered as in the kernel's `enum bpf_map_type`.
        ///
        /// ```
        /// use twinbpf_vm::map::MapKind;
        ///
        /// assert_eq!(MapKind::new(1), Some(MapKind::Hash));
        /// assert_eq!(MapKind::LruPercpuHash.name(), "lru_percpu_hash");
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u32)]
        pub enum MapKind { $(#[doc = $text] $Name = $number),* }

        impl MapKind {
            /// Every kind, in the order of the kernel's numbers.
            pub const ALL: &'static [MapKind] = &[$(MapKind::$Name),*];

            /// The kernel's number, if it is known.
            pub fn new(number: u32) -> Option<MapKind> {
                match number { $($number => Some(MapKind::$Name),)* _ => None }
            }

            /// The name bpftool prints.
            pub const fn name(self) -> &'static str {
                match self { $(MapKind::$Name => $text),* }
            }
        }
    };
}

map_kinds! {
    Hash = 1 "hash";
    Array = 2 "array";
    ProgArray = 3 "prog_array";
    PerfEventArray = 4 "perf_event_array";
    PercpuHash = 5 "percpu_hash";
    PercpuArray = 6 "percpu_array";
    StackTrace = 7 "stack_trace";
    CgroupArray = 8 "cgroup_array";
    LruHash = 9 "lru_hash";
    LruPercpuHash = 10 "lru_percpu_hash";
    LpmTrie = 11 "lpm_trie";
    ArrayOfMaps = 12 "array_of_maps";
    HashOfMaps = 13 "hash_of_maps";
    Devmap = 14 "devmap";
    Sockmap = 15 "sockmap";
    Cpumap = 16 "cpumap";
    Xskmap = 17 "xskmap";
    Sockhash = 18 "sockhash";
    CgroupStorage = 19 "cgroup_storage";
    ReuseportSockarray = 20 "reuseport_sockarray";
    PercpuCgroupStorage = 21 "percpu_cgroup_storage";
    Queue = 22 "queue";
    Stack = 23 "stack";
    SkStorage = 24 "sk_storage";
    DevmapHash = 25 "devmap_hash";
    StructOps = 26 "struct_ops";
    Ringbuf = 27 "ringbuf";
    InodeStorage = 28 "inode_storage";
    TaskStorage = 29 "task_storage";
    BloomFilter = 30 "bloom_filter";
    UserRingbuf = 31 "user_ringbuf";
    CgrpStorage = 32 "cgrp_storage";
    Arena = 33 "arena";
    InsnArray = 34 "insn_array";
}

impl MapKind {
    /// Whether each element has a value per CPU.
    pub const fn is_per_cpu(self) -> bool {
        matches!(
            self,
            MapKind::PercpuHash | MapKind::PercpuArray | MapKind::LruPercpuHash | MapKind::PercpuCgroupStorage
        )
    }

    /// Whether programs may walk these maps: kinds whose `map_ops` have a `map_for_each_callback`.
    pub(crate) const fn has_walk(self) -> bool {
        use MapKind::{Array, Hash, LruHash, LruPercpuHash, PercpuArray, PercpuHash};
        matches!(self, Array | PercpuArray | Hash | PercpuHash | LruHash | LruPercpuHash)
    }

    /// Bytes of a value as `BPF_MAP_LOOKUP_ELEM` copies it: for per-CPU kinds those of all CPUs, each padded to 8 bytes.
    pub const fn copy_size(self, value_size: u32, cpus: usize) -> usize {
        let size = value_size as usize;
        if self.is_per_cpu() { size.next_multiple_of(8) * cpus } else { size }
    }
}

/// A map's definition, as the object declares it and the user edited it.
///
/// ```
/// use twinbpf_vm::map::{MapKind, MapSpec};
///
/// let spec = MapSpec::new("counts", MapKind::Hash, 4, 8, 1024);
/// assert!(spec.program_writable() && spec.flags().is_empty());
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct MapSpec {
    /// Name of the variable, or of the section for data maps (`.rodata`, `.bss`, `.data.foo`).
    pub name: Arc<str>,
    /// Map type. A number that no kernel knows is refused by the loader at link.
    pub kind: MapKind,
    /// Bytes of a key.
    pub key_size: u32,
    /// Bytes of a value.
    pub value_size: u32,
    /// Capacity; bytes for ring buffers.
    pub max_entries: u32,
    /// `BPF_F_*` of `BPF_MAP_CREATE`.
    pub flags: u32,
    /// `map_extra`: hash functions of a bloom filter, address of an arena.
    pub extra: u64,
    /// NUMA node, with `BPF_F_NUMA_NODE`.
    pub numa_node: u32,
    /// The definition has `LIBBPF_PIN_BY_NAME`.
    pub pinned: bool,
    /// Template of the values of a map of maps.
    pub inner: Option<Box<MapSpec>>,
    /// Initial slots of a map of maps or a prog array.
    pub slots: Vec<(u32, Slot)>,
    /// Initial values of elements of an array: slots, and the value of each of them. Later ones replace earlier ones.
    pub elements: Vec<(Range<u32>, Arc<[u8]>)>,
    /// Initial entries of a map with keys: key and value.
    pub entries: BTreeMap<Arc<[u8]>, Arc<[u8]>>,
    /// Set for the maps made from data sections.
    pub data: Option<Data>,
    /// Scalars of the key, in memory order, from BTF; sorts and prints keys.
    pub key_fields: Vec<Field>,
    /// Scalars of the value, likewise.
    pub value_fields: Vec<Field>,
    /// Offset of a `struct bpf_spin_lock` in the value, from BTF. Copies in and out leave it alone,
    /// and `BPF_F_LOCK` needs it.
    pub spin_lock: Option<u32>,
}

impl MapSpec {
    /// A map without flags, initial contents or type data.
    pub fn new(name: impl Into<Arc<str>>, kind: MapKind, key: u32, value: u32, max_entries: u32) -> MapSpec {
        MapSpec {
            name: name.into(),
            kind,
            key_size: key,
            value_size: value,
            max_entries,
            flags: 0,
            extra: 0,
            numa_node: 0,
            pinned: false,
            inner: None,
            slots: Vec::new(),
            elements: Vec::new(),
            entries: BTreeMap::new(),
            data: None,
            key_fields: Vec::new(),
            value_fields: Vec::new(),
            spin_lock: None,
        }
    }

    /// Whether programs may change values (no `BPF_F_RDONLY_PROG`, no read-only data section). The kernel's
    /// verifier refuses programs that break this; here the value region is read-only, and helpers that
    /// write (`bpf_map_update_elem`) have to ask.
    pub fn program_writable(&self) -> bool {
        !self.flags().contains(MapFlags::RDONLY_PROG) && !self.data.as_ref().is_some_and(|data| data.read_only)
    }

    /// The flags, typed.
    pub fn flags(&self) -> MapFlags {
        MapFlags::from_bits_retain(self.flags)
    }
}

bitflags::bitflags! {
    /// `BPF_F_*` of `BPF_MAP_CREATE` (include/uapi/linux/bpf.h), without the prefix.
    ///
    /// ```
    /// use twinbpf_vm::map::MapFlags;
    ///
    /// let flags = MapFlags::NO_PREALLOC | MapFlags::RDONLY_PROG;
    /// assert_eq!(flags.to_string(), "BPF_F_NO_PREALLOC | BPF_F_RDONLY_PROG");
    /// ```
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct MapFlags: u32 {
        /// Elements are allocated when needed.
        const NO_PREALLOC = 1 << 0;
        /// One LRU list for each CPU.
        const NO_COMMON_LRU = 1 << 1;
        /// Memory from a given node.
        const NUMA_NODE = 1 << 2;
        /// Read-only for user space.
        const RDONLY = 1 << 3;
        /// Write-only for user space.
        const WRONLY = 1 << 4;
        /// Stack traces as build ids.
        const STACK_BUILD_ID = 1 << 5;
        /// Hash seed 0.
        const ZERO_SEED = 1 << 6;
        /// Read-only for programs.
        const RDONLY_PROG = 1 << 7;
        /// Write-only for programs.
        const WRONLY_PROG = 1 << 8;
        /// Copied to a cloned socket.
        const CLONE = 1 << 9;
        /// Values lie as user space maps them.
        const MMAPABLE = 1 << 10;
        /// Perf events stay when the map's descriptor is closed.
        const PRESERVE_ELEMS = 1 << 11;
        /// An inner array whose size may differ from the template's.
        const INNER_MAP = 1 << 12;
        /// A struct_ops map made to be linked.
        const LINK = 1 << 13;
        /// Pinning path relative to a descriptor.
        const PATH_FD = 1 << 14;
        /// Value type from a module's BTF.
        const VTYPE_BTF_OBJ_FD = 1 << 15;
        /// Created with a token.
        const TOKEN_FD = 1 << 16;
        /// Arena: no page is made by a fault.
        const SEGV_ON_FAULT = 1 << 17;
        /// Arena: no user address in stores.
        const NO_USER_CONV = 1 << 18;
        /// Ring buffer: the newest record replaces the oldest.
        const RB_OVERWRITE = 1 << 19;
    }
}

impl fmt::Display for MapFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unknown = self.bits() & !MapFlags::all().bits();
        let names = self.iter_names().map(|(name, _)| format!("BPF_F_{name}"));
        let parts: Vec<String> = names.chain((unknown != 0).then(|| format!("{unknown:#x}"))).collect();
        f.write_str(if parts.is_empty() { "none".into() } else { parts.join(" | ") }.as_str())
    }
}

/// An initial slot of a map of maps or prog array.
#[derive(Clone, Debug, PartialEq)]
pub enum Slot {
    /// Index of the inner map in the list of maps.
    Map(usize),
    /// Name of the program.
    Program(Arc<str>),
}

/// Contents of a data section map: one entry, key 0. Or of an arena: its global variables.
#[derive(Clone, Debug, PartialEq)]
pub struct Data {
    /// Initial bytes; what the value has beyond them is zero, for `.bss` all of it.
    pub bytes: Vec<u8>,
    /// Bytes of the section.
    pub size: u32,
    /// Where in the map's memory the section begins: 0 but in an arena.
    pub start: u32,
    /// Programs may not write it (`.rodata`, `.kconfig`).
    pub read_only: bool,
    /// Pointers inside the bytes (`R_BPF_64_ABS64`): 8 bytes at an offset in the map's memory hold the address of
    /// something.
    pub pointers: Vec<(u32, Pointer)>,
}

impl Data {
    /// A section that is all there is in its map, and that programs may write.
    pub fn new(bytes: Vec<u8>, size: u32) -> Data {
        Data { bytes, size, start: 0, read_only: false, pointers: Vec::new() }
    }

    /// The same for a section that programs may not write.
    pub fn read_only(bytes: Vec<u8>, size: u32) -> Data {
        Data { read_only: true, ..Data::new(bytes, size) }
    }
}

/// Target of a pointer in a data section.
#[derive(Clone, Debug, PartialEq)]
pub enum Pointer {
    /// Offset inside the value of a data map.
    MapValue {
        /// Index of the map.
        map: usize,
        /// Offset in the value, in bytes.
        off: u32,
    },
    /// A function, by program (its linked stream) and pc.
    Function {
        /// Index of the linked program that carries the function.
        program: usize,
        /// pc of its first instruction.
        pc: usize,
    },
    /// The handle of a map.
    Map(usize),
    /// Index of an extern.
    Extern(usize),
}

/// One scalar inside a key or value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Dotted name, empty for a bare scalar.
    pub name: Arc<str>,
    /// Offset of the field in bytes.
    pub off: u32,
    /// Size of the field in bytes.
    pub size: u32,
    /// What the bytes are.
    pub kind: FieldKind,
}

/// How to read a [`Field`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldKind {
    /// Unsigned integer, bool, enum or pointer of 1, 2, 4 or 8 bytes.
    Unsigned,
    /// Signed integer of 1, 2, 4 or 8 bytes.
    Signed,
    /// `float` or `double`.
    Float,
    /// `char[N]`: a string that ends at the first NUL.
    String,
    /// Anything else, compared byte by byte (`unsigned char[N]`, unions, `__int128`, bitfield containers).
    Bytes,
}
