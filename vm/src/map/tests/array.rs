use super::*;
use crate::map::{BPF_ANY, BPF_EXIST, BPF_F_LOCK, BPF_NOEXIST, Data, Errno, MapFlags};
use crate::mem::Access;

#[test]
fn flags_and_errno_values_are_the_kernels() {
    let arena = arena();
    let map = make(&arena, spec(MapKind::Array, 4, 8, 3));
    assert_eq!(map.update(&key(2), &[7; 8], BPF_ANY, 0), Ok(()));
    assert_eq!(map.update(&key(2), &[8; 8], BPF_EXIST, 0), Ok(()));
    assert_eq!(map.update(&key(2), &[9; 8], BPF_NOEXIST, 0), Err(Errno::EEXIST));
    assert_eq!(map.update(&key(3), &[9; 8], BPF_NOEXIST, 0), Err(Errno::E2BIG));
    assert_eq!(map.update(&key(3), &[9; 8], 3, 0), Err(Errno::EINVAL));
    assert_eq!(map.update(&key(0), &[9; 8], BPF_F_LOCK, 0), Err(Errno::EINVAL));
    assert_eq!(map.update(&key(0), &[9; 7], BPF_ANY, 0), Err(Errno::EINVAL));
    assert_eq!(map.delete(&key(0)), Err(Errno::EINVAL));
    assert_eq!(copy(&*map, &key(2)), Some(vec![8; 8]));
    assert_eq!(copy(&*map, &key(3)), None);
    assert_eq!(map.lookup(&key(u32::MAX), 0), None);
    assert_eq!(map.len(), 3);
    assert_eq!(map.cpus(), 1);
}

#[test]
fn walks_by_index() {
    let map = make(&arena(), spec(MapKind::Array, 4, 4, 2));
    let mut next = [9; 4];
    for (from, result, to) in [
        (None, Ok(()), 0),
        (Some(0), Ok(()), 1),
        (Some(1), Err(Errno::ENOENT), 1),
        (Some(2), Ok(()), 0),
        (Some(u32::MAX), Ok(()), 0),
    ] {
        let from = from.map(key);
        assert_eq!(map.next_key(from.as_ref().map(<[u8; 4]>::as_slice), &mut next), result);
        assert_eq!(next, key(to));
    }
    assert_eq!(map.keys(), [key(0), key(1)]);
    assert_eq!((map.slots(), map.element(1, 0, &mut next), next), (Some(2), map.lookup(&key(1), 0), key(1)));
    assert_eq!(map.element(2, 0, &mut next), None);
}

#[test]
fn one_byte_past_a_value_faults() {
    let arena = arena();
    let map = make(&arena, spec(MapKind::Array, 4, 12, 5));
    let view = view(&arena);
    let addr = map.lookup(&key(1), 0).unwrap();
    assert_eq!(addr % 8, 0);
    assert!(view.check(addr, 12, Access::Write).is_ok());
    let fault = view.check(addr + 12, 1, Access::Write).unwrap_err().to_string();
    assert!(fault.ends_with("1 byte past the end of value of map counts (12 bytes, access at offset 12)"), "{fault}");
    assert!(view.check(addr - 1, 1, Access::Read).is_err());
}

#[test]
fn mmapable_arrays_lie_as_user_space_maps_them() {
    let arena = arena();
    let map = make(&arena, MapSpec { flags: MapFlags::MMAPABLE.bits(), ..spec(MapKind::Array, 4, 12, 5) });
    assert_eq!(map.lookup(&key(1), 0).unwrap() - map.lookup(&key(0), 0).unwrap(), 16);
    assert_eq!(map.memory().unwrap().element(1), map.lookup(&key(1), 0).unwrap());
}

