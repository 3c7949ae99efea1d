//! Maps of maps: the inner ones are replaced while threads search them, and their memory comes back.

use std::sync::Arc;

use twinbpf_vm::map::{BPF_ANY, MapKind, MapOps, MapSpec, create};
use twinbpf_vm::mem::Arena;

use crate::{get, hammer, spec};

const SLOTS: u64 = 4;

fn check(kind: MapKind) {
    let arena = Arena::new(256 << 20).unwrap();
    let inner = spec(MapKind::Hash, 8, 8, 16);
    let outer_spec = MapSpec { inner: Some(Box::new(inner.clone())), ..spec(kind, 4, 4, SLOTS as u32) };
    let outer = create(outer_spec, &arena, 1).unwrap();
    let fresh = |slot: u64, number: u64| -> Arc<dyn MapOps> {
        let map = create(inner.clone(), &arena, 1).unwrap();
        (0..8_u64).for_each(|key| {
            map.update(&key.to_le_bytes(), &(slot << 32 | number & 0xffff_ffff).to_le_bytes(), BPF_ANY, 0).unwrap();
        });
        map
    };
    let key = |slot: u64| (slot as u32).to_le_bytes();
    let fill = || (0..SLOTS).for_each(|slot| outer.set_inner(&key(slot), fresh(slot, 0), 1).unwrap());
    let empty = || (0..SLOTS).for_each(|slot| outer.delete(&key(slot)).unwrap());
    // Slots keep the memory that they took once.
    fill();
    empty();
    let before = arena.used();
    fill();
    hammer(|thread, round, random| {
        let slot = random.below(SLOTS);
        if thread < 2 {
            outer.set_inner(&key(slot), fresh(slot, round), 1).unwrap();
            return;
        }
        let map = outer.inner(&key(slot)).expect("a slot that is always set");
        let values: Vec<_> = (0..8_u64).map(|key| get(&*map, &key.to_le_bytes())).collect();
        assert!(values.iter().all(|value| *value == values[0] && value.is_some_and(|value| value >> 32 == slot)));
    });
    empty();
    assert_eq!(arena.used(), before, "all memory of inner maps is back");
}

#[test]
fn inner_maps_of_an_array_are_replaced() {
    check(MapKind::ArrayOfMaps);
}

#[test]
fn inner_maps_of_a_hash_are_replaced() {
    check(MapKind::HashOfMaps);
}
