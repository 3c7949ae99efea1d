//! The loader on the whole corpus: every object opens, links and validates, and comes out as its source says.

mod support;

use support::{corpus, objects};
use twinbpf_isa::{Groups, Policy};
use twinbpf_loader::{LinkOptions, Linked, Object};
use twinbpf_vm::map::{FieldKind, MapKind, MapSpec, Pointer, Slot};

const ALL: [&str; 7] = ["scripts", "maps", "kernel", "packets", "faults", "bench", "outside"];

fn open(path: &str) -> Object {
    let bytes = std::fs::read(corpus().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    Object::open(path, &bytes).unwrap_or_else(|error| panic!("{error:#}"))
}

fn link(path: &str) -> Linked {
    let object = open(path);
    let stack_size = match path {
        "scripts/bigstack.bpf.o" => Some(4096),
        "faults/deep_frames.bpf.o" => Some(65536),
        // Ordinary C, which knows nothing of small frames.
        path if path.starts_with("outside/") => Some(4096),
        _ => None,
    };
    let linked =
        object.link(&LinkOptions { stack_size, ..LinkOptions::default() }).unwrap_or_else(|error| panic!("{error:#}"));
    if let Some(failure) = linked.failures.first() {
        panic!("{path}: {:#}", failure.error);
    }
    linked
}

#[test]
fn every_object_opens_links_and_validates() {
    let objects = objects(&ALL);
    assert!(objects.len() > 80, "the corpus is there");
    for path in objects {
        let linked = link(&path);
        assert!(!linked.programs.is_empty(), "{path}: no programs");
        let policy = Policy { groups: Groups::ALL, ..Policy::default() };
        for program in linked.programs {
            program.validate(&policy, &|_| true).unwrap_or_else(|error| panic!("{error:#}"));
        }
    }
}

fn map<'a>(linked: &'a Linked, name: &str) -> &'a MapSpec {
    linked.maps.iter().find(|map| &*map.name == name).unwrap_or_else(|| panic!("no map {name}"))
}

#[test]
fn map_definitions_are_read() {
    let linked = link("maps/sorting.bpf.o");
    let spec = map(&linked, "map");
    assert_eq!((spec.kind, spec.key_size, spec.value_size, spec.max_entries), (MapKind::Hash, 12, 16, 16));
    let kinds: Vec<FieldKind> = spec.key_fields.iter().map(|field| field.kind).collect();
    assert_eq!(kinds, [FieldKind::String, FieldKind::Signed, FieldKind::Unsigned]);
    let kinds: Vec<(u32, FieldKind)> = spec.value_fields.iter().map(|field| (field.off, field.kind)).collect();
    assert_eq!(kinds, [(0, FieldKind::Unsigned), (8, FieldKind::Signed)]);

    let linked = link("maps/bloom.bpf.o");
    assert_eq!((map(&linked, "seen").kind, map(&linked, "seen").extra), (MapKind::BloomFilter, 5));
}

#[test]
fn maps_of_maps_and_prog_arrays_keep_their_first_slots() {
    let linked = link("maps/nested.bpf.o");
    let target = |slot: &(u32, Slot)| match &slot.1 {
        Slot::Map(index) => (slot.0, linked.maps[*index].name.to_string()),
        Slot::Program(name) => (slot.0, name.to_string()),
    };
    let slots: Vec<_> = map(&linked, "by_index").slots.iter().map(target).collect();
    assert_eq!(slots, [(1, "red".to_owned()), (3, "blue".to_owned())]);
    let inner = map(&linked, "by_number").inner.as_ref().expect("a template");
    assert_eq!((inner.kind, inner.value_size, inner.max_entries), (MapKind::Array, 8, 2));

    let linked = link("packets/xdp_tail.bpf.o");
    let programs: Vec<_> = map(&linked, "jump").slots.clone();
    let named = |name: &str| Slot::Program(name.into());
    assert_eq!(programs, [(1, named("again")), (6, named("tcp_program")), (17, named("udp_program"))]);
}

#[test]
fn pointers_in_data_lead_to_variables_strings_and_functions() {
    let linked = link("scripts/tables.bpf.o");
    let rodata = map(&linked, ".rodata").data.as_ref().expect("contents");
    let strings = rodata.pointers.iter().filter(|(_, pointer)| matches!(pointer, Pointer::MapValue { .. })).count();
    let functions: Vec<_> = rodata
        .pointers
        .iter()
        .filter_map(|(_, pointer)| match pointer {
            Pointer::Function { program, pc } => {
                let program = &linked.programs[*program];
                Some(program.function_at(*pc).expect("a function").name.to_string())
            }
            Pointer::MapValue { .. } | Pointer::Map(_) | Pointer::Extern(_) => None,
        })
        .collect();
    assert_eq!((strings, functions.as_slice()), (7, ["add".to_owned(), "multiply".to_owned()].as_slice()));
    assert_eq!(map(&linked, ".data").data.as_ref().expect("contents").pointers.len(), 5);
}

#[test]
fn both_byte_orders_and_both_kinds_of_map_definition() {
    let linked = link("scripts/bigendian.bpf.o");
    let spec = map(&linked, "map");
    assert_eq!((spec.kind, spec.key_size, spec.value_size, spec.max_entries), (MapKind::Hash, 4, 8, 16));
    let linked = link("scripts/legacy.bpf.o");
    assert_eq!((map(&linked, "first").kind, map(&linked, "first").max_entries), (MapKind::Hash, 2));
    assert_eq!((map(&linked, "second").kind, map(&linked, "second").value_size), (MapKind::Array, 16));
    assert_eq!(open("scripts/legacy.bpf.o").version, Some(0x060100));
}

#[test]
fn externs_have_their_prototypes() {
    let linked = link("scripts/registry.bpf.o");
    assert!(linked.externs.len() >= 38, "{}", linked.externs.len());
    for function in &linked.externs {
        assert!(function.weak && function.signature.is_some(), "{}", function.name);
    }
    let linked = link("scripts/names.bpf.o");
    let untyped: Vec<&str> =
        linked.externs.iter().filter(|e| e.signature.is_none()).map(|function| &*function.name).collect();
    assert_eq!(untyped, ["putchar"]);
}

/// Messages quote the C line, which clang only puts in if it finds the source under the name it records.
#[test]
fn line_information_quotes_the_sources() {
    for path in objects(&ALL) {
        if path == "faults/no_btf.bpf.o" {
            continue;
        }
        for program in link(&path).programs {
            assert!(!program.lines.is_empty(), "{path}: {} has no lines", program.name);
            for line in &program.lines {
                let ours = line.file.contains("corpus/") || line.file.contains("include/");
                // Functions of libbpf's own headers, which are at the same place everywhere.
                let libbpfs = line.file.starts_with("/usr/include/bpf/");
                assert!(libbpfs || ours && !line.file.starts_with('/'), "{path}: {}", line.file);
                assert!(line.line == 0 || !line.text.is_empty(), "{path}: {}:{} is empty", line.file, line.line);
            }
        }
    }
}
