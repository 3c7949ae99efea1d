use super::*;
use crate::map::{Data, Errno, Maps, Pointer};

fn no_program(_: &str) -> Option<u32> {
    None
}

fn section(name: &str, bytes: Vec<u8>, pointers: Vec<(u32, Pointer)>) -> MapSpec {
    let size = bytes.len() as u32;
    let data = Some(Data { pointers, ..Data::read_only(bytes, size) });
    MapSpec { data, ..MapSpec::new(name, MapKind::Array, 4, size, 1) }
}

#[test]
fn handles_lead_to_maps() {
    let arena = arena();
    let specs = [spec(MapKind::Hash, 4, 4, 1), section(".rodata", vec![5; 16], Vec::new())];
    let maps = Maps::new(&specs, &arena, 2, &mut no_program).unwrap();
    assert_eq!(maps.own().len(), 2);
    assert_eq!(maps.by_name(".rodata"), Some(1));
    assert_eq!(maps.by_name(".data"), None);
    for index in 0..2 {
        let handle = maps.handle(index);
        assert!(Arc::ptr_eq(maps.get(handle).unwrap(), &maps.own()[index]));
        assert!(maps.get(handle + 1).is_none());
    }
    assert!(maps.get(0).is_none());
    assert_eq!(maps.addr_of_value(0), None);
    assert_eq!(maps.addr_of_value(1), maps.own()[1].lookup(&key(0), 0));
    assert_eq!(maps.addr_of_value(2), None);
}

#[test]
fn elements_have_their_initial_values() {
    let of = |elements: Vec<(std::ops::Range<u32>, Arc<[u8]>)>| {
        let array = MapSpec { elements, ..spec(MapKind::Array, 4, 2, 8) };
        Maps::new(&[array], &arena(), 1, &mut no_program)
    };
    let maps = of(vec![(0..8, [1, 2].into()), (3..5, [9, 9].into())]).unwrap();
    let value = |slot: u32| {
        let mut value = [0; 2];
        maps.own()[0].lookup_copy(&key(slot), 0, &mut value).unwrap();
        value
    };
    assert_eq!([2, 3, 4, 5].map(value), [[1, 2], [9, 9], [9, 9], [1, 2]]);
    let error = |elements| of(elements).unwrap_err().to_string();
    assert!(error(vec![(7..9, [1, 2].into())]).contains("slot 8: its value is refused"));
    assert!(error(vec![(0..1, [1].into())]).contains("slot 0: its value has 1 bytes, those of the map have 2"));
}

#[test]
fn maps_can_be_added_for_ever() {
    let arena = arena();
    let maps = Maps::new(&[], &arena, 2, &mut no_program).unwrap();
    let made: Vec<_> = (0..300).map(|_| maps.create(spec(MapKind::Hash, 4, 4, 1)).unwrap()).collect();
    for (handle, map) in &made {
        assert!(Arc::ptr_eq(maps.get(*handle).unwrap(), map));
        assert_eq!(maps.add(Arc::clone(map)).unwrap(), *handle);
    }
    let other = Maps::new(&[], &arena, 2, &mut no_program).unwrap();
    assert!(other.get(made[0].0).is_none());
}

#[test]
fn a_given_map_is_taken_instead_of_a_new_one() {
    let arena = arena();
    let shared = make(&arena, spec(MapKind::Hash, 4, 4, 1));
    let specs = [spec(MapKind::Hash, 4, 4, 1)];
    let give = &mut |_: usize, _: &MapSpec| Some(Arc::clone(&shared));
    let maps = Maps::with(&specs, &arena, 1, give, &mut no_program).unwrap();
    assert!(Arc::ptr_eq(&maps.own()[0], &shared));
    assert_eq!(maps.add(shared).unwrap(), maps.handle(0));
}

#[test]
fn programs_cannot_use_maps_that_exist_only_in_the_kernel() {
    let specs = [spec(MapKind::Sockmap, 4, 8, 1), spec(MapKind::Hash, 4, 4, 1)];
    let maps = Maps::new(&specs, &arena(), 1, &mut no_program).unwrap();
    assert!(maps.get(maps.handle(0)).is_none() && maps.get(maps.handle(1)).is_some());
    let why = "map counts: maps of type sockmap exist only in the kernel (it belongs to sockets)";
    assert_eq!((maps.absent(maps.handle(0)), maps.absent(maps.handle(1))), (Some(why), None));
    let map = &maps.own()[0];
    assert_eq!((map.spec().kind, map.len(), map.lookup(&key(0), 0)), (MapKind::Sockmap, 0, None));
    assert_eq!(map.update(&key(0), &[0; 8], 0, 0), Err(Errno::EOPNOTSUPP));
}

#[test]
fn pointers_in_data_are_written() {
    let arena = arena();
    let pointers = vec![
        (0, Pointer::MapValue { map: 1, off: 3 }),
        (8, Pointer::Map(0)),
        (16, Pointer::Function { program: 0, pc: 4 }),
    ];
    let specs = [section(".rodata", vec![0; 24], pointers), section(".data", vec![0; 8], Vec::new())];
    let maps = Maps::new(&specs, &arena, 1, &mut no_program).unwrap();
    maps.write_pointers(|pointer| match pointer {
        Pointer::Function { program: 0, pc: 4 } => Ok(77),
        other => Err(other.clone()),
    })
    .unwrap();
    let bytes = copy(&*maps.own()[0], &key(0)).unwrap();
    let words: Vec<u64> = bytes.chunks(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect();
    assert_eq!(words, [maps.addr_of_value(1).unwrap() + 3, maps.handle(0), 77]);
}
