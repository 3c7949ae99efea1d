//! BTF that clang wrote, from the objects of the corpus.

use twinbpf_isa::program::ValType;

use super::support::corpus::{objects, sections};
use crate::{Btf, BtfError, BtfExt, Endian, LineResolver, Linkage};

#[test]
fn a_script_reads_as_its_source_says() {
    let (bytes, ext, endian) = sections("scripts/sorted.bpf.o");
    let btf = Btf::parse(&bytes, endian).unwrap();
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
fn a_big_endian_object_reads() {
    let (bytes, ext, endian) = sections("scripts/bigendian.bpf.o");
    assert_eq!((endian, Btf::detect_endian(&bytes)), (Endian::Big, Some(Endian::Big)));
    let btf = Btf::parse(&bytes, endian).unwrap();
    assert!(BtfExt::parse(&btf, &ext).unwrap().section(".text").is_some());
    assert_eq!(Btf::parse(&bytes, Endian::Little).unwrap_err(), BtfError::ByteOrder);
}

#[test]
fn every_object_of_the_corpus_reads() {
    let mut count = 0;
    for name in objects() {
        let (bytes, ext, endian) = sections(&name);
        if bytes.is_empty() {
            continue;
        }
        let btf = Btf::parse(&bytes, endian).unwrap_or_else(|error| panic!("{name}: {error}"));
        BtfExt::parse(&btf, &ext).unwrap_or_else(|error| panic!("{name}: {error}"));
        count += 1;
    }
    assert!(count >= 25, "{count} objects with BTF");
}
