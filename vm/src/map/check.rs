//! What the kernel accepts as attributes of a map (`map_alloc_check` and `map_alloc` of each kind in
//! kernel/bpf), and what libbpf adjusts before the system call. Says which attribute is wrong and what it may be.

use std::fmt;
use std::sync::Arc;

use super::{ARENA_PAGE, Errno, MapFlags, MapKind, MapSpec};
use crate::mem::MemError;

/// Largest allocation of the kernel's `kmalloc` on x86-64 (`KMALLOC_MAX_SIZE`); bounds values.
const KMALLOC_MAX: u32 = 4 << 20;
/// `sizeof(struct htab_elem)`.
const HASH_ELEMENT: u32 = 48;
/// `PCPU_MIN_UNIT_SIZE`: largest value of a per-CPU map.
const PERCPU_MAX: u32 = 32 << 10;
/// `struct bpf_lpm_trie_key` with 1 and with 256 bytes of data.
const LPM_KEYS: std::ops::RangeInclusive<u32> = 5..=260;
/// `LPM_VAL_SIZE_MAX`.
const LPM_VALUE_MAX: u32 = KMALLOC_MAX - 256 - 24;
/// `CONFIG_NR_CPUS` of distribution kernels; bounds a cpumap.
const CPUMAP_MAX: u32 = 8192;
const PAGE: u32 = 4096;

/// A map could not be made.
#[derive(Debug, thiserror::Error)]
pub enum MapError {
    /// The kernel would refuse this attribute, with `errno`.
    #[error("map {map} ({}): {attribute} is {value}, but must be {allowed}", kind.name())]
    Attribute {
        /// Name of the map.
        map: Arc<str>,
        /// Map type (`BPF_MAP_TYPE_*`).
        kind: MapKind,
        /// Which attribute, spelled as in a `.maps` definition.
        attribute: &'static str,
        /// What it is.
        value: String,
        /// What it may be.
        allowed: String,
        /// What `BPF_MAP_CREATE` returns.
        errno: Errno,
    },
    /// Nothing in userspace corresponds to this kind.
    #[error("{}; run its programs there", only_there(map, *kind, reason))]
    Kind {
        /// Name of the map.
        map: Arc<str>,
        /// Map type (`BPF_MAP_TYPE_*`).
        kind: MapKind,
        /// What in the kernel it is tied to.
        reason: &'static str,
    },
    /// No memory for it.
    #[error("map {map}: {source}")]
    Memory {
        /// Name of the map.
        map: Arc<str>,
        /// Error of allocating its memory.
        source: MemError,
    },
    /// A map that it was given in its place is another.
    #[error("map {map}: the map that is given in its place {reason}")]
    Given {
        /// Name of the map.
        map: Arc<str>,
        /// Reason, for messages.
        reason: String,
    },
    /// An initial slot could not be filled.
    #[error("map {map}: slot {slot}: {reason}")]
    Slot {
        /// Name of the map.
        map: Arc<str>,
        /// Index of the slot.
        slot: u32,
        /// Reason, for messages.
        reason: String,
    },
    /// An initial entry was refused.
    #[error("map {map}: its entry with the key {} is refused: {errno}", hexadecimal(key))]
    Entry {
        /// Name of the map.
        map: Arc<str>,
        /// Bytes of the key.
        key: Arc<[u8]>,
        /// What an update gives.
        errno: Errno,
    },
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl MapError {
    /// What `BPF_MAP_CREATE` or `BPF_MAP_UPDATE_ELEM` would return.
    pub fn errno(&self) -> Errno {
        match self {
            MapError::Attribute { errno, .. } => *errno,
            MapError::Kind { .. } => Errno::EOPNOTSUPP,
            MapError::Memory { .. } => Errno::ENOMEM,
            MapError::Given { .. } | MapError::Slot { .. } => Errno::EINVAL,
            MapError::Entry { errno, .. } => *errno,
        }
    }
}

/// One spec under examination.
struct Check<'a> {
    spec: &'a MapSpec,
}

