use super::*;
use crate::map::{Data, Errno, MapFlags, Pointer};

#[track_caller]
fn errno(spec: MapSpec) -> Errno {
    create(spec, &arena(), 4).unwrap_err().errno()
}

fn with(flags: MapFlags, spec: MapSpec) -> MapSpec {
    MapSpec { flags: flags.bits(), ..spec }
}

#[test]
fn messages_name_map_attribute_value_and_what_is_allowed() {
    assert_eq!(
        refused(spec(MapKind::Array, 8, 8, 1)),
        "map counts (array): key_size is 8, but must be 4: arrays are indexed by a __u32"
    );
    assert_eq!(refused(spec(MapKind::Hash, 8, 8, 0)), "map counts (hash): max_entries is 0, but must be at least 1");
    assert_eq!(
        refused(with(MapFlags::MMAPABLE | MapFlags::from_bits_retain(1 << 30), spec(MapKind::Hash, 8, 8, 1))),
        "map counts (hash): map_flags is 0x40000400 (BPF_F_MMAPABLE | 0x40000000), but must be made of \
         BPF_F_NO_PREALLOC | BPF_F_NUMA_NODE | BPF_F_RDONLY | BPF_F_WRONLY | BPF_F_ZERO_SEED | BPF_F_RDONLY_PROG | \
         BPF_F_WRONLY_PROG"
    );
    assert_eq!(
        refused(spec(MapKind::Sockmap, 4, 4, 1)),
        "map counts: maps of type sockmap exist only in the kernel (it belongs to sockets); run its programs there"
    );
    let small = Arena::new(1 << 16).unwrap();
    assert_eq!(
        create(spec(MapKind::Array, 4, 8, 1 << 20), &small, 1).unwrap_err().to_string(),
        "map counts: value of map counts: 16777216 bytes requested, but 65536 of the memory limit of 65536 bytes are left"
    );
}

#[test]
fn kinds_of_the_kernel_are_refused() {
    for kind in MapKind::ALL {
        let known = kind.name();
        if let Err(error) = create(spec(*kind, 0, 0, 0), &arena(), 4) {
            assert!(error.to_string().contains(known), "{error}");
        }
    }
}

#[test]
fn arrays() {
    let array = || spec(MapKind::Array, 4, 8, 1);
    assert_eq!(errno(MapSpec { key_size: 3, ..array() }), Errno::EINVAL);
    assert_eq!(errno(MapSpec { value_size: 0, ..array() }), Errno::EINVAL);
    assert_eq!(errno(MapSpec { value_size: 1 << 31, ..array() }), Errno::E2BIG);
    assert_eq!(errno(MapSpec { extra: 1, ..array() }), Errno::EINVAL);
    assert_eq!(errno(MapSpec { max_entries: u32::MAX, ..array() }), Errno::ENOMEM);
    assert_eq!(errno(with(MapFlags::NO_PREALLOC, array())), Errno::EINVAL);
    assert_eq!(errno(with(MapFlags::RDONLY_PROG | MapFlags::WRONLY_PROG, array())), Errno::EINVAL);
    let percpu = || spec(MapKind::PercpuArray, 4, 8, 1);
    assert_eq!(errno(with(MapFlags::MMAPABLE, percpu())), Errno::EINVAL);
    assert_eq!(errno(with(MapFlags::NUMA_NODE, percpu())), Errno::EINVAL);
    assert_eq!(errno(MapSpec { value_size: (32 << 10) + 1, ..percpu() }), Errno::E2BIG);
}

#[test]
fn hashes() {
    let hash = || spec(MapKind::Hash, 4, 8, 1);
    assert_eq!(errno(MapSpec { key_size: 0, ..hash() }), Errno::EINVAL);
    assert_eq!(errno(MapSpec { value_size: 0, ..hash() }), Errno::EINVAL);
    assert_eq!(errno(MapSpec { key_size: 2 << 20, value_size: 2 << 20, ..hash() }), Errno::E2BIG);
    assert_eq!(errno(MapSpec { max_entries: u32::MAX, ..hash() }), Errno::E2BIG);
    assert_eq!(errno(with(MapFlags::NO_COMMON_LRU, hash())), Errno::EINVAL);
    let percpu = || spec(MapKind::PercpuHash, 4, 8, 1);
    assert_eq!(errno(with(MapFlags::NUMA_NODE, percpu())), Errno::EINVAL);
    assert_eq!(errno(MapSpec { value_size: (32 << 10) + 8, ..percpu() }), Errno::E2BIG);
    assert_eq!(errno(with(MapFlags::NO_PREALLOC, spec(MapKind::LruHash, 4, 8, 1))), Errno::ENOTSUPP);
}

