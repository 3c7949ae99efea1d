//! Maps that clang wrote, from the objects of the corpus.

use twinbpf_btf::{Btf, TypeId};
use twinbpf_vm::map::{FieldKind, MapKind};

use crate::btf_support::corpus::{objects, sections};
use crate::btf_support::damage::Random;
use crate::maps::{Layouts, SlotsKind, map_specs};

#[test]
fn a_map_of_a_script_reads_as_its_source_says() {
    let (bytes, _, endian) = sections("scripts/sorted.bpf.o");
    let btf = Btf::parse(&bytes, endian).unwrap();
    let maps = map_specs(&btf);
    let spec = maps[0].spec.as_ref().unwrap();
    assert_eq!((maps.len(), &*spec.name, spec.kind, spec.max_entries), (1, "counts", MapKind::Hash, 64));
    assert_eq!((spec.key_size, spec.value_size), (16, 8));
    let keys: Vec<_> = spec.key_fields.iter().map(|field| (&*field.name, field.size, field.kind)).collect();
    assert_eq!(keys, [("text", 16, FieldKind::String)]);
    assert_eq!(spec.value_fields[0].kind, FieldKind::Unsigned);
}

#[test]
fn maps_of_maps_read_as_their_source_says() {
    let (bytes, _, endian) = sections("maps/nested.bpf.o");
    let btf = Btf::parse(&bytes, endian).unwrap();
    let maps = map_specs(&btf);
    let by_index = maps.iter().find(|decl| decl.name == "by_index").unwrap();
    let inner = by_index.spec.as_ref().unwrap().inner.as_ref().unwrap();
    assert_eq!((&*inner.name, inner.kind, inner.max_entries), ("by_index.inner", MapKind::Array, 2));
    let slots = by_index.slots.unwrap();
    assert_eq!((slots.kind, slots.count), (SlotsKind::Maps, 4));
    assert_eq!(by_index.inner_types.1.map(|id| btf.type_name(id)).as_deref(), Some("__u64"));
}

#[test]
fn a_map_of_a_big_endian_object_reads() {
    let (bytes, _, endian) = sections("scripts/bigendian.bpf.o");
    let btf = Btf::parse(&bytes, endian).unwrap();
    assert_eq!(map_specs(&btf)[0].spec.as_ref().unwrap().value_size, 8);
}

#[test]
fn every_map_of_the_corpus_reads() {
    let mut count = 0;
    for name in objects() {
        let (bytes, _, endian) = sections(&name);
        if bytes.is_empty() {
            continue;
        }
        let btf = Btf::parse(&bytes, endian).unwrap_or_else(|error| panic!("{name}: {error}"));
        for decl in map_specs(&btf) {
            assert!(decl.spec.is_ok() && decl.unknown.is_none(), "{name}: {decl:?}");
            count += 1;
        }
    }
    assert!(count >= 25, "{count} maps");
}

#[test]
fn maps_of_damaged_btf_never_panic() {
    let mut random = Random(0x5eed);
    let mut parsed = 0;
    for path in ["scripts/sorted.bpf.o", "scripts/hello.bpf.o", "maps/nested.bpf.o"] {
        let (bytes, _, endian) = sections(path);
        for _ in 0..1500 {
            let Ok(btf) = Btf::parse(&random.damage(&bytes), endian) else { continue };
            parsed += 1;
            let mut layouts = Layouts::new(&btf);
            for id in btf.ids().chain([TypeId(0), TypeId(u32::MAX)]) {
                layouts.fields(id);
            }
            map_specs(&btf);
        }
    }
    assert!(parsed > 500, "only {parsed} damaged copies still parsed");
}