impl Check<'_> {
    fn fail(
        &self,
        errno: Errno,
        attribute: &'static str,
        value: impl fmt::Display,
        allowed: impl Into<String>,
    ) -> MapError {
        MapError::Attribute {
            map: Arc::clone(&self.spec.name),
            kind: self.spec.kind,
            attribute,
            value: value.to_string(),
            allowed: allowed.into(),
            errno,
        }
    }

    fn key_size(&self, good: bool, allowed: &str) -> Result<(), MapError> {
        if good { Ok(()) } else { Err(self.fail(Errno::EINVAL, "key_size", self.spec.key_size, allowed)) }
    }

    fn value_size(&self, good: bool, allowed: &str) -> Result<(), MapError> {
        if good { Ok(()) } else { Err(self.fail(Errno::EINVAL, "value_size", self.spec.value_size, allowed)) }
    }

    fn value_at_most(&self, limit: u32) -> Result<(), MapError> {
        if self.spec.value_size <= limit {
            return Ok(());
        }
        Err(self.fail(Errno::E2BIG, "value_size", self.spec.value_size, format!("at most {limit}")))
    }

    fn has_entries(&self) -> Result<(), MapError> {
        if self.spec.max_entries > 0 {
            return Ok(());
        }
        Err(self.fail(Errno::EINVAL, "max_entries", 0, "at least 1"))
    }

    /// No flags but these, and not both of `BPF_F_RDONLY_PROG` and `BPF_F_WRONLY_PROG`.
    fn flags(&self, allowed: MapFlags) -> Result<(), MapError> {
        let flags = self.spec.flags();
        let value = || format!("{:#x} ({flags})", flags.bits());
        if !allowed.contains(flags) {
            let text = if allowed.is_empty() { "0".to_owned() } else { format!("made of {allowed}") };
            return Err(self.fail(Errno::EINVAL, "map_flags", value(), text));
        }
        if flags.contains(MapFlags::RDONLY_PROG | MapFlags::WRONLY_PROG) {
            let text = "at most one of BPF_F_RDONLY_PROG and BPF_F_WRONLY_PROG";
            return Err(self.fail(Errno::EINVAL, "map_flags", value(), text));
        }
        Ok(())
    }

    fn no_extra(&self) -> Result<(), MapError> {
        if self.spec.extra == 0 {
            return Ok(());
        }
        Err(self.fail(Errno::EINVAL, "map_extra", self.spec.extra, "0 for this type"))
    }
}

/// `BPF_F_ACCESS_MASK`.
const ACCESS: MapFlags =
    MapFlags::RDONLY.union(MapFlags::WRONLY).union(MapFlags::RDONLY_PROG).union(MapFlags::WRONLY_PROG);
const NUMA: MapFlags = MapFlags::NUMA_NODE;

/// Gives the spec as the map will have it, or the reason why the kernel would refuse it.
pub(super) fn check(mut spec: MapSpec, cpus: u32) -> Result<MapSpec, MapError> {
    adjust(&mut spec, cpus);
    let check = Check { spec: &spec };
    if spec.kind != MapKind::BloomFilter && spec.kind != MapKind::Arena {
        check.no_extra()?;
    }
    data(&check)?;
    let reject = |reason| MapError::Kind { map: Arc::clone(&spec.name), kind: spec.kind, reason };
    match family(spec.kind).map_err(reject)? {
        Family::Array => array(&check)?,
        Family::FdArray => fd_array(&check)?,
        Family::Hash => hash(&check)?,
        Family::FdHash => {
            check.value_size(spec.value_size == 4, "4")?;
            hash(&check)?;
        }
        Family::Lpm => lpm(&check)?,
        Family::Queue => queue(&check)?,
        Family::Bloom => bloom(&check)?,
        Family::Ring => ring(&check)?,
        Family::Devmap => devmap(&check)?,
        Family::Cpumap => cpumap(&check)?,
        Family::Xskmap => xskmap(&check)?,
        Family::Arena => arena(&check)?,
    }
    Ok(spec)
}

/// The contents of a data section must fit into its value, and pointers into the contents.
fn data(check: &Check<'_>) -> Result<(), MapError> {
    let Some(data) = &check.spec.data else { return Ok(()) };
    let arena = check.spec.kind == MapKind::Arena;
    let size = match arena {
        true => check.spec.max_entries as usize * ARENA_PAGE as usize,
        false => check.spec.value_size as usize,
    };
    if arena && (data.start as usize).saturating_add(data.size as usize) > size {
        let allowed = format!("enough for {} bytes of global variables at {:#x}", data.size, data.start);
        return Err(check.fail(Errno::E2BIG, "max_entries", check.spec.max_entries, allowed));
    }
    if data.bytes.len() > size {
        let allowed = format!("at least {}, the bytes of the section", data.bytes.len());
        return Err(check.fail(Errno::EINVAL, "value_size", size, allowed));
    }
    match data.pointers.iter().find(|(off, _)| (*off as usize).saturating_add(8) > size) {
        None => Ok(()),
        Some((off, _)) => {
            Err(check.fail(Errno::EINVAL, "offset of a pointer", off, format!("inside the section of {size} bytes")))
        }
    }
}