#[test]
fn tries() {
    let trie = || with(MapFlags::NO_PREALLOC, spec(MapKind::LpmTrie, 8, 8, 1));
    assert!(create(trie(), &arena(), 1).is_ok());
    assert_eq!(errno(spec(MapKind::LpmTrie, 8, 8, 1)), Errno::EINVAL);
    for key_size in [0, 4, 261] {
        assert_eq!(errno(MapSpec { key_size, ..trie() }), Errno::EINVAL);
    }
    assert_eq!(errno(MapSpec { value_size: 0, ..trie() }), Errno::EINVAL);
    assert_eq!(errno(MapSpec { value_size: 4 << 20, ..trie() }), Errno::EINVAL);
    assert_eq!(errno(MapSpec { max_entries: 0, ..trie() }), Errno::EINVAL);
}

#[test]
fn keyless_maps() {
    for kind in [MapKind::Queue, MapKind::Stack, MapKind::BloomFilter] {
        assert!(create(spec(kind, 0, 8, 1), &arena(), 1).is_ok());
        assert_eq!(errno(spec(kind, 4, 8, 1)), Errno::EINVAL);
        assert_eq!(errno(spec(kind, 0, 0, 1)), Errno::EINVAL);
        assert_eq!(errno(spec(kind, 0, 8, 0)), Errno::EINVAL);
        assert_eq!(errno(spec(kind, 0, (4 << 20) + 1, 1)), Errno::E2BIG);
        assert_eq!(errno(with(MapFlags::MMAPABLE, spec(kind, 0, 8, 1))), Errno::EINVAL);
    }
    assert_eq!(errno(MapSpec { extra: 16, ..spec(MapKind::BloomFilter, 0, 8, 1) }), Errno::EINVAL);
    assert_eq!(errno(spec(MapKind::BloomFilter, 0, 8, u32::MAX)), Errno::ENOMEM);
}

#[test]
fn rings() {
    let ring = || spec(MapKind::Ringbuf, 0, 0, 4096);
    assert_eq!(
        refused(MapSpec { max_entries: 0, ..ring() }),
        "map counts (ringbuf): max_entries is 0, but must be bytes, a power of two and a multiple of the page size \
         (4096)"
    );
    assert_eq!(errno(MapSpec { max_entries: (1 << 31) + 1, ..ring() }), Errno::EINVAL);
    assert_eq!(errno(MapSpec { max_entries: 1 << 31, ..ring() }), Errno::ENOMEM);
    assert_eq!(errno(MapSpec { key_size: 4, ..ring() }), Errno::EINVAL);
    assert_eq!(errno(MapSpec { value_size: 4, ..ring() }), Errno::EINVAL);
    assert_eq!(errno(with(MapFlags::RDONLY_PROG, ring())), Errno::EINVAL);
}

#[test]
fn maps_of_descriptors_and_targets() {
    for kind in [MapKind::ProgArray, MapKind::PerfEventArray, MapKind::ArrayOfMaps, MapKind::HashOfMaps] {
        assert_eq!(errno(spec(kind, 4, 8, 1)), Errno::EINVAL);
    }
    assert_eq!(errno(with(MapFlags::RDONLY_PROG, spec(MapKind::ProgArray, 4, 4, 1))), Errno::EINVAL);
    assert_eq!(errno(with(MapFlags::PRESERVE_ELEMS, spec(MapKind::ProgArray, 4, 4, 1))), Errno::EINVAL);
    assert!(create(with(MapFlags::PRESERVE_ELEMS, spec(MapKind::PerfEventArray, 4, 4, 1)), &arena(), 1).is_ok());
    for kind in [MapKind::Devmap, MapKind::DevmapHash, MapKind::Cpumap, MapKind::Xskmap] {
        assert_eq!(errno(spec(kind, 8, 4, 1)), Errno::EINVAL);
        assert_eq!(errno(spec(kind, 4, 5, 1)), Errno::EINVAL);
        assert_eq!(errno(spec(kind, 4, 4, 0)), Errno::EINVAL);
        assert_eq!(errno(with(MapFlags::WRONLY_PROG, spec(kind, 4, 4, 1))), Errno::EINVAL);
    }
    assert_eq!(errno(spec(MapKind::Xskmap, 4, 8, 1)), Errno::EINVAL);
    assert_eq!(errno(spec(MapKind::Cpumap, 4, 4, 8193)), Errno::E2BIG);
    assert_eq!(errno(spec(MapKind::DevmapHash, 4, 4, u32::MAX)), Errno::EINVAL);
}

#[test]
fn contents_of_data_sections_fit() {
    let section = |value, pointer| {
        let pointers = vec![(pointer, Pointer::Map(0))];
        let data = Some(Data { pointers, ..Data::read_only(vec![0; 16], 16) });
        MapSpec { data, ..MapSpec::new(".rodata", MapKind::Array, 4, value, 1) }
    };
    assert!(create(section(16, 8), &arena(), 1).is_ok());
    assert_eq!(
        refused(section(8, 0)),
        "map .rodata (array): value_size is 8, but must be at least 16, the bytes of the section"
    );
    for pointer in [9, u32::MAX] {
        assert!(refused(section(16, pointer)).contains("must be inside the section of 16 bytes"));
    }
}
