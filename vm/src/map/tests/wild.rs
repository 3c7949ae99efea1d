//! Native code in the sandbox masks its addresses, so it can write to all of the arena. What the host relies on is elsewhere.

use super::*;
use crate::map::{BPF_ANY, Errno};

const PAGE: u64 = 4096;

/// Writes to every page that such code can write to.
fn overwrite(arena: &Arc<Arena>, byte: u8) {
    let view = View::new(Arc::clone(arena), 0, Bounds::Arena);
    let pages = arena.writable_half().step_by(PAGE as usize);
    assert!(pages.take_while(|page| view.fill(*page, PAGE, byte).is_ok()).count() > 1, "values are there");
}

/// The same keys, taken out and put in again; all the while the map has its size.
fn check(map: &dyn MapOps, keys: &[Vec<u8>]) {
    let mut found = map.keys();
    found.sort();
    assert_eq!(found, keys);
    for key in keys {
        assert!(copy(map, key).is_some(), "{key:?}");
        assert_eq!((map.delete(key), map.delete(key)), (Ok(()), Err(Errno::ENOENT)), "{key:?}");
        assert_eq!(map.update(key, &[7; 24], BPF_ANY, 0), Ok(()), "{key:?}");
        assert_eq!(copy(map, key), Some(vec![7; 24]));
    }
    assert_eq!(map.len() as usize, keys.len());
}

fn fill_and_break(arena: &Arc<Arena>, map: &dyn MapOps, keys: &[Vec<u8>]) {
    for key in keys {
        map.update(key, &[1; 24], BPF_ANY, 0).unwrap();
    }
    for byte in [0, 1, 0x55, 0xff] {
        overwrite(arena, byte);
        check(map, keys);
    }
}

#[test]
fn stray_stores_break_values_alone() {
    for kind in [MapKind::Hash, MapKind::PercpuHash, MapKind::LruHash, MapKind::LruPercpuHash] {
        let arena = arena();
        let map = make(&arena, spec(kind, 4, 24, 300));
        let keys: Vec<_> = (0..300_u32).map(|number| number.to_be_bytes().to_vec()).collect();
        fill_and_break(&arena, &*map, &keys);
    }
}

#[test]
fn stray_stores_break_no_trie() {
    let arena = arena();
    let map = make(&arena, MapSpec { value_size: 24, ..super::lpm::trie(2, 300) });
    let mut keys: Vec<_> = (0..300_u16).map(|number| super::lpm::prefix(16, &number.to_be_bytes())).collect();
    keys.sort();
    fill_and_break(&arena, &*map, &keys);
}

#[test]
fn stray_stores_break_no_queue() {
    for kind in [MapKind::Queue, MapKind::Stack] {
        let arena = arena();
        let map = make(&arena, spec(kind, 0, 8, 10));
        // Some page of the arena that can be written.
        let _other = make(&arena, spec(MapKind::Array, 4, 8, 1000));
        for byte in [0, 1, 0x55, 0xff] {
            let mut value = [7; 8];
            assert_eq!((map.push(&value, BPF_ANY), map.push(&value, BPF_ANY)), (Ok(()), Ok(())));
            overwrite(&arena, byte);
            assert_eq!((map.len(), map.pop(&mut value), value), (2, Ok(()), [7; 8]));
            assert_eq!((map.pop(&mut value), map.pop(&mut value)), (Ok(()), Err(Errno::ENOENT)));
        }
    }
}