/// The template of the inner maps, as they will be: kernel `bpf_map_meta_alloc`.
pub(super) fn template(spec: &MapSpec, cpus: u32) -> Result<MapSpec, MapError> {
    let outer = Check { spec };
    let Some(inner) = &spec.inner else {
        return Err(outer.fail(Errno::EINVAL, "values", "missing", "the definition of the inner maps"));
    };
    let value = format!("maps of type {}", inner.kind.name());
    if matches!(inner.kind, MapKind::ArrayOfMaps | MapKind::HashOfMaps) {
        return Err(outer.fail(Errno::EINVAL, "values", value, "maps that do not hold maps themselves"));
    }
    if inner.kind == MapKind::ProgArray {
        return Err(outer.fail(Errno::ENOTSUPP, "values", value, "maps of another type"));
    }
    check((**inner).clone(), cpus)
}

/// What libbpf does to a definition before it creates the map, and the kernel on creation.
fn adjust(spec: &mut MapSpec, cpus: u32) {
    if spec.kind == MapKind::PerfEventArray && spec.max_entries == 0 {
        // libbpf bpf_object__create_maps
        spec.max_entries = cpus;
    }
    if matches!(spec.kind, MapKind::Ringbuf | MapKind::UserRingbuf) && spec.max_entries > 0 {
        // libbpf adjust_ringbuf_sz: the next page count that is a power of two; 0 stays for the error
        let rounded = spec.max_entries.max(PAGE).checked_next_power_of_two();
        spec.max_entries = rounded.unwrap_or(spec.max_entries);
    }
    if matches!(spec.kind, MapKind::Devmap | MapKind::DevmapHash) {
        // kernel dev_map_init_map: programs see the values but may not change them
        spec.flags |= MapFlags::RDONLY_PROG.bits();
    }
}

fn array(check: &Check<'_>) -> Result<(), MapError> {
    let spec = check.spec;
    let mut allowed = NUMA | ACCESS;
    if spec.kind == MapKind::Array {
        allowed |= MapFlags::MMAPABLE | MapFlags::INNER_MAP;
    }
    if spec.kind == MapKind::PerfEventArray {
        allowed |= MapFlags::PRESERVE_ELEMS;
    }
    if spec.kind == MapKind::PercpuArray {
        allowed -= NUMA;
    }
    check.key_size(spec.key_size == 4, "4: arrays are indexed by a __u32")?;
    check.value_size(spec.value_size > 0, "at least 1")?;
    check.has_entries()?;
    check.flags(allowed)?;
    check.value_at_most(if spec.kind == MapKind::PercpuArray { PERCPU_MAX } else { i32::MAX as u32 })
}

fn fd_array(check: &Check<'_>) -> Result<(), MapError> {
    check.value_size(check.spec.value_size == 4, "4")?;
    let forbidden = MapFlags::RDONLY_PROG | MapFlags::WRONLY_PROG;
    if check.spec.flags().intersects(forbidden) {
        check.flags((NUMA | ACCESS) - forbidden)?;
    }
    array(check)
}

fn hash(check: &Check<'_>) -> Result<(), MapError> {
    let spec = check.spec;
    let percpu = spec.kind.is_per_cpu();
    let lru = matches!(spec.kind, MapKind::LruHash | MapKind::LruPercpuHash);
    let flags = spec.flags();
    if lru && flags.contains(MapFlags::NO_PREALLOC) {
        let value = format!("{:#x} ({flags})", flags.bits());
        return Err(check.fail(Errno::ENOTSUPP, "map_flags", value, "without BPF_F_NO_PREALLOC for an LRU map"));
    }
    let mut allowed = NUMA | ACCESS | MapFlags::ZERO_SEED;
    allowed |= if lru { MapFlags::NO_COMMON_LRU } else { MapFlags::NO_PREALLOC };
    if percpu || flags.contains(MapFlags::NO_COMMON_LRU) {
        allowed -= NUMA;
    }
    check.flags(allowed)?;
    check.has_entries()?;
    check.key_size(spec.key_size > 0, "at least 1")?;
    check.value_size(spec.value_size > 0, "at least 1")?;
    let limit = KMALLOC_MAX - HASH_ELEMENT;
    if u64::from(spec.key_size) + u64::from(spec.value_size) >= u64::from(limit) {
        let sum = format!("{} + {}", spec.key_size, spec.value_size);
        return Err(check.fail(Errno::E2BIG, "key_size + value_size", sum, format!("below {limit}")));
    }
    if spec.max_entries > 1 << 31 {
        return Err(check.fail(Errno::E2BIG, "max_entries", spec.max_entries, "at most 2147483648"));
    }
    if percpu { check.value_at_most(PERCPU_MAX) } else { Ok(()) }
}

