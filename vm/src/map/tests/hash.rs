use super::*;
use crate::map::{BPF_ANY, BPF_EXIST, BPF_F_LOCK, BPF_NOEXIST, Entry, Errno};
use crate::mem::Access;

#[test]
fn flags_and_errno_values_are_the_kernels() {
    let map = make(&arena(), spec(MapKind::Hash, 4, 8, 2));
    assert_eq!(map.update(&key(1), &[1; 8], BPF_EXIST, 0), Err(Errno::ENOENT));
    assert_eq!(map.update(&key(1), &[1; 8], BPF_NOEXIST, 0), Ok(()));
    assert_eq!(map.update(&key(1), &[2; 8], BPF_NOEXIST, 0), Err(Errno::EEXIST));
    assert_eq!(map.update(&key(1), &[2; 8], BPF_EXIST, 0), Ok(()));
    assert_eq!(map.update(&key(1), &[2; 8], 3, 0), Err(Errno::EINVAL));
    assert_eq!(map.update(&key(1), &[2; 8], BPF_F_LOCK, 0), Err(Errno::EINVAL));
    assert_eq!(map.update(&key(1)[..3], &[2; 8], BPF_ANY, 0), Err(Errno::EINVAL));
    assert_eq!(map.update(&key(2), &[3; 8], BPF_ANY, 0), Ok(()));
    assert_eq!(map.update(&key(3), &[3; 8], BPF_ANY, 0), Err(Errno::E2BIG));
    assert_eq!(map.update(&key(3), &[3; 8], BPF_EXIST, 0), Err(Errno::ENOENT));
    assert_eq!(map.update(&key(2), &[4; 8], BPF_ANY, 0), Ok(()));
    assert_eq!(map.delete(&key(3)), Err(Errno::ENOENT));
    assert_eq!(map.delete(&key(1)), Ok(()));
    assert_eq!(map.delete(&key(1)), Err(Errno::ENOENT));
    assert_eq!(map.update(&key(3), &[3; 8], BPF_ANY, 0), Ok(()));
    assert_eq!(copy(&*map, &key(2)), Some(vec![4; 8]));
    assert_eq!(copy(&*map, &key(1)), None);
    assert_eq!(map.len(), 2);
}

#[test]
fn walks_in_order_of_insertion_and_restarts_after_a_lost_key() {
    let map = make(&arena(), spec(MapKind::Hash, 4, 4, 300));
    assert_eq!(map.next_key(None, &mut [0; 4]), Err(Errno::ENOENT));
    for number in 0..300 {
        map.update(&key(number * 7), &key(number), BPF_ANY, 0).unwrap();
    }
    let expected: Vec<_> = (0..300).map(|number| key(number * 7).to_vec()).collect();
    assert_eq!(map.keys(), expected);
    let mut walked = Vec::new();
    let mut next = [0; 4];
    while map.next_key(walked.last().map(Vec::as_slice), &mut next).is_ok() {
        walked.push(next.to_vec());
    }
    assert_eq!(walked, expected);
    map.next_key(Some(&key(1)), &mut next).unwrap();
    assert_eq!(next, key(0));
}

#[test]
fn elements_lie_in_slots() {
    for kind in [MapKind::Hash, MapKind::PercpuHash, MapKind::LruHash, MapKind::LruPercpuHash] {
        let map = make(&arena(), spec(kind, 4, 8, 4));
        (0..3).for_each(|number| map.update(&key(number), &[1; 8], BPF_ANY, 2).unwrap());
        map.delete(&key(1)).unwrap();
        let mut found = [0; 4];
        let slots: Vec<_> = (0..map.slots().unwrap()).map(|slot| (map.element(slot, 2, &mut found), found)).collect();
        assert_eq!(
            slots,
            [(map.lookup(&key(0), 2), key(0)), (None, key(0)), (map.lookup(&key(2), 2), key(2))],
            "{kind:?}"
        );
        let past = map.slots().unwrap();
        assert_eq!((map.element(past, 2, &mut found), map.element(u32::MAX, 2, &mut found)), (None, None), "{kind:?}");
        if map.cpus() > 1 {
            assert_eq!(map.element(0, 4, &mut found), None, "{kind:?}");
        }
    }
}

#[test]
fn values_stay_and_overflow_faults() {
    let arena = arena();
    let map = make(&arena, spec(MapKind::Hash, 4, 9, 10_000));
    map.update(&key(0), &[1; 9], BPF_ANY, 0).unwrap();
    let addr = map.lookup(&key(0), 0).unwrap();
    let used = arena.used();
    for number in 1..10_000 {
        map.update(&key(number), &[2; 9], BPF_ANY, 0).unwrap();
        assert_eq!(map.lookup(&key(number), 0).unwrap() % 8, 0);
    }
    assert!(arena.used() > used);
    map.update(&key(0), &[3; 9], BPF_ANY, 0).unwrap();
    assert_eq!(map.lookup(&key(0), 0), Some(addr));
    let view = view(&arena);
    assert!(view.check(addr, 9, Access::Write).is_ok());
    let fault = view.check(addr + 8, 2, Access::Write).unwrap_err().to_string();
    assert!(fault.ends_with("1 byte past the end of value of map counts (9 bytes, access at offset 8)"), "{fault}");
    map.delete(&key(0)).unwrap();
    assert_eq!(view.bytes(addr, 9), Ok(vec![3; 9]));
}

