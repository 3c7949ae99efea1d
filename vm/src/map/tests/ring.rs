use super::*;
use crate::map::{Errno, Ring};
use crate::mem::{Access, FaultReason};

fn ring(bytes: u32) -> (Arc<Arena>, Arc<dyn MapOps>) {
    let arena = arena();
    let map = make(&arena, spec(MapKind::Ringbuf, 0, 0, bytes));
    (arena, map)
}

fn taken(map: &dyn MapOps) -> Vec<Vec<u8>> {
    map.take_sent().into_iter().map(|sent| sent.bytes).collect()
}

fn numbers(ring: &dyn Ring) -> [u64; 4] {
    [0, 1, 2, 3].map(|flag| ring.query(flag))
}

#[test]
fn records_come_in_order_up_to_an_open_one() {
    let (arena, map) = ring(4096);
    let view = view(&arena);
    let ring = map.ring().unwrap();
    let one = ring.reserve(5).unwrap();
    ring.output(b"two").unwrap();
    let three = ring.reserve(8).unwrap();
    assert_eq!(taken(&*map), Vec::<Vec<u8>>::new());
    assert_eq!(numbers(ring), [16 + 16 + 16, 4096, 0, 48]);
    view.write(one, b"first").unwrap();
    ring.commit(one, false).unwrap();
    assert_eq!(taken(&*map), [b"first".to_vec(), b"two".to_vec()]);
    ring.commit(three, true).unwrap();
    assert_eq!(map.len(), 1);
    assert!(taken(&*map).is_empty(), "discarded");
    assert_eq!(numbers(ring), [0, 4096, 48, 48]);
    assert_eq!(ring.query(4), 0);
}

#[test]
fn commit_wants_an_open_sample() {
    let (_arena, map) = ring(4096);
    let ring = map.ring().unwrap();
    let sample = ring.reserve(16).unwrap();
    assert_eq!(sample % 8, 0);
    for wrong in [sample + 8, sample - 8, 0, sample + 4096, sample + 8192] {
        assert_eq!(ring.commit(wrong, false), Err(Errno::EINVAL));
    }
    assert_eq!(ring.commit(sample & 0xffff_ffff, false), Ok(()), "an address counts by its low half");
    assert_eq!(ring.commit(sample, false), Err(Errno::EINVAL));
}

#[test]
fn a_full_ring_refuses_as_the_kernel_does() {
    let (_arena, map) = ring(4096);
    let ring = map.ring().unwrap();
    assert_eq!(ring.reserve(4096), None);
    assert_eq!(ring.reserve(4096 - 8), None, "one byte must stay free");
    assert_eq!(ring.reserve(u64::MAX), None);
    assert_eq!(ring.reserve(u64::from(u32::MAX)), None);
    let all = ring.reserve(4096 - 16).unwrap();
    assert_eq!(ring.reserve(0), None);
    assert_eq!(ring.output(&[1]), Err(Errno::EAGAIN));
    ring.commit(all, true).unwrap();
    assert_eq!(ring.reserve(0), None, "space comes back when the consumer has passed");
    map.take_sent();
    assert!(ring.reserve(0).is_some());
}

#[test]
fn samples_are_contiguous_where_the_ring_wraps() {
    let (arena, map) = ring(4096);
    let view = view(&arena);
    let ring = map.ring().unwrap();
    for round in 0..100u32 {
        let size = 900 + round % 7;
        let bytes = vec![round as u8; size as usize];
        let sample = ring.reserve(u64::from(size)).unwrap();
        view.write(sample, &bytes).unwrap();
        ring.output(&round.to_le_bytes()).unwrap();
        ring.commit(sample, false).unwrap();
        assert_eq!(taken(&*map), [bytes, round.to_le_bytes().to_vec()]);
    }
    assert!(ring.query(2) > 10 * 4096);
}

#[test]
fn only_open_samples_can_be_touched() {
    let (arena, map) = ring(4096);
    let mut view = view(&arena);
    let ring = map.ring().unwrap();
    let one = ring.reserve(12).unwrap();
    let two = ring.reserve(4).unwrap();
    assert!(view.check(one, 12, Access::Write).is_ok());
    let fault = view.check(one + 12, 1, Access::Write).unwrap_err().to_string();
    assert!(fault.ends_with("1 byte past the end of record of map counts (12 bytes, access at offset 12)"), "{fault}");
    assert!(view.check(one + 8, 8, Access::Write).is_err());
    assert!(view.check(two - 8, 4, Access::Write).is_err(), "a header");
    assert!(view.check(one - 8, 4, Access::Read).is_err(), "a header");
    view.refill(6, two, 4, Access::Write).unwrap();
    assert!(view.store(6, two, [1; 4]).is_some());
    ring.commit(two, false).unwrap();
    view.sync();
    assert!(view.store(6, two, [1; 4]).is_none());
    ring.commit(one, false).unwrap();
    let fault = view.check(two, 4, Access::Write).unwrap_err();
    assert_eq!(fault.reason, FaultReason::Closed("record of map counts".into()));
}

#[test]
fn sizes_are_rounded_as_libbpf_does() {
    for (asked, got) in [(1, 4096), (4096, 4096), (4097, 8192), (12_288, 16_384)] {
        assert_eq!(ring(asked).1.spec().max_entries, got);
    }
    let user = make(&arena(), spec(MapKind::UserRingbuf, 0, 0, 4096));
    user.ring().unwrap().output(b"from the host").unwrap();
    assert_eq!(taken(&*user), [b"from the host".to_vec()]);
}

#[test]
fn map_operations_are_not_supported() {
    let (_arena, map) = ring(4096);
    assert_eq!(map.lookup(&[], 0), None);
    assert_eq!(map.update(&[], &[], 0, 0), Err(Errno::ENOTSUPP));
    assert_eq!(map.lookup_copy(&[], 0, &mut []), Err(Errno::ENOTSUPP));
    assert_eq!(map.delete(&[]), Err(Errno::ENOTSUPP));
    assert_eq!(map.next_key(None, &mut []), Err(Errno::ENOTSUPP));
    assert!(map.keys().is_empty());
}