fn lpm(check: &Check<'_>) -> Result<(), MapError> {
    let spec = check.spec;
    check.has_entries()?;
    if !spec.flags().contains(MapFlags::NO_PREALLOC) {
        let value = format!("{:#x} ({})", spec.flags, spec.flags());
        return Err(check.fail(Errno::EINVAL, "map_flags", value, "with BPF_F_NO_PREALLOC for an LPM trie"));
    }
    check.flags(MapFlags::NO_PREALLOC | NUMA | ACCESS)?;
    check.key_size(LPM_KEYS.contains(&spec.key_size), "5 to 260: a __u32 prefixlen and 1 to 256 bytes of data")?;
    let values = 1..=LPM_VALUE_MAX;
    check.value_size(values.contains(&spec.value_size), &format!("1 to {LPM_VALUE_MAX}"))
}

fn queue(check: &Check<'_>) -> Result<(), MapError> {
    check.has_entries()?;
    check.key_size(check.spec.key_size == 0, "0 (no key)")?;
    check.value_size(check.spec.value_size > 0, "at least 1")?;
    check.flags(NUMA | ACCESS)?;
    check.value_at_most(KMALLOC_MAX)
}

fn bloom(check: &Check<'_>) -> Result<(), MapError> {
    let spec = check.spec;
    check.value_at_most(KMALLOC_MAX)?;
    check.key_size(spec.key_size == 0, "0 (no key)")?;
    check.value_size(spec.value_size > 0, "at least 1")?;
    check.has_entries()?;
    check.flags(NUMA | ACCESS | MapFlags::ZERO_SEED)?;
    if spec.extra > 15 {
        return Err(check.fail(Errno::EINVAL, "map_extra", spec.extra, "the number of hash functions, 0 to 15"));
    }
    Ok(())
}

fn ring(check: &Check<'_>) -> Result<(), MapError> {
    let spec = check.spec;
    check.flags(NUMA)?;
    check.key_size(spec.key_size == 0, "0 (no key)")?;
    check.value_size(spec.value_size == 0, "0 (records have any size)")?;
    if !spec.max_entries.is_power_of_two() || !spec.max_entries.is_multiple_of(PAGE) {
        let allowed = "bytes, a power of two and a multiple of the page size (4096)";
        return Err(check.fail(Errno::EINVAL, "max_entries", spec.max_entries, allowed));
    }
    Ok(())
}

const USER: MapFlags = MapFlags::RDONLY.union(MapFlags::WRONLY);

fn devmap(check: &Check<'_>) -> Result<(), MapError> {
    let spec = check.spec;
    check.has_entries()?;
    check.key_size(spec.key_size == 4, "4")?;
    check.value_size(matches!(spec.value_size, 4 | 8), "4 or 8 (struct bpf_devmap_val)")?;
    check.flags(NUMA | USER | MapFlags::RDONLY_PROG)?;
    if spec.kind == MapKind::DevmapHash && spec.max_entries > 1 << 31 {
        return Err(check.fail(Errno::EINVAL, "max_entries", spec.max_entries, "at most 2147483648"));
    }
    Ok(())
}

fn cpumap(check: &Check<'_>) -> Result<(), MapError> {
    let spec = check.spec;
    check.has_entries()?;
    check.key_size(spec.key_size == 4, "4")?;
    check.value_size(matches!(spec.value_size, 4 | 8), "4 or 8 (struct bpf_cpumap_val)")?;
    check.flags(NUMA)?;
    if spec.max_entries > CPUMAP_MAX {
        let allowed = format!("at most {CPUMAP_MAX}");
        return Err(check.fail(Errno::E2BIG, "max_entries", spec.max_entries, allowed));
    }
    Ok(())
}

