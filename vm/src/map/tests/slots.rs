//! Maps whose slots hold programs, maps, and targets of redirection.

use super::*;
use crate::map::{BPF_ANY, BPF_EXIST, BPF_NOEXIST, Errno, MapError, MapFlags, Maps, Sent, Slot};
use crate::mem::Access;

#[test]
fn prog_arrays() {
    let map = make(&arena(), spec(MapKind::ProgArray, 4, 4, u32::MAX));
    assert_eq!(map.program(7), None);
    assert_eq!(map.set_program(7, 3), Ok(()));
    assert_eq!(map.program(7), Some(3));
    assert_eq!(copy(&*map, &key(7)), Some(key(3).to_vec()));
    assert_eq!(copy(&*map, &key(8)), None);
    assert_eq!(map.keys(), [key(7)]);
    assert_eq!(map.lookup(&key(7), 0), None);
    assert_eq!(map.set_program(u32::MAX, 3), Err(Errno::E2BIG));
    assert_eq!(map.delete(&key(7)), Ok(()));
    assert_eq!(map.delete(&key(7)), Err(Errno::ENOENT));
    assert_eq!(map.delete(&key(u32::MAX)), Err(Errno::E2BIG));
    assert_eq!(map.update(&key(7), &key(3), BPF_ANY, 0), Err(Errno::EINVAL));
}

fn outer(kind: MapKind, inner: MapSpec) -> MapSpec {
    MapSpec { inner: Some(Box::new(inner)), ..MapSpec::new("outer", kind, 4, 4, 3) }
}

#[test]
fn initial_slots_are_filled() {
    let arena = arena();
    let inner = spec(MapKind::Hash, 4, 8, 5);
    let mut array = outer(MapKind::ArrayOfMaps, inner.clone());
    array.slots = vec![(2, Slot::Map(1))];
    let mut jumps = MapSpec::new("jumps", MapKind::ProgArray, 4, 4, 3);
    jumps.slots = vec![(1, Slot::Program("tail".into()))];
    let specs = [array, inner, jumps];
    let mut program = |name: &str| (name == "tail").then_some(6);
    let maps = Maps::new(&specs, &arena, 1, &mut program).unwrap();
    assert_eq!(maps.own()[0].lookup(&key(2), 0), Some(maps.handle(1)));
    assert_eq!(maps.own()[0].lookup(&key(0), 0), None);
    assert!(Arc::ptr_eq(&maps.own()[0].inner(&key(2)).unwrap(), &maps.own()[1]));
    assert_eq!(maps.own()[2].program(1), Some(6));
    let text = |specs: &[MapSpec]| Maps::new(specs, &arena, 1, &mut |_| None).unwrap_err().to_string();
    assert_eq!(text(&specs), "map jumps: slot 1: there is no program tail");
    let mut wrong = specs.clone();
    wrong[1].value_size = 4;
    assert_eq!(text(&wrong), "map outer: slot 2: map counts differs from the template of the inner maps");
    wrong[1].value_size = 8;
    wrong[0].slots[0].0 = 3;
    assert!(text(&wrong).starts_with("map outer: slot 3: map counts refused: "), "{}", text(&wrong));
}

#[test]
fn inner_maps_must_equal_the_template() {
    let arena = arena();
    let maps =
        Maps::new(&[outer(MapKind::HashOfMaps, spec(MapKind::Array, 4, 8, 5))], &arena, 1, &mut |_| None).unwrap();
    let outer = &*maps.own()[0];
    let set = |number: u32, inner: MapSpec| {
        let (handle, inner) = maps.create(inner).unwrap();
        maps.set_inner(outer, &key(number), &inner).map(|()| handle)
    };
    assert_eq!(set(0, spec(MapKind::Array, 4, 8, 6)), Err(Errno::EINVAL), "the size of an array counts");
    assert_eq!(set(0, spec(MapKind::Array, 4, 4, 5)), Err(Errno::EINVAL));
    assert_eq!(set(0, spec(MapKind::Hash, 4, 8, 5)), Err(Errno::EINVAL));
    let flags = MapFlags::MMAPABLE.bits();
    assert_eq!(set(0, MapSpec { flags, ..spec(MapKind::Array, 4, 8, 5) }), Err(Errno::EINVAL));
    for number in [30, 10, 20] {
        let handle = set(number, spec(MapKind::Array, 4, 8, 5)).unwrap();
        assert_eq!(outer.lookup(&key(number), 0), Some(handle));
        assert!(Arc::ptr_eq(maps.get(handle).unwrap(), &outer.inner(&key(number)).unwrap()));
    }
    assert_eq!(set(40, spec(MapKind::Array, 4, 8, 5)), Err(Errno::E2BIG));
    assert!(set(20, spec(MapKind::Array, 4, 8, 5)).is_ok());
    assert_eq!(outer.keys(), [key(10), key(20), key(30)]);
    assert_eq!(outer.delete(&key(20)), Ok(()));
    assert_eq!(outer.delete(&key(20)), Err(Errno::ENOENT));
    assert_eq!(outer.len(), 2);
    let mut next = [0; 4];
    outer.next_key(Some(&key(20)), &mut next).unwrap();
    assert_eq!(next, key(10), "a lost key starts from the front");
}

