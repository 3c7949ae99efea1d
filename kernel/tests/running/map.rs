//! Kernel maps: values, freezing, shared memory, batches, per-CPU values.

use std::os::fd::{AsFd, AsRawFd};

use super::{allowed, skip};
use twinbpf_kernel::map::{MapFlags, Pinned};
use twinbpf_kernel::{Error, Map, MapCreate, MapKind, cpu};

fn create(kind: MapKind, key: u32, value: u32, entries: u32, flags: MapFlags) -> Result<Map, Error> {
    Map::create(&MapCreate {
        flags: flags.bits(),
        ..MapCreate::new("a map with a long name", kind, key, value, entries)
    })
}

pub(crate) fn a_map_keeps_values_until_it_is_frozen() {
    let Some(map) = allowed(create(MapKind::Array, 4, 8, 2, MapFlags::empty())) else { return };
    let key = 1_u32.to_ne_bytes();
    map.update(&key, &[5; 8], 0).unwrap();
    assert_eq!(map.lookup(&key).unwrap(), Some(vec![5; 8]));
    assert_eq!(map.lookup(&9_u32.to_ne_bytes()).unwrap(), None);
    map.freeze().unwrap();
    let error = map.update(&key, &[6; 8], 0).unwrap_err();
    assert_eq!(error.errno(), Some(libc::EPERM));
    assert!(error.to_string().contains("map a map with a long name"), "{error}");
}

pub(crate) fn memory_of_a_map_is_shared() {
    let Some(map) = allowed(create(MapKind::Array, 4, 8, 2, MapFlags::MMAPABLE)) else { return };
    let mut shared = map.share(0, 16).unwrap();
    shared.write(8, &[3; 8]);
    assert_eq!(map.lookup(&1_u32.to_ne_bytes()).unwrap(), Some(vec![3; 8]));
    map.update(&0_u32.to_ne_bytes(), &[4; 8], 0).unwrap();
    let mut bytes = [0; 16];
    shared.read(0, &mut bytes);
    assert_eq!(bytes, [4, 4, 4, 4, 4, 4, 4, 4, 3, 3, 3, 3, 3, 3, 3, 3]);
    assert!(map.share(shared.addr(), 16).is_err(), "what is mapped there stays");
    assert!(map.as_fd().as_raw_fd() > 2);
}

pub(crate) fn elements_come_in_batches_and_one_by_one() {
    const COUNT: u32 = 5000;
    for kind in [MapKind::Hash, MapKind::LruHash, MapKind::Array, MapKind::LpmTrie] {
        let flags = if kind == MapKind::LpmTrie { MapFlags::NO_PREALLOC } else { MapFlags::empty() };
        let (key, entries) = if kind == MapKind::LpmTrie { (8, COUNT) } else { (4, COUNT * 2) };
        let Some(map) = allowed(create(kind, key, 8, entries, flags)) else { return };
        let keys: Vec<Vec<u8>> = (0..COUNT)
            .map(|index| match key {
                8 => [32_u32.to_ne_bytes(), index.to_be_bytes()].concat(),
                _ => index.to_ne_bytes().to_vec(),
            })
            .collect();
        let values: Vec<[u8; 8]> = (0..u64::from(COUNT)).map(|value| (value * 3).to_ne_bytes()).collect();
        let all: Vec<(&[u8], &[u8])> =
            keys.iter().map(Vec::as_slice).zip(values.iter().map(<[u8; 8]>::as_slice)).collect();
        map.update_all(&all, 0).unwrap();
        let mut found = map.entries().unwrap();
        found.sort();
        let mut expected: Vec<(Vec<u8>, Vec<u8>)> =
            all.iter().map(|(key, value)| (key.to_vec(), value.to_vec())).collect();
        if kind == MapKind::Array {
            expected.extend((COUNT..COUNT * 2).map(|index| (index.to_ne_bytes().to_vec(), vec![0; 8])));
        }
        expected.sort();
        assert_eq!(found.len(), expected.len(), "{kind:?}");
        assert!(found == expected, "{kind:?}");
        map.clear().unwrap();
        let left = map.entries().unwrap();
        assert!(left.iter().all(|(_, value)| kind == MapKind::Array && *value == [0; 8]), "{kind:?}");
    }
}

pub(crate) fn values_of_all_cpus() {
    let Some(map) = allowed(create(MapKind::PercpuArray, 4, 4, 1, MapFlags::empty())) else { return };
    assert_eq!(map.copy_size(), 8 * cpu::possible());
    let value: Vec<u8> = (0..cpu::possible() as u64).flat_map(|cpu| (cpu + 7).to_ne_bytes()).collect();
    map.update(&[0; 4], &value, 0).unwrap();
    assert_eq!(map.lookup(&[0; 4]).unwrap(), Some(value));
}

pub(crate) fn a_queue_gives_each_value_once() {
    let Some(map) = allowed(create(MapKind::Queue, 0, 4, 4, MapFlags::empty())) else { return };
    map.update(&[], &[1; 4], 0).unwrap();
    map.update(&[], &[2; 4], 0).unwrap();
    assert_eq!(map.take(&[]).unwrap(), Some(vec![1; 4]));
    assert_eq!(map.take(&[]).unwrap(), Some(vec![2; 4]));
    assert_eq!(map.take(&[]).unwrap(), None);
}

pub(crate) fn pins_are_compared() {
    let folder = std::path::Path::new("/sys/fs/bpf");
    let path = folder.join(format!("twinbpf-test-{}", std::process::id()));
    let Some(map) = allowed(create(MapKind::Hash, 4, 8, 16, MapFlags::empty())) else { return };
    let wanted = MapCreate::new("a map with a long name", MapKind::Hash, 4, 8, 16).info();
    if let Err(error) = map.pin(&path) {
        return skip(&error.to_string());
    }
    let same = Map::pinned(&path, &wanted);
    let other =
        MapCreate { flags: MapFlags::NO_PREALLOC.bits(), ..MapCreate::new("x", MapKind::Hash, 4, 16, 16) }.info();
    let different = Map::pinned(&path, &other);
    std::fs::remove_file(&path).unwrap();
    assert!(matches!(Map::pinned(&path, &wanted).unwrap(), Pinned::Nothing));
    let Pinned::Same(again) = same.unwrap() else { panic!("it is the same") };
    assert_eq!(again.info().id, map.info().id);
    assert_eq!(Map::by_id(again.info().id).unwrap().info().name, "a map with a lo".replace(' ', "_"));
    assert!(Map::ids().unwrap().contains(&again.info().id));
    let Pinned::Different { differences, .. } = different.unwrap() else { panic!("it differs") };
    let texts: Vec<String> = differences.iter().map(ToString::to_string).collect();
    assert_eq!(texts, ["value_size is 8, the object says 16", "map_flags is none, the object says BPF_F_NO_PREALLOC"]);
    let error = map.pin(std::path::Path::new("/tmp/twinbpf-no-pin")).unwrap_err().to_string();
    assert!(error.contains("/tmp is in no BPF file system"), "{error}");
}

pub(crate) fn a_kind_that_the_kernel_refuses_is_named() {
    let Some(_) = allowed(create(MapKind::Hash, 4, 4, 1, MapFlags::empty())) else { return };
    let error = create(MapKind::Hash, 0, 4, 1, MapFlags::empty()).unwrap_err().to_string();
    assert!(error.starts_with("MAP_CREATE of map a map with a long name (hash): "), "{error}");
}