fn xskmap(check: &Check<'_>) -> Result<(), MapError> {
    check.has_entries()?;
    check.key_size(check.spec.key_size == 4, "4")?;
    check.value_size(check.spec.value_size == 4, "4")?;
    check.flags(NUMA | USER)
}

fn arena(check: &Check<'_>) -> Result<(), MapError> {
    let spec = check.spec;
    check.key_size(spec.key_size == 0, "0: an arena has no keys")?;
    check.value_size(spec.value_size == 0, "0: an arena has no values")?;
    check.has_entries()?;
    check.flags(MapFlags::MMAPABLE | MapFlags::SEGV_ON_FAULT | MapFlags::NO_USER_CONV)?;
    if !spec.flags().contains(MapFlags::MMAPABLE) {
        return Err(check.fail(Errno::EINVAL, "map_flags", format!("{:#x}", spec.flags), "with BPF_F_MMAPABLE"));
    }
    if !spec.extra.is_multiple_of(ARENA_PAGE.into()) {
        return Err(check.fail(Errno::EINVAL, "map_extra", format!("{:#x}", spec.extra), "the address of a page"));
    }
    let bytes = u64::from(spec.max_entries) * u64::from(ARENA_PAGE);
    if bytes > 1 << 32 {
        return Err(check.fail(Errno::E2BIG, "max_entries", spec.max_entries, "at most 1048576 pages"));
    }
    if spec.extra >> 32 != spec.extra.saturating_add(bytes - 1) >> 32 {
        let allowed = "such that no address of the arena differs in its upper half";
        return Err(check.fail(Errno::ERANGE, "map_extra", format!("{:#x}", spec.extra), allowed));
    }
    Ok(())
}

/// Kinds whose attributes follow one rule.
enum Family {
    Array,
    FdArray,
    Hash,
    FdHash,
    Lpm,
    Queue,
    Bloom,
    Ring,
    Devmap,
    Cpumap,
    Xskmap,
    Arena,
}

/// What in the kernel a kind is tied to, where nothing in userspace corresponds to it.
pub fn only_in_kernel(kind: MapKind) -> Option<&'static str> {
    family(kind).err()
}

/// Why programs of the virtual machine cannot use a map, if its kind exists only in the kernel: a sentence that names it.
pub fn kernel_only(spec: &MapSpec) -> Option<String> {
    only_in_kernel(spec.kind).map(|reason| only_there(&spec.name, spec.kind, reason))
}

fn only_there(map: &str, kind: MapKind, reason: &str) -> String {
    format!("map {map}: maps of type {} exist only in the kernel ({reason})", kind.name())
}

/// The family of a kind, or what in the kernel it is tied to.
fn family(kind: MapKind) -> Result<Family, &'static str> {
    Ok(match kind {
        MapKind::Array | MapKind::PercpuArray => Family::Array,
        MapKind::ProgArray | MapKind::PerfEventArray | MapKind::ArrayOfMaps => Family::FdArray,
        MapKind::Hash | MapKind::PercpuHash | MapKind::LruHash | MapKind::LruPercpuHash => Family::Hash,
        MapKind::HashOfMaps => Family::FdHash,
        MapKind::LpmTrie => Family::Lpm,
        MapKind::Queue | MapKind::Stack => Family::Queue,
        MapKind::BloomFilter => Family::Bloom,
        MapKind::Ringbuf | MapKind::UserRingbuf => Family::Ring,
        MapKind::Devmap | MapKind::DevmapHash => Family::Devmap,
        MapKind::Cpumap => Family::Cpumap,
        MapKind::Xskmap => Family::Xskmap,
        MapKind::Arena => Family::Arena,
        MapKind::StackTrace => return Err("it holds stacks of kernel events"),
        MapKind::CgroupArray | MapKind::CgroupStorage | MapKind::PercpuCgroupStorage | MapKind::CgrpStorage => {
            return Err("it belongs to cgroups");
        }
        MapKind::Sockmap | MapKind::Sockhash | MapKind::ReuseportSockarray | MapKind::SkStorage => {
            return Err("it belongs to sockets");
        }
        MapKind::StructOps => return Err("it registers kernel operations"),
        MapKind::InodeStorage => return Err("it belongs to inodes"),
        MapKind::TaskStorage => return Err("it belongs to kernel tasks"),
        MapKind::InsnArray => return Err("it holds addresses of kernel-compiled instructions"),
    })
}