#[test]
fn arrays_of_maps_are_indexed() {
    let arena = arena();
    let template = MapSpec { flags: MapFlags::INNER_MAP.bits(), ..spec(MapKind::Array, 4, 8, 1) };
    let maps = Maps::new(&[outer(MapKind::ArrayOfMaps, template.clone())], &arena, 1, &mut |_| None).unwrap();
    let outer = &*maps.own()[0];
    let (_, inner) = maps.create(MapSpec { max_entries: 99, ..template }).unwrap();
    assert_eq!(maps.set_inner(outer, &key(1), &inner), Ok(()), "BPF_F_INNER_MAP frees the size");
    assert_eq!(maps.set_inner(outer, &key(3), &inner), Err(Errno::E2BIG));
    assert_eq!(outer.delete(&key(3)), Err(Errno::E2BIG));
    assert_eq!(outer.delete(&key(0)), Err(Errno::ENOENT));
    assert_eq!(outer.keys(), [key(1)], "slots that are set");
    let mut next = [0; 4];
    assert_eq!(outer.next_key(Some(&key(1)), &mut next), Ok(()));
    assert_eq!(next, key(2), "bpf(2) walks over all slots");
    assert_eq!(outer.update(&key(1), &key(1), BPF_ANY, 0), Err(Errno::EINVAL));
}

#[test]
fn indices_past_the_end_of_an_array_of_maps_find_nothing() {
    let arena = arena();
    let template = spec(MapKind::Hash, 4, 8, 2);
    let maps = Maps::new(&[outer(MapKind::ArrayOfMaps, template.clone())], &arena, 1, &mut |_| None).unwrap();
    let (array, (_, inner)) = (&maps.own()[0], maps.create(template).unwrap());
    maps.set_inner(&**array, &key(0), &inner).unwrap();
    assert!(array.lookup(&key(0), 0).is_some());
    // Memory counts in pages, which have room for more indices.
    for index in [array.len(), array.len() + 1, 511, 512, u32::MAX] {
        assert_eq!(array.lookup(&key(index), 0), None, "{index}");
    }
}

#[test]
fn templates_are_checked() {
    let text = |spec| create(spec, &arena(), 1).unwrap_err().to_string();
    assert_eq!(
        text(MapSpec::new("outer", MapKind::ArrayOfMaps, 4, 4, 3)),
        "map outer (array_of_maps): values is missing, but must be the definition of the inner maps"
    );
    assert_eq!(
        text(outer(MapKind::HashOfMaps, outer(MapKind::HashOfMaps, spec(MapKind::Array, 4, 4, 1)))),
        "map outer (hash_of_maps): values is maps of type hash_of_maps, but must be maps that do not hold maps \
         themselves"
    );
    let error = create(outer(MapKind::HashOfMaps, spec(MapKind::ProgArray, 4, 4, 1)), &arena(), 1).unwrap_err();
    assert!(matches!(error, MapError::Attribute { errno: Errno::ENOTSUPP, .. }), "{error}");
    assert!(text(outer(MapKind::HashOfMaps, spec(MapKind::Array, 3, 4, 1))).contains("key_size is 3"));
}