#[test]
fn each_cpu_has_its_value() {
    let map = make(&arena(), spec(MapKind::PercpuArray, 4, 4, 2));
    assert_eq!(map.cpus(), 4);
    for cpu in 0..4 {
        map.update(&key(1), &key(cpu + 10), BPF_ANY, cpu).unwrap();
    }
    let mut value = [0; 4];
    for cpu in 0..4 {
        map.lookup_copy(&key(1), cpu, &mut value).unwrap();
        assert_eq!(value, key(cpu + 10));
        assert_ne!(map.lookup(&key(1), cpu), map.lookup(&key(0), cpu));
    }
    assert_eq!(map.lookup(&key(1), 4), None);
    assert_eq!(map.update(&key(1), &[0; 4], BPF_F_LOCK, 0), Err(Errno::EINVAL));
}

#[test]
fn data_sections_are_filled_and_may_be_read_only() {
    let arena = arena();
    let data = |read_only| Data { read_only, ..Data::new(vec![1, 2, 3], 3) };
    let flags = MapFlags::MMAPABLE.bits();
    let section =
        |name, read_only| MapSpec { data: Some(data(read_only)), flags, ..MapSpec::new(name, MapKind::Array, 4, 3, 1) };
    let rodata = make(&arena, section(".rodata", true));
    assert_eq!(copy(&*rodata, &key(0)), Some(vec![1, 2, 3]));
    assert_eq!(rodata.update(&key(0), &[4; 3], BPF_ANY, 0), Err(Errno::EPERM));
    let addr = rodata.lookup(&key(0), 0).unwrap();
    let fault = view(&arena).check(addr, 1, Access::Write).unwrap_err().to_string();
    assert!(fault.ends_with(".rodata is read-only"), "{fault}");
    let data = make(&arena, section(".data", false));
    assert!(view(&arena).check(data.lookup(&key(0), 0).unwrap(), 3, Access::Write).is_ok());
    assert_eq!(data.update(&key(0), &[4; 3], BPF_ANY, 0), Ok(()));
}

#[test]
fn copies_leave_a_spin_lock_alone() {
    let arena = arena();
    let map = make(&arena, MapSpec { spin_lock: Some(4), ..spec(MapKind::Array, 4, 12, 1) });
    let block = map.memory().unwrap();
    block.write(4, &[1, 0, 0, 0]);
    map.update(&key(0), &[7; 12], BPF_ANY, 0).unwrap();
    assert_eq!(block.to_vec(0, 12), [7, 7, 7, 7, 1, 0, 0, 0, 7, 7, 7, 7]);
    assert_eq!(copy(&*map, &key(0)).unwrap(), [7, 7, 7, 7, 0, 0, 0, 0, 7, 7, 7, 7]);
    assert_eq!(map.update(&key(0), &[8; 12], BPF_F_LOCK, 0), Err(Errno::EBUSY));
    block.write(4, &[0; 4]);
    assert_eq!(map.update(&key(0), &[8; 12], BPF_F_LOCK, 0), Ok(()));
    assert_eq!(block.to_vec(0, 12), [8, 8, 8, 8, 0, 0, 0, 0, 8, 8, 8, 8]);
}

#[test]
fn no_cache_line_has_values_of_two_cpus() {
    for kind in [MapKind::PercpuArray, MapKind::PercpuHash] {
        for (value_size, entries) in [(1, 1), (4, 3), (8, 1000), (56, 9), (60, 9), (200, 5)] {
            let map = make(&arena(), spec(kind, 4, value_size, entries));
            let mut lines = std::collections::HashMap::new();
            for index in 0..entries {
                if kind == MapKind::PercpuHash {
                    map.update(&key(index), &vec![0; value_size as usize], BPF_ANY, 0).unwrap();
                }
                for cpu in 0..map.cpus() {
                    let first = map.lookup(&key(index), cpu).unwrap();
                    for line in first / 64..=(first + u64::from(value_size) - 1) / 64 {
                        assert_eq!(*lines.entry(line).or_insert(cpu), cpu, "{kind:?} of {entries} times {value_size}");
                    }
                }
            }
        }
    }
}
