//! BTF that clang wrote, from the objects of the corpus.

use std::path::PathBuf;

use twinbpf_isa::program::ValType;
use twinbpf_vm::map::{FieldKind, MapKind};

use crate::btf::order::Order;
use crate::btf::raw::word;
use crate::btf::{Btf, BtfError, BtfExt, Endian, LineResolver, Linkage, SlotsKind, map_specs};

/// `.BTF` and `.BTF.ext` of an object of the corpus. A section table is all that is read of ELF here.
pub(super) fn sections(path: &str) -> (Vec<u8>, Vec<u8>, Endian) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../corpus").join(path);
    let elf = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let endian = if elf[5] == 1 { Endian::Little } else { Endian::Big };
    let word = |at| word(&elf, at, endian).unwrap() as usize;
    let low = |at| if endian == Endian::Little { word(at) } else { word(at + 4) };
    let half = |at: usize| endian.read(&elf[at..at + 2]) as usize;
    let (table, count, names) = (low(0x28), half(0x3c), half(0x3e));
    let body = |index: usize| {
        let head = table + index * 64;
        (word(head), low(head + 24), low(head + 32))
    };
    let find = |name: &[u8]| {
        let (_, strings, _) = body(names);
        let hit = (0..count).map(body).find(|&(at, ..)| elf[strings + at..].starts_with(&[name, &[0]].concat()));
        hit.map_or(Vec::new(), |(_, at, len)| elf[at..at + len].to_vec())
    };
    (find(b".BTF"), find(b".BTF.ext"), endian)
}

#[test]
fn a_script_reads_as_its_source_says() {
    let (bytes, ext, endian) = sections("scripts/sorted.bpf.o");
    let btf = Btf::parse(&bytes, endian).unwrap();
    let maps = map_specs(&btf);
    let spec = maps[0].spec.as_ref().unwrap();
    assert_eq!((maps.len(), &*spec.name, spec.kind, spec.max_entries), (1, "counts", MapKind::Hash, 64));
    assert_eq!((spec.key_size, spec.value_size), (16, 8));
    let keys: Vec<_> = spec.key_fields.iter().map(|field| (&*field.name, field.size, field.kind)).collect();
    assert_eq!(keys, [("text", 16, FieldKind::String)]);
    assert_eq!(spec.value_fields[0].kind, FieldKind::Unsigned);
    let print = btf.func_signature("twinbpf_printf").unwrap();
    assert_eq!((print.params.as_slice(), print.variadic), (&[ValType::Pointer][..], true));
    assert_eq!(btf.func_signature("BEGIN").unwrap().result, ValType::Int { size: 4, signed: true });
    let externs: Vec<_> = btf.datasec(".ksyms").unwrap().vars().map(|var| (var.name, var.linkage)).collect();
    assert_eq!(externs, [("twinbpf_printf", Linkage::Extern), ("map_for_each", Linkage::Extern)]);
    let ext = BtfExt::parse(&btf, &ext).unwrap();
    let text = ext.section(".text").unwrap();
    let names: Vec<_> = text.funcs.iter().map(|func| btf.name(func.type_id)).collect();
    assert!(["BEGIN", "END", "show"].iter().all(|name| names.contains(name)), "{names:?}");
    let mut resolver = LineResolver::new(&btf);
    let lines: Vec<_> = text.lines.iter().map(|info| resolver.line(info, info.insn_off as usize / 8)).collect();
    assert!(lines.is_sorted_by_key(|line| line.pc));
    assert!(lines.iter().all(|line| line.line > 0));
    assert!(lines.iter().any(|line| &*line.text == "return --*left == 0;"));
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
fn a_big_endian_object_reads() {
    let (bytes, ext, endian) = sections("scripts/bigendian.bpf.o");
    assert_eq!((endian, Btf::detect_endian(&bytes)), (Endian::Big, Some(Endian::Big)));
    let btf = Btf::parse(&bytes, endian).unwrap();
    assert_eq!(map_specs(&btf)[0].spec.as_ref().unwrap().value_size, 8);
    assert!(BtfExt::parse(&btf, &ext).unwrap().section(".text").is_some());
    assert_eq!(Btf::parse(&bytes, Endian::Little).unwrap_err(), BtfError::ByteOrder);
}

#[test]
fn every_object_of_the_corpus_reads() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../corpus");
    let list = |path: &PathBuf| std::fs::read_dir(path).unwrap().map(|file| file.unwrap().path()).collect::<Vec<_>>();
    let folders: Vec<_> = list(&root).into_iter().filter(|path| path.is_dir()).collect();
    let mut count = 0;
    for file in folders.iter().flat_map(list) {
        let name = file.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
        if !name.ends_with(".bpf.o") {
            continue;
        }
        let (bytes, ext, endian) = sections(&name);
        if bytes.is_empty() {
            continue;
        }
        let btf = Btf::parse(&bytes, endian).unwrap_or_else(|error| panic!("{name}: {error}"));
        BtfExt::parse(&btf, &ext).unwrap_or_else(|error| panic!("{name}: {error}"));
        for decl in map_specs(&btf) {
            assert!(decl.spec.is_ok() && decl.unknown.is_none(), "{name}: {decl:?}");
        }
        count += 1;
    }
    assert!(count >= 25, "{count} objects with BTF");
}