#[test]
fn perf_events_are_recorded() {
    let map = make(&arena(), spec(MapKind::PerfEventArray, 4, 4, 0));
    assert_eq!(map.spec().max_entries, 4, "one for each CPU");
    map.send(3, b"event").unwrap();
    map.send(0, b"").unwrap();
    assert_eq!(map.send(4, b"x"), Err(Errno::E2BIG));
    let sent = [Sent { slot: 3, bytes: b"event".to_vec() }, Sent { slot: 0, bytes: Vec::new() }];
    assert_eq!(map.take_sent(), sent);
    assert!(map.take_sent().is_empty());
    let big = vec![0; 10 << 20];
    map.send(1, &big).unwrap();
    assert_eq!(map.send(1, &big), Err(Errno::ENOSPC), "there is no reader");
    assert_eq!(map.take_sent().len(), 1);
    assert_eq!(map.send(1, &big), Ok(()));
}

#[test]
fn devmaps_have_targets_that_programs_can_only_read() {
    let arena = arena();
    let map = make(&arena, spec(MapKind::Devmap, 4, 8, 70));
    let value = |target: u8| [target, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(map.lookup(&key(69), 0), None);
    assert_eq!(map.send(69, b"frame"), Err(Errno::ENOENT));
    assert_eq!(map.update(&key(69), &value(2), BPF_NOEXIST, 0), Err(Errno::EEXIST));
    assert_eq!(map.update(&key(70), &value(2), BPF_ANY, 0), Err(Errno::E2BIG));
    assert_eq!(map.update(&key(69), &value(2), 3, 0), Err(Errno::EINVAL));
    assert_eq!(map.update(&key(69), &value(2), BPF_ANY, 0), Ok(()));
    assert_eq!(map.send(69, b"frame"), Ok(()));
    assert_eq!(map.send(70, b"frame"), Err(Errno::ENOENT));
    assert_eq!(map.keys(), [key(69)]);
    assert_eq!(map.take_sent(), [Sent { slot: 69, bytes: b"frame".to_vec() }]);
    let addr = map.lookup(&key(69), 0).unwrap();
    assert!(view(&arena).check(addr, 8, Access::Read).is_ok());
    assert!(view(&arena).check(addr, 8, Access::Write).is_err());
    assert_eq!(map.update(&key(69), &value(0), BPF_ANY, 0), Ok(()));
    assert_eq!(map.lookup(&key(69), 0), None);
    assert_eq!(map.delete(&key(69)), Ok(()));
    assert_eq!(map.delete(&key(70)), Err(Errno::EINVAL));
}

#[test]
fn devmap_hashes_have_any_index() {
    let map = make(&arena(), spec(MapKind::DevmapHash, 4, 4, 1));
    assert_eq!(map.update(&key(1000), &key(0), BPF_ANY, 0), Err(Errno::EINVAL));
    assert_eq!(map.update(&key(1000), &key(2), BPF_NOEXIST, 0), Ok(()));
    assert_eq!(map.update(&key(1000), &key(2), BPF_NOEXIST, 0), Err(Errno::EEXIST));
    assert_eq!(map.update(&key(1000), &key(3), BPF_EXIST, 0), Ok(()));
    assert_eq!(map.update(&key(5), &key(3), BPF_ANY, 0), Err(Errno::E2BIG));
    assert_eq!(map.send(1000, b"f"), Ok(()));
    assert_eq!(map.send(5, b"f"), Err(Errno::ENOENT));
    assert_eq!(map.take_sent().len(), 1);
    assert_eq!(copy(&*map, &key(1000)), Some(key(3).to_vec()));
    assert_eq!(map.delete(&key(5)), Err(Errno::ENOENT));
    assert_eq!(map.delete(&key(1000)), Ok(()));
    assert!(map.is_empty());
}

#[test]
fn sockets_keep_the_flags() {
    let map = make(&arena(), spec(MapKind::Xskmap, 4, 4, 2));
    assert_eq!(map.update(&key(1), &key(0), BPF_EXIST, 0), Err(Errno::ENOENT));
    assert_eq!(map.update(&key(1), &key(0), BPF_NOEXIST, 0), Ok(()));
    assert_eq!(map.update(&key(1), &key(0), BPF_NOEXIST, 0), Err(Errno::EEXIST));
    assert!(map.lookup(&key(1), 0).is_some(), "socket 0 is a socket");
    let cpus = make(&arena(), spec(MapKind::Cpumap, 4, 4, 2));
    assert_eq!(cpus.update(&key(1), &key(192), BPF_ANY, 0), Ok(()));
    assert_eq!(cpus.send(1, b"f"), Ok(()));
    assert_eq!(cpus.send(0, b"f"), Err(Errno::ENOENT));
}
