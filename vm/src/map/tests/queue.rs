use super::*;
use crate::map::{BPF_ANY, BPF_EXIST, BPF_F_LOCK, BPF_NOEXIST, Errno};

fn drain(map: &dyn MapOps) -> Vec<u32> {
    let mut value = [0; 4];
    std::iter::from_fn(|| map.pop(&mut value).ok().map(|()| u32::from_le_bytes(value))).collect()
}

#[test]
fn first_in_first_out_and_the_reverse() {
    for (kind, order) in [(MapKind::Queue, [1, 2, 3]), (MapKind::Stack, [3, 2, 1])] {
        let map = make(&arena(), spec(kind, 0, 4, 3));
        for number in 1..=3 {
            map.push(&key(number), BPF_ANY).unwrap();
        }
        let mut value = [0; 4];
        map.peek(&mut value).unwrap();
        assert_eq!(value, key(order[0]));
        assert_eq!(map.len(), 3);
        assert_eq!(map.push(&key(4), BPF_ANY), Err(Errno::E2BIG));
        assert_eq!(drain(&*map), order);
        value = [9; 4];
        assert_eq!(map.peek(&mut value), Err(Errno::ENOENT));
        assert_eq!(value, [0; 4], "an empty map clears the buffer, as the kernel does");
        assert_eq!(map.pop(&mut value), Err(Errno::ENOENT));
    }
}

#[test]
fn exist_drops_the_oldest() {
    for (kind, order) in [(MapKind::Queue, [2, 3, 4]), (MapKind::Stack, [4, 3, 2])] {
        let map = make(&arena(), spec(kind, 0, 4, 3));
        for number in 1..=4 {
            map.push(&key(number), BPF_EXIST).unwrap();
        }
        assert_eq!(drain(&*map), order);
    }
}

#[test]
fn flags_and_the_host_side_are_the_kernels() {
    let map = make(&arena(), spec(MapKind::Queue, 0, 4, 2));
    assert_eq!(map.push(&key(1), BPF_NOEXIST), Err(Errno::EINVAL));
    assert_eq!(map.push(&key(1), BPF_F_LOCK), Err(Errno::EINVAL));
    assert_eq!(map.push(&[0; 5], BPF_ANY), Err(Errno::EINVAL));
    assert_eq!(map.update(&[], &key(5), BPF_ANY, 0), Ok(()));
    assert_eq!(copy(&*map, &[]), Some(key(5).to_vec()));
    assert_eq!(map.lookup(&[], 0), None);
    assert_eq!(map.delete(&[]), Err(Errno::EINVAL));
    assert_eq!(map.next_key(None, &mut []), Err(Errno::EINVAL));
    assert!(map.keys().is_empty());
    assert_eq!(map.len(), 1);
}

#[test]
fn wraps_around_without_taking_more_memory() {
    let arena = arena();
    let map = make(&arena, spec(MapKind::Queue, 0, 4, 5));
    for number in 0..1000 {
        map.push(&key(number), BPF_EXIST).unwrap();
    }
    assert_eq!(arena.used(), 2 * 4096, "a page for the header, and one for values");
    assert_eq!(drain(&*map), [995, 996, 997, 998, 999]);
}

#[test]
fn bloom_filters_know_every_member_and_few_others() {
    let map = make(&arena(), MapSpec { extra: 3, ..spec(MapKind::BloomFilter, 0, 6, 1000) });
    let value = |number: u32| [&number.to_le_bytes()[..], &[1, 2]].concat();
    for number in 0..1000 {
        map.push(&value(number), BPF_ANY).unwrap();
    }
    assert!((0..1000).all(|number| map.peek(&mut value(number)).is_ok()));
    let wrong = (1000..11_000).filter(|number| map.peek(&mut value(*number)).is_ok()).count();
    assert!(wrong < 2000, "{wrong} of 10000");
    assert_eq!(map.push(&value(1), BPF_EXIST), Err(Errno::EINVAL));
    assert_eq!(map.peek(&mut [0; 5]), Err(Errno::EINVAL));
    assert_eq!(map.pop(&mut value(1)), Err(Errno::EOPNOTSUPP));
    assert_eq!(map.delete(&[]), Err(Errno::EOPNOTSUPP));
    assert_eq!(map.next_key(None, &mut []), Err(Errno::EOPNOTSUPP));
    assert_eq!(map.lookup(&[], 0), None);
    let empty = make(&arena(), spec(MapKind::BloomFilter, 0, 1, 1));
    assert_eq!(empty.peek(&mut [7]), Err(Errno::ENOENT));
    empty.update(&[], &[7], BPF_ANY, 0).unwrap();
    assert_eq!(empty.lookup_copy(&[], 0, &mut [7]), Ok(()));
}
