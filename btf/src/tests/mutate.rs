//! Thousands of damaged copies of real BTF: everything must end in a value or an error, soon.

use super::support::corpus::sections;
use super::support::damage::Random;
use crate::{Btf, BtfExt, Endian, LineResolver, TypeId, encode_value, format_value, locate};

/// Runs every query on all types; returns the amount of output.
fn use_all(btf: &Btf, ext: &[u8], endian: Endian) -> usize {
    let mut total = 0;
    let data = [0x41; 256];
    for id in btf.ids().chain([TypeId(0), TypeId(u32::MAX)]) {
        let size = btf.size_of(id).map_or(0, |size| size as usize);
        let mut out = vec![0; size.min(256)];
        total += btf.type_name(id).len();
        total += format_value(btf, id, &data, endian).len().min(100);
        total += usize::from(encode_value(btf, id, "1", &mut out, endian).is_ok());
        total += usize::from(locate(btf, id, ".text[0]").is_ok());
        total += usize::from(btf.signature(id).is_some());
    }
    for (_, section) in btf.datasecs() {
        total += section.vars().map(|var| var.name.len()).sum::<usize>();
    }
    total += btf.to_c(None).map_or(0, |text| text.len().min(100));
    total += btf.ids_by_name("text").count();
    if let Ok(ext) = BtfExt::parse(btf, ext) {
        let mut resolver = LineResolver::new(btf);
        let lines = ext.sections.iter().flat_map(|section| &section.lines);
        total += lines.map(|info| resolver.line(info, 0).text.len()).sum::<usize>();
    }
    total
}

#[test]
fn damaged_btf_never_panics() {
    let mut random = Random(0x5eed);
    let mut parsed = 0;
    for path in ["scripts/sorted.bpf.o", "scripts/hello.bpf.o", "bench/sha256.bpf.o"] {
        let (bytes, ext, endian) = sections(path);
        assert!(use_all(&Btf::parse(&bytes, endian).unwrap(), &ext, endian) > 500);
        for round in 0..1500 {
            if let Ok(btf) = Btf::parse(&random.damage(&bytes), endian) {
                parsed += 1;
                if round % 4 == 0 {
                    use_all(&btf, &ext, endian);
                }
            }
        }
        let btf = Btf::parse(&bytes, endian).unwrap();
        for _ in 0..1500 {
            let ext = random.damage(&ext);
            if let Ok(ext) = BtfExt::parse(&btf, &ext) {
                let mut resolver = LineResolver::new(&btf);
                for info in ext.sections.iter().flat_map(|section| &section.lines) {
                    resolver.line(info, 0);
                }
            }
        }
        for len in (0..bytes.len()).step_by(3) {
            assert!(Btf::parse(&bytes[..len], endian).is_err(), "{path} cut to {len} bytes");
        }
    }
    assert!(parsed > 500, "only {parsed} damaged copies still parsed");
}