#[test]
fn memory_is_taken_as_it_fills_and_running_out_is_enomem() {
    let arena = Arena::new(1 << 20).unwrap();
    let map = make(&arena, spec(MapKind::Hash, 8, 248, 1 << 30));
    let header = arena.used();
    assert!(header <= 4096, "{header}");
    assert_eq!((map.delete(&[0; 8]), map.lookup(&[0; 8], 0)), (Err(Errno::ENOENT), None));
    assert_eq!(arena.used(), header, "an empty map takes nothing to look for a key");
    let mut stored = 0u64;
    let error = loop {
        match map.update(&stored.to_le_bytes(), &[1; 248], BPF_ANY, 0) {
            Ok(()) => stored += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(error, Errno::ENOMEM);
    assert!(stored > 1000, "{stored}");
    assert_eq!(u64::from(map.len()), stored);
    map.delete(&0u64.to_le_bytes()).unwrap();
    assert_eq!(map.update(&stored.to_le_bytes(), &[1; 248], BPF_ANY, 0), Ok(()));
    drop(map);
    assert_eq!(arena.used(), 0);
}

#[test]
fn a_new_element_is_zero_on_other_cpus() {
    let map = make(&arena(), spec(MapKind::PercpuHash, 4, 4, 1));
    map.update(&key(1), &[1; 4], BPF_ANY, 0).unwrap();
    map.update(&key(1), &[2; 4], BPF_ANY, 3).unwrap();
    map.delete(&key(1)).unwrap();
    map.update(&key(5), &[6; 4], BPF_NOEXIST, 2).unwrap();
    let mut value = [9; 4];
    let values = [0, 1, 2, 3].map(|cpu| {
        map.lookup_copy(&key(5), cpu, &mut value).unwrap();
        value[0]
    });
    assert_eq!(values, [0, 0, 6, 0]);
    assert_eq!(map.update(&key(5), &[0; 4], BPF_ANY, 4), Err(Errno::EINVAL));
    assert_eq!(map.lookup_copy(&key(5), 4, &mut value), Err(Errno::EINVAL));
}

#[test]
fn a_spin_lock_in_a_value_is_kept() {
    let arena = arena();
    let map = make(&arena, MapSpec { spin_lock: Some(0), ..spec(MapKind::Hash, 4, 8, 1) });
    map.update(&key(1), &[9; 8], BPF_F_LOCK, 0).unwrap();
    let addr = map.lookup(&key(1), 0).unwrap();
    assert_eq!(view(&arena).bytes(addr, 8), Ok(vec![0, 0, 0, 0, 9, 9, 9, 9]));
    assert_eq!(map.update(&key(1), &[7; 8], BPF_F_LOCK, 0), Ok(()));
    assert_eq!(map.update(&key(1), &[7; 8], BPF_F_LOCK | BPF_NOEXIST, 0), Err(Errno::EEXIST));
    assert_eq!(copy(&*map, &key(1)), Some(vec![0, 0, 0, 0, 7, 7, 7, 7]));
}

#[test]
fn searches_go_on_while_an_update_waits_for_a_spin_lock() {
    let arena = arena();
    let map = make(&arena, MapSpec { spin_lock: Some(0), ..spec(MapKind::Hash, 4, 8, 1) });
    map.update(&key(1), &[0; 8], BPF_ANY, 0).unwrap();
    let view = view(&arena);
    let addr = map.lookup(&key(1), 0).unwrap();
    // As a program that has taken the lock.
    view.write(addr, &1_u32.to_le_bytes()).unwrap();
    let update = std::thread::scope(|scope| {
        let update = scope.spawn(|| map.update(&key(1), &[7; 8], BPF_F_LOCK, 0));
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert_eq!(
            (map.lookup(&key(1), 0), map.update(&key(1), &[5; 8], BPF_NOEXIST, 0)),
            (Some(addr), Err(Errno::EEXIST))
        );
        view.write(addr, &0_u32.to_le_bytes()).unwrap();
        update.join().unwrap()
    });
    assert_eq!(update, Ok(()));
    assert_eq!(copy(&*map, &key(1)), Some(vec![0, 0, 0, 0, 7, 7, 7, 7]));
}

#[test]
fn entries_are_what_look_ups_copy() {
    for (kind, cpus) in
        [(MapKind::Hash, 1), (MapKind::PercpuHash, 4), (MapKind::LruHash, 1), (MapKind::LruPercpuHash, 4)]
    {
        let map = make(&arena(), spec(kind, 4, 12, 100));
        for number in 0..50 {
            map.update(&key(number), &[number as u8; 12], BPF_ANY, number % cpus).unwrap();
        }
        (0..50).step_by(3).for_each(|number| map.delete(&key(number)).unwrap());
        let mut listed = Vec::new();
        let all = &mut |entry: Entry<'_>| {
            for (cpu, value) in entry.values().enumerate() {
                let mut copied = [0xee; 12];
                map.lookup_copy(entry.key, cpu as u32, &mut copied).unwrap();
                assert_eq!(value, copied, "{kind:?}");
            }
            assert_eq!(entry.values().count(), cpus as usize);
            listed.push(entry.key.to_vec());
            true
        };
        map.entries(all).unwrap();
        assert_eq!(listed, map.keys());
        let mut some = 0;
        let until_five = &mut |_: Entry<'_>| {
            some += 1;
            some < 5
        };
        map.entries(until_five).unwrap();
        assert_eq!(some, 5);
    }
}
