//! What a map shall be: a blueprint without any memory behind it.

use std::sync::Arc;

macro_rules! map_kinds {
    ($($(#[$doc:meta])* $Name:ident = $number:literal $text:literal;)*) => {
        /// Map type, numbered as in the kernel's `enum bpf_map_type`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u32)]
        pub enum MapKind { $(#[doc = $text] $Name = $number),* }

        impl MapKind {
            /// Every kind.
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

/// A map's blueprint, as the object declares it and the user edited it.
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
    /// `LIBBPF_PIN_BY_NAME` asked for.
    pub pinned: bool,
    /// Template of the values of a map of maps.
    pub inner: Option<Box<MapSpec>>,
    /// Initial slots of a map of maps or a prog array.
    pub slots: Vec<(u32, Slot)>,
    /// Set for the maps made from data sections.
    pub data: Option<Data>,
    /// Scalars of the key, in memory order, where BTF tells; sorts and prints keys.
    pub key_fields: Vec<Field>,
    /// Scalars of the value, likewise.
    pub value_fields: Vec<Field>,
}

/// An initial slot of a map of maps or prog array.
#[derive(Clone, Debug, PartialEq)]
pub enum Slot {
    /// Index of the inner map in the list of maps.
    Map(usize),
    /// Name of the program.
    Program(Arc<str>),
}

/// Contents of a data section map: one entry, key 0.
#[derive(Clone, Debug, PartialEq)]
pub struct Data {
    /// Initial bytes; zeroes for `.bss`.
    pub bytes: Vec<u8>,
    /// Programs may not write it (`.rodata`, `.kconfig`).
    pub read_only: bool,
    /// Pointers inside the bytes (`R_BPF_64_ABS64`): 8 bytes at an offset hold the address of something.
    pub pointers: Vec<(u32, Pointer)>,
}

/// Target of a pointer in a data section.
#[derive(Clone, Debug, PartialEq)]
pub enum Pointer {
    /// Offset inside the value of a data map.
    MapValue {
        /// Index of the map.
        map: usize,
        /// Byte offset.
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
    /// Byte offset.
    pub off: u32,
    /// Bytes.
    pub size: u32,
    /// What the bytes are.
    pub kind: FieldKind,
}

/// How to read a [`Field`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldKind {
    /// Unsigned integer, bool, enum or pointer of 1, 2, 4 or 8 bytes.
    Unsigned,
    /// Signed integer.
    Signed,
    /// `char[N]`: a string that ends at the first NUL.
    String,
    /// Anything else, compared byte by byte (`unsigned char[N]`, unions, `__int128`, bitfield containers).
    Bytes,
}
