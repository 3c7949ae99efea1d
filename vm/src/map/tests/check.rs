use super::*;
use crate::map::{Errno, MapFlags};

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
        "map counts: value of map counts: 16777216 bytes asked for, but 65536 of the memory limit of 65536 bytes are left"
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
