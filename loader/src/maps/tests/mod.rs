use twinbpf_btf::{Endian, TypeId};
use twinbpf_vm::map::{FieldKind, MapKind};

use crate::btf_support::build::{Build, SIGNED, both};
use crate::maps::{MapDecl, Slots, SlotsKind, map_specs};

mod fields;
mod real;

/// Defines one map from (key, type) pairs, and reads it back. The closure makes the types.
fn declare(endian: Endian, keys: impl Fn(&mut Build, u32) -> Vec<(&'static str, u32)>) -> MapDecl {
    declare_var(endian, 1, 4096, keys)
}

fn declare_var(
    endian: Endian,
    linkage: u32,
    size: u32,
    keys: impl Fn(&mut Build, u32) -> Vec<(&'static str, u32)>,
) -> MapDecl {
    let mut b = Build::new(endian);
    let int = b.int("int", 4, SIGNED);
    let keys = keys(&mut b, int);
    let members: Vec<_> = keys.iter().enumerate().map(|(index, &(key, id))| (key, id, index as u32 * 64)).collect();
    let definition = b.structure("", members.len() as u32 * 8, &members);
    let var = b.var("m", definition, linkage);
    b.datasec(".maps", &[(var, 0, size), (var, 0, size)]);
    let mut list = map_specs(&b.btf());
    assert_eq!(list.len(), 1, "a variable stands for one map");
    list.remove(0)
}

fn error(keys: impl Fn(&mut Build, u32) -> Vec<(&'static str, u32)>) -> String {
    declare(Endian::Little, keys).spec.unwrap_err().to_string()
}

#[test]
fn every_key_is_read() {
    both(|endian| {
        let decl = declare(endian, |b, int| {
            let value = b.structure("value", 8, &[("a", int, 0), ("b", int, 32)]);
            vec![
                ("type", b.uint(int, 1)),
                ("key", b.ptr(int)),
                ("key_size", b.uint(int, 4)),
                ("value_size", b.uint(int, 8)),
                ("value", b.ptr(value)),
                ("max_entries", b.uint(int, u32::MAX)),
                ("map_flags", b.uint(int, 5)),
                ("numa_node", b.uint(int, 2)),
                ("pinning", b.uint(int, 1)),
                ("map_extra", b.uint(int, 3)),
            ]
        });
        let spec = decl.spec.unwrap();
        assert_eq!((&*spec.name, spec.kind, spec.key_size, spec.value_size), ("m", MapKind::Hash, 4, 8));
        assert_eq!((spec.max_entries, spec.flags, spec.numa_node, spec.extra), (u32::MAX, 5, 2, 3));
        assert!(spec.pinned && spec.inner.is_none() && spec.slots.is_empty() && spec.data.is_none());
        assert_eq!(spec.key_fields.len(), 1);
        assert_eq!(spec.key_fields[0].kind, FieldKind::Signed);
        let names: Vec<_> = spec.value_fields.iter().map(|field| &*field.name).collect();
        assert_eq!(names, ["a", "b"]);
        assert_eq!(decl.key_type, Some(TypeId(1)));
        assert!(decl.value_type.is_some() && decl.unknown.is_none() && decl.slots.is_none());
    });
}

#[test]
fn map_extra_may_be_a_lone_enumerator() {
    let extra = |make: fn(&mut Build) -> u32| {
        let decl = declare(Endian::Little, |b, int| vec![("type", b.uint(int, 33)), ("map_extra", make(b))]);
        decl.spec.map(|spec| spec.extra).map_err(|error| error.to_string())
    };
    assert_eq!(extra(|b| b.enum64("", false, &[("x", 0x1_0000_0000_0000)])), Ok(0x1_0000_0000_0000));
    assert_eq!(extra(|b| b.enumeration("", 4, false, &[("x", -1)])), Ok(0xffff_ffff));
    let two = extra(|b| b.enumeration("e", 4, false, &[("x", 1), ("y", 2)]));
    assert_eq!(two, Err("map 'm': 'map_extra' is of type enum e, an integer is written __uint(map_extra, N)".into()));
}

#[test]
fn maps_of_maps_have_a_template_and_slots() {
    let outer = |inner_keys: fn(&mut Build, u32) -> Vec<(&'static str, u32)>| {
        declare_var(Endian::Little, 1, 16 + 3 * 8, |b, int| {
            let inner = inner_keys(b, int);
            let members: Vec<_> = inner.iter().map(|&(key, id)| (key, id, 0)).collect();
            let inner = b.structure("inner", 8, &members);
            let pointer = b.ptr(inner);
            vec![("type", b.uint(int, 12)), ("key_size", b.uint(int, 4)), ("values", b.array(pointer, 0))]
        })
    };
    let decl = outer(|b, int| vec![("type", b.uint(int, 2)), ("value", b.ptr(int)), ("max_entries", b.uint(int, 9))]);
    let spec = decl.spec.unwrap();
    let inner = spec.inner.unwrap();
    assert_eq!((spec.key_size, spec.value_size), (4, 4));
    assert_eq!((&*inner.name, inner.kind, inner.value_size, inner.max_entries), ("m.inner", MapKind::Array, 4, 9));
    assert_eq!(inner.value_fields.len(), 1);
    assert_eq!(decl.slots, Some(Slots { kind: SlotsKind::Maps, offset: 16, count: 3 }));
    assert_eq!(decl.inner_types, (None, Some(TypeId(1))));
    let error = |keys| outer(keys).spec.unwrap_err().to_string();
    assert_eq!(error(|_, _| vec![]), "map 'm.inner' has no type, write __uint(type, BPF_MAP_TYPE_...)");
    let nested = error(|b, int| vec![("type", b.uint(int, 12)), ("values", int)]);
    assert_eq!(nested, "map 'm.inner': an inner map cannot have 'values', maps nest one level");
    let pinned = error(|b, int| vec![("type", b.uint(int, 2)), ("pinning", b.uint(int, 0))]);
    assert_eq!(pinned, "map 'm.inner': an inner map cannot be pinned");
}

#[test]
fn prog_arrays_have_slots_for_functions() {
    let decl = declare_var(Endian::Little, 1, 8 + 4 * 8, |b, int| {
        let proto = b.proto(int, &[("ctx", 0)]);
        let pointer = b.ptr(proto);
        vec![("type", b.uint(int, 3)), ("values", b.array(pointer, 0))]
    });
    assert_eq!(decl.spec.unwrap().value_size, 4);
    assert_eq!(decl.slots, Some(Slots { kind: SlotsKind::Programs, offset: 8, count: 4 }));
}

#[test]
fn wrong_values_are_refused() {
    let of_ints = |b: &mut Build, int, len| {
        let pointer = b.ptr(int);
        b.array(pointer, len)
    };
    let text = error(|b, int| vec![("type", b.uint(int, 12)), ("values", of_ints(b, int, 0))]);
    assert_eq!(text, "map 'm': 'values' is of type int *[0], it is written __array(values, struct { ... })");
    let text = error(|b, int| vec![("type", b.uint(int, 3)), ("values", of_ints(b, int, 0))]);
    assert_eq!(text, "map 'm': 'values' is of type int *[0], it is written __array(values, int (void *))");
    let text = error(|b, int| vec![("type", b.uint(int, 1)), ("values", of_ints(b, int, 0))]);
    assert_eq!(text, "map 'm' of type hash cannot have 'values', only maps of maps and prog_array can");
    let text = error(|b, int| vec![("values", of_ints(b, int, 0))]);
    assert_eq!(text, "map 'm' of type unknown cannot have 'values', only maps of maps and prog_array can");
    let text = error(|b, int| vec![("values", of_ints(b, int, 0)), ("type", b.uint(int, 12))]);
    assert_eq!(text, "map 'm': 'values' must be the last key");
    let text = error(|b, int| {
        let proto = b.proto(int, &[]);
        let pointer = b.ptr(proto);
        vec![("type", b.uint(int, 3)), ("value_size", b.uint(int, 8)), ("values", b.array(pointer, 0))]
    });
    assert_eq!(text, "map 'm': value_size is 8 by one key and 4 by another");
}

#[test]
fn wrong_keys_are_refused_with_what_to_write() {
    let text = error(|_, _| vec![]);
    assert_eq!(text, "map 'm' has no type, write __uint(type, BPF_MAP_TYPE_...)");
    let text = error(|b, int| vec![("type", b.uint(int, 999))]);
    assert_eq!(text, "map 'm' has type 999, which is no BPF_MAP_TYPE_* that twinbpf knows");
    let text = error(|_, int| vec![("type", int)]);
    assert_eq!(text, "map 'm': 'type' is of type int, an integer is written __uint(type, N)");
    let text = error(|_, int| vec![("key", int)]);
    assert_eq!(text, "map 'm': 'key' is of type int, a type is written __type(key, T)");
    let text = error(|b, int| vec![("key_size", b.uint(int, 8)), ("key", b.ptr(int))]);
    assert_eq!(text, "map 'm': key_size is 8 by one key and 4 by another");
    let text = error(|b, int| vec![("value", b.ptr(int)), ("value_size", b.uint(int, 5))]);
    assert_eq!(text, "map 'm': value_size is 4 by one key and 5 by another");
    let text = error(|b, _| vec![("value", b.ptr(0))]);
    assert_eq!(text, "map 'm': 'value': BTF type [0] (void) has no size");
    let text = error(|b, int| vec![("pinning", b.uint(int, 2))]);
    assert_eq!(text, "map 'm': pinning is 2, only LIBBPF_PIN_NONE (0) and LIBBPF_PIN_BY_NAME (1) exist");
    let text = error(|b, int| vec![("type", b.uint(int, 1)); 65]);
    assert_eq!(text, "map 'm' has 65 keys, more than 64");
}

#[test]
fn wrong_variables_are_refused() {
    let with = |linkage, size| {
        let decl = declare_var(Endian::Little, linkage, size, |b, int| vec![("type", b.uint(int, 1))]);
        decl.spec.map(drop).map_err(|error| error.to_string())
    };
    let text = |linkage| format!("map 'm' is {linkage}: a map must be a global variable that this object defines");
    assert_eq!(with(0, 8), Err(text("static")));
    assert_eq!(with(2, 8), Err(text("extern")));
    assert_eq!(with(1, 7), Err("map 'm' is corrupt: its struct has 8 bytes, its variable 7".into()));
    assert_eq!(with(1, 8), Ok(()));
    let mut b = Build::new(Endian::Little);
    let int = b.int("int", 4, SIGNED);
    let var = b.var("m", int, 1);
    b.datasec(".maps", &[(var, 0, 4)]);
    let text = map_specs(&b.btf())[0].spec.as_ref().unwrap_err().to_string();
    assert_eq!(text, "map 'm' is of type int, a map is defined by a struct");
}

#[test]
fn an_unknown_key_is_noted_and_the_map_still_read() {
    let decl = declare(Endian::Little, |b, int| {
        vec![("type", b.uint(int, 2)), ("colour", b.uint(int, 1)), ("size", b.uint(int, 1))]
    });
    assert_eq!(decl.spec.unwrap().kind, MapKind::Array);
    assert_eq!(decl.unknown.unwrap().to_string(), "map 'm' has an unknown key 'colour'");
}
